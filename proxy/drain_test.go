// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tiergate/rewrite"
)

// draining starts Drain and returns its result.
func draining(s *Server, ctx context.Context) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.Drain(ctx) }()
	return result
}

// held is a broker that answers a request, with its body, once it is told to.
func held(answer <-chan struct{}) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			<-answer
			writeAnswer(c, int32(frame[11]), 3_000_000)
		}
	}
}

// answerFirst answers requests with correlation id 1, and tells of those that it leaves
// unanswered.
func answerFirst(unanswered chan<- struct{}) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			switch {
			case err != nil:
				return
			case frame[11] == 1:
				_, _ = c.Write(response(1, 0, 0, 0, 0, 0, 0)) // ApiVersions v0 without any API
			default:
				unanswered <- struct{}{}
			}
		}
	}
}

// A session that had no answer yet but to ApiVersions is reset when the proxy drains, as a
// broker that is down refuses: an end would read as wrong credentials or lack of TLS. So
// is one whose broker is being dialed. One that has begun to work just ends.
func TestDrainResetsBeforeTheFirstAnswer(t *testing.T) {
	answering := newBroker(t, answerFirst(make(chan struct{}, 1))).dial
	for _, c := range []struct {
		name  string
		dial  Dial
		state state
		sent  [][]byte // and answered
		want  error
	}{
		{"open", answering, stateOpen, nil, syscall.ECONNRESET},
		{"versions", answering, stateOpen, [][]byte{request(18, 0, 1)}, syscall.ECONNRESET},
		{"served", answering, stateOpen, [][]byte{request(18, 0, 1), request(30, 1, 1)}, nil},
		{"dialing", func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, stateDialing, nil, syscall.ECONNRESET},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &journal{}
			s := newServer(t, c.dial, rewrite.Rules{}, loggingTo(j))
			client := connect(t, s)
			for _, frame := range c.sent {
				mustWrite(t, client, frame)
				_ = mustRead(t, client)
			}
			awaitSession(t, s, "the session is there", func(se *session) bool { return se.state == c.state })
			if err := s.Drain(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := ending(t, client); !errors.Is(err, c.want) {
				t.Errorf("the client saw %v, want %v", err, c.want)
			}
			j.awaitLine(t, "session ended", "reason=drained")
		})
	}
}

// Drain ends idle sessions at once, lets exchanges under way finish to the last byte,
// takes no new connection, and leaves requests alone that it has not begun.
func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	answer := make(chan struct{}, 1)
	answer <- struct{}{}
	b := newBroker(t, held(answer))
	j := &journal{}
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j))
	idle, busy := connect(t, s), connect(t, s)
	mustWrite(t, idle, request(3, 1, 1))
	checkAnswer(t, idle, 1, 3_000_000)
	awaitOnLoop(t, s, "both sessions are open", func(l *loop) bool {
		open := 0
		for se := range l.sessions {
			if se.state == stateOpen {
				open++
			}
		}
		return open == 2
	})
	mustWrite(t, busy, request(3, 1, 1), request(3, 1, 2))
	awaitOnLoop(t, s, "two requests are under way", func(l *loop) bool {
		for se := range l.sessions {
			if se.exchanges.len() == 2 {
				return true
			}
		}
		return false
	})
	drained := draining(s, context.Background())
	if err := ending(t, idle); err != nil {
		t.Fatalf("the idle client saw %v, want the end", err)
	}
	idle.Close()
	awaitSessions(t, s, 1)
	if c, err := net.Dial("tcp", s.Addr(0).String()); err == nil {
		c.Close()
		t.Fatal("a new connection was taken while draining")
	}
	mustWrite(t, busy, request(3, 1, 3))
	close(answer)
	checkAnswer(t, busy, 1, 3_000_000)
	checkAnswer(t, busy, 2, 3_000_000)
	if err := ending(t, busy); err != nil {
		t.Fatalf("the busy client saw %v, want the end", err)
	}
	busy.Close()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := j.with("session ended", "reason=drained"); len(got) != 2 {
		t.Fatalf("got %q, want two drained sessions", got)
	}
}

