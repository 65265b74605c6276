// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
)

// cutter ends connections at random: with FIN or RST, at any byte.
type cutter struct{ *rand.Rand }

func newCutter(seed uint64) cutter { return cutter{rand.New(rand.NewPCG(seed, 11))} }

// cut ends a connection in one of the ways there are.
func (r cutter) cut(c *net.TCPConn) {
	switch r.IntN(3) {
	case 0:
		reset(c)
	case 1:
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(3000)) * time.Microsecond))
		_, _ = io.Copy(io.Discard, c)
		fallthrough
	default:
		_ = c.Close()
	}
}

// requests returns what a client sends, or the start of it: small requests and
// large ones, some that are owed nothing, some that are looked up, some that are held.
func (r cutter) requests(old *oldBroker) []byte {
	var out []byte
	for id := range int32(1 + r.IntN(6)) {
		switch r.IntN(6) {
		case 0:
			out = append(out, produce(9, id, 0, text(4), nil, pattern[:r.IntN(300_000)])...)
		case 1:
			out = append(out, frameOfRequest(old.offsetsRequest(11, -6), id)...)
		case 2:
			out = append(out, request(3, 1, id)...)
		case 3:
			out = append(out, request(1, 11, id, pattern[:r.IntN(300_000)]...)...)
		default:
			out = append(out, request(30, 0, id, pattern[:r.IntN(2000)]...)...)
		}
	}
	if r.IntN(2) == 0 {
		out = out[:r.IntN(len(out)+1)]
	}
	return out
}

// fickle is a broker that serves for a while and then leaves at any byte of an answer.
func (r cutter) fickle(old *oldBroker, raw *net.TCPConn, c io.ReadWriter) {
	for range r.IntN(8) {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		var answer []byte
		if frame[5] == 0 {
			continue
		}
		answer, _ = old.answer(frame)
		if r.IntN(8) == 0 && len(answer) > 0 {
			_, _ = c.Write(answer[:r.IntN(len(answer))])
			break
		}
		if _, err = c.Write(answer); err != nil {
			return
		}
	}
	r.cut(raw)
}

// disguise is what a side of the random test wraps its connections in: nothing, or TLS.
type disguise func(*net.TCPConn) io.ReadWriter

func plainly(c *net.TCPConn) io.ReadWriter { return c }

// Sessions that are cut at random, by either side, with FIN and RST, in the middle of
// frames, look-ups, dials and TLS handshakes, leave nothing behind: no session,
// descriptor, pipe or goroutine (TestMain), and without the help of any timeout.
func TestSessionsCutAtRandomLeaveNothing(t *testing.T) {
	t.Run("plaintext", func(t *testing.T) {
		cutAtRandom(t, cuts, plainly, plainly, func(*Options) {})
	})
	t.Run("TLS", func(t *testing.T) {
		cert, pool := testCert(t)
		server := &tls.Config{Certificates: []tls.Certificate{cert}}
		client := &tls.Config{RootCAs: pool, ServerName: "broker.test"}
		cutAtRandom(t, cuts/2,
			func(c *net.TCPConn) io.ReadWriter { return tls.Client(c, client) },
			func(c *net.TCPConn) io.ReadWriter { return tls.Server(c, server) },
			func(o *Options) {
				o.Endpoints[0].TLS = func() *tls.Config { return server }
				o.Endpoints[0].BrokerTLS = func(string) *tls.Config { return client }
			})
	})
}

func cutAtRandom(t *testing.T, sessions uint64, client, server disguise, change func(*Options)) {
	const workers = 16
	before := descriptors(t)
	old := &oldBroker{max: 10, logs: map[string][]*tierlog.Log{"t": {tieredWithoutUploads()}}}
	var served, dialed atomic.Uint64
	b := newBroker(t, func(c *net.TCPConn) { newCutter(served.Add(1)).fickle(old, c, server(c)) })
	dial := func(ctx context.Context) (net.Conn, error) {
		return newCutter(1_000_000+dialed.Add(1)).dial(ctx, b)
	}
	statuses := &fixedRemoteStorage{resolve: func(ctx context.Context, _ []string) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}}
	s := newServerWithoutTicks(t, dial, rewrite.Rules{Addresses: proxied}, remoteStorageFrom(statuses), loggingTo(&journal{}), func(o *Options) {
		o.Loops = 2
		o.MaxInflight = 3
		o.RemoteStorageTimeout = 20 * time.Millisecond
	}, change)
	var clients sync.WaitGroup
	for w := range uint64(workers) {
		clients.Go(func() {
			for i := w; i < sessions; i += workers {
				newCutter(2_000_000+i).client(t, s, old, client)
			}
		})
	}
	clients.Wait()
	var left []string
	defer func() {
		if t.Failed() {
			t.Logf("left: %q", left)
		}
	}()
	// A connection that was cut early may be accepted only now: so this is awaited as one.
	await(t, "no session, socket, pipe in use or byte is left", func() bool {
		clean := s.account.total.Load() == 0
		left = nil
		for _, l := range s.loops {
			onLoop(t, l, func() {
				for se := range l.sessions {
					left = append(left, se.String())
				}
				clean = clean && len(l.sessions) == 0 && len(l.conns) == 0 && l.pipes.open == len(l.pipes.idle)
			})
		}
		return clean
	})
	_ = s.Close()
	_ = b.listener.Close()
	b.conns.Wait()
	await(t, "the descriptors are closed", func() bool { return descriptors(t) <= before })
}

