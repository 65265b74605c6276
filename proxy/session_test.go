// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"tiergate/rewrite"
)

// An unknown key passes in both directions, whatever the pieces it comes in.
func TestUnknownKeyPassesCutAtEachByte(t *testing.T) {
	b := newBroker(t, func(c *net.TCPConn) { echo(c) })
	s := newServer(t, b.dial, rewrite.Rules{})
	out := append(request(10000, 3, 7, []byte("vendor")...), request(10000, 4, 8)...)
	want := append(response(7, append([]byte{0, 1, 'c'}, "vendor"...)...), response(8, 0, 1, 'c')...)
	for cut := range len(out) {
		c := connect(t, s)
		for _, piece := range [][]byte{out[:cut], out[cut:]} {
			if _, err := c.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut at %d: got %x (%v), want %x", cut, got, err, want)
		}
		c.Close()
	}
}

// Frames of every size up to some megabytes pass both ways at once, and the end of
// the client's direction reaches the broker after them.
func TestLargeFramesBothWays(t *testing.T) {
	b := newBroker(t, func(c *net.TCPConn) {
		echo(c)
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	rnd := rand.NewChaCha8([32]byte{1})
	var out, want []byte
	for i, size := range []int{0, 1, 10, 1000, 65_535, 65_536, 70_000, 200_000, 3 << 20, 5, 9 << 20} {
		body := make([]byte, size)
		_, _ = rnd.Read(body)
		out = append(out, request(1, 11, int32(i), body...)...)
		want = append(want, response(int32(i), append([]byte{0, 1, 'c'}, body...)...)...)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		_ = c.CloseWrite()
		sent <- err
	}()
	got, err := io.ReadAll(c)
	if err != nil || <-sent != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d; first difference at %d", len(got), len(want), firstDifference(got, want))
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
