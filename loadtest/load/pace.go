// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"time"
)

// pace says when operations are due: number n at start + n/rate, whatever became of the
// ones before. It belongs to one goroutine.
type pace struct {
	start time.Time
	gap   float64 // nanoseconds between two
	next  int64
	timer *time.Timer
	// ended tells when the measured time ended, once stop is closed: a client that stood
	// still sees it late. end is what it said.
	ended func() time.Time
	end   time.Time
}

// shortestWait is what a timer is worth: several operations that are due within it are
// sent together.
const shortestWait = 100 * time.Microsecond

// newPace is for one of n clients that together do rate operations a second, number i
// of them, so that they take turns.
func newPace(start time.Time, rate float64, i, n int) *pace {
	gap := float64(n) * float64(time.Second) / rate
	return &pace{start: start.Add(time.Duration(gap * float64(i) / float64(n))), gap: gap, timer: time.NewTimer(0), ended: time.Now}
}

// due returns when the next operation is due. It does not wait.
func (p *pace) due() time.Time {
	return p.start.Add(time.Duration(float64(p.next) * p.gap))
}

// catchUp is how long what was due before the end is still begun after it, when a target
// did not keep up.
const catchUp = time.Minute

// wait returns when the next operation is due, at that time or as soon after as the caller
// came; false at the end: stop is closed and nothing that was due before is left, or ctx
// has ended. What is left of it all the same is missed.
func (p *pace) wait(ctx context.Context, stop <-chan struct{}) (time.Time, bool) {
	for due := p.due(); ; {
		select {
		case <-stop:
			if p.end.IsZero() {
				p.end = p.ended()
			}
			if !due.Before(p.end) || time.Since(p.end) > catchUp {
				return due, false
			}
		case <-ctx.Done():
			return due, false
		default:
		}
		left := time.Until(due)
		if left <= 0 {
			p.next++
			return due, true
		}
		p.timer.Reset(max(left, shortestWait))
		select {
		case <-p.timer.C:
		case <-stop:
		case <-ctx.Done():
		}
	}
}

// missed returns when the operations were due that wait gave up.
func (p *pace) missed() []time.Time {
	var list []time.Time
	for !p.end.IsZero() && p.due().Before(p.end) {
		list = append(list, p.due())
		p.next++
	}
	return list
}

// pause waits; false when stop or ctx ended first.
func pause(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		select {
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		default:
			return true
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	}
}
