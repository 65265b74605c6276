// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// single is a run of one target whose rounds have the given throughput in MB/s.
func single(kind TargetKind, speeds ...int64) *Run {
	t := Target{Name: "it", Kind: kind}
	w := Workload{Name: "consume", Kind: "consume", Phase: "main", Operation: "records"}
	for i, speed := range speeds {
		w.Rounds = append(w.Rounds, Round{
			Round: i + 1, Start: began(), Seconds: 1, Series: []Point{{Bytes: speed * 1e6, Operations: 1000}},
		})
	}
	t.Workloads = []Workload{w}
	return &Run{Rounds: len(speeds), Started: began(), Targets: []Target{t}}
}

func tendencies(c Comparison) string {
	var lines []string
	for _, change := range c.Changes {
		line := fmt.Sprintf("%s %s %s %s %.3f", change.Target, change.Workload, change.Figure, change.Tendency, change.Ratio)
		if change.Beside != "" {
			line += " beside " + change.Beside
		}
		if change.Context {
			line += " (context)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestCompareTellsChangeFromSpread(t *testing.T) {
	f := func(a, b []int64, want string, regressed bool) {
		t.Helper()
		c := Compare(single(TargetExternal, a...), single(TargetExternal, b...))
		got, _, _ := strings.Cut(tendencies(c), "\n")
		equal(t, fmt.Sprint(a, b), got, "it consume throughput "+want)
		if c.Regressed() != regressed {
			t.Errorf("%v and %v: regressed %v, want %v", a, b, !regressed, regressed)
		}
	}
	f([]int64{100, 110, 120}, []int64{100, 110, 120}, "same 1.000", false)
	f([]int64{100, 110, 120}, []int64{99, 98, 97}, "WORSE 0.891", true)
	f([]int64{100, 110, 120}, []int64{100, 98, 97}, "same 0.891", false) // a round of one is as good as one of the other
	f([]int64{100, 110, 120}, []int64{121, 130, 140}, "better 1.182", false)
	f([]int64{100, 110, 120}, []int64{120, 130, 140}, "same 1.182", false)
	f([]int64{1000, 1001, 1002}, []int64{999, 998, 997}, "same 0.997", false) // less than anybody cares for
	f([]int64{100, 110}, []int64{50, 51, 52}, "too few rounds 0.486", false)
	f([]int64{100, 110, 120}, []int64{50}, "too few rounds 0.455", false)
}

func TestCompareByBaseline(t *testing.T) {
	// The machine was half as fast: the ratio to the baseline says that nothing changed.
	a, b := handmade(), handmade()
	for i := range b.Targets {
		for j := range b.Targets[i].Workloads[0].Rounds {
			for k := range b.Targets[i].Workloads[0].Rounds[j].Series {
				b.Targets[i].Workloads[0].Rounds[j].Series[k].Bytes /= 2
			}
		}
	}
	c := Compare(a, b)
	equal(t, "half the speed", tendencies(c), `direct produce-1k throughput same 0.500 (context)
direct produce-1k p50 same 1.000 (context)
direct produce-1k p99 same 1.000 (context)
direct look-ups rate same 1.000 (context)
tiergate produce-1k throughput same 1.000 beside direct
tiergate produce-1k p50 same 1.000 beside direct
tiergate produce-1k p99 same 1.000 beside direct
tiergate produce-1k cpu_per_gb same 2.000
tiergate produce-1k peak_rss same 1.000
tiergate look-ups rate same 1.000 beside direct`)

	// The proxy itself got slower and larger, and the brokers too.
	b = handmade()
	for i := range b.Targets {
		for j := range b.Targets[i].Workloads[0].Rounds {
			b.Targets[i].Workloads[0].Rounds[j].Latency = histogramOf(time.Duration(i+2) * 2 * ms)
		}
	}
	for i := range b.Targets[1].Turns {
		b.Targets[1].Turns[i].Process[0].RSS = 100 << 20
	}
	c = Compare(a, b)
	var regressions []string
	for _, change := range c.Regressions() {
		regressions = append(regressions, fmt.Sprintf("%s %s %s", change.Workload, change.Figure, change.Beside))
	}
	equal(t, "regressions", strings.Join(regressions, "\n"), "produce-1k p50 direct\nproduce-1k p99 direct\nproduce-1k peak_rss ")
	golden(t, "compare.md", c.Text())
}

func TestCompareNotes(t *testing.T) {
	a, b := handmade(), handmade()
	b.Scenario.Text = "name: other"
	b.Environment.Cores = 4
	b.Targets[1].Name = "nginx"
	b.Targets[0].Workloads = b.Targets[0].Workloads[:1]
	b.Verdict = Verdict{Outcome: Failed, Reasons: []string{"nginx, produce-1k: 1 of 3,000 acknowledged records lost"}}
	c := Compare(a, b)
	equal(t, "failures", strings.Join(c.Failures, "\n"), "nginx, produce-1k: 1 of 3,000 acknowledged records lost")
	equal(t, "notes", strings.Join(c.Notes, "\n"), `the runs have different scenarios
the runs took place on different machines: `+a.Environment.words()+`, then `+b.Environment.words()+`
workload look-ups of direct is in the first run only
target tiergate is in the first run only
target nginx is in the second run only`)
	if !c.Regressed() {
		t.Error("a run that failed its verification is no regression")
	}
	a.Verdict.Outcome, b.Verdict.Outcome = Failed, Passed
	b.Environment = a.Environment
	b.Environment.Kernel = "6.2.0"
	c = Compare(a, b)
	if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes, "software or system changed: ") || !strings.Contains(notes, "the first run failed its verification") {
		t.Errorf("notes:\n%s", notes)
	}
	if c.Regressed() {
		t.Errorf("regressions: %v, want none", c.Regressions())
	}
	text := Compare(&Run{}, &Run{}).Text()
	equal(t, "nothing in common", text, "**The runs have nothing in common that could be compared.**\n")
}
