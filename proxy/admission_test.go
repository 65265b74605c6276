// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/rewrite"
)

// One client address has all sessions. Clients of another get the places of those that are
// idle for longest, until both have as many, and then none; a third address gets one then.
func TestSessionsAreSharedAmongClientAddresses(t *testing.T) {
	j := &journal{}
	b := newBroker(t, func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			if len(frame) < 100 { // longer ones get no response
				_, _ = c.Write(response(1, frame[12:]...))
			}
		}
	})
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxSessions = 4 })
	var greedy []net.Conn
	for range 4 {
		c := dialFrom(t, s, "127.0.0.1")
		served(t, c)
		greedy = append(greedy, c)
	}
	mustWrite(t, greedy[0], request(30, 1, 1, make([]byte, 100)...))
	awaitOnLoop(t, s, "the request is under way", func(l *loop) bool {
		for se := range l.sessions {
			if se.exchanges.len() == 1 {
				return true
			}
		}
		return false
	})
	for _, c := range greedy[1:] { // so these have had their last events later
		served(t, c)
	}
	ended := func(c net.Conn) {
		t.Helper()
		if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
			t.Errorf("a displaced client got %d bytes and %v, want its end", n, err)
		}
	}
	served(t, dialFrom(t, s, "127.0.0.2"))
	ended(greedy[1]) // the first waits for a response
	j.awaitLine(t, "WARN session closed: a client of another address needs its place", "reason=displaced", "client=127.0.0.1:", "the limit is 4")
	served(t, greedy[2])
	served(t, dialFrom(t, s, "127.0.0.2"))
	ended(greedy[3])
	served(t, greedy[2])
	refused(t, s, "127.0.0.2", refusalSessions)
	refused(t, s, "127.0.0.1", refusalSessions)
	served(t, dialFrom(t, s, "127.0.0.3"))
	awaitSessions(t, s, 4)
	tickAfter(t, s, 0)
	if got := testutil.ToFloat64(s.metrics.ended.WithLabelValues("displaced")); got != 3 {
		t.Errorf("%v sessions were displaced, want 3", got)
	}
	if got := testutil.ToFloat64(s.metrics.limit); got != 4 {
		t.Errorf("the limit is %v, want 4", got)
	}
}

// Behind a PROXY protocol header it is the client's address that counts, not the balancer's.
func TestSessionsAreSharedBehindABalancer(t *testing.T) {
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(&journal{}), proxyProtocol(ProxyProtocolRequired), func(o *Options) { o.MaxSessions = 3 })
	from := func(client string) net.Conn {
		c := connect(t, s)
		mustWrite(t, c, fmt.Appendf(nil, "PROXY TCP4 %s 10.9.9.9 1000 9092\r\n", client))
		return c
	}
	for range 3 {
		served(t, from("10.0.0.1"))
	}
	served(t, from("10.0.0.2"))
	before := testutil.ToFloat64(s.metrics.refused.WithLabelValues(refusalSessions))
	_ = ending(t, from("10.0.0.1"))
	await(t, "the refusal", func() bool { return testutil.ToFloat64(s.metrics.refused.WithLabelValues(refusalSessions)) == before+1 })
}

// All counts are those of a plain list of sessions, whatever comes and goes.
func TestAdmissionCounts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	addr := func(i int) net.Addr {
		if i%2 == 0 {
			return &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i))}
		}
		ip := net.ParseIP("2001:db8::")
		ip[7], ip[15] = byte(i), byte(rnd.IntN(256)) // one /64 of each i
		return &net.TCPAddr{IP: ip}
	}
	a := newAdmission(50, 0)
	var open []net.Addr
	var of []int
	for step := range 20_000 {
		i := rnd.IntN(1 + rnd.IntN(8))
		if rnd.IntN(2) == 0 && len(open) > 0 {
			k := rnd.IntN(len(open))
			a.leave(open[k])
			open, of = append(open[:k], open[k+1:]...), append(of[:k], of[k+1:]...)
		} else if peer := addr(i); a.enter(peer) == nil {
			open, of = append(open, peer), append(of, i)
		} else if len(open) != 50 {
			t.Fatalf("step %d: refused with %d sessions", step, len(open))
		}
		counts, largest := map[int]int{}, 0
		for _, i := range of {
			counts[i]++
			largest = max(largest, counts[i])
		}
		if a.largest != largest || len(a.shares) != len(counts) || a.open != len(open) {
			t.Fatalf("step %d: largest %d of %d in %d, want %d of %d in %d", step, a.largest, a.open, len(a.shares), largest, len(open), len(counts))
		}
		share, n := a.heaviest(addr(i))
		if claims := len(open) == 50 && counts[i]+1 < largest; claims != (n > 0) || n > 0 && (a.shares[share] != largest || n > (largest-counts[i])/2) {
			t.Fatalf("step %d: %d may go for %d of %d", step, n, counts[i], largest)
		}
	}
}

// What descriptors allow leaves some for all else: sessions take two each, pipes two, and
// connections without a session one.
func TestDescriptorsAreShared(t *testing.T) {
	for _, c := range []struct {
		descriptors, maxSessions, sessions, pipes, pending int
		tls                                                bool
	}{
		{descriptors: 400, sessions: 107, pipes: 12, pending: 4096},
		{descriptors: 400, sessions: 82, pipes: 12, pending: 50, tls: true},
		{descriptors: 1024, sessions: 399, pipes: 32, pending: 4096},
		{descriptors: 65536, sessions: 32559, pipes: 128, pending: 4096},
		{descriptors: 65536, sessions: 30511, pipes: 128, pending: 4096, tls: true},
		{descriptors: 65536, maxSessions: 100, sessions: 100, pipes: 128, pending: 4096},
		{descriptors: 400, maxSessions: 1000, sessions: 107, pipes: 12, pending: 4096},
		{descriptors: 20, sessions: 1, pipes: 1, pending: 4096},
		{maxSessions: 7, sessions: 7, pipes: 128, pending: 4096},
		{pipes: 128, pending: 4096},
	} {
		j := &journal{}
		cert, _ := testCert(t)
		s := unstarted(t, refuse, rewrite.Rules{}, loggingTo(j), func(o *Options) {
			o.MaxDescriptors, o.MaxSessions = c.descriptors, c.maxSessions
			if c.tls {
				tlsFor(cert)(o)
			}
		})
		if got := [...]int{s.admission.limit(), s.opts.MaxPipes, s.opts.MaxPendingConnections}; got != [...]int{c.sessions, c.pipes, c.pending} {
			t.Errorf("%+v: got %v", c, got)
		}
		warned := len(j.with("WARN max_sessions is more than the file descriptors allow"))
		if want := c.maxSessions > c.sessions; (warned == 1) != want || warned > 1 {
			t.Errorf("%+v: %d warnings", c, warned)
		}
	}
}

// A client of a TLS listener whose address has no claim to a session is reset before its
// handshake, which would be in vain.
func TestNoHandshakeInVain(t *testing.T) {
	cert, pool := testCert(t)
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), func(o *Options) { o.MaxSessions, o.HandshakeTimeout = 1, time.Hour })
	served(t, tlsClient(connect(t, s), pool))
	refused(t, s, "127.0.0.1", refusalSessions) // it sends nothing
}
