// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bounds of Compare.
const (
	// leastRounds of a run to tell a change from noise. Of twice three rounds that differ
	// by chance only, all three of one run are worse than all of the other one time in 20,
	// of twice five one time in 252.
	leastRounds = 3
	// leastChange is how much a median must differ: less is of no interest to anybody.
	leastChange = 0.03
)

// Tendency says what became of a figure from one run to another.
type Tendency string

// The tendencies.
const (
	// Worse: every round of the second run is worse than every round of the first, and
	// the medians differ by more than 3 %.
	Worse Tendency = "WORSE"
	// Better: the same the other way round.
	Better Tendency = "better"
	// Same: within the spread of the rounds.
	Same Tendency = "same"
	// Undecided: a run has fewer than three rounds.
	Undecided Tendency = "too few rounds"
)

// Change is a figure of a workload in two runs.
type Change struct {
	Target, Workload string
	Figure           Figure
	// Beside is the baseline that both runs' figures are divided by, round by round,
	// which takes the state of the machine out of them; empty for figures as they are.
	Beside string
	A, B   Spread
	// Ratio is the median of B by that of A.
	Ratio    float64
	Tendency Tendency
	// Context says that the target is what others are compared with: a change is one of
	// the brokers or the machine, and no regression.
	Context bool
}

// Comparison is two runs side by side.
type Comparison struct {
	Changes []Change
	// Failures are the reasons of the second run's verdict, when it failed.
	Failures []string
	// Notes say what makes the runs hard to compare, in a sentence each, without a full stop.
	Notes []string
}

// Compare puts run b beside the earlier run a. A target with a baseline is compared by its
// ratio to the baseline in the same round, but for CPU and memory, which are compared as they
// are; so are targets without a baseline.
func Compare(a, b *Run) Comparison {
	c := Comparison{Notes: notes(a, b)}
	if b.Verdict.Outcome == Failed {
		c.Failures = slices.Clone(b.Verdict.Reasons)
	}
	for i := range b.Targets {
		if before := a.Target(b.Targets[i].Name); before != nil {
			for j := range b.Targets[i].Workloads {
				if name := b.Targets[i].Workloads[j].Name; before.Workload(name) != nil {
					c.Changes = append(c.Changes, changes(a, b, b.Targets[i].Name, name)...)
				}
			}
		}
	}
	return c
}

// Regressions returns the changes to the worse that are none of the brokers or the machine.
func (c Comparison) Regressions() []Change {
	var found []Change
	for _, change := range c.Changes {
		if change.Tendency == Worse && !change.Context {
			found = append(found, change)
		}
	}
	return found
}

// Regressed says whether there are regressions or failures: what `loadtest compare` exits by.
func (c Comparison) Regressed() bool { return len(c.Regressions()) > 0 || len(c.Failures) > 0 }

func changes(a, b *Run, target, workload string) []Change {
	var found []Change
	context := slices.ContainsFunc(b.Targets, func(t Target) bool { return t.Baseline == target })
	beside := b.Target(target).Baseline
	if beside != a.Target(target).Baseline {
		beside = ""
	}
	for _, f := range b.Target(target).compared(workload) {
		change := Change{Target: target, Workload: workload, Figure: f, Context: context}
		change.A, change.B = a.Target(target).Spread(workload, f), b.Target(target).Spread(workload, f)
		if beside != "" && !f.used() {
			ratioA, ratioB := a.Ratio(target, beside, workload, f), b.Ratio(target, beside, workload, f)
			if ratioA.Known() && ratioB.Known() {
				change.A, change.B, change.Beside = ratioA, ratioB, beside
			}
		}
		if change.A.Known() && change.B.Known() && (change.A.Median != 0 || change.B.Median != 0) {
			change.judge()
			found = append(found, change)
		}
	}
	return found
}

// compared returns the figures of a workload that two runs are compared by. The longest
// latencies are made of too few operations. What the processes used for all workloads of a
// phase is compared once, with the first.
func (t *Target) compared(workload string) []Figure {
	w := t.Workload(workload)
	work, cost := w.work()
	found := []Figure{work, FigureP50, FigureP99}
	first := slices.IndexFunc(t.Workloads, func(other Workload) bool { return other.Phase == w.Phase })
	if t.Workloads[first].Name == workload {
		found = append(found, cost, FigurePeakRSS)
	}
	return found
}

