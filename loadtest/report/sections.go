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

// section is a part of the report, for a terminal and for a browser alike.
type section struct {
	title string
	text  string
	// tables in their order; a table without rows is left out.
	tables []Table
}

// headline is what stands above all sections: one sentence a line, with full stops.
func (r *Run) headline() []string {
	lines := []string{
		fmt.Sprintf("%s, %s, with load test %s: %s of %s.", r.Started.UTC().Format("2006-01-02 15:04 UTC"), duration(r.Seconds),
			cmp.Or(r.Tool, "of unknown version"), count(r.Rounds, "round"), count(len(r.Targets), "target")),
		r.Environment.words() + ".",
	}
	return lines
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(int64(n)) + " " + what + "s"
}

// words is one line on the machine.
func (e Environment) words() string {
	parts := []string{cmp.Or(e.CPU, "unknown CPU"), count(e.Cores, "core")}
	if e.Memory > 0 {
		parts = append(parts, number(float64(e.Memory)/(1<<30))+" GiB of memory")
	}
	parts = append(parts, strings.TrimSpace(e.System+" "+e.Kernel))
	if e.Congestion != "" {
		parts = append(parts, e.Congestion+" congestion control")
	}
	parts = append(parts, e.Go)
	for _, s := range e.Software {
		parts = append(parts, s.Name+" "+s.Version)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// Words is the verdict in a sentence.
func (o Outcome) Words() string {
	switch o {
	case Passed:
		return "Passed: all was measured, and nothing was wrong."
	case Failed:
		return "FAILED."
	case Incomplete:
		return "Incomplete: nothing was wrong, but not all was measured."
	}
	return "No verdict."
}

// sections returns the whole report but for the headline and the verdict.
func (r *Run) sections() []section {
	var all []section
	if t := r.boundsTable(); len(t.Rows) > 0 {
		all = append(all, section{title: "Bounds", tables: []Table{t}})
	}
	for _, name := range r.workloadNames() {
		all = append(all, r.workloadSection(name))
	}
	for _, t := range r.Tables {
		all = append(all, section{title: t.Title, text: t.Text, tables: []Table{{Head: t.Head, Rows: t.Rows}}})
	}
	if t := r.verifiedTable(); len(t.Rows) > 0 {
		all = append(all, section{title: "Verification", text: upperFirst(r.Verified()) + ".", tables: []Table{t}})
	}
	if t := r.marksTable(); len(t.Rows) > 0 {
		all = append(all, section{title: "Faults", text: "Times are since the start of the run.", tables: []Table{t}})
	}
	if t := r.targetsTable(); len(t.Rows) > 0 {
		all = append(all, section{title: "Targets", tables: []Table{t}})
	}
	return all
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// workloadNames returns the names of all workloads, in the order of the targets.
func (r *Run) workloadNames() []string {
	var names []string
	for _, t := range r.Targets {
		for _, w := range t.Workloads {
			if !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
	}
	return names
}

// any returns the workload of that name of the first target that has it.
func (r *Run) any(workload string) *Workload {
	for i := range r.Targets {
		if w := r.Targets[i].Workload(workload); w != nil {
			return w
		}
	}
	return nil
}

func (r *Run) workloadSection(name string) section {
	w := r.any(name)
	s := section{title: name, tables: []Table{r.figuresTable(name), r.ratiosTable(name)}}
	var sentences []string
	if w.Text != "" {
		sentences = append(sentences, upperFirst(w.Text)+".")
	}
	if w.Latency != "" {
		sentences = append(sentences, "Latency is "+w.Latency+".")
	}
	if others := r.together(w); len(others) > 0 {
		sentences = append(sentences, "At the same time: "+strings.Join(others, ", ")+"; CPU and memory are those of all of them together.")
	}
	sentences = append(sentences, "Figures are medians over rounds, max and peak the most of all; ratios are within a round, in brackets the least and the most of them.")
	s.text = strings.Join(sentences, " ")
	return s
}

// together returns the workloads that ran at the same time as another.
func (r *Run) together(w *Workload) []string {
	var names []string
	for _, name := range r.workloadNames() {
		if other := r.any(name); other.Phase == w.Phase && name != w.Name {
			names = append(names, name)
		}
	}
	return names
}

// figuresTable has a row for each target and a column for each figure that one has.
func (r *Run) figuresTable(workload string) Table {
	w := r.any(workload)
	table := Table{Head: []string{"target"}, Rows: make([][]string, len(r.Targets))}
	for i, t := range r.Targets {
		table.Rows[i] = []string{t.Name}
	}
	for _, f := range Figures() {
		column := make([]string, len(r.Targets))
		there := false
		for i := range r.Targets {
			s := r.Targets[i].Spread(workload, f)
			v := s.Median
			if f == FigureMax || f == FigurePeakRSS {
				v = s.Max
			}
			there = there || s.Known() && v > 0
			column[i] = f.Number(v)
		}
		if !there || f == FigureCPUPerGB && !slices.Contains(table.Head, "MB/s") {
			continue
		}
		table.Head = append(table.Head, r.head(w, f))
		for i := range column {
			table.Rows[i] = append(table.Rows[i], column[i])
		}
	}
	table.Rows = slices.DeleteFunc(table.Rows, func(row []string) bool { return r.Target(row[0]).Workload(workload) == nil })
	return table
}

// head is the figure in the head of a column.
func (r *Run) head(w *Workload, f Figure) string {
	what := cmp.Or(w.Operation, "operations")
	if f == FigureCPUPerMillion && len(r.together(w)) > 0 {
		what = "operations" // of all of them
	}
	switch f {
	case FigureThroughput:
		return "MB/s"
	case FigureRate:
		return what + "/s"
	case FigureP50:
		return "p50 ms"
	case FigureP99:
		return "p99 ms"
	case FigureP999:
		return "p99.9 ms"
	case FigureMax:
		return "max ms"
	case FigureCPUPerGB:
		return "CPU s/GB"
	case FigureCPUPerMillion:
		return "CPU s per million " + what
	case FigurePeakRSS:
		return "peak MiB"
	}
	return string(f)
}

// ratiosTable compares each target with its baseline in the same round.
func (r *Run) ratiosTable(workload string) Table {
	type column struct {
		head   string
		figure Figure
		of     func(target, against, workload string, f Figure) Spread
		show   func(float64) string
	}
	signed := func(us float64) string {
		if us < 0 {
			return "-" + number(-us/1e3)
		}
		return "+" + number(us/1e3)
	}
	columns := []column{
		{"throughput", FigureThroughput, r.Ratio, ratioText},
		{"operations", FigureRate, r.Ratio, ratioText},
		{"p50", FigureP50, r.Ratio, ratioText},
		{"added p50, ms", FigureP50, r.Difference, signed},
		{"p99", FigureP99, r.Ratio, ratioText},
		{"added p99, ms", FigureP99, r.Difference, signed},
		{"CPU per GB", FigureCPUPerGB, r.Ratio, ratioText},
		{"CPU per operation", FigureCPUPerMillion, r.Ratio, ratioText},
	}
	table := Table{Head: []string{"target", "beside"}}
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Baseline != "" && t.Workload(workload) != nil {
			table.Rows = append(table.Rows, []string{t.Name, t.Baseline})
		}
	}
	for _, c := range columns {
		cells := make([]string, len(table.Rows))
		there := false
		for i, row := range table.Rows {
			s := c.of(row[0], row[1], workload, c.figure)
			cells[i] = none
			if s.Known() {
				there, cells[i] = true, s.text(c.show)
			}
		}
		again := c.figure == FigureRate && slices.Contains(table.Head, "throughput")
		if there && !again {
			table.Head = append(table.Head, c.head)
			for i := range cells {
				table.Rows[i] = append(table.Rows[i], cells[i])
			}
		}
	}
	return table
}

func (r *Run) boundsTable() Table {
	t := Table{Head: []string{"bound", "measured", "wanted", ""}}
	for _, b := range r.Bounds {
		c := r.Check(b)
		value, word := none, "not held"
		if !math.IsNaN(c.Value) {
			value = c.show(c.Value)
		}
		if c.Held {
			word = "held"
		}
		t.Rows = append(t.Rows, []string{b.Text, value, b.wanted(), word})
	}
	return t
}

// verifiedTable has a row for each workload of each target, and a column for each count
// that is not 0 everywhere; those of what must not be are always there.
func (r *Run) verifiedTable() Table {
	columns := []struct {
		head   string
		of     func(Counts) int64
		always func(Counts) bool
	}{
		{"sent", func(c Counts) int64 { return c.Sent }, nil},
		{"received", func(c Counts) int64 { return c.Received }, nil},
		{"lost", func(c Counts) int64 { return c.Lost }, records},
		{"doubled", func(c Counts) int64 { return c.Duplicated }, records},
		{"doubled, allowed", func(c Counts) int64 { return c.DuplicatesAllowed }, nil},
		{"out of order", func(c Counts) int64 { return c.Reordered }, records},
		{"corrupt", func(c Counts) int64 { return c.Corrupt }, records},
		{"answers", func(c Counts) int64 { return c.Answers }, nil},
		{"wrong", func(c Counts) int64 { return c.Wrong }, func(c Counts) bool { return c.Answers > 0 }},
		{"errors", func(c Counts) int64 { return c.Errors }, nil},
		{"tried again", func(c Counts) int64 { return c.Retriable }, nil},
	}
	var all Counts
	var rows []Counts
	table := Table{Head: []string{"target", "workload"}}
	for i := range r.Targets {
		for j := range r.Targets[i].Workloads {
			w := &r.Targets[i].Workloads[j]
			c := w.Counts()
			if c != (Counts{}) {
				all.Add(c)
				rows = append(rows, c)
				table.Rows = append(table.Rows, []string{r.Targets[i].Name, w.Name})
			}
		}
	}
	for _, c := range columns {
		if c.of(all) == 0 && (c.always == nil || !c.always(all)) {
			continue
		}
		table.Head = append(table.Head, c.head)
		for i := range rows {
			table.Rows[i] = append(table.Rows[i], thousands(c.of(rows[i])))
		}
	}
	return table
}

// records says whether records took part.
func records(c Counts) bool { return c.Sent > 0 || c.Received > 0 }

func (r *Run) marksTable() Table {
	t := Table{Head: []string{"from", "until", "kind", "target", "what"}}
	for _, m := range r.Marks {
		until := ""
		if !m.Until.IsZero() {
			until = clock(m.Until.Sub(r.Started).Seconds())
		}
		t.Rows = append(t.Rows, []string{clock(m.At.Sub(r.Started).Seconds()), until, m.Kind, cmp.Or(m.Target, "all"), m.Text})
	}
	return t
}

// clock shows seconds since the start as minutes and seconds.
func clock(seconds float64) string {
	s := int64(math.Round(seconds))
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

func (r *Run) targetsTable() Table {
	t := Table{Head: []string{"target", "kind", "compared with", "what it is"}}
	for _, target := range r.Targets {
		t.Rows = append(t.Rows, []string{target.Name, string(target.Kind), cmp.Or(target.Baseline, "nothing"), cmp.Or(target.Text, none)})
	}
	return t
}
