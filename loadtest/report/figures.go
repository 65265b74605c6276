// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
)

// Figures returns all figures in the order in which they are shown.
func Figures() []Figure {
	return []Figure{
		FigureThroughput, FigureRate, FigureP50, FigureP99, FigureP999, FigureMax,
		FigureCPUPerGB, FigureCPUPerMillion, FigurePeakRSS,
	}
}

// MoreIsBetter says which way is up.
func (f Figure) MoreIsBetter() bool { return f == FigureThroughput || f == FigureRate }

// Words names the figure for people.
func (f Figure) Words() string {
	switch f {
	case FigureThroughput:
		return "throughput"
	case FigureRate:
		return "operations per second"
	case FigureP50:
		return "latency p50"
	case FigureP99:
		return "latency p99"
	case FigureP999:
		return "latency p99.9"
	case FigureMax:
		return "longest latency"
	case FigureCPUPerGB:
		return "CPU per GB"
	case FigureCPUPerMillion:
		return "CPU per million operations"
	case FigurePeakRSS:
		return "peak memory"
	}
	return string(f)
}

// Spread is what a figure was over the rounds. NaN when there is no round that has it.
type Spread struct {
	Median, Min, Max float64
	// Rounds is how many rounds it is made of.
	Rounds int
}

// Known says whether any round has the figure.
func (s Spread) Known() bool { return s.Rounds > 0 }

// NewSpread returns the spread of values.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1], Rounds: n}
}

// Target returns the target of that name; nil when there is none.
func (r *Run) Target(name string) *Target {
	for i := range r.Targets {
		if r.Targets[i].Name == name {
			return &r.Targets[i]
		}
	}
	return nil
}

// Workload returns the workload of that name; nil when there is none.
func (t *Target) Workload(name string) *Workload {
	for i := range t.Workloads {
		if t.Workloads[i].Name == name {
			return &t.Workloads[i]
		}
	}
	return nil
}

// Turn returns the turn of a round of a phase; nil when there is none.
func (t *Target) Turn(phase string, round int) *Turn {
	for i := range t.Turns {
		if t.Turns[i].Phase == phase && t.Turns[i].Round == round {
			return &t.Turns[i]
		}
	}
	return nil
}

// Round returns the round of that number; nil when there is none.
func (w *Workload) Round(number int) *Round {
	for i := range w.Rounds {
		if w.Rounds[i].Round == number {
			return &w.Rounds[i]
		}
	}
	return nil
}

// work returns the figure that tells how much the workload did, and cost that of the CPU time.
func (w *Workload) work() (work, cost Figure) {
	if w.Operation == OperationRecords {
		return FigureThroughput, FigureCPUPerGB
	}
	return FigureRate, FigureCPUPerMillion
}

// Merged returns the latencies of all rounds together; an empty histogram when there are none.
func (w *Workload) Merged() *Histogram {
	all := NewHistogram()
	for i := range w.Rounds {
		all.Merge(w.Rounds[i].Latency)
	}
	return all
}

// Counts returns the sums over all rounds.
func (w *Workload) Counts() Counts {
	var all Counts
	for i := range w.Rounds {
		all.Add(w.Rounds[i].Counts)
	}
	return all
}

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	c.Sent += other.Sent
	c.Received += other.Received
	c.Lost += other.Lost
	c.Duplicated += other.Duplicated
	c.DuplicatesAllowed += other.DuplicatesAllowed
	c.Reordered += other.Reordered
	c.Corrupt += other.Corrupt
	c.Errors += other.Errors
	c.Retriable += other.Retriable
	c.Answers += other.Answers
	c.Wrong += other.Wrong
}

// Bytes returns the sum over the series.
func (r *Round) Bytes() int64 {
	sum := int64(0)
	for _, p := range r.Series {
		sum += p.Bytes
	}
	return sum
}

// Operations returns the sum over the series.
func (r *Round) Operations() int64 {
	sum := int64(0)
	for _, p := range r.Series {
		sum += p.Operations
	}
	return sum
}

// length returns how many seconds the interval of a point is long.
func (r *Round) length(p Point) float64 {
	return math.Min(1, r.Seconds-p.Second)
}

