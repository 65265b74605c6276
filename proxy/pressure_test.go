// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"
)

// The bodies of large frames repeat a text whose length is prime, so that a piece that
// is lost, doubled or moved shows, and one comparison per piece is enough.
var pattern = func() []byte {
	b := make([]byte, 1_000_003)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}()

// writeBody writes n bytes of the pattern.
func writeBody(w io.Writer, n int) error {
	for n > 0 {
		m, err := w.Write(pattern[:min(n, len(pattern))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// writeAnswer writes a response frame with a body of n bytes, unless the peer is gone.
func writeAnswer(w io.Writer, id int32, n int) {
	head := response(id)
	binary.BigEndian.PutUint32(head, uint32(4+n))
	if _, err := w.Write(head); err == nil {
		_ = writeBody(w, n)
	}
}

// checkAnswer reads what writeAnswer writes.
func checkAnswer(t *testing.T, r io.Reader, id int32, n int) {
	t.Helper()
	head := response(id)
	binary.BigEndian.PutUint32(head, uint32(4+n))
	checkHead(t, r, head)
	checkBody(t, r, n)
}

// checkHead reads and compares the first bytes of a frame.
func checkHead(t *testing.T, r io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("head: got %x, want %x (%v)", got, want, err)
	}
}

// checkBody reads what writeBody writes.
func checkBody(t *testing.T, r io.Reader, n int) {
	t.Helper()
	buf := make([]byte, len(pattern))
	for at := 0; at < n; {
		piece := buf[:min(n-at, len(buf))]
		if _, err := io.ReadFull(r, piece); err != nil {
			t.Fatalf("%d bytes after %d: %v", len(piece), at, err)
		}
		if want := pattern[:len(piece)]; !bytes.Equal(piece, want) {
			t.Fatalf("first wrong byte at %d", at+firstDifference(piece, want))
		}
		at += len(piece)
	}
}
