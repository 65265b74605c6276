// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// quiet is how long a test looks for what must not happen: too short a look passes for a
// relay that is wrong, never fails for one that is right.
const quiet = 50 * time.Millisecond

// server listens on loopback and hands out the connections it gets.
type server struct {
	address  string
	accepted chan *net.TCPConn
}

// stand starts a server and a relay in front of it. When the test ends, nothing of it may run.
func stand(t *testing.T) (*Relay, *server) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s := serve(t, "127.0.0.1:0")
	return relayTo(t, s.address), s
}

func serve(t *testing.T, address string) *server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: listener.Addr().String(), accepted: make(chan *net.TCPConn, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(s.accepted)
				return
			}
			s.accepted <- conn.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		for conn := range s.accepted {
			conn.Close()
		}
	})
	return s
}

func relayTo(t *testing.T, target string) *Relay {
	t.Helper()
	r, err := NewRelay("127.0.0.1:0", target, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// dial connects to the relay; the connection has a deadline.
func dial(t *testing.T, r *Relay) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	return kept(t, conn.(*net.TCPConn))
}

// kept gives a connection a deadline and closes it when the test ends.
func kept(t *testing.T, conn *net.TCPConn) *net.TCPConn {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// accept waits for the next connection to the server.
func (s *server) accept(t *testing.T) *net.TCPConn {
	t.Helper()
	select {
	case conn := <-s.accepted:
		return kept(t, conn)
	case <-time.After(patience):
		t.Fatal("no connection has come")
		return nil
	}
}

// connect makes a connection and returns both ends.
func connect(t *testing.T, r *Relay, s *server) (client, target *net.TCPConn) {
	t.Helper()
	client = dial(t, r)
	return client, s.accept(t)
}

// says sends bytes from one end and has them arrive at the other.
func says(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	send(t, from, text)
	got := make([]byte, len(text))
	if n, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got[:n], err, text)
	}
}

func send(t *testing.T, from net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
}

// hears nothing: neither bytes nor an end.
func hearsNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(quiet)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if n, err := conn.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v, want nothing at all", b[:n], err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
}

// endsWith reads until an error and wants it to be this one, and nothing before it.
func endsWith(t *testing.T, who string, conn net.Conn, want error) {
	t.Helper()
	b := make([]byte, 1)
	if n, err := conn.Read(b); n != 0 || !errors.Is(err, want) {
		t.Errorf("%s got %q, %v, want %v", who, b[:n], err, want)
	}
}

// writesUntil writes until that fails, which must be by one of these errors.
func writesUntil(t *testing.T, who string, conn net.Conn, want ...error) {
	t.Helper()
	block := make([]byte, 64<<10)
	for {
		_, err := conn.Write(block)
		if err == nil {
			continue
		}
		for _, w := range want {
			if errors.Is(err, w) {
				return
			}
		}
		t.Errorf("%s: %v, want one of %v", who, err, want)
		return
	}
}

// fills writes until nothing more fits: the other end reads nothing. It returns how much did.
func fills(t *testing.T, conn net.Conn) int {
	t.Helper()
	total := 0
	block := make([]byte, 1<<20)
	for {
		if err := conn.SetWriteDeadline(time.Now().Add(quiet)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Write(block)
		total += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			return total
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if poll(ctx, func() error {
		if !cond() {
			return errors.New("not yet")
		}
		return nil
	}) != nil {
		t.Fatalf("still not: %s", what)
	}
}

// begin puts a fault in force, which may not depend on what the connections do.
func begin(t *testing.T, f Fault) {
	t.Helper()
	if err := f.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, f Fault) {
	t.Helper()
	if err := f.End(t.Context()); err != nil {
		t.Fatal(err)
	}
}

const reset = syscall.ECONNRESET
