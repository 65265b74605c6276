// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Checked is a bound and what became of it.
type Checked struct {
	Bound
	// Value is what was measured; NaN when it could not be.
	Value float64
	// Held says whether the value is within the bound; false when there is none.
	Held bool
}

// Check measures a bound.
func (r *Run) Check(b Bound) Checked {
	c := Checked{Bound: b, Value: r.bounded(b)}
	c.Held = !math.IsNaN(c.Value) &&
		(b.AtLeast == nil || c.Value >= *b.AtLeast) && (b.AtMost == nil || c.Value <= *b.AtMost)
	return c
}

func (r *Run) bounded(b Bound) float64 {
	other := cmp.Or(b.AgainstWorkload, b.Workload)
	switch b.By {
	case ByRatio:
		return r.pairs(b.Target, b.Workload, b.Against, other, b.Figure, func(x, y float64) float64 { return x / y }).Median
	case ByDifference:
		return r.pairs(b.Target, b.Workload, b.Against, other, b.Figure, func(x, y float64) float64 { return x - y }).Median
	case ByValue, BySpread:
	}
	t := r.Target(b.Target)
	if t == nil {
		return math.NaN()
	}
	value := t.Spread(b.Workload, b.Figure).Median
	if b.By == ByValue {
		return value
	}
	against := r.Target(b.Against)
	if against == nil {
		return math.NaN()
	}
	spread := against.Spread(other, b.Figure)
	if b.Figure.MoreIsBetter() {
		return known(value / spread.Min)
	}
	return known(value / spread.Max)
}

// String says what was demanded and what was measured.
func (c Checked) String() string {
	if math.IsNaN(c.Value) {
		return fmt.Sprintf("%s: not measured, wanted %s", c.Text, c.wanted())
	}
	return fmt.Sprintf("%s: %s, wanted %s", c.Text, c.show(c.Value), c.wanted())
}

func (b Bound) wanted() string {
	var parts []string
	if b.AtLeast != nil {
		parts = append(parts, "at least "+b.show(*b.AtLeast))
	}
	if b.AtMost != nil {
		parts = append(parts, "at most "+b.show(*b.AtMost))
	}
	return strings.Join(parts, " and ")
}

func (b Bound) show(v float64) string {
	if b.By == ByRatio || b.By == BySpread {
		return ratioText(v)
	}
	return b.Figure.Text(v)
}

// Judge says what became of the verification, from the counts, the bounds, and what is
// missing. It does not look at the Verdict that the run has.
func Judge(r *Run) Verdict {
	var wrong, open []string
	for i := range r.Targets {
		t := &r.Targets[i]
		for j := range t.Workloads {
			w := &t.Workloads[j]
			wrong = append(wrong, faults(t.Name+", "+w.Name, w)...)
			open = append(open, holes(t.Name+", "+w.Name, w, r.Rounds)...)
		}
	}
	for _, b := range r.Bounds {
		if c := r.Check(b); !c.Held && math.IsNaN(c.Value) {
			open = append(open, c.String())
		} else if !c.Held {
			wrong = append(wrong, c.String())
		}
	}
	if r.Interrupted {
		open = append([]string{"the run was ended before it was through"}, open...)
	}
	if len(r.Targets) == 0 && len(r.Tables) == 0 {
		open = append(open, "nothing was measured")
	}
	open = append(open, r.Missing...)
	v := Verdict{Outcome: Passed, Reasons: append(wrong, open...)}
	if len(wrong) > 0 {
		v.Outcome = Failed
	} else if len(open) > 0 {
		v.Outcome = Incomplete
	}
	return v
}

// faults returns a sentence for each kind of thing that went wrong.
func faults(where string, w *Workload) []string {
	c := w.Counts()
	var found []string
	for _, k := range []struct {
		n, of int64
		words string
	}{
		{c.Lost, c.Sent, "acknowledged records lost"},
		{c.Duplicated, c.Received, "records received more than once"},
		{c.Reordered, c.Received, "records received out of order"},
		{c.Corrupt, c.Received, "records received with a wrong checksum"},
		{c.Wrong, c.Answers, "answers wrong"},
		{c.Errors, operations(w), "operations failed for good"},
	} {
		if k.n > 0 {
			found = append(found, fmt.Sprintf("%s: %s of %s %s", where, thousands(k.n), thousands(k.of), k.words))
		}
	}
	return found
}

// holes returns a sentence for what was not measured.
func holes(where string, w *Workload, rounds int) []string {
	var found []string
	rounds = cmp.Or(w.Planned, rounds)
	if len(w.Rounds) < rounds {
		found = append(found, fmt.Sprintf("%s: %d of %d rounds", where, len(w.Rounds), rounds))
	}
	for i := range w.Rounds {
		if w.Rounds[i].Operations() == 0 {
			found = append(found, fmt.Sprintf("%s: no operation ended in round %d", where, w.Rounds[i].Round))
		}
	}
	return found
}

func operations(w *Workload) int64 {
	sum := int64(0)
	for i := range w.Rounds {
		sum += w.Rounds[i].Operations()
	}
	return sum
}

// Verified says in a sentence without a full stop what was verified in the run.
func (r *Run) Verified() string {
	var c Counts
	for i := range r.Targets {
		for j := range r.Targets[i].Workloads {
			c.Add(r.Targets[i].Workloads[j].Counts())
		}
	}
	var parts []string
	if c.Sent > 0 || c.Received > 0 {
		parts = append(parts, fmt.Sprintf("%s records sent and %s received: %s lost, %s doubled, %s out of order, %s corrupt",
			thousands(c.Sent), thousands(c.Received), thousands(c.Lost), thousands(c.Duplicated), thousands(c.Reordered), thousands(c.Corrupt)))
	}
	if c.DuplicatesAllowed > 0 {
		parts = append(parts, fmt.Sprintf("%s doubles where the scenario allows them", thousands(c.DuplicatesAllowed)))
	}
	if c.Answers > 0 {
		parts = append(parts, fmt.Sprintf("%s answers checked, %s wrong", thousands(c.Answers), thousands(c.Wrong)))
	}
	if c.Errors > 0 || c.Retriable > 0 {
		parts = append(parts, fmt.Sprintf("%s operations failed for good, %s were tried again", thousands(c.Errors), thousands(c.Retriable)))
	}
	if len(parts) == 0 {
		return "no records and no answers to verify"
	}
	return strings.Join(parts, "; ")
}
