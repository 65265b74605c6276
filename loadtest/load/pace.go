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
}

// shortestWait is what a timer is worth: several operations that are due within it are
// sent together.
const shortestWait = 100 * time.Microsecond

// newPace is for one of n clients that together do rate operations a second, number i
// of them, so that they take turns.
func newPace(start time.Time, rate float64, i, n int) *pace {
	gap := float64(n) * float64(time.Second) / rate
	return &pace{start: start.Add(time.Duration(gap * float64(i) / float64(n))), gap: gap, timer: time.NewTimer(0)}
}

// due returns when the next operation is due. It does not wait.
func (p *pace) due() time.Time {
	return p.start.Add(time.Duration(float64(p.next) * p.gap))
}

// wait returns when the next operation is due, and its time; false when stop or ctx ended first.
func (p *pace) wait(ctx context.Context, stop <-chan struct{}) (time.Time, bool) {
	due := p.due()
	for {
		if left := time.Until(due); left > 0 {
			p.timer.Reset(max(left, shortestWait))
			select {
			case <-p.timer.C:
			case <-stop:
				return due, false
			case <-ctx.Done():
				return due, false
			}
			continue
		}
		select {
		case <-stop:
			return due, false
		case <-ctx.Done():
			return due, false
		default:
		}
		p.next++
		return due, true
	}
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