// used says whether the figure is one of the target's processes.
func (f Figure) used() bool {
	return f == FigureCPUPerGB || f == FigureCPUPerMillion || f == FigurePeakRSS
}

func (c *Change) judge() {
	c.Ratio = c.B.Median / c.A.Median
	more, less := c.B.Min > c.A.Max, c.B.Max < c.A.Min
	switch {
	case c.A.Rounds < leastRounds || c.B.Rounds < leastRounds:
		c.Tendency = Undecided
	case math.Abs(c.Ratio-1) <= leastChange || !more && !less:
		c.Tendency = Same
	case more == c.Figure.MoreIsBetter():
		c.Tendency = Better
	default:
		c.Tendency = Worse
	}
}

// notes says what is different between runs besides their figures.
func notes(a, b *Run) []string {
	var found []string
	if a.Scenario.Text != b.Scenario.Text {
		found = append(found, "the runs have different scenarios")
	}
	if a.Environment.CPU != b.Environment.CPU || a.Environment.Cores != b.Environment.Cores {
		found = append(found, fmt.Sprintf("the runs took place on different machines: %s, then %s", a.Environment.words(), b.Environment.words()))
	} else if a.Environment.words() != b.Environment.words() {
		found = append(found, fmt.Sprintf("software or system changed: %s, then %s", a.Environment.words(), b.Environment.words()))
	}
	for _, side := range []struct {
		has, lacks *Run
		word       string
	}{{a, b, "first"}, {b, a, "second"}} {
		for i := range side.has.Targets {
			t := &side.has.Targets[i]
			other := side.lacks.Target(t.Name)
			if other == nil {
				found = append(found, fmt.Sprintf("target %s is in the %s run only", t.Name, side.word))
				continue
			}
			for j := range t.Workloads {
				if other.Workload(t.Workloads[j].Name) == nil {
					found = append(found, fmt.Sprintf("workload %s of %s is in the %s run only", t.Workloads[j].Name, t.Name, side.word))
				}
			}
		}
	}
	if a.Verdict.Outcome == Failed {
		found = append(found, "the first run failed its verification")
	}
	return found
}

// Text shows the comparison for a terminal, as Markdown.
func (c Comparison) Text() string {
	var b strings.Builder
	regressions := len(c.Regressions())
	switch {
	case len(c.Failures) > 0:
		b.WriteString("**FAILED: the second run did not pass its verification.**\n")
	case regressions > 0:
		fmt.Fprintf(&b, "**%s beyond the spread of the rounds.**\n", count(regressions, "regression"))
	case len(c.Changes) == 0:
		b.WriteString("**The runs have nothing in common that could be compared.**\n")
	default:
		b.WriteString("**No regression beyond the spread of the rounds.**\n")
	}
	writeList(&b, c.Failures)
	writeList(&b, c.Notes)
	table := Table{Head: []string{"target", "workload", "figure", "first", "second", "second by first", ""}}
	for _, change := range c.Changes {
		table.Rows = append(table.Rows, change.row())
	}
	if len(table.Rows) > 0 {
		fmt.Fprintf(&b, "\nMedians over rounds (least to most). Worse and better: all rounds of one run beyond all of the other, and by more than %g %%.\n\n%s",
			100*leastChange, table.markdown())
	}
	return b.String()
}

func (c Change) row() []string {
	show, words := c.Figure.Text, c.Figure.Words()
	if c.Beside != "" {
		show, words = ratioText, words+" beside "+c.Beside
	}
	tendency := cmp.Or(string(c.Tendency), string(Same))
	if c.Context && (c.Tendency == Worse || c.Tendency == Better) {
		tendency = strings.ToLower(tendency) + ": brokers or machine"
	}
	return []string{c.Target, c.Workload, words, c.A.text(show), c.B.text(show), ratioText(c.Ratio), tendency}
}
