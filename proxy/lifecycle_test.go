// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"tiergate/rewrite"
)

// silence reads until the client ends and answers nothing.
func silence(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }

// refuse is a Dial to a broker that is not there.
func refuse(context.Context) (net.Conn, error) { return nil, errors.New("nobody listens there") }

// untilCanceled is a Dial to a broker that never answers.
func untilCanceled(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A broker that refuses costs the client its connection and one line.
func TestBrokerRefuses(t *testing.T) {
	j := &journal{}
	s := newServer(t, refuse, rewrite.Rules{}, loggingTo(j))
	knock(t, s)
	awaitSessions(t, s, 0)
	if got := j.with("WARN session closed: the broker cannot be reached", "error=nobody listens there", "reason=dial_failed"); len(got) != 1 {
		t.Fatalf("got lines %q, want one", got)
	}
}

// A dial that takes longer than allowed is given up.
func TestDialTimesOut(t *testing.T) {
	j := &journal{}
	s := newServer(t, untilCanceled, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.DialTimeout = time.Millisecond })
	knock(t, s)
	j.awaitLine(t, "WARN session closed: the broker cannot be reached", "error=context deadline exceeded")
	awaitSessions(t, s, 0)
}

// A client that resets while the broker is dialed ends the session and the dial.
func TestClientResetsWhileDialing(t *testing.T) {
	dialing, canceled := make(chan struct{}), make(chan struct{})
	j := &journal{}
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		close(dialing)
		<-ctx.Done()
		close(canceled)
		return nil, ctx.Err()
	}, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.DialTimeout = time.Hour })
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	<-dialing
	reset(c)
	select {
	case <-canceled:
	case <-time.After(patience):
		t.Fatal("the dial goes on")
	}
	j.awaitLine(t, "DEBUG session ended", "reason=client_closed")
	awaitSessions(t, s, 0)
}

// A client that has sent all it had and ended its direction before the broker
// connection is open loses nothing.
func TestClientEndsWhileDialing(t *testing.T) {
	silent := produce(8, 1, 0, nil, nil, make([]byte, 100_000))
	received := make(chan []byte, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		received <- all
	})
	open := make(chan struct{})
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		<-open
		return b.dial(ctx)
	}, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, silent)
	c.Close()
	awaitSession(t, s, "the end of the client arrives", func(se *session) bool { return se.client.hungUp })
	close(open)
	if got := <-received; !bytes.Equal(got, silent) {
		t.Fatalf("the broker got %d bytes, want %d", len(got), len(silent))
	}
	awaitSessions(t, s, 0)
}

// Produce requests with acks 0 reach the broker to the last byte although the client
// leaves at once.
func TestAcksZeroThenClose(t *testing.T) {
	silent := produce(9, 1, 0, text(3), nil, make([]byte, 700_001))
	const frames = 40
	received := make(chan int64, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			t.Error(err)
		}
		received <- n
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	for range frames {
		mustWrite(t, c, silent)
	}
	c.Close()
	if got, want := <-received, int64(frames*len(silent)); got != want {
		t.Fatalf("the broker got %d bytes, want %d", got, want)
	}
	awaitSessions(t, s, 0)
}

// A client that resets ends its session; the broker sees an end and no garbage.
func TestClientResets(t *testing.T) {
	got := make(chan error, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		if _, err := readFrame(c); err != nil {
			t.Error(err)
		}
		got <- ending(t, c)
	})
	j := &journal{}
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	awaitSession(t, s, "the request is under way", func(se *session) bool { return se.exchanges.len() == 1 })
	reset(c)
	if err := <-got; err != nil {
		t.Fatalf("the broker saw %v, want the end", err)
	}
	awaitSessions(t, s, 0)
	j.awaitLine(t, "DEBUG session ended", "reason=client_closed")
}

// What a client sent before it resets and the proxy has taken reaches the broker, although
// that reads late; and the session is over soon after, although the broker stays.
func TestClientResetsWhileTheBrokerReadsLate(t *testing.T) {
	silent := produce(9, 1, 0, nil, nil, make([]byte, 30<<20))
	read, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	received := make(chan uint64, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		_ = c.SetReadBuffer(kernelBuffer)
		<-read
		n, _ := io.Copy(io.Discard, c)
		received <- uint64(n)
		<-over
	})
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	var sender sync.WaitGroup
	sender.Go(func() { _, _ = c.Write(silent) })
	awaitStuck(t, s, clientOf, brokerOf)
	reset(c)
	sender.Wait()
	close(read)
	got, taken := <-received, uint64(0)
	onLoop(t, s.loops[0], func() { taken = s.loops[0].count.requestBytes })
	if got != taken {
		t.Errorf("the broker got %d bytes of the %d that the proxy has taken", got, taken)
	}
	tickAfter(t, s, closingTimeout+time.Second)
	awaitSessions(t, s, 0)
}

// A broker that resets ends the session; the client sees an end, not silence.
func TestBrokerResets(t *testing.T) {
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		reset(c)
	})
	j := &journal{}
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	_ = ending(t, c)
	c.Close()
	awaitSessions(t, s, 0)
	j.awaitLine(t, "DEBUG session ended", "reason=broker_closed")
}

