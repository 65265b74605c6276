// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// figure is one number of a sample that peers are compared by.
type figure struct {
	of func(Sample) float64
	// better is +1 when more is better and -1 when less is.
	better int
}

// figures returns what counts in a workload: the work done, and what a unit of it costs.
func figures(w Workload) (work, cost figure) {
	if w.Kind.bulk() {
		return figure{Sample.throughput, +1}, figure{Sample.cpuPerGB, -1}
	}
	return figure{Sample.rate, +1}, figure{Sample.cpuPerMillion, -1}
}

// of returns the samples of a peer in a workload, by round.
func (r Result) of(workload, peer string) []Sample {
	var found []Sample
	for _, s := range r.Samples {
		if s.Workload == workload && s.Peer == peer {
			found = append(found, s)
		}
	}
	return found
}

// timing and counting return the part of the result that consists of the turns that took
// times, and of those that counted.
func (r Result) timing() Result {
	return r.part(func(s Sample) bool { return s.Counts == nil })
}

func (r Result) counting() Result {
	return r.part(func(s Sample) bool { return s.Counts != nil })
}

func (r Result) part(of func(Sample) bool) Result {
	all := r.Samples
	r.Samples = nil
	for _, s := range all {
		if of(s) {
			r.Samples = append(r.Samples, s)
		}
	}
	return r
}

// countColumn is a number of the table of counts.
type countColumn struct {
	head string
	of   func(*Counts) *int64
	// loops: only tiergate's loops count it.
	loops bool
}

func countColumns() []countColumn {
	return []countColumn{
		{head: "system calls", of: func(c *Counts) *int64 { return &c.Calls }},
		{head: "epoll waits", of: func(c *Counts) *int64 { return &c.Waits }},
		{head: "of them may block", of: func(c *Counts) *int64 { return &c.Blocking }},
		{head: "epoll_ctl", of: func(c *Counts) *int64 { return &c.Controls }},
		{head: "splice", of: func(c *Counts) *int64 { return &c.Splices }},
		{head: "futex", of: func(c *Counts) *int64 { return &c.Futexes }},
		{head: "context switches", of: func(c *Counts) *int64 { return &c.Switches }},
		{head: "events", of: func(c *Counts) *int64 { return &c.Events }, loops: true},
		{head: "useless events", of: func(c *Counts) *int64 { return &c.Useless }, loops: true},
	}
}

// median returns the median of f over samples; NaN when there are none.
func median(samples []Sample, f func(Sample) float64) float64 {
	values := make([]float64, 0, len(samples))
	for _, s := range samples {
		values = append(values, f(s))
	}
	return medianOf(values)
}

func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// ratio returns the median over rounds of f of one peer by f of another in the same
// round; NaN when they share no round.
func (r Result) ratio(workload, peer, other string, f func(Sample) float64) float64 {
	var values []float64
	for _, a := range r.of(workload, peer) {
		for _, b := range r.of(workload, other) {
			if a.Round == b.Round {
				values = append(values, f(a)/f(b))
			}
		}
	}
	return medianOf(values)
}

// best returns which of the peers is best in a figure by its median; empty when none
// was measured.
func (r Result) best(workload string, peers []string, f figure) string {
	best, value := "", math.NaN()
	for _, peer := range peers {
		m := median(r.of(workload, peer), f.of) * float64(f.better)
		if !math.IsNaN(m) && (best == "" || m > value) {
			best, value = peer, m
		}
	}
	return best
}

// target is a bound that tiergate is to hold in the workloads of some kinds.
type target struct {
	words string
	kinds []Kind
	// workloads, where there are any, are all that the target is for.
	workloads []string
	// peer is whose bound it is, tiergate with gnet's event loop unless another is named.
	peer string
	// counts: the figure is taken from the turns that count.
	counts bool
	// peers are those whose best tiergate is compared with; without, the figure itself
	// is bounded.
	peers []string
	of    func(w Workload) figure
	// bound is the least for a figure of which more is better, else the most.
	bound float64
	// unit is what a bounded figure is in, and scale what it is divided by for that.
	unit  string
	scale float64
}

