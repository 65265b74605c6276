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
	// items are sentences in a list, below the text.
	items []string
	// tables in their order; a table without rows is left out.
	tables []Table
	// plots are the groups of plots that belong to it.
	plots []string
}

// headline is what stands above all sections: one sentence a line, with full stops.
func (r *Run) headline() []string {
	return []string{
		fmt.Sprintf("%s, %s, with load test %s: %s of %s.", r.Started.UTC().Format("2006-01-02 15:04 UTC"), duration(r.Seconds),
			cmp.Or(r.Tool, "of unknown version"), count(r.Rounds, "round"), count(len(r.Targets), "target")),
		r.Environment.words() + ".",
		"Figures are medians over rounds, max and peak the most of all; ratios are within a round, in brackets the least and the most of them.",
	}
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
	for _, names := range r.phases() {
		all = append(all, r.phaseSection(names))
	}
	all = append(all, section{title: "CPU and memory", plots: []string{usagePlots}}, section{title: "Metrics of the proxies", plots: []string{metricsPlots}})
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

// phases returns the names of the workloads of each phase.
func (r *Run) phases() [][]string {
	var all [][]string
	at := map[string]int{}
	for _, name := range r.workloadNames() {
		phase := r.any(name).Phase
		if _, ok := at[phase]; !ok {
			at[phase] = len(all)
			all = append(all, nil)
		}
		all[at[phase]] = append(all[at[phase]], name)
	}
	return all
}

// phaseSection shows the workloads of a phase.
func (r *Run) phaseSection(names []string) section {
	first := r.any(names[0])
	s := section{title: first.Phase, plots: names}
	if len(names) == 1 {
		s.text = r.sentences(first.Name)
		if first.Name != first.Phase {
			s.title = strings.TrimPrefix(first.Phase+": "+first.Name, ": ")
		}
		s.tables = []Table{r.figuresTable(names, Figures()), r.ratiosTable(names)}
		return s
	}
	s.text = fmt.Sprintf("%d workloads at the same time. CPU and memory are those of all of them together.", len(names))
	for _, name := range names {
		s.items = append(s.items, strings.TrimSpace(name+": "+r.sentences(name)))
	}
	work, used := Figures(), Figures()
	work = slices.DeleteFunc(work, Figure.used)
	used = slices.DeleteFunc(used, func(f Figure) bool { return !f.used() })
	s.tables = []Table{r.figuresTable(names, work), r.ratiosTable(names), r.usedTable(names, used)}
	return s
}

// sentences say what a workload is; when it is not the same on all targets, on which.
func (r *Run) sentences(workload string) string {
	var texts []string
	on := map[string][]string{}
	for i := range r.Targets {
		if w := r.Targets[i].Workload(workload); w != nil {
			if _, ok := on[w.Text]; !ok {
				texts = append(texts, w.Text)
			}
			on[w.Text] = append(on[w.Text], r.Targets[i].Name)
		}
	}
	var all []string
	for _, text := range texts {
		switch {
		case text == "":
		case len(texts) == 1:
			all = append(all, upperFirst(text)+".")
		default:
			all = append(all, fmt.Sprintf("On %s: %s.", strings.Join(on[text], " and "), text))
		}
	}
	if latency := r.any(workload).Latency; latency != "" {
		all = append(all, "Latency is "+latency+".")
	}
	return strings.Join(all, " ")
}

// rowsOf begins a table with a row for each workload of each target that wanted says yes to.
func (r *Run) rowsOf(names []string, wanted func(*Target) bool) (table Table, rows []row) {
	if len(names) > 1 {
		table.Head = []string{"workload"}
	}
	table.Head = append(table.Head, "target")
	for _, name := range names {
		for i := range r.Targets {
			t := &r.Targets[i]
			if t.Workload(name) == nil || !wanted(t) {
				continue
			}
			rows = append(rows, row{t, name})
			cells := []string{t.Name}
			if len(names) > 1 {
				cells = []string{name, t.Name}
			}
			table.Rows = append(table.Rows, cells)
		}
	}
	return table, rows
}

// row is what a row of a table is about.
type row struct {
	target   *Target
	workload string
}

// column adds a column, unless there is nothing in it: cell is false where a row has nothing.
func (t *Table) column(head string, rows []row, cell func(row) (string, bool)) {
	column := make([]string, len(rows))
	some := false
	for i := range rows {
		text, there := cell(rows[i])
		column[i] = text
		some = some || there
	}
	if !some {
		return
	}
	t.Head = append(t.Head, head)
	for i := range column {
		t.Rows[i] = append(t.Rows[i], column[i])
	}
}

func everyTarget(*Target) bool { return true }

// figuresTable has a row for each workload and target, and a column for each figure that
// one of them has.
func (r *Run) figuresTable(names []string, figures []Figure) Table {
	table, rows := r.rowsOf(names, everyTarget)
	for _, f := range figures {
		table.column(r.head(names, f), rows, func(row row) (string, bool) {
			if _, cost := r.any(row.workload).work(); f == FigureCPUPerGB && f != cost {
				return none, false
			}
			return row.target.cell(row.workload, f)
		})
	}
	return table
}

// cell shows a figure, and says whether there is anything to show.
func (t *Target) cell(workload string, f Figure) (string, bool) {
	s := t.Spread(workload, f)
	v := s.Median
	if f == FigureMax || f == FigurePeakRSS {
		v = s.Max
	}
	if !s.Known() || v == 0 && (f == FigureThroughput || f == FigureRate) {
		return none, s.Known() && f == FigureRate
	}
	return f.Number(v), true
}

// usedTable has a row for each target: what its processes used for all workloads together.
func (r *Run) usedTable(names []string, figures []Figure) Table {
	table := Table{Head: []string{"target"}}
	var rows []row
	for i := range r.Targets {
		t := &r.Targets[i]
		// All of them have the same: that of the first one that the target has.
		at := slices.IndexFunc(names, func(name string) bool { return t.Workload(name) != nil })
		if at >= 0 && t.Kind != TargetDirect {
			rows = append(rows, row{t, names[at]})
			table.Rows = append(table.Rows, []string{t.Name})
		}
	}
	for _, f := range figures {
		table.column(r.head(names, f), rows, func(row row) (string, bool) { return row.target.cell(row.workload, f) })
	}
	if len(table.Head) == 1 {
		return Table{}
	}
	return table
}

// head is the figure in the head of a column.
func (r *Run) head(names []string, f Figure) string {
	what := cmp.Or(r.any(names[0]).Operation, "operations")
	for _, name := range names {
		if r.any(name).Operation != what {
			what = "operations"
		}
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
func (r *Run) ratiosTable(names []string) Table {
	signed := func(us float64) string {
		if us >= 0 {
			return "+" + number(us/1e3)
		}
		return number(us / 1e3)
	}
	columns := []struct {
		head   string
		figure Figure
		of     func(target, against, workload string, f Figure) Spread
		show   func(float64) string
	}{
		{"throughput", FigureThroughput, r.Ratio, ratioText},
		{"operations", FigureRate, r.Ratio, ratioText},
		{"p50", FigureP50, r.Ratio, ratioText},
		{"added p50, ms", FigureP50, r.Difference, signed},
		{"p99", FigureP99, r.Ratio, ratioText},
		{"added p99, ms", FigureP99, r.Difference, signed},
		{"CPU per GB", FigureCPUPerGB, r.Ratio, ratioText},
		{"CPU per operation", FigureCPUPerMillion, r.Ratio, ratioText},
	}
	table, rows := r.rowsOf(names, func(t *Target) bool { return t.Baseline != "" })
	table.column("beside", rows, func(row row) (string, bool) { return row.target.Baseline, true })
	for _, c := range columns {
		table.column(c.head, rows, func(row row) (string, bool) {
			work, cost := r.any(row.workload).work()
			switch c.figure {
			case FigureThroughput, FigureRate, FigureCPUPerGB, FigureCPUPerMillion:
				if c.figure != work && c.figure != cost {
					return none, false
				}
			case FigureP50, FigureP99, FigureP999, FigureMax, FigurePeakRSS:
			}
			s := c.of(row.target.Name, row.target.Baseline, row.workload, c.figure)
			return s.text(c.show), s.Known()
		})
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
