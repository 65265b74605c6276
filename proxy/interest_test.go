// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/rewrite"
)

// onlyLinux skips what kqueue does otherwise: it reports reading and writing apart.
func onlyLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("interest follows need on Linux only")
	}
}

// stalledReader is a session whose broker sends far more than its client takes.
func stalledReader(t *testing.T) (*Server, *net.TCPConn) {
	t.Helper()
	s := newServerWithoutTicks(t, newBroker(t, bodyOf(16<<20)).dial, rewrite.Rules{})
	c := connect(t, s)
	_ = c.SetReadBuffer(64 << 10)
	mustWrite(t, c, request(30, 1, 1))
	awaitSession(t, s, "the client takes no more", func(se *session) bool {
		return se.client.owes() && !se.client.writable && se.broker.readable && se.broker.interest&interestRead == 0
	})
	return s, c
}

// A loop is told of what a session waits for and of nothing else: while its client takes no
// bytes, when there is room again there, and nothing of the broker's bytes; afterwards of
// new bytes of either, and not of room.
func TestInterestFollowsNeed(t *testing.T) {
	onlyLinux(t)
	s, c := stalledReader(t)
	onLoop(t, s.loops[0], func() {
		if se := only(s.loops[0]); se.client.interest != interestRead|interestWrite || se.broker.interest != 0 {
			t.Errorf("interest %b in the client and %b in the broker, want %b and 0", se.client.interest, se.broker.interest, interestRead|interestWrite)
		}
	})
	if got := mustRead(t, c); len(got) != 16<<20+8 {
		t.Fatalf("got %d bytes", len(got))
	}
	awaitSession(t, s, "all is quiet", func(se *session) bool {
		return se.client.interest == interestRead && se.broker.interest == interestRead
	})
	mustWrite(t, c, request(30, 1, 2))
	mustRead(t, c)
}

// A side that nothing is wanted of is still heard when it resets.
func TestResetOfAMutedSide(t *testing.T) {
	onlyLinux(t)
	conns := make(chan *net.TCPConn, 1)
	s := newServerWithoutTicks(t, newBroker(t, func(c *net.TCPConn) {
		conns <- c
		bodyOf(64 << 20)(c)
	}).dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(30, 1, 1))
	awaitSession(t, s, "the broker is muted", func(se *session) bool { return se.client.owes() && se.broker.readable && se.broker.interest == 0 })
	reset(<-conns)
	awaitSession(t, s, "the reset is heard", func(se *session) bool { return se.broker.hungUp })
}

// A client's requests that cannot be passed on wake nobody: once they are known to be there,
// more of them are no event.
func TestMutedClientWakesNobody(t *testing.T) {
	onlyLinux(t)
	s := newServerWithoutTicks(t, newBroker(t, silence).dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = 2 })
	c := connect(t, s)
	mustWrite(t, c, request(30, 1, 1), request(30, 1, 2), request(30, 1, 3))
	awaitSession(t, s, "its limit is reached", func(se *session) bool { return se.requests.stall == stallInflight })
	mustWrite(t, c, request(30, 1, 4))
	awaitSession(t, s, "more is known to be there", func(se *session) bool { return se.client.readable && se.client.interest == 0 })
	var before uint64
	onLoop(t, s.loops[0], func() { before = s.loops[0].events })
	for id := range int32(100) {
		mustWrite(t, c, request(30, 1, 5+id))
		onLoop(t, s.loops[0], func() {})
	}
	// What gnet registers anew for writing reports once that there is room.
	onLoop(t, s.loops[0], func() {
		if n := s.loops[0].events - before; n > 1 {
			t.Errorf("%d events, want none", n)
		}
	})
}

// A socket whose interest cannot be changed costs its session, as a shortage of this machine.
func TestInterestCannotBeChanged(t *testing.T) {
	onlyLinux(t)
	j := &journal{}
	s := unstarted(t, newBroker(t, bodyOf(16<<20)).dial, rewrite.Rules{}, loggingTo(j))
	real := s.sys.openPoller
	s.sys.openPoller = func(o Options) (poller, error) {
		p, err := real(o)
		return &unmodifiable{p}, err
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	mustWrite(t, c, request(30, 1, 1))
	awaitSessions(t, s, 0)
	oneLine(t, j, "session closed", "reason=local_shortage", "cannot allocate memory")
}

// unmodifiable is a poller that cannot change an interest.
type unmodifiable struct{ poller }

func (*unmodifiable) modify(int, interest, interest) error { return syscall.ENOMEM }

// The calls and events of one small exchange: an event, a read and a write for each side, and
// nothing in vain. What an event says is new and changes nothing is counted as useless.
func TestCallsOfAnExchange(t *testing.T) {
	onlyLinux(t)
	s := newServerWithoutTicks(t, newEcho(t).dial, rewrite.Rules{})
	c := connect(t, s)
	served(t, c)
	tickAfter(t, s, 0) // reports, and sets to zero
	mustWrite(t, c, request(30, 1, 7))
	mustRead(t, c)
	onLoop(t, s.loops[0], func() {
		l := s.loops[0]
		got := l.count.calls
		got.bytes, got.waits = 0, 0
		if want := (calls{reads: 2, writes: 2}); got != want || l.count.events != 2 || l.count.useless != 0 {
			t.Errorf("%+v, %d events, %d of them useless; want %+v, 2 and 0", got, l.count.events, l.count.useless, want)
		}
		l.event(only(l).client.fd, edges{writable: true})
	})
	tickAfter(t, s, 0)
	if got := testutil.ToFloat64(s.metrics.events.WithLabelValues("useless")); got != 1 {
		t.Errorf("%v useless events, want 1", got)
	}
	for call, want := range map[string]float64{"read": 2, "write": 2} {
		if got := testutil.ToFloat64(s.metrics.calls.WithLabelValues(call)); got < want {
			t.Errorf("%v calls to %s, want at least %v", got, call, want)
		}
	}
}