// Drain gives up when its context ends, and says how many sessions are left.
func TestDrainIsBounded(t *testing.T) {
	b := newBroker(t, silence)
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	awaitSession(t, s, "the request is under way", func(se *session) bool { return se.exchanges.len() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	drained := draining(s, ctx)
	awaitOnLoop(t, s, "the loop drains", func(l *loop) bool { return l.draining })
	cancel()
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	}
}

// A client that does not close after the proxy has ended its direction cannot hold the
// drain up for ever.
func TestDrainDoesNotWaitForClientsThatStay(t *testing.T) {
	b := newBroker(t, func(c *net.TCPConn) { echo(c) })
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	mustRead(t, c)
	drained := draining(s, context.Background())
	awaitSession(t, s, "the session is closing", func(se *session) bool { return se.state == stateClosing })
	tickAfter(t, s, closingTimeout)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}

// Drain does not wait for a broker that is being dialed.
func TestDrainWhileDialing(t *testing.T) {
	s := newServer(t, untilCanceled, rewrite.Rules{})
	c := connect(t, s)
	awaitSessions(t, s, 1)
	if err := s.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	_ = ending(t, c)
}

// A connection that was accepted just before Drain gets no session after it.
func TestDrainRefusesLateArrivals(t *testing.T) {
	var dials atomic.Int32
	s := newServer(t, func(context.Context) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("not expected")
	}, rewrite.Rules{})
	onLoop(t, s.loops[0], func() { s.loops[0].draining = true })
	c, err := net.Dial("tcp", s.Addr(0).String())
	switch {
	case err == nil:
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		_ = ending(t, c)
	case !errors.Is(err, syscall.ECONNRESET): // the reset may be there before Dial looks
		t.Fatal(err)
	}
	awaitSessions(t, s, 0)
	if n := dials.Load(); n != 0 {
		t.Fatalf("%d dials for a session that is refused", n)
	}
}

// Close ends what is under way at once, in every state of a session.
func TestCloseAtAnyTime(t *testing.T) {
	b := newBroker(t, silence)
	j := &journal{}
	var n atomic.Int32
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		if n.Add(1)%2 == 0 {
			return untilCanceled(ctx)
		}
		return b.dial(ctx)
	}, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.Loops = 2 })
	clients := make([]*net.TCPConn, 20)
	for i := range clients {
		clients[i] = connect(t, s)
		mustWrite(t, clients[i], request(3, 1, 1))
	}
	awaitSessions(t, s, len(clients))
	drained := draining(s, context.Background())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-drained
	for i, c := range clients {
		if err := ending(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("client %d without an answer saw %v, want a reset", i, err)
		}
	}
	if got := j.with("WARN"); len(got) != 0 {
		t.Fatalf("closing is no fault, but: %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("closing again: %v", err)
	}
	if err := s.Drain(context.Background()); err == nil {
		t.Fatal("a closed server was drained")
	}
}

