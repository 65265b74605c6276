// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"testing/synctest"
	"time"
)

// A target that answers at once, but for one stall of a second. Of the 4000 records of
// four seconds, the 1000 that were due in the stall waited for its end: 1 s, 999 ms, ...
// 1 ms. A generator that sends the next record when the one before is answered would see
// one slow record in 3001.
func TestAStallIsSeenByAllThatWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(openLoop)
		g := m.gauge()
		start := time.Now()
		m.begin(start)
		stallFrom := start.Add(1500 * time.Millisecond)
		stop := make(chan struct{})
		time.AfterFunc(4*time.Second-time.Nanosecond, func() { close(stop) })
		p := newPace(start, 1000, 0, 1)
		sent := 0
		for {
			due, ok := p.wait(t.Context(), stop)
			if !ok {
				break
			}
			if sent++; due.Equal(stallFrom) {
				<-time.After(time.Second)
			}
			g.record(due, time.Now(), 10)
			if time.Since(start) >= time.Duration(len(m.points)+1)*time.Second {
				m.tick()
			}
		}
		m.finish(start.Add(4 * time.Second))
		r := m.round(1)
		if sent != 4000 || r.Latency.Count() != 4000 || r.Seconds != 4 || len(r.Series) != 4 {
			t.Fatalf("%d sent, %d counted, %v s, %d points; want 4000, 4000, 4, 4", sent, r.Latency.Count(), r.Seconds, len(r.Series))
		}
		bytes := int64(0)
		for _, point := range r.Series {
			bytes += point.Bytes
		}
		if bytes != 40_000 {
			t.Errorf("%d bytes, want 40000", bytes)
		}
		// A quarter of all waited, evenly from 1 ms to 1 s.
		for q, want := range map[float64]float64{0.5: 0, 0.74: 0, 0.8: 200_000, 0.9: 600_000, 0.99: 960_000, 1: 1_000_000} {
			if got := r.Latency.Quantile(q); got < want*0.998-100 || got > want*1.002+1100 {
				t.Errorf("quantile %v: %v us, want %v", q, got, want)
			}
		}
	})
}

// A stall that outlasts the measured time hides nothing: what was due in it is begun after
// it, and what cannot be begun any more counts as failed.
func TestAStallAtTheEndHidesNothing(t *testing.T) {
	f := func(stall time.Duration, wantSent int, wantErrors int64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			m := newMeter(openLoop)
			g := m.gauge()
			start := time.Now()
			m.begin(start)
			stop := make(chan struct{})
			time.AfterFunc(2*time.Second-time.Nanosecond, func() {
				m.finish(start.Add(2 * time.Second))
				close(stop)
			})
			p := newPace(start, 1000, 0, 1)
			p.ended = m.ended
			sent := 0
			for {
				due, ok := p.wait(t.Context(), stop)
				if !ok {
					break
				}
				if sent++; sent == 1501 {
					<-time.After(stall)
				}
				g.record(due, time.Now(), 1)
			}
			g.miss(p)
			r := m.round(1)
			if sent != wantSent || r.Latency.Count() != int64(wantSent) || r.Counts.Errors != wantErrors {
				t.Errorf("stall of %v: %d sent, %d counted, %d failed; want %d, %d, %d", stall, sent, r.Latency.Count(), r.Counts.Errors, wantSent, wantSent, wantErrors)
			}
		})
	}
	f(0, 2000, 0)
	f(10*time.Second, 2000, 0)
	f(2*time.Minute, 1501, 499)
}

// In an open loop all counts that was due in the measured time, and in a closed loop all
// that ended in it.
func TestWhatBelongsToTheMeasuredTime(t *testing.T) {
	f := func(l loop, want int64) {
		t.Helper()
		m := newMeter(l)
		g := m.gauge()
		start := time.Unix(1000, 0)
		at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
		g.record(at(-20), at(-10), 1) // before begin
		m.begin(start)
		g.record(at(-5), at(5), 1)
		g.record(at(10), at(20), 1)
		g.fail(at(15), at(20))
		m.finish(at(1000))
		g.record(at(990), at(3000), 1)
		g.record(at(1000), at(1010), 1)
		r := m.round(1)
		if got := r.Latency.Count(); got != want || r.Counts.Errors != 1 || r.Operations() != want+1 {
			t.Errorf("loop %v: %d latencies, %d operations, %d errors; want %d, %d, 1", l, got, r.Operations(), r.Counts.Errors, want, want+1)
		}
	}
	f(openLoop, 2)   // 10 and 990
	f(closedLoop, 2) // -5 to 5 and 10 to 20
}

func TestPaceOfSeveralClients(t *testing.T) {
	start := time.Unix(1000, 0)
	var got []time.Duration
	paces := []*pace{newPace(start, 100, 0, 2), newPace(start, 100, 1, 2)}
	for range 2 {
		for _, p := range paces {
			got = append(got, p.due().Sub(start))
			p.next++
		}
	}
	for i, want := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond} {
		if got[i] != want {
			t.Errorf("operation %d is due after %v, want %v", i, got[i], want)
		}
	}
}
