// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tiergate/rewrite"
)

// waiting awaits that a server waits for the clients of n connections that have no session.
func waiting(t *testing.T, s *Server, n int) {
	t.Helper()
	await(t, strconv.Itoa(n)+" connections that wait for their clients", func() bool {
		s.pending.mu.Lock()
		defer s.pending.mu.Unlock()
		found := 0
		for _, w := range s.pending.all {
			if !w.since.IsZero() {
				found++
			}
		}
		return found == n && len(s.pending.all) == n
	})
}

// At max_pending_connections a newcomer displaces, of the address with most of them, the
// connection that has waited longest for its client, with a reset.
func TestMaxPendingConnections(t *testing.T) {
	cert, pool := testCert(t)
	j := &journal{}
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), loggingTo(j), func(o *Options) {
		o.HandshakeTimeout, o.MaxPendingConnections = time.Hour, 4
	})
	slow := dialFrom(t, s, "127.0.0.2") // the oldest, and the only one of its address
	waiting(t, s, 1)
	var flood []net.Conn
	for i := range 3 {
		flood = append(flood, dialFrom(t, s, "127.0.0.3"))
		waiting(t, s, 2+i)
	}
	served(t, tlsClient(dialFrom(t, s, "127.0.0.1"), pool))
	if err := ending(t, flood[0]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the displaced client saw %v, want a reset", err)
	}
	j.awaitLine(t, "WARN connection refused", "client=127.0.0.3", "max_pending_connections is reached")
	waiting(t, s, 3)
	for _, c := range []net.Conn{slow, flood[1], flood[2]} {
		served(t, tlsClient(c, pool))
	}
}

// Where no connection waits for its client, a newcomer waits until one has a session.
func TestNewcomerWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPending(1, 1)
		a, b, c := &arrival{}, &arrival{}, &arrival{}
		nobody := func(error) {}
		p.enter(t.Context(), a, nobody)
		entered := make(chan *arrival, 2)
		for _, next := range []*arrival{b, c} {
			go func() {
				p.enter(t.Context(), next, nobody)
				entered <- next
			}()
		}
		for inside := a; inside != nil; {
			synctest.Wait()
			if p.all[inside] == nil || p.count() != 1 {
				t.Fatalf("%d are pending, want the one", p.count())
			}
			p.leave(inside)
			synctest.Wait()
			select {
			case inside = <-entered:
			default:
				inside = nil
			}
		}
		if n := p.count(); n != 0 {
			t.Fatalf("%d are pending, want none", n)
		}
	})
}

// The wait for room ends with the server.
func TestNewcomerLeavesWithTheServer(t *testing.T) {
	p := newPending(1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	p.enter(ctx, &arrival{}, func(error) {})
	cancel()
	if p.enter(ctx, &arrival{}, func(error) {}) {
		t.Error("a second one entered where there is room for one")
	}
}

// Turns are given to client addresses in rotation, in the order of each one's handshakes,
// and one that is given up goes to the next.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &newPending(1, 1).turns
		client := func(name byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, name}) }
		if err := turns.take(t.Context(), client('a')); err != nil {
			t.Fatal(err)
		}
		var order []string
		given := make(chan string)
		impatient, leave := context.WithCancel(t.Context())
		for _, name := range []string{"a1", "a2", "x1", "a3", "b1", "b2"} {
			ctx := t.Context()
			if name == "x1" {
				ctx = impatient
			}
			go func() {
				if err := turns.take(ctx, client(name[0])); err != nil {
					name = err.Error()
				}
				given <- name
			}()
			synctest.Wait()
		}
		leave()
		if got, want := <-given, "waiting for other handshakes: context canceled"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for range 5 {
			turns.give()
			order = append(order, <-given)
		}
		if got, want := strings.Join(order, " "), "a1 b1 a2 b2 a3"; got != want {
			t.Errorf("turns went to %s, want %s", got, want)
		}
		turns.give()
		if turns.taken() != 0 || len(turns.waiting) != 0 || len(turns.next) != 0 {
			t.Errorf("%d turns are taken, %d wait; want none", turns.taken(), len(turns.waiting))
		}

		// A turn that was given to one who has just left goes on.
		_ = turns.take(t.Context(), client('a'))
		mine := turns.join(client('b'))
		turns.give()
		turns.abandon(client('b'), mine)
		if turns.taken() != 0 {
			t.Error("a turn was lost")
		}
	})
}