// The client ends its direction first: the broker sees that at once, and answers that
// come later still reach the client.
func TestClientEndsItsDirectionFirst(t *testing.T) {
	b := newBroker(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(all, request(3, 1, 1)) {
			t.Errorf("got %x (%v)", all, err)
		}
		_, _ = c.Write(response(1, make([]byte, 2_000_000)...))
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	_ = c.CloseWrite()
	if got := mustRead(t, c); len(got) != 2_000_008 {
		t.Fatalf("got %d bytes", len(got))
	}
	if err := ending(t, c); err != nil {
		t.Fatal(err)
	}
	awaitSessions(t, s, 0)
}

// The broker ends its direction first: the client sees that at once, and what it sends
// afterwards still reaches the broker.
func TestBrokerEndsItsDirectionFirst(t *testing.T) {
	silent := produce(3, 2, 0, nil, nil, make([]byte, 1_000_000))
	received := make(chan []byte, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		_, _ = c.Write(response(1, 5))
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		received <- all
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	if got, want := mustRead(t, c), response(1, 5); !bytes.Equal(got, want) {
		t.Fatalf("got %x, want %x", got, want)
	}
	if err := ending(t, c); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, c, silent)
	c.Close()
	if got := <-received; !bytes.Equal(got, silent) {
		t.Fatalf("the broker got %d bytes, want %d", len(got), len(silent))
	}
	awaitSessions(t, s, 0)
}

// A broker that closes right after an answer of 60 MB: nothing of it is lost, though
// the client reads it only after the broker has gone from its own point of view.
func TestBrokerClosesAfterItsLastAnswer(t *testing.T) {
	const size = 60 << 20
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		writeAnswer(c, 1, size)
	})
	for _, c := range []struct {
		name  string
		pipes int
	}{{"spliced", 0}, {"copied", -1}} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxPipes = c.pipes })
			conn := connect(t, s)
			mustWrite(t, conn, request(1, 11, 1))
			awaitSession(t, s, "the answer waits for its reader", func(se *session) bool { return se.client.owes() })
			checkAnswer(t, conn, 1, size)
			if err := ending(t, conn); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			awaitSessions(t, s, 0)
		})
	}
}

// A broker that closes while exchanges are under way, as many as are allowed even: the
// client sees the end, and the session is over as soon as the client has closed.
func TestBrokerClosesWhileRequestsAreUnderWay(t *testing.T) {
	for _, sent := range []int32{1, 2, 3, 200_000} {
		leave := make(chan struct{})
		b := newBroker(t, func(c *net.TCPConn) {
			_, _ = readFrame(c)
			<-leave
		})
		s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = 2 })
		c := connect(t, s)
		var out []byte
		for id := range sent {
			out = append(out, request(3, 1, id)...)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = c.Write(out)
		}()
		awaitOnLoop(t, s, "requests are under way", func(l *loop) bool {
			return only(l) != nil && only(l).exchanges.len() == int(min(sent, 2)) && (sent <= 2 || only(l).requests.stall == stallInflight)
		})
		close(leave)
		_ = ending(t, c)
		c.Close()
		<-written
		awaitSessions(t, s, 0)
	}
}

// A session one side of which has ended lives on while bytes move, however long that
// takes, and ends LingerTimeout after they have stopped.
func TestLingeringSessionEndsWhenNothingMoves(t *testing.T) {
	const day = 24 * time.Hour
	more := make(chan struct{})
	stop := sync.OnceFunc(func() { close(more) })
	defer stop()
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		head := response(1)
		binary.BigEndian.PutUint32(head, 4+1000)
		_, _ = c.Write(head)
		for range more {
			_, _ = c.Write([]byte{'m'})
		}
		<-more
	})
	j := &journal{}
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.LingerTimeout = day })
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	_ = c.CloseWrite()
	checkHead(t, c, []byte{0, 0, 3, 0xec, 0, 0, 0, 1})
	for i := range time.Duration(5) {
		more <- struct{}{}
		checkHead(t, c, []byte{'m'})
		tickAfter(t, s, (i+1)*2*day)
	}
	tickAfter(t, s, 10*day+day/2)
	awaitSessions(t, s, 1)
	tickAfter(t, s, 11*day+time.Hour)
	if err := ending(t, c); err != nil {
		t.Fatal(err)
	}
	awaitSessions(t, s, 0)
	j.awaitLine(t, "DEBUG session ended", "reason=linger")
	stop()
}

// The end of a broker cannot be read while its client reads nothing. Such a session does
// not live for ever either.
func TestLingeringBehindAClientThatDoesNotRead(t *testing.T) {
	const piece = 64 << 10
	more, written := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(more) })
	defer stop()
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		head := response(1)
		binary.BigEndian.PutUint32(head, 1<<30)
		_, _ = c.Write(head)
		for range more {
			_, _ = c.Write(make([]byte, piece))
			written <- struct{}{}
		}
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	j := &journal{}
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.LingerTimeout = 24 * time.Hour })
	c := connect(t, s)
	_ = c.SetReadBuffer(piece)
	mustWrite(t, c, request(1, 11, 1))
	owes := func(l *loop) bool { return only(l).client.owes() }
	for stuck := 0; stuck < 3; {
		more <- struct{}{}
		<-written
		onLoop(t, s.loops[0], func() {
			if stuck++; !owes(s.loops[0]) {
				stuck = 0
			}
		})
	}
	stop()
	awaitOnLoop(t, s, "the end of the broker arrives", func(l *loop) bool { return only(l).broker.hungUp && owes(l) })
	tickAfter(t, s, time.Hour)
	tickAfter(t, s, 24*time.Hour)
	awaitSessions(t, s, 1)
	tickAfter(t, s, 26*time.Hour)
	awaitSessions(t, s, 0)
	j.awaitLine(t, "DEBUG session ended", "reason=linger")
}
