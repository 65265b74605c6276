// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"runtime/debug"
	"time"

	"tiergate/codec"
)

const (
	// readSize is the most that one read takes from a socket. 64 KiB costs a bulk
	// transfer nothing against larger sizes and bounds what a stalled session keeps.
	readSize = 64 << 10
	// bufferSize leaves room before a read for what a flow carried over: at most the
	// head of one request, or one buffer that waited for its session to go on.
	bufferSize = codec.MaxRequestHead + readSize
	// pumpBudget is what one flow may move before other sessions get their turn.
	pumpBudget = 4 << 20
	// tlsBudget is the same where bytes are encrypted or decrypted, which takes longer: key
	// updates, of which a record is nearly all that it costs, most of all.
	tlsBudget = pumpBudget / 4
)

// loop is one goroutine, its poller, and all state of its sessions.
type loop struct {
	server *Server
	sys    system
	poller poller
	// conns finds a socket by its descriptor. An event of a descriptor that is not here
	// is stale: its session ended earlier in the same round.
	conns    map[int]*conn
	sessions map[*session]struct{}
	// buf is what every read goes to. It holds bytes only while a flow is pumped.
	buf []byte
	// cipherIn and cipherOut do the same for ciphertext.
	cipherIn, cipherOut []byte
	// turns are flows that used their budget up. They go on after the events of the
	// round that runs. spare is the slice that turns was before.
	turns, spare []*flow
	// budget is pumpBudget, but in tests of turns.
	budget int
	// events counts the events of sockets.
	events uint64
	// now is the time of the last tick: coarse, and free to read.
	now      time.Time
	draining bool
	pipes    pipes
	count    counts
	// waiting are the flows that wait for room in the account of memory.
	waiting []*flow
}

// newLoop opens a poller. The caller runs it in a goroutine, or closes it.
func newLoop(s *Server) (*loop, error) {
	poller, err := s.sys.openPoller(s.opts)
	if err != nil {
		return nil, fmt.Errorf("open poller: %w", err)
	}
	l := &loop{
		server: s, sys: s.sys, poller: poller, budget: pumpBudget, now: s.sys.now(),
		conns: map[int]*conn{}, sessions: map[*session]struct{}{},
		pipes: pipes{sys: &s.sys, limit: s.opts.MaxPipes / s.opts.Loops},
		buf:   make([]byte, bufferSize), cipherIn: make([]byte, readSize),
		count: newCounts(len(s.opts.Endpoints)),
	}
	return l, nil
}

// run serves events until a posted stop.
func (l *loop) run() {
	if err := l.poller.run(l.event, l.takeTurns); err != nil {
		l.server.log.Error("event loop failed", "error", err)
	}
	for s := range l.sessions {
		s.end(reasonShutdown, nil)
	}
	l.poller.close()
	l.pipes.close()
	l.report()
}

// report adds what the loop has counted to the metrics.
func (l *loop) report() {
	l.pipes.count(&l.count)
	l.poller.count(&l.count.calls)
	l.server.metrics.add(&l.count)
}

// post has f run on the loop, after what was posted before. Safe for any goroutine.
// After the loop's stop was posted, f never runs.
func (l *loop) post(f func()) {
	if err := l.poller.post(f); err != nil {
		l.server.log.Error("event loop cannot be woken", "error", err)
	}
}

// stop ends run after the tasks posted before it.
func (l *loop) stop() { l.poller.stop() }

// event is called by the poller for each socket that changed.
func (l *loop) event(fd int, e edges) {
	if c := l.conns[fd]; c != nil {
		l.guard(c.session, func() { c.session.event(c, e) })
	}
}

// guard runs f, which works for s: a panic costs that session and no other.
func (l *loop) guard(s *session, f func()) {
	defer func() {
		if p := recover(); p != nil {
			l.server.log.Error("panic in a session", "panic", p, "stack", string(debug.Stack()))
			s.end(reasonPanic, fmt.Errorf("panic: %v", p))
		}
	}()
	f()
	s.rest()
}

// queueTurn lets f go on after the other events of this round.
func (l *loop) queueTurn(f *flow) {
	if f.queued {
		return
	}
	f.queued = true
	l.turns = append(l.turns, f)
	if len(l.turns) == 1 {
		l.poller.again()
	}
}

// takeTurns pumps the flows that were queued until now.
func (l *loop) takeTurns() {
	turns := l.turns
	l.turns, l.spare = l.spare[:0], turns
	for i, f := range turns {
		turns[i] = nil
		f.queued = false
		s := f.session
		if s.state != stateEnded {
			l.guard(s, func() { s.advance(f) })
		}
	}
}

// tick runs about once a second: deadlines, and the counters that metrics show.
func (l *loop) tick(now time.Time) {
	l.now = now
	for s := range l.sessions {
		l.guard(s, s.tick)
	}
	for _, e := range l.server.endpoints {
		e.warnUnmapped(now)
	}
	l.demand(now)
	l.pipes.trim()
	l.report()
}

// add registers a socket. The loop owns fd from here on, also when it fails.
func (l *loop) add(c *conn) error {
	err := l.poller.add(c.fd)
	if err != nil {
		_ = l.sys.close(c.fd)
		return err
	}
	c.writable, c.interest = true, interestRead
	l.conns[c.fd] = c
	return nil
}

// remove closes a socket.
func (l *loop) remove(c *conn) {
	delete(l.conns, c.fd)
	// Closing the only descriptor also takes it out of the poller.
	_ = l.sys.close(c.fd)
}
