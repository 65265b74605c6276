// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// conditions is a fault of all bytes of some relays.
type conditions struct {
	kind    Kind
	text    string
	relays  []*Relay
	set     func(*condition)
	restore func(*condition)
}

// NewLatency returns a fault that delays every byte in each direction by latency, give or
// take jitter, which is at most latency. Order is kept. The time of connecting is not
// changed. What is delayed when the fault ends is sent at once.
func NewLatency(latency, jitter time.Duration, relays ...*Relay) Fault {
	text := fmt.Sprintf("%v more in each direction", latency)
	if jitter > 0 {
		text = fmt.Sprintf("%v ± %v more in each direction", latency, jitter)
	}
	return &conditions{
		kind: KindLatency, text: text, relays: relays,
		set:     func(c *condition) { c.latency, c.jitter = latency, min(jitter, latency) },
		restore: func(c *condition) { c.latency, c.jitter = 0, 0 },
	}
}

// NewBandwidth returns a fault that limits each relay to a rate in bytes per second, at
// least 1 KiB, in each direction, of all its connections together.
func NewBandwidth(bytesPerSecond int64, relays ...*Relay) Fault {
	bytesPerSecond = max(bytesPerSecond, 1<<10)
	return &conditions{
		kind: KindBandwidth, text: fmt.Sprintf("%d bytes per second in each direction", bytesPerSecond), relays: relays,
		set:     func(c *condition) { c.rate = bytesPerSecond },
		restore: func(c *condition) { c.rate = 0 },
	}
}

func (f *conditions) Kind() Kind     { return f.kind }
func (f *conditions) String() string { return f.text }

func (f *conditions) Begin(context.Context) error {
	for _, r := range f.relays {
		r.change(f.set)
	}
	return nil
}

func (f *conditions) End(context.Context) error {
	for _, r := range f.relays {
		r.change(f.restore)
	}
	return nil
}

// Ending is how a connection is cut.
type Ending uint8

// The endings.
const (
	// FIN is the end of a stream, as from a process that ends.
	FIN Ending = iota
	// RST is a reset: what is under way is lost.
	RST
)

// String names the ending.
func (e Ending) String() string {
	if e == RST {
		return "RST"
	}
	return "FIN"
}

// cut ends connections, or has them fall silent.
type cut struct {
	kind   Kind
	verb   string
	act    func(*pair) bool
	share  float64
	random *rand.Rand
	relays []*Relay
	newly  newcomers // while the fault is in force
	// hit are those of the last Begin, of so many.
	hit   []*pair
	of    int
	begun bool
}

// NewCut returns a fault that cuts a share, above 0 and up to 1, of the open connections at
// random, but at least one if there are any. The bytes that the relay holds of them are lost.
func NewCut(ending Ending, share float64, seed uint64, relays ...*Relay) Fault {
	f := newCut(KindCutFIN, "cut by FIN", (*pair).finish, share, seed, relays)
	if ending == RST {
		f.kind, f.verb, f.act = KindCutRST, "cut by RST", (*pair).reset
	}
	return f
}

// NewHalfOpen returns a fault that has a share of the open connections fall silent, chosen as
// NewCut does: each of the two peers sees one that takes all and says nothing, not even when
// the other one closes. New connections are served. At the end those that are still open are
// reset, as by a peer that is back and does not know them.
func NewHalfOpen(share float64, seed uint64, relays ...*Relay) Fault {
	return newCut(KindHalfOpen, "silent", (*pair).silence, share, seed, relays)
}

// NewBlackhole is NewHalfOpen for all connections, and those made while it is in force, which
// reach nobody.
func NewBlackhole(relays ...*Relay) Fault {
	f := newCut(KindBlackhole, "silent, and new ones too", (*pair).silence, 1, 0, relays)
	f.newly = newcomersSilent
	return f
}

func newCut(kind Kind, verb string, act func(*pair) bool, share float64, seed uint64, relays []*Relay) *cut {
	return &cut{kind: kind, verb: verb, act: act, share: share, random: rand.New(rand.NewPCG(seed, 0)), relays: relays}
}

func (f *cut) Kind() Kind { return f.kind }

func (f *cut) String() string {
	if !f.begun {
		return fmt.Sprintf("%g %% of the connections %s", 100*f.share, f.verb)
	}
	return fmt.Sprintf("%d of %d connections %s", len(f.hit), f.of, f.verb)
}

func (f *cut) Begin(context.Context) error {
	var open []*pair
	for _, r := range f.relays {
		r.swallowNew(f.newly)
		open = append(open, r.open()...)
	}
	f.hit, f.of, f.begun = nil, len(open), true
	for _, p := range choose(f.random, open, f.share) {
		if f.act(p) {
			f.hit = append(f.hit, p)
		}
	}
	return nil
}

func (f *cut) End(context.Context) error {
	for _, r := range f.relays {
		if f.newly == newcomersSilent {
			r.swallowNew(newcomersServed)
			for _, p := range r.open() {
				if p.is(silent) {
					p.reset()
				}
			}
		}
	}
	if f.kind == KindHalfOpen {
		for _, p := range f.hit {
			p.reset()
		}
	}
	return nil
}

// choose returns a share of what there is, at least one, in its order.
func choose[T any](random *rand.Rand, from []T, share float64) []T {
	if len(from) == 0 {
		return nil
	}
	n := min(max(1, int(share*float64(len(from))+0.5)), len(from))
	chosen := make([]T, 0, n)
	for i := range from { // Knuth 2, 3.4.2, algorithm S
		if random.IntN(len(from)-i) < n-len(chosen) {
			chosen = append(chosen, from[i])
		}
	}
	return chosen
}