// targets are the bounds of the project.
func targets() []target {
	l4 := []string{PeerHAProxy, PeerNginx}
	work := func(w Workload) figure { f, _ := figures(w); return f }
	cost := func(w Workload) figure { _, f := figures(w); return f }
	count := func(of func(*Counts) *int64) func(Workload) figure {
		return func(w Workload) figure {
			return figure{func(s Sample) float64 { return float64(*of(s.Counts)) / s.units(w) }, -1}
		}
	}
	bulk, haproxy, batches := []Kind{KindBulk}, []string{PeerHAProxy}, []string{"down-64KiB-16", "up-64KiB-16"}
	whole := func(Workload) figure { return figure{Sample.wholePerGB, -1} }
	waits := count(func(c *Counts) *int64 { return &c.Waits })
	systemCalls := count(func(c *Counts) *int64 { return &c.Calls })
	useless := count(func(c *Counts) *int64 { return &c.Useless })
	return []target{
		{words: "bulk throughput", kinds: []Kind{KindBulk}, peers: l4, of: work, bound: 0.95},
		{words: "bulk CPU per GB", kinds: []Kind{KindBulk}, peers: l4, of: cost, bound: 1.15},
		{words: "CPU per GB of all three processes", kinds: bulk, workloads: batches, peers: haproxy, of: whole, bound: 1},
		{words: "CPU per GB of all three processes, event_loop: epoll", kinds: bulk, workloads: batches, peer: PeerEpoll, peers: haproxy, of: whole, bound: 1},
		{words: "epoll waits per GB", kinds: bulk, counts: true, peers: haproxy, of: waits, bound: 2.2},
		{words: "epoll waits per GB, event_loop: epoll", kinds: bulk, counts: true, peer: PeerEpoll, peers: haproxy, of: waits, bound: 1.5},
		{words: "system calls per GB", kinds: bulk, counts: true, peers: haproxy, of: systemCalls, bound: 2},
		{words: "system calls per GB, event_loop: epoll", kinds: bulk, counts: true, peer: PeerEpoll, peers: haproxy, of: systemCalls, bound: 1.5},
		{words: "useless events per GB", kinds: bulk, counts: true, unit: "per GB", scale: 1, of: useless, bound: 100},
		{words: "useless events per GB, event_loop: epoll", kinds: bulk, counts: true, peer: PeerEpoll, unit: "per GB", scale: 1, of: useless, bound: 100},
		{words: "ping-pong requests/s", kinds: []Kind{KindPing}, peers: l4, of: work, bound: 0.90},
		{words: "ping-pong CPU per request", kinds: []Kind{KindPing}, peers: l4, of: cost, bound: 1.15},
		{words: "TLS bulk CPU per GB", kinds: []Kind{KindTLSBulk}, peers: []string{PeerHAProxy}, of: cost, bound: 1.15},
		{words: "memory per idle connection", kinds: []Kind{KindIdle}, unit: "KiB", scale: 1 << 10, bound: 8, of: func(w Workload) figure {
			return figure{func(s Sample) float64 { return s.perConnection(w) }, -1}
		}},
		{words: "memory at rest, without connections", kinds: []Kind{KindIdle}, unit: "MiB", scale: 1 << 20, bound: 20, of: func(Workload) figure {
			return figure{func(s Sample) float64 { return float64(s.Before) }, -1}
		}},
		{words: "memory while readers stall", kinds: []Kind{KindStalled}, unit: "MiB", scale: 1 << 20, bound: 96, of: func(Workload) figure {
			return figure{func(s Sample) float64 { return float64(s.Peak) }, -1}
		}},
	}
}

// Verdict is what became of a target in a workload.
type Verdict struct {
	Target, Workload string
	// Against is the peer it is measured by, empty for an absolute bound.
	Against string
	Value   float64
	Bound   float64
	Unit    string
	Held    bool
}

// Verdicts returns what became of the targets that the samples can tell.
func (r Result) Verdicts() []Verdict {
	var all []Verdict
	for _, t := range targets() {
		for _, w := range Workloads() {
			if slices.Contains(t.kinds, w.Kind) && (t.workloads == nil || slices.Contains(t.workloads, w.Name)) {
				if v := r.verdict(t, w); !math.IsNaN(v.Value) {
					all = append(all, v)
				}
			}
		}
	}
	return all
}

