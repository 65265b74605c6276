// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	f := func(change func(r *Run, counts *Counts), want string) {
		t.Helper()
		r := handmade()
		change(r, &r.Target("tiergate").Workload("produce-1k").Rounds[1].Counts)
		r.Verdict = Verdict{Outcome: Failed, Reasons: []string{"is not looked at"}}
		v := Judge(r)
		equal(t, "verdict", strings.Join(append([]string{string(v.Outcome)}, v.Reasons...), "\n"), want)
	}
	f(func(*Run, *Counts) {}, "passed")
	f(func(_ *Run, c *Counts) { c.Lost = 2 }, "failed\ntiergate, produce-1k: 2 of 3,000 acknowledged records lost")
	f(func(_ *Run, c *Counts) { c.Duplicated = 1 }, "failed\ntiergate, produce-1k: 1 of 3,000 records received more than once")
	f(func(_ *Run, c *Counts) { c.Reordered = 1 }, "failed\ntiergate, produce-1k: 1 of 3,000 records received out of order")
	f(func(_ *Run, c *Counts) { c.Corrupt = 1 }, "failed\ntiergate, produce-1k: 1 of 3,000 records received with a wrong checksum")
	f(func(_ *Run, c *Counts) { c.Answers, c.Wrong = 10, 3 }, "failed\ntiergate, produce-1k: 3 of 10 answers wrong")
	f(func(_ *Run, c *Counts) { c.Errors = 1 }, "failed\ntiergate, produce-1k: 1 of 1,680,000 operations failed for good")
	f(func(_ *Run, c *Counts) { c.DuplicatesAllowed, c.Retriable = 7, 7 }, "passed")
	f(func(r *Run, _ *Counts) { r.Interrupted = true }, "incomplete\nthe run was ended before it was through")
	f(func(r *Run, _ *Counts) { r.Missing = []string{"haproxy: not installed"} }, "incomplete\nhaproxy: not installed")
	f(func(r *Run, c *Counts) { r.Missing, c.Lost = []string{"haproxy: not installed"}, 1 },
		"failed\ntiergate, produce-1k: 1 of 3,000 acknowledged records lost\nhaproxy: not installed")
	f(func(r *Run, _ *Counts) { r.Rounds = 4 },
		"incomplete\ndirect, produce-1k: 3 of 4 rounds\ndirect, look-ups: 3 of 4 rounds\ntiergate, produce-1k: 3 of 4 rounds\ntiergate, look-ups: 3 of 4 rounds")
	f(func(r *Run, _ *Counts) {
		r.Rounds = 4
		for i := range r.Targets {
			for j := range r.Targets[i].Workloads {
				r.Targets[i].Workloads[j].Planned = 3 // a phase of its own number of rounds
			}
		}
	}, "passed")
	f(func(r *Run, _ *Counts) { r.Target("tiergate").Workload("look-ups").Rounds[0].Series = nil },
		"incomplete\ntiergate, look-ups: no operation ended in round 1")
	f(func(r *Run, _ *Counts) { *r.Bounds[0].AtLeast = 0.951 }, "failed\nproduce throughput beside direct: 0.95×, wanted at least 0.95×")
	f(func(r *Run, _ *Counts) { r.Bounds[0].Against = "haproxy" }, "incomplete\nproduce throughput beside direct: not measured, wanted at least 0.95×")
	f(func(r *Run, _ *Counts) { r.Targets, r.Tables, r.Bounds = nil, nil, nil }, "incomplete\nnothing was measured")
}

func TestBounds(t *testing.T) {
	r := handmade()
	limit := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		bound Bound
		value float64
		held  bool
	}{
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureThroughput, By: ByRatio, Against: "direct", AtLeast: limit(0.95)}, 0.95, true},
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureThroughput, By: ByRatio, Against: "direct", AtLeast: limit(0.96)}, 0.95, false},
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureP50, By: ByDifference, Against: "direct", AtMost: limit(100)}, 100, true},
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureP50, By: ByDifference, Against: "direct", AtMost: limit(99)}, 100, false},
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigurePeakRSS, By: ByValue, AtLeast: limit(1), AtMost: limit(64 << 20)}, 64 << 20, true},
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigurePeakRSS, By: ByValue, AtLeast: limit(65 << 20), AtMost: limit(1e9)}, 64 << 20, false},
		// The median of 190 MB/s is no worse than the worst round of direct, 100 MB/s.
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureThroughput, By: BySpread, Against: "direct", AtLeast: limit(1)}, 1.9, true},
		// 1,100 µs are beyond all rounds of direct, of 1,000 µs each.
		{Bound{Target: "tiergate", Workload: "produce-1k", Figure: FigureP50, By: BySpread, Against: "direct", AtMost: limit(1)}, 1.1, false},
		// Another workload of the same round: 2,000 answers by 200,000 records.
		{Bound{
			Target: "direct", Workload: "look-ups", Figure: FigureRate, By: ByRatio, Against: "direct", AgainstWorkload: "produce-1k", AtMost: limit(1),
		}, 0.01, true},
	} {
		got := r.Check(c.bound)
		equal(t, fmt.Sprintf("%+v", c.bound), fmt.Sprint(show(got.Value), got.Held), fmt.Sprint(show(c.value), c.held))
	}
	for _, unknown := range []Bound{
		{Target: "nobody", Workload: "produce-1k", Figure: FigureP50, By: ByValue, AtMost: limit(1e9)},
		{Target: "direct", Workload: "nothing", Figure: FigureP50, By: ByValue, AtMost: limit(1e9)},
		{Target: "direct", Workload: "produce-1k", Figure: FigureP50, By: BySpread, Against: "nobody", AtMost: limit(1e9)},
		{Target: "direct", Workload: "produce-1k", Figure: FigureP50, By: ByRatio, Against: "nobody", AtMost: limit(1e9)},
	} {
		got := r.Check(unknown)
		equal(t, fmt.Sprintf("%+v", unknown), fmt.Sprint(show(got.Value), got.Held), "NaN false")
	}
}

func TestVerified(t *testing.T) {
	r := handmade()
	equal(t, "verified", r.Verified(), "6,000 records sent and 6,000 received: 0 lost, 0 doubled, 0 out of order, 0 corrupt; "+
		"30,000 answers checked, 0 wrong; 0 operations failed for good, 6 were tried again")
	equal(t, "nothing verified", (&Run{}).Verified(), "no records and no answers to verify")
}
