// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// errManyPending is why a connection without a session was closed for another one.
var errManyPending = errors.New("max_pending_connections is reached, and of all that wait for their clients this one had waited longest")

// pending are the connections that have no session yet: their PROXY protocol header or TLS
// handshake is under way. Anybody may open such connections and stop in the middle, so:
//   - each has a goroutine and 15 to 40 KiB, and their number is bounded. When it is
//     reached, a connection that waits for bytes of its client is reset for the newcomer:
//     one of the client address that has most connections pending, and of those the one that
//     has waited longest. An attacker with one address only ever displaces itself. One with
//     many must open max connections within a round trip of an honest client to displace it.
//   - when none waits for its client, the newcomer waits in the kernel's queue.
//   - waiting for a client takes no turn (see turns): only work on a handshake does.
type pending struct {
	max   int
	turns turns
	// changed has an element when there may be room for one that found none.
	changed chan struct{}

	mu      sync.Mutex
	all     map[*arrival]*wait
	clients map[netip.Addr]int
}

// wait is what pending knows of a connection.
type wait struct {
	client netip.Addr
	// since is when the wait for the client's bytes began; zero while it is not waited for.
	since  time.Time
	cancel context.CancelCauseFunc
}

func newPending(most, handshakes int) *pending {
	return &pending{
		max: most, turns: turns{free: handshakes, max: handshakes, waiting: map[netip.Addr][]chan struct{}{}},
		changed: make(chan struct{}, 1), all: map[*arrival]*wait{}, clients: map[netip.Addr]int{},
	}
}

// enter counts an arrival in, and blocks until there is room. cancel is called when it must
// go. It reports false when ctx ends first.
func (p *pending) enter(ctx context.Context, a *arrival, cancel context.CancelCauseFunc) bool {
	waited := false
	for !p.tryEnter(a, cancel) {
		select {
		case <-p.changed:
			waited = true
		case <-ctx.Done():
			return false
		}
	}
	if waited {
		p.signal() // there may be room for another endpoint's newcomer too
	}
	return true
}

func (p *pending) tryEnter(a *arrival, cancel context.CancelCauseFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= p.max {
		victim := p.longest()
		if victim == nil {
			return false
		}
		resetOn(victim.conn)
		p.all[victim].cancel(errManyPending)
		p.remove(victim)
	}
	p.all[a] = &wait{client: shareOf(a.peer), cancel: cancel}
	p.clients[shareOf(a.peer)]++
	return true
}

// longest returns which connection goes first, or nil when none waits for its client.
func (p *pending) longest() (first *arrival) {
	for a, w := range p.all {
		if w.since.IsZero() {
			continue
		}
		if first == nil {
			first = a
			continue
		}
		mine, most := p.clients[w.client], p.clients[p.all[first].client]
		if mine > most || mine == most && w.since.Before(p.all[first].since) {
			first = a
		}
	}
	return first
}

// leave is called when an arrival is pending no more.
func (p *pending) leave(a *arrival) {
	p.mu.Lock()
	p.remove(a)
	p.mu.Unlock()
	p.signal()
}

func (p *pending) remove(a *arrival) {
	w, known := p.all[a]
	if !known {
		return // another one has its place
	}
	delete(p.all, a)
	if p.clients[w.client]--; p.clients[w.client] == 0 {
		delete(p.clients, w.client)
	}
}

func (p *pending) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// identify is called when a header has told who the client is.
func (p *pending) identify(a *arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.all[a]
	if !known {
		return
	}
	p.remove(a)
	w.client = shareOf(a.peer)
	p.all[a] = w
	p.clients[w.client]++
}

// awaiting runs read, which waits for the client of an arrival.
func (p *pending) awaiting(a *arrival, read func(b []byte) (int, error), b []byte) (int, error) {
	p.since(a, time.Now())
	p.signal()
	n, err := read(b)
	p.since(a, time.Time{})
	return n, err
}

func (p *pending) since(a *arrival, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, known := p.all[a]; known {
		w.since = t
	}
}

// count is how many there are.
func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// turns bounds the handshakes that are worked on at once, and gives client addresses their
// turns in rotation: one address with a thousand handshakes delays another by one.
type turns struct {
	mu        sync.Mutex
	max, free int
	// waiting are those of each address, in their order; next are the addresses.
	waiting map[netip.Addr][]chan struct{}
	next    []netip.Addr
}

// take waits for a turn of a client address.
func (t *turns) take(ctx context.Context, client netip.Addr) error {
	mine := t.join(client)
	if mine == nil {
		return nil
	}
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		t.abandon(client, mine)
		return fmt.Errorf("waiting for other handshakes: %w", ctx.Err())
	}
}

// join takes a turn that is free and returns nil, or what is closed when one is given.
func (t *turns) join(client netip.Addr) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	if len(t.waiting[client]) == 0 {
		t.next = append(t.next, client)
	}
	mine := make(chan struct{})
	t.waiting[client] = append(t.waiting[client], mine)
	return mine
}

// abandon undoes join.
func (t *turns) abandon(client netip.Addr, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[client], mine)
	if i < 0 {
		t.pass() // it was given meanwhile
		return
	}
	t.waiting[client] = slices.Delete(t.waiting[client], i, i+1)
	if len(t.waiting[client]) == 0 {
		delete(t.waiting, client)
		t.next = slices.DeleteFunc(t.next, func(c netip.Addr) bool { return c == client })
	}
}

// give ends a turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass hands a turn on to the next client address. t.mu is held.
func (t *turns) pass() {
	if len(t.next) == 0 {
		t.free++
		return
	}
	client := t.next[0]
	t.next = t.next[1:]
	close(t.waiting[client][0])
	t.waiting[client] = t.waiting[client][1:]
	if len(t.waiting[client]) > 0 {
		t.next = append(t.next, client)
	} else {
		delete(t.waiting, client)
	}
}

// taken is how many handshakes are worked on.
func (t *turns) taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.max - t.free
}
