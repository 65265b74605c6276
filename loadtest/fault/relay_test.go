// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"tiergate/loadtest/kafka"
)

func random(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestRelayPassesAllBothWaysAtOnce(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	up, down := random(9<<20+1), random(7<<20+3)
	arrived := make(chan [sha256.Size]byte)
	go func() {
		_, _ = client.Write(up)
		_ = client.CloseWrite()
	}()
	go func() {
		_, _ = target.Write(down)
		_ = target.CloseWrite()
	}()
	go func() {
		all, _ := io.ReadAll(target)
		arrived <- sha256.Sum256(all)
	}()
	got, err := io.ReadAll(client)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(down) {
		t.Errorf("%d bytes down, %v, want the %d that were sent", len(got), err, len(down))
	}
	if <-arrived != sha256.Sum256(up) {
		t.Error("the bytes up are not those that were sent")
	}
	await(t, "the relay has let go of the connection", func() bool { return r.Open() == 0 })
}

func TestRelayKeepsHalfCloses(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	send(t, client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(target); err != nil || string(got) != "question" {
		t.Fatalf("%q, %v, want the question", got, err)
	}
	answer := bytes.Repeat([]byte("answer"), 1<<20)
	go func() {
		_, _ = target.Write(answer)
		_ = target.Close()
	}()
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("%d bytes, %v, want the %d of the answer", len(got), err, len(answer))
	}
}

func TestRelayKeepsResets(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
	_ = client.SetLinger(0)
	_ = client.Close()
	endsWith(t, "the target", target, reset)

	client, target = connect(t, r, s)
	says(t, client, target, "hello")
	_ = target.SetLinger(0)
	_ = target.Close()
	endsWith(t, "the client", client, reset)
}

// A reader that stands still stops the writer: the relay does not take all there is.
func TestRelayKeepsBackPressure(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	sent := fills(t, client)
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, target, int64(sent))
		read <- err
	}()
	if err := <-read; err != nil {
		t.Errorf("of %d bytes that were taken: %v", sent, err)
	}
	says(t, client, target, "still here")
}

func TestRelayWithoutTarget(t *testing.T) {
	ports, err := kafka.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	r := relayTo(t, kafka.Loopback(ports[0]))
	if conn, err := net.Dial("tcp", r.Address()); err == nil {
		endsWith(t, "the client", kept(t, conn.(*net.TCPConn)), reset)
	} else if !errors.Is(err, reset) { // so fast that dial still sees it
		t.Error(err)
	}
	s := serve(t, r.Target())
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
}

func TestRelayCloses(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
	fills(t, client) // its writer stands in a write
	r.Close()
	writesUntil(t, "the client", client, reset, brokenPipe)
	if n := r.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	r.Close() // again
}

func TestRelayCanNotListen(t *testing.T) {
	r, _ := stand(t)
	if other, err := NewRelay(r.Address(), "127.0.0.1:1", 0); err == nil {
		other.Close()
		t.Error("two relays listen at one address")
	}
}