// CPU returns the CPU seconds of the target's processes in the turn, NaN when not known.
func (t *Turn) CPU() float64 {
	if len(t.Process) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, p := range t.Process {
		sum += p.CPU
	}
	return sum
}

// PeakRSS returns the most memory that was seen in the turn in bytes, NaN when not known.
func (t *Turn) PeakRSS() float64 {
	most := math.NaN()
	for _, p := range t.Process {
		if rss := float64(p.RSS); !(most >= rss) {
			most = rss
		}
	}
	return most
}

// Value returns a figure of a workload in a round; NaN when it is not known. What is used
// of CPU and memory can not be told apart by workloads: those of a phase have the same, and
// the cost is by the bytes or the operations of all of them.
func (t *Target) Value(w *Workload, round int, f Figure) float64 {
	r, turn := w.Round(round), t.Turn(w.Phase, round)
	if r == nil {
		return math.NaN()
	}
	switch f {
	case FigureThroughput:
		return known(float64(r.Bytes()) / r.Seconds)
	case FigureRate:
		return known(float64(r.Operations()) / r.Seconds)
	case FigureP50, FigureP99, FigureP999, FigureMax:
		return r.latency(f)
	case FigureCPUPerGB, FigureCPUPerMillion, FigurePeakRSS:
		return t.used(turn, f)
	}
	panic(fmt.Sprintf("report: unknown figure %q", f))
}

func (r *Round) latency(f Figure) float64 {
	if r.Latency == nil || r.Latency.Count() == 0 {
		return math.NaN()
	}
	q := map[Figure]float64{FigureP50: 0.5, FigureP99: 0.99, FigureP999: 0.999, FigureMax: 1}
	return r.Latency.Quantile(q[f])
}

// used returns a figure of the processes in a turn.
func (t *Target) used(turn *Turn, f Figure) float64 {
	if turn == nil || t.Kind == TargetDirect {
		return math.NaN()
	}
	if f == FigurePeakRSS {
		return turn.PeakRSS()
	}
	bytes, operations := int64(0), int64(0)
	for i := range t.Workloads {
		if w := &t.Workloads[i]; w.Phase == turn.Phase {
			if r := w.Round(turn.Round); r != nil {
				bytes += r.Bytes()
				operations += r.Operations()
			}
		}
	}
	if f == FigureCPUPerGB {
		return known(turn.CPU() / (float64(bytes) / 1e9))
	}
	return known(turn.CPU() / (float64(operations) / 1e6))
}

// known makes what is no number NaN.
func known(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// Spread returns a figure of a workload over the rounds. Latencies of few operations a round
// are better taken from Workload.Merged.
func (t *Target) Spread(workload string, f Figure) Spread {
	w := t.Workload(workload)
	if w == nil {
		return NewSpread(nil)
	}
	var values []float64
	for i := range w.Rounds {
		if v := t.Value(w, w.Rounds[i].Round, f); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return NewSpread(values)
}

// Ratio returns a figure of a target by that of another in the same round, over the rounds.
// A round in which the other has 0 does not count.
func (r *Run) Ratio(target, against, workload string, f Figure) Spread {
	return r.pairs(target, workload, against, workload, f, func(a, b float64) float64 { return a / b })
}

// Difference returns a figure of a target less that of another in the same round, over the rounds.
func (r *Run) Difference(target, against, workload string, f Figure) Spread {
	return r.pairs(target, workload, against, workload, f, func(a, b float64) float64 { return a - b })
}

// pairs compares what two targets have in the same round.
func (r *Run) pairs(target, workload, against, other string, f Figure, compare func(a, b float64) float64) Spread {
	a, b := r.Target(target), r.Target(against)
	if a == nil || b == nil {
		return NewSpread(nil)
	}
	wa, wb := a.Workload(workload), b.Workload(other)
	if wa == nil || wb == nil {
		return NewSpread(nil)
	}
	var values []float64
	for i := range wa.Rounds {
		n := wa.Rounds[i].Round
		if v := known(compare(a.Value(wa, n, f), b.Value(wb, n, f))); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return NewSpread(values)
}