func (r Result) verdict(t target, w Workload) Verdict {
	v := Verdict{Target: t.words, Workload: w.Name, Bound: t.bound, Unit: t.unit}
	f := t.of(w)
	if t.counts {
		r = r.counting()
	} else {
		r = r.timing()
	}
	peer := cmp.Or(t.peer, PeerTiergate)
	if t.peers == nil {
		v.Value = median(r.of(w.Name, peer), f.of) / t.scale
	} else {
		v.Against = r.best(w.Name, t.peers, f)
		v.Value = r.ratio(w.Name, peer, v.Against, f.of)
	}
	v.Held = v.Value*float64(f.better) >= v.Bound*float64(f.better)
	return v
}

// Text renders the result as Markdown that also reads well in a terminal.
func (r Result) Text() string {
	var b strings.Builder
	r.writeMachine(&b)
	b.WriteString("\n### Bounds\n\n")
	b.WriteString(r.verdictTable().String())
	times, counts := r.timing(), r.counting()
	for _, w := range Workloads() {
		measured, counted := times.workloadTable(w), counts.countTable(w)
		if len(measured.rows)+len(counted.rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n", w.Name, upperFirst(w.Words()))
		for _, t := range []table{measured, counted} {
			if len(t.rows) > 0 {
				fmt.Fprintf(&b, "\n%s", t)
			}
		}
	}
	return b.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (r Result) writeMachine(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(b, "Measured %s: %s, %d cores, Linux %s, %s congestion control, %s; %s; %s. %d rounds of %.3g s, %d threads for each proxy.\n",
		m.Date, m.CPU, m.Cores, m.Kernel, cmp.Or(m.Congestion, "unknown"), m.Go, cmp.Or(m.HAProxy, "no HAProxy"), cmp.Or(m.Nginx, "no nginx"), r.Rounds, r.Seconds, r.Threads)
	for _, why := range r.Missing {
		fmt.Fprintf(b, "Not measured: %s.\n", why)
	}
	var all, others []float64
	for _, s := range r.Samples {
		if s.Workload == "" || s.Seconds == 0 {
			continue
		}
		all = append(all, (s.CPU+s.CPUGenerator+s.CPUServer)/s.Seconds)
		others = append(others, s.CPUOthers/s.Seconds)
	}
	fmt.Fprintf(b, "All processes share the cores, none is pinned. Median use in a turn: %.2f cores by proxy, generator and server together, %.2f by all else on the machine.\n",
		medianOf(all), medianOf(others))
}

// table is lines of cells; the first is the head.
type table struct {
	head []string
	rows [][]string
}

// String renders the table as Markdown with aligned columns: the first to the left, the others to the right.
func (t table) String() string {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)), 3)
		}
	}
	var b strings.Builder
	line := func(row []string) {
		for i, cell := range row {
			space := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprintf(&b, "| %s%s ", cell, space)
			} else {
				fmt.Fprintf(&b, "| %s%s ", space, cell)
			}
		}
		b.WriteString("|\n")
	}
	line(t.head)
	for i, n := range width {
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", n+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", n+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// number formats with three significant digits or so.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func (r Result) verdictTable() table {
	t := table{head: []string{"tiergate's", "workload", "bound", "measured", "against", "held"}}
	for _, v := range r.Verdicts() {
		bound, measured := "at most "+number(v.Bound)+" "+v.Unit, number(v.Value)+" "+v.Unit
		if v.Against != "" {
			bound, measured = fmt.Sprintf("at most %.2fx", v.Bound), fmt.Sprintf("%.2fx", v.Value)
			if v.Bound < 1 {
				bound = fmt.Sprintf("at least %.2fx", v.Bound)
			}
		}
		held := "yes"
		if !v.Held {
			held = "NO"
		}
		t.rows = append(t.rows, []string{v.Target, v.Workload, bound, measured, cmp.Or(v.Against, "-"), held})
	}
	return t
}

// column is a number of the tables.
type column struct {
	head string
	of   func(Sample) float64
}