// dial is a Dial that may be refused, or slow.
func (r cutter) dial(ctx context.Context, b *broker) (net.Conn, error) {
	switch r.IntN(8) {
	case 0:
		return nil, errors.New("refused")
	case 1:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(2000)) * time.Microsecond):
		}
	}
	return b.dial(ctx)
}

// client is one client.
func (r cutter) client(t *testing.T, s *Server, old *oldBroker, wrap disguise) {
	conn, err := net.Dial("tcp", s.Addr(0).String())
	if err != nil {
		if !errors.Is(err, syscall.ECONNRESET) { // the broker was refused at once
			t.Error(err)
		}
		return
	}
	raw := conn.(*net.TCPConn)
	_ = raw.SetDeadline(time.Now().Add(patience))
	c := wrap(raw)
	out := r.requests(old)
	switch r.IntN(10) {
	case 0:
	case 1:
		// In TLS: the start of a handshake.
		_, _ = raw.Write(clientHello[:r.IntN(len(clientHello))])
	default:
		var reader sync.WaitGroup
		reader.Go(func() { _, _ = io.CopyN(io.Discard, c, int64(newCutter(uint64(len(out))).IntN(1+2*len(out)))) })
		_, _ = c.Write(out)
		if r.IntN(2) == 0 {
			_ = raw.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(5000)) * time.Microsecond))
			reader.Wait()
		}
		defer reader.Wait()
	}
	r.cut(raw)
}

// A session that ends while bytes for a side that takes none wait in a pipe leaves no
// pipe behind, whether it is ended by Close or by its own deadline.
func TestSessionsThatEndWithAFullPipe(t *testing.T) {
	for _, how := range []struct {
		name string
		end  func(*testing.T, *Server)
	}{
		{"close", func(_ *testing.T, s *Server) { _ = s.Close() }},
		{"linger", func(t *testing.T, s *Server) {
			onLoop(t, s.loops[0], func() { only(s.loops[0]).broker.hungUp = true })
			tickAfter(t, s, 0)
			tickAfter(t, s, time.Hour)
			awaitSessions(t, s, 0)
			_ = s.Close()
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			before := descriptors(t)
			b := newBroker(t, func(c *net.TCPConn) {
				_, _ = readFrame(c)
				writeAnswer(c, 1, 1<<30)
			})
			s := newServerWithoutTicks(t, b.dial, rewrite.Rules{})
			c := connect(t, s)
			mustWrite(t, c, request(1, 11, 1))
			awaitStuck(t, s, brokerOf, clientOf)
			onLoop(t, s.loops[0], func() {
				if only(s.loops[0]).client.piped == nil {
					t.Error("no pipe is in use")
				}
			})
			how.end(t, s)
			c.Close()
			_ = b.listener.Close()
			b.conns.Wait()
			await(t, "the descriptors are closed", func() bool { return descriptors(t) <= before })
		})
	}
}

// An idle session costs little memory, whatever it did before: no buffer, no large
// queue. The test's own two connections and goroutines are in the figure too.
func TestIdleSessionsAreCheap(t *testing.T) {
	const sessions, limit = 100, 6 << 10
	s := newServer(t, newEcho(t).dial, rewrite.Rules{Addresses: proxied})
	var out []byte
	for id := range int32(300) {
		out = append(out, request(30, 1, id, pattern[:100]...)...)
	}
	out = append(out, request(1, 11, 300, pattern[:300_000]...)...)
	before := heapInUse()
	clients := make([]*net.TCPConn, sessions)
	for i := range clients {
		clients[i] = connect(t, s)
		var sender sync.WaitGroup
		sender.Go(func() { _, _ = clients[i].Write(out) })
		if n, err := io.CopyN(io.Discard, clients[i], int64(len(out)-301*codec.RequestFixedLen+301*codec.ResponseFixedLen)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		sender.Wait()
	}
	per := (int64(heapInUse()) - int64(before)) / sessions
	t.Logf("%d bytes of heap for each idle session", per)
	if per > limit {
		t.Fatalf("%d bytes of heap for each idle session, the limit is %d", per, limit)
	}
}

// String describes a session for a test that finds it where it should not be.
func (s *session) String() string {
	side := func(c *conn) string {
		return fmt.Sprintf("{fd %d readable %t writable %t hungUp %t ended %t shut %t interest %d pending %d piped %t}",
			c.fd, c.readable, c.writable, c.hungUp, c.ended, c.shut, c.interest, c.pending(), c.piped != nil)
	}
	flow := func(f *flow) string {
		return fmt.Sprintf("{stall %d part %d queued %t starved %t done %t left %d held %d carry %d}",
			f.stall, f.part, f.queued, f.starved, f.done, f.left, len(f.held), len(f.carry))
	}
	return fmt.Sprintf("state %d, client %s, broker %s, requests %s, responses %s, %d exchanges, lookup %t, fault %v, served %t, buffered %d",
		s.state, side(&s.client), side(&s.broker), flow(&s.requests), flow(&s.responses), s.exchanges.len(), s.lookup != nil, s.fault, s.served, s.buffered)
}