// Close returns when nothing of the server runs any more, even if a client arrived at
// the last moment. As steps: the loop is busy; a client is accepted and posted; Close
// waits for the work off the loops, and there is none; only then does the loop take the
// client up, and would dial.
func TestCloseWaitsForLateDials(t *testing.T) {
	b := newBroker(t, silence)
	before := descriptors(t)
	var dials atomic.Int32
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		// As a dialer that succeeds although ctx has ended just now.
		return b.dial(context.WithoutCancel(ctx))
	}, rewrite.Rules{})
	busy := make(chan struct{})
	s.loops[0].post(func() { <-busy })
	c := connect(t, s)
	await(t, "the client is accepted", func() bool { return s.next.Load() == 1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	<-s.ctx.Done()
	s.work.Wait()
	close(busy)
	<-closed
	s.work.Wait() // for what should not have begun
	if n := dials.Load(); n != 0 {
		t.Fatalf("%d dials began after Close", n)
	}
	_ = ending(t, c)
	c.Close()
	await(t, "the descriptors are closed", func() bool { return descriptors(t) <= before })
}

// A server that was closed, or started before, does not start.
func TestStartOnce(t *testing.T) {
	s, err := New(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Start(); err != nil {
		t.Fatal(err)
	}
	if s.Start() == nil {
		t.Fatal("started twice")
	}
	_ = s.Close()
	s, err = New(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if err = s.Start(); err == nil {
		t.Fatal("started after Close")
	}
}

// All endpoints are bound, or none.
func TestStartBindsAllOrNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	before := descriptors(t)
	s, err := New(Options{Loops: 1, Endpoints: []Endpoint{
		{Listener: "l", Address: "127.0.0.1:0", Broker: "node 1", Dial: refuse, RemoteStorage: noRemoteStorage{}},
		{Listener: "l", Address: taken.Addr().String(), Broker: "node 2", Dial: refuse, RemoteStorage: noRemoteStorage{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Start(); err == nil || !bytes.Contains([]byte(err.Error()), []byte("cannot listen for node 2")) {
		t.Fatalf("got %v, want it to name node 2", err)
	}
	_ = s.Close()
	if after := descriptors(t); after != before {
		t.Fatalf("%d descriptors, %d before", after, before)
	}
}

// panicking is everything that a session calls and that may have a defect.
type panicking struct{ noRemoteStorage }

func (panicking) Advertised(int32) (string, int32, bool) { panic("a defect in Advertised") }
func (panicking) Growth() int                            { panic("a defect in Growth") }

// A panic costs the session in which it happens, wherever it does, and no other.
func TestPanicCostsOneSession(t *testing.T) {
	answers := map[int16][]byte{3: metadataAnswer(1, 5, "10.0.0.5", 9092)}
	b := newBroker(t, scripted(answers))
	j := &journal{}
	var dials sync.Map
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		if _, second := dials.LoadOrStore("first", 1); second {
			if _, third := dials.LoadOrStore("second", 1); !third {
				panic("a defect in Dial")
			}
		}
		return b.dial(ctx)
	}, rewrite.Rules{Addresses: panicking{}}, loggingTo(j))
	healthy := connect(t, s)
	mustWrite(t, healthy, request(30, 1, 1))
	mustRead(t, healthy)
	_ = ending(t, connect(t, s))
	j.awaitLine(t, "WARN session closed: a defect of the proxy", "a defect in Dial")
	ill := connect(t, s)
	mustWrite(t, ill, request(3, 1, 1))
	_ = ending(t, ill)
	j.awaitLine(t, "WARN session closed: a defect of the proxy", "a defect in Advertised")
	j.awaitLine(t, "ERROR panic in a session", "a defect in Advertised", "drain_test.go")
	awaitSessions(t, s, 1)
	mustWrite(t, healthy, request(30, 1, 2))
	if got, want := mustRead(t, healthy), response(2, 0, 1, 'c'); !bytes.Equal(got, want) {
		t.Fatalf("got %x, want %x", got, want)
	}
}

// A request that has begun when Drain begins is let through to its end, answered or not;
// one whose head is not there whole is left to the client to send again.
func TestDrainLetsRequestsThatHaveBegunThrough(t *testing.T) {
	owed := request(1, 11, 1, make([]byte, 1_000_000)...)
	silent := produce(9, 2, 0, nil, nil, make([]byte, 1_000_000))
	for _, c := range []struct {
		name    string
		frame   []byte
		first   int
		reaches int
	}{
		{"owed an answer", owed, 500_000, len(owed)},
		{"owed nothing", silent, 500_000, len(silent)},
		{"no more than a head", owed, 11, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			received := make(chan int, 1)
			b := newBroker(t, func(conn *net.TCPConn) {
				frame, _ := readFrame(conn)
				if len(frame) == len(owed) {
					_, _ = conn.Write(response(1, 'o', 'k'))
				}
				rest, _ := io.Copy(io.Discard, conn)
				received <- len(frame) + int(rest)
			})
			s := newServer(t, b.dial, rewrite.Rules{})
			conn := connect(t, s)
			mustWrite(t, conn, c.frame[:c.first])
			awaitSession(t, s, "the first part has arrived", func(se *session) bool {
				return se.state == stateOpen && (se.requests.left == int64(len(c.frame)-c.first) || len(se.requests.carry) == c.first)
			})
			drained := draining(s, context.Background())
			awaitOnLoop(t, s, "the loop drains", func(l *loop) bool { return l.draining })
			_, _ = conn.Write(c.frame[c.first:])
			if c.reaches == len(owed) {
				compare(t, "answer", mustRead(t, conn), response(1, 'o', 'k'))
			}
			_ = ending(t, conn)
			conn.Close()
			if err := <-drained; err != nil {
				t.Fatal(err)
			}
			if got := <-received; got != c.reaches {
				t.Fatalf("the broker got %d bytes, want %d", got, c.reaches)
			}
		})
	}
}
