// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"

	"tiergate/rewrite"
)

// dialFrom connects from an address of this machine's loopback network.
func dialFrom(t *testing.T, s *Server, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(context.Background(), "tcp", s.Addr(0).String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// served checks that a connection has a session: one exchange.
func served(t *testing.T, c net.Conn) {
	t.Helper()
	mustWrite(t, c, request(30, 1, 1))
	compare(t, "an exchange", mustRead(t, c), response(1, 0, 1, 'c'))
}

// refused checks that a connection from an address is reset and why: a client takes an
// ordinary end for missing TLS.
func refused(t *testing.T, s *Server, from, label string) {
	t.Helper()
	before := testutil.ToFloat64(s.metrics.refused.WithLabelValues(label))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(context.Background(), "tcp", s.Addr(0).String())
	if err == nil { // the reset may come before
		_ = c.SetDeadline(time.Now().Add(patience))
		err = ending(t, c)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the refused client saw %v, want a reset", err)
	}
	await(t, "the refusal is counted", func() bool { return testutil.ToFloat64(s.metrics.refused.WithLabelValues(label)) == before+1 })
}

// Above max_sessions connections are refused, those that are served stay, and one that
// ends makes room for another.
func TestMaxSessions(t *testing.T) {
	j := &journal{}
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxSessions = 2 })
	first, second := connect(t, s), connect(t, s)
	served(t, first)
	served(t, second)
	refused(t, s, "127.0.0.1", refusalSessions)
	j.awaitLine(t, "WARN connection refused", "the limit of sessions is reached (max_sessions, or what ulimit -n allows): 2")
	served(t, first)
	first.Close()
	awaitSessions(t, s, 1)
	served(t, connect(t, s))
}

// The limit for each client address is one for all of its connections, and leaves others
// alone.
func TestMaxSessionsPerClient(t *testing.T) {
	j := &journal{}
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxSessionsPerClient = 1 })
	first := dialFrom(t, s, "127.0.0.1")
	served(t, first)
	refused(t, s, "127.0.0.1", refusalClient)
	j.awaitLine(t, "WARN connection refused", "max_sessions_per_client is reached: 1")
	served(t, dialFrom(t, s, "127.0.0.2"))
	first.Close()
	awaitSessions(t, s, 1)
	served(t, dialFrom(t, s, "127.0.0.1"))
}

// A limit that is found to be reached only after a TLS handshake resets too.
func TestRefusalAfterHandshakeResets(t *testing.T) {
	cert, pool := testCert(t)
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), func(o *Options) { o.MaxSessionsPerClient = 1 })
	served(t, tlsClient(connect(t, s), pool))
	if _, err := io.Copy(io.Discard, tlsClient(connect(t, s), pool)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the refused client saw %v, want a reset", err)
	}
	await(t, "the refusal is counted", func() bool { return testutil.ToFloat64(s.metrics.refused.WithLabelValues(refusalClient)) == 1 })
}

// Every way in which a session or an arrival ends gives its place back: here the broker
// refuses, the client breaks the protocol, and TLS fails.
func TestPlacesAreGivenBack(t *testing.T) {
	cert, _ := testCert(t)
	for _, tls := range []func(*Options){func(*Options) {}, tlsFor(cert)} {
		s := newServer(t, refuse, rewrite.Rules{}, tls, loggingTo(&journal{}), func(o *Options) { o.MaxSessions, o.MaxSessionsPerClient = 1, 1 })
		for range 5 {
			// A client whose broker is refused is reset, maybe before Dial returns.
			if c, err := net.Dial("tcp", s.Addr(0).String()); err == nil {
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = c.Write(httpGet)
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
			await(t, "the place is free", func() bool {
				s.admission.mu.Lock()
				defer s.admission.mu.Unlock()
				return s.admission.open == 0 && len(s.admission.clients) == 0
			})
		}
		if got := testutil.ToFloat64(s.metrics.refused.WithLabelValues(refusalSessions)); got != 0 {
			t.Errorf("%v connections found no place", got)
		}
	}
}

// A session in which nothing is under way or sent for idle_timeout ends, with an end for
// both sides. One whose broker still owes an answer does not.
func TestIdleTimeout(t *testing.T) {
	brokers := make(chan error, 2)
	b := newBroker(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		brokers <- err
	})
	j := &journal{}
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.IdleTimeout, o.FirstRequestTimeout = time.Hour, 100*time.Hour })
	idle := connect(t, s)
	awaitSession(t, s, "the session is open", func(se *session) bool { return se.state == stateOpen })
	tickAfter(t, s, 59*time.Minute)
	awaitSessions(t, s, 1)
	busy := connect(t, s)
	mustWrite(t, busy, request(30, 1, 1))
	awaitOnLoop(t, s, "a request is under way", func(l *loop) bool {
		for se := range l.sessions {
			if se.exchanges.len() == 1 {
				return true
			}
		}
		return false
	})
	tickAfter(t, s, 2*time.Hour)
	if err := ending(t, idle); err != nil {
		t.Fatalf("the idle client saw %v, want the end", err)
	}
	idle.Close()
	if err := <-brokers; err != nil {
		t.Fatalf("the idle client's broker saw %v, want the end", err)
	}
	awaitSessions(t, s, 1)
	j.awaitLine(t, "DEBUG session ended", "reason=idle")
}

