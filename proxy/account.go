// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// The account of memory.
//
// Every session counts what it keeps allocated for others: frames that are collected, with
// the copy that rewriting them makes; bytes that a peer does not take yet; heads that are
// not complete; lookups. The sum is bounded by Options.MaxBufferedBytes in two steps:
//
//  1. A flow that collects a frame waits while its next piece would leave less than an
//     eighth of the limit free: its socket is not read, so the sender waits. What fits one
//     read never waits and may use that eighth, so a small response is served however full
//     the account is. No frame is begun while one that was begun waits, so that not all wait
//     for each other.
//  2. Where waiting does not help (a flow has waited for memoryPatience, or small pieces
//     have used the eighth up), the sessions that keep most are closed until an eighth of
//     the limit is free again. Of sessions that keep about as much, the one in which nothing
//     has moved for longest is closed first.
//
// What a loop has in its buffers while it works on one session is not counted: it is a
// constant per loop.
type account struct {
	limit int64
	total atomic.Int64
	// waiting is the number of flows that wait for room, begun that of those among them whose
	// frame has more than one read collected already.
	waiting, begun atomic.Int64
	// demanded: a flow has waited for memoryPatience.
	demanded atomic.Bool
	// wake has the reclaimer look. Capacity 1.
	wake chan struct{}
}

const (
	// memoryPatience is how long a flow waits for room before sessions are closed for it.
	memoryPatience = time.Second
	// minEvicted is the least that a session must keep to be closed for it.
	minEvicted = 4 << 10
)

// room reports whether there is room for n more bytes of frames that are collected.
func (a *account) room(n int64) bool { return a.total.Load()+n <= a.forFrames() }

// forFrames is the part of the limit that frames which are collected may use.
func (a *account) forFrames() int64 { return a.limit - a.limit/8 }

// add changes the sum. Safe for any goroutine.
func (a *account) add(n int64) {
	if total := a.total.Add(n); total > a.limit || n < 0 && a.waiting.Load() > 0 {
		a.look()
	}
}

// countWaiting counts a flow that begins to wait (1) or ends to (-1): with what it has
// collected then, which does not change meanwhile.
func (a *account) countWaiting(f *flow, n int64) {
	if n > 0 {
		f.waitsBegun = f.large()
	}
	a.waiting.Add(n)
	if f.waitsBegun {
		a.begun.Add(n)
	}
}

// look wakes the reclaimer.
func (a *account) look() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// reclaim lets flows that wait for room go on, and closes sessions where there is none.
func (s *Server) reclaim() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.account.wake:
			s.makeRoom()
		}
	}
}

// makeRoom is one round of reclaim.
func (s *Server) makeRoom() {
	demanded := s.account.demanded.Swap(false)
	total := s.account.total.Load()
	if total > s.account.limit || demanded && s.account.waiting.Load() > 0 {
		s.evict(max(total-s.account.forFrames(), s.account.limit/8))
	}
	_ = s.onLoops(s.ctx, (*loop).goOn) // reclaim ends with the server
}

// onLoops runs f on every loop and waits for all. The error is that of ctx, or says that the
// server was closed, where either ends first.
func (s *Server) onLoops(ctx context.Context, f func(*loop)) error {
	ran := make(chan struct{}, len(s.loops))
	for _, l := range s.loops {
		l.post(func() {
			defer func() { ran <- struct{}{} }()
			f(l)
		})
	}
	for range s.loops {
		select {
		case <-ran:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return errors.New("the proxy was closed")
		}
	}
	return nil
}

// holder is a session that keeps memory.
type holder struct {
	session *session
	bytes   int64
	// active and event are when the session had its last event: the tick before it, and its
	// number on the session's loop.
	active time.Time
	event  uint64
}

// magnitude is what counts of a holder's size: a factor of two makes a difference, and what
// two reads bring none.
func (h holder) magnitude() int { return bits.Len64(uint64(max(h.bytes, 2*bufferSize))) }

// evict closes the sessions that keep most until enough bytes are free.
func (s *Server) evict(enough int64) {
	all := make([][]holder, len(s.loops))
	if s.onLoops(s.ctx, func(l *loop) { all[slices.Index(s.loops, l)] = l.holders(enough) }) != nil {
		return
	}
	closing := map[*loop][]*session{}
	for _, h := range largest(slices.Concat(all...), enough) {
		closing[h.session.loop] = append(closing[h.session.loop], h.session)
	}
	_ = s.onLoops(s.ctx, func(l *loop) { // reclaim ends with the server
		for _, session := range closing[l] {
			l.guard(session, func() {
				session.end(reasonBufferFull, fmt.Errorf("%w: the session kept %d of %d bytes (max_buffered_bytes is %d), among the most of all",
					errBufferFull, session.buffered, s.account.total.Load(), s.account.limit))
			})
		}
	})
}

// holders returns the loop's sessions that keep most, enough bytes together.
func (l *loop) holders(enough int64) []holder {
	var all []holder
	for s := range l.sessions {
		if s.buffered >= minEvicted {
			all = append(all, holder{s, s.buffered, s.lastActive, s.lastEvent})
		}
	}
	return largest(all, enough)
}

// largest returns the first of all, in the order in which they are closed, that keep
// enough bytes together. Sizes count by their magnitude only: of two that keep about as much
// the one that was active last is spared.
func largest(all []holder, enough int64) []holder {
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.magnitude(), a.magnitude()), a.active.Compare(b.active), cmp.Compare(a.event, b.event))
	})
	for i, h := range all {
		if enough -= h.bytes; enough <= 0 {
			return all[:i+1]
		}
	}
	return all
}

// wait has a flow wait for room.
func (l *loop) wait(f *flow) {
	f.stall = stallMemory
	f.waitsSince = l.sys.now()
	l.waiting = append(l.waiting, f)
	l.count.memoryWaits++
	l.server.account.countWaiting(f, 1)
}

// goOn has flows that wait for room try again.
func (l *loop) goOn() {
	waiting := l.waiting
	l.waiting = nil
	for _, f := range waiting {
		s, since := f.session, f.waitsSince
		l.server.account.countWaiting(f, -1)
		if s.state == stateEnded || f.stall != stallMemory {
			continue
		}
		f.stall = goes
		l.guard(s, func() { s.advance(f) })
		if f.stall == stallMemory {
			f.waitsSince = since // it got nothing
		}
	}
}

// demand asks for room for flows that have waited too long.
func (l *loop) demand(now time.Time) {
	for _, f := range l.waiting {
		if now.Sub(f.waitsSince) >= memoryPatience {
			l.server.account.demanded.Store(true)
			l.server.account.look()
			return
		}
	}
}