// columns returns what the table of a workload shows.
func columns(w Workload) []column {
	peak := column{"peak MiB", func(s Sample) float64 { return mib(s.Peak) }}
	rss := column{"RSS MiB", func(s Sample) float64 { return mib(s.RSS) }}
	if w.Kind == KindIdle {
		return []column{{"bytes per connection", func(s Sample) float64 { return s.perConnection(w) }}, rss, peak}
	}
	first := []column{{"requests/s", Sample.rate}, {"CPU s per 1M", Sample.cpuPerMillion}}
	if w.Kind.bulk() {
		first = []column{{"GB/s", Sample.throughput}, {"CPU s per GB", Sample.cpuPerGB}}
	}
	if w.Kind == KindStalled {
		rss.head = "stalled, peak MiB"
		return append(first, rss, peak)
	}
	if w.Kind == KindBulk {
		first = append(first, column{"of all three", Sample.wholePerGB})
	}
	return append(first,
		column{"p50 us", func(s Sample) float64 { return s.P50 }},
		column{"p99 us", func(s Sample) float64 { return s.P99 }},
		column{"p999 us", func(s Sample) float64 { return s.P999 }}, rss, peak)
}

// countTable shows how often things were done for a GB, or for a thousand requests. What was
// not counted is 0 for everybody, and left out.
func (r Result) countTable(w Workload) table {
	unit := "1,000 requests"
	if w.Kind.bulk() {
		unit = "GB"
	}
	t := table{head: []string{"per " + unit}}
	var columns []countColumn
	for _, c := range countColumns() {
		if slices.ContainsFunc(r.Samples, func(s Sample) bool { return *c.of(s.Counts) > 0 }) {
			columns = append(columns, c)
			t.head = append(t.head, c.head)
		}
	}
	for _, peer := range PeerNames() {
		samples := r.of(w.Name, peer)
		if len(samples) == 0 || peer == PeerDirect {
			continue
		}
		row := []string{peer}
		for _, c := range columns {
			cell := number(median(samples, func(s Sample) float64 { return float64(*c.of(s.Counts)) / s.units(w) }))
			if c.loops && peer != PeerTiergate && peer != PeerEpoll {
				cell = "-"
			}
			row = append(row, cell)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// workloadTable shows medians, and ratios: of tiergate to each peer.
func (r Result) workloadTable(w Workload) table {
	t := table{head: []string{"peer"}}
	work, cost := figures(w)
	for _, c := range columns(w) {
		t.head = append(t.head, c.head)
	}
	if w.Kind != KindIdle {
		t.head = append(t.head, "work / best", "work / direct", "CPU / best")
	}
	others := []string{PeerHAProxy, PeerNginx, PeerCopy, PeerEpoll, PeerTiergate}
	bestWork, bestCost := r.best(w.Name, others, work), r.best(w.Name, others, cost)
	for _, peer := range PeerNames() {
		samples := r.of(w.Name, peer)
		if len(samples) == 0 {
			continue
		}
		row := []string{peer}
		for _, c := range columns(w) {
			cell := number(median(samples, c.of))
			if peer == PeerDirect && (strings.Contains(c.head, "CPU") || strings.Contains(c.head, "MiB")) {
				cell = "-"
			}
			row = append(row, cell)
		}
		if w.Kind != KindIdle {
			row = append(row, number(r.ratio(w.Name, peer, bestWork, work.of)), number(r.ratio(w.Name, peer, PeerDirect, work.of)))
			costRatio := "-"
			if peer != PeerDirect {
				costRatio = number(r.ratio(w.Name, peer, bestCost, cost.of))
			}
			row = append(row, costRatio)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// Marks enclose the part of a document that a run writes.
const (
	markBegin = "<!-- proxybench: begin -->"
	markEnd   = "<!-- proxybench: end -->"
)

// Insert returns document with text in place of what stood between the marks.
func Insert(document []byte, text string) ([]byte, error) {
	head, rest, ok := bytes.Cut(document, []byte(markBegin))
	_, tail, ended := bytes.Cut(rest, []byte(markEnd))
	if !ok || !ended {
		return nil, fmt.Errorf("the document has no lines %q and %q", markBegin, markEnd)
	}
	return slices.Concat(head, []byte(markBegin+"\n"+text), []byte(markEnd), tail), nil
}