// helloOf is a whole ClientHello.
func helloOf(t *testing.T) []byte {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Client(near, &tls.Config{ServerName: "broker.test"}).Handshake()
	}()
	hello := make([]byte, 8<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	<-ended
	return hello[:n]
}

// Clients that connect to a TLS port and say nothing, or stop in the middle of a handshake,
// wherever that is, are closed after handshake_timeout, and are in nobody's way meanwhile,
// however many there are.
func TestSilentClientsOnTLSPort(t *testing.T) {
	cert, pool := testCert(t)
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), func(o *Options) { o.HandshakeTimeout, o.MaxHandshakes = time.Hour, 1 })
	hello := helloOf(t)
	for _, begun := range [][]byte{nil, hello[:1], hello[:5], hello[:len(hello)-1], hello} {
		for range 3 {
			mustWrite(t, connect(t, s), begun)
		}
	}
	served(t, tlsClient(connect(t, s), pool))
	await(t, "no handshake is worked on", func() bool { return testutil.ToFloat64(s.metrics.handshakes) == 0 })
	if got := testutil.ToFloat64(s.metrics.pending); got != 15 {
		t.Errorf("%v connections are pending, want 15", got)
	}

	j := &journal{}
	impatient := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), loggingTo(j), func(o *Options) { o.HandshakeTimeout = time.Millisecond })
	silent, begun := connect(t, impatient), connect(t, impatient)
	_, _ = begun.Write(clientHello)
	_ = ending(t, silent)
	_ = ending(t, begun)
	await(t, "two refusals", func() bool {
		return testutil.ToFloat64(impatient.metrics.refused.WithLabelValues(refusalHandshake)) == 2
	})
}

// Close does not wait for clients that say nothing before TLS or a PROXY protocol header,
// or stop in the middle, and does not complain of them.
func TestCloseDoesNotWaitForSilentClients(t *testing.T) {
	cert, _ := testCert(t)
	for _, change := range []func(*Options){tlsFor(cert), proxyProtocol(ProxyProtocolRequired)} {
		j := &journal{}
		s := newServer(t, refuse, rewrite.Rules{}, change, loggingTo(j), func(o *Options) { o.HandshakeTimeout = time.Hour })
		clients := []net.Conn{connect(t, s), connect(t, s)}
		mustWrite(t, clients[1], []byte("PRO"))
		await(t, "the clients are accepted", func() bool { return s.pending.count() == 2 })
		_ = s.Close()
		for _, c := range clients {
			_ = ending(t, c)
		}
		if got := j.with("WARN"); len(got) != 0 {
			t.Fatalf("closing is no refusal, but: %q", got)
		}
	}
}

// Above accept_rate connections wait, and are counted; none is refused.
func TestAcceptRate(t *testing.T) {
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, func(o *Options) { o.AcceptRate = 1 })
	first, second := connect(t, s), connect(t, s)
	served(t, first)
	await(t, "the second waits", func() bool { return testutil.ToFloat64(s.metrics.delayed) == 1 })
	served(t, second)
	if got := testutil.ToFloat64(s.metrics.delayed); got != 1 {
		t.Errorf("%v connections waited, want 1", got)
	}
}

// A connection that waits when the server closes is closed.
func TestAcceptRateAndClose(t *testing.T) {
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, func(o *Options) { o.AcceptRate = 1 })
	s.pace.SetLimit(rate.Every(time.Hour))
	s.pace.Allow()
	c := connect(t, s)
	await(t, "the connection waits", func() bool { return testutil.ToFloat64(s.metrics.delayed) == 1 })
	_ = s.Close()
	_ = ending(t, c)
}
