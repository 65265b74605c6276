// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"sync"
	"time"

	"tiergate/loadtest/report"
)

// loop says when the time of an operation begins.
type loop uint8

const (
	// closedLoop: when the client sends it. What ends outside of the measured time is not
	// counted.
	closedLoop loop = iota
	// openLoop: when it was due. All that was due in the measured time is counted, however
	// late it ends.
	openLoop
)

// meter measures one workload in one turn: one point a second, one histogram over all.
// Clients record into a gauge each.
type meter struct {
	loop loop

	mu     sync.Mutex
	gauges []*gauge
	start  time.Time // zero: the warm-up is not over
	end    time.Time // zero: the measured time is not over
	points []report.Point
	total  *report.Histogram
	second *report.Histogram // scratch
}

// gauge is what one client records into. It is safe for concurrent use.
type gauge struct {
	loop loop

	mu         sync.Mutex
	start, end time.Time
	now        *report.Histogram // of this second
	bytes      int64
	operations int64
	errors     int64
	retriable  int64
	begun      bool // an operation has ended, be it in the warm-up
}

func newMeter(l loop) *meter {
	return &meter{loop: l, total: report.NewHistogram(), second: report.NewHistogram()}
}

// gauge returns a new one. Gauges are made before begin.
func (m *meter) gauge() *gauge {
	g := &gauge{loop: m.loop, now: report.NewHistogram()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauges = append(m.gauges, g)
	return g
}

// counts says whether an operation belongs to the measured time. It needs g.mu.
func (g *gauge) counts(from, to time.Time) bool {
	g.begun = true
	at := to
	if g.loop == openLoop {
		at = from
	}
	return !g.start.IsZero() && !at.Before(g.start) && (g.end.IsZero() || at.Before(g.end))
}

// record notes an operation that ended well.
func (g *gauge) record(from, to time.Time, bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counts(from, to) {
		g.now.Record(to.Sub(from))
		g.bytes += int64(bytes)
		g.operations++
	}
}

// add notes operations of which there are no latencies.
func (g *gauge) add(at time.Time, operations, bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counts(at, at) {
		g.bytes += int64(bytes)
		g.operations += int64(operations)
	}
}

// fail notes an operation that ended badly. It is an operation too.
func (g *gauge) fail(from, to time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counts(from, to) {
		g.operations++
		g.errors++
	}
}

// miss notes operations that were due and never begun.
func (g *gauge) miss(p *pace) {
	if p == nil {
		return
	}
	for _, due := range p.missed() {
		g.fail(due, time.Now())
	}
}

// retry notes a request that failed and that the client tries again.
func (g *gauge) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.retriable++
}

// begun says whether any operation has ended so far.
func (m *meter) begun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.gauges {
		g.mu.Lock()
		begun := g.begun
		g.mu.Unlock()
		if begun {
			return true
		}
	}
	return false
}

// each runs f with every gauge, locked. It needs m.mu.
func (m *meter) each(f func(*gauge)) {
	for _, g := range m.gauges {
		g.mu.Lock()
		f(g)
		g.mu.Unlock()
	}
}

// begin starts the measured time.
func (m *meter) begin(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start = at
	m.each(func(g *gauge) { g.start = at })
}

// tick ends a second of the measured time, and returns its point.
func (m *meter) tick() report.Point {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.collect()
	p.Second = float64(len(m.points))
	m.points = append(m.points, p)
	return p
}

// collect empties the gauges. It needs m.mu.
func (m *meter) collect() report.Point {
	var p report.Point
	m.second.Reset()
	m.each(func(g *gauge) {
		m.second.Merge(g.now)
		g.now.Reset()
		p.Bytes += g.bytes
		p.Operations += g.operations
		p.Errors += g.errors
		g.bytes, g.operations, g.errors = 0, 0, 0
	})
	m.total.Merge(m.second)
	p.P50, p.P99, p.P999, p.Max = m.second.Quantile(0.5), m.second.Quantile(0.99), m.second.Quantile(0.999), m.second.Max()
	return p
}

// finish ends the measured time. In an open loop, what was due before may still end.
func (m *meter) finish(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = at
	m.each(func(g *gauge) { g.end = at })
}

// ended returns when the measured time ended, or the time now when it has not.
func (m *meter) ended() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end.IsZero() {
		return time.Now()
	}
	return m.end
}

// round returns what was measured, when all clients are done.
func (m *meter) round(number int) report.Round {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := report.Round{Round: number, Start: m.start}
	if m.start.IsZero() {
		return r
	}
	r.Seconds = m.end.Sub(m.start).Seconds()
	last := m.collect()
	switch n := len(m.points); {
	case float64(n) < r.Seconds: // a part of a second
		last.Second = float64(n)
		m.points = append(m.points, last)
	case n > 0: // what was due in time and ended late
		p := &m.points[n-1]
		p.Bytes += last.Bytes
		p.Operations += last.Operations
		p.Errors += last.Errors
		p.Max = max(p.Max, last.Max)
	}
	r.Series = m.points
	for _, p := range m.points {
		r.Counts.Errors += p.Errors
	}
	for _, g := range m.gauges {
		g.mu.Lock()
		r.Counts.Retriable += g.retriable
		g.mu.Unlock()
	}
	if m.total.Count() > 0 {
		r.Latency = m.total
	}
	return r
}
