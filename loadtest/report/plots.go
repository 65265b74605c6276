// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// plots is what the script of the page draws.
type plots struct {
	Groups []plotGroup `json:"groups"`
	Bands  []band      `json:"bands"`
}

// plotGroup is named after a workload, or one of the names below.
type plotGroup struct {
	Name  string `json:"name"`
	Plots []plot `json:"plots"`
}

// Groups of plots that are of no workload: no workload has such a name.
const (
	usagePlots   = " usage"
	metricsPlots = " metrics"
)

// plotKind says what the axes are.
type plotKind string

const (
	// overTime: seconds since the start of the run, and values from 0 on.
	overTime plotKind = "time"
	// overTimeLog: the same with a logarithmic scale.
	overTimeLog plotKind = "timelog"
	// distribution: 1/(1-q) of a quantile q, and values, both logarithmic.
	distribution plotKind = "distribution"
)

type plot struct {
	Title  string     `json:"title"`
	Unit   string     `json:"unit"`
	Kind   plotKind   `json:"kind"`
	Series []sequence `json:"series"`
}

// sequence is one line in a plot. A value that is not known ends the line.
type sequence struct {
	Label string `json:"label"`
	// Colour counts the targets.
	Colour int     `json:"colour"`
	Dashed bool    `json:"dashed,omitempty"`
	X      []value `json:"x"`
	Y      []value `json:"y"`
}

// band is a mark, in seconds since the start of the run.
type band struct {
	From  float64 `json:"from"`
	Until float64 `json:"until"`
	Kind  string  `json:"kind"`
}

// value is a number with four significant figures, or null for NaN.
type value float64

// MarshalJSON keeps the page small.
func (v value) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.5g", float64(v)), nil
}

var _ json.Marshaler = value(0)

func (s *sequence) add(x, y float64) {
	s.X, s.Y = append(s.X, value(x)), append(s.Y, value(y))
}

// plots returns all plots of the run.
func (r *Run) plots() plots {
	p := plots{Bands: []band{}, Groups: []plotGroup{}}
	for _, m := range r.Marks {
		from := m.At.Sub(r.Started).Seconds()
		b := band{From: from, Until: from, Kind: m.Kind}
		if !m.Until.IsZero() {
			b.Until = m.Until.Sub(r.Started).Seconds()
		}
		p.Bands = append(p.Bands, b)
	}
	for _, name := range r.workloadNames() {
		p.add(name, r.workPlot(name), r.latencyPlot(name), r.distributionPlot(name))
	}
	p.add(usagePlots, r.cpuPlot(), r.memoryPlot())
	p.add(metricsPlots, r.metricPlots()...)
	return p
}

// has says whether there is a group of that name.
func (p *plots) has(name string) bool {
	return slices.ContainsFunc(p.Groups, func(g plotGroup) bool { return g.Name == name })
}

// add adds a group of those plots that have anything to show, if there are any.
func (p *plots) add(name string, all ...plot) {
	all = slices.DeleteFunc(all, func(one plot) bool {
		return !slices.ContainsFunc(one.Series, func(s sequence) bool {
			return slices.ContainsFunc(s.Y, func(v value) bool { return v > 0 || v < 0 })
		})
	})
	if len(all) > 0 {
		p.Groups = append(p.Groups, plotGroup{name, all})
	}
}

// least is the shortest interval in seconds that a point is drawn for.
const least = 0.25

// overRounds returns a line of a target's workload; at is called for each point.
func (r *Run) overRounds(target int, workload, label string, at func(*Round, Point) float64) sequence {
	s := sequence{Label: label, Colour: target, X: []value{}, Y: []value{}}
	w := r.Targets[target].Workload(workload)
	if w == nil {
		return s
	}
	for i := range w.Rounds {
		round := &w.Rounds[i]
		start := round.Start.Sub(r.Started).Seconds()
		for _, p := range round.Series {
			if length := round.length(p); length > least { // a rest that is shorter says nothing
				s.add(start+p.Second+length/2, at(round, p))
			}
		}
		s.add(start+round.Seconds+0.01, math.NaN())
	}
	return s
}

// workPlot shows bytes per second, or operations.
func (r *Run) workPlot(workload string) plot {
	f, _ := r.any(workload).work()
	p := plot{Kind: overTime, Title: "Throughput", Unit: f.Unit()}
	if f == FigureRate {
		p.Title, p.Unit = upperFirst(cmp.Or(r.any(workload).Operation, "operations"))+" per second", ""
	}
	for i := range r.Targets {
		p.Series = append(p.Series, r.overRounds(i, workload, r.Targets[i].Name, func(round *Round, p Point) float64 {
			n := p.Operations
			if f == FigureThroughput {
				n = p.Bytes
			}
			return float64(n) / round.length(p) / f.scale()
		}))
	}
	return p
}

func (r *Run) latencyPlot(workload string) plot {
	p := plot{Title: "Latency over time: p50, and p99 dashed", Unit: "ms", Kind: overTimeLog}
	for i := range r.Targets {
		half := r.overRounds(i, workload, r.Targets[i].Name+" p50", func(_ *Round, p Point) float64 { return positive(p.P50 / 1e3) })
		most := r.overRounds(i, workload, r.Targets[i].Name+" p99", func(_ *Round, p Point) float64 { return positive(p.P99 / 1e3) })
		most.Dashed = true
		p.Series = append(p.Series, half, most)
	}
	return p
}

// positive is what a logarithmic scale can show.
func positive(v float64) float64 {
	if v <= 0 {
		return math.NaN()
	}
	return v
}

// distributionPlot shows the quantiles of all rounds together, as far as there are at
// least ten operations beyond.
func (r *Run) distributionPlot(workload string) plot {
	p := plot{Title: "Latency as a distribution, all rounds", Unit: "ms", Kind: distribution}
	for i := range r.Targets {
		s := sequence{Label: r.Targets[i].Name, Colour: i, X: []value{}, Y: []value{}}
		if w := r.Targets[i].Workload(workload); w != nil {
			all := w.Merged()
			for e := 0.0; ; e++ {
				x := math.Pow(10, e/16)
				if x > float64(all.Count())/10 {
					break
				}
				s.add(x, positive(all.Quantile(1-1/x)/1e3))
			}
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// overTurns returns a line of a target's turns; at is called for each interval.
func (r *Run) overTurns(target int, at func(p ProcessPoint, length float64) float64) sequence {
	s := sequence{Label: r.Targets[target].Name, Colour: target, X: []value{}, Y: []value{}}
	for _, turn := range r.Targets[target].Turns {
		start, last := turn.Start.Sub(r.Started).Seconds(), 0.0
		for _, p := range turn.Process {
			if length := p.Second - last; length > least {
				s.add(start+last+length/2, at(p, length))
			}
			last = p.Second
		}
		s.add(start+turn.Seconds+0.01, math.NaN())
	}
	return s
}

func (r *Run) cpuPlot() plot {
	p := plot{Title: "CPU of the target", Unit: "cores", Kind: overTime}
	for i := range r.Targets {
		if r.Targets[i].Kind != TargetDirect {
			p.Series = append(p.Series, r.overTurns(i, func(p ProcessPoint, length float64) float64 { return p.CPU / length }))
		}
	}
	for i := range r.Targets {
		s := r.overTurns(i, func(p ProcessPoint, length float64) float64 { return known(p.CPUMachine / length) })
		if slices.ContainsFunc(s.Y, func(v value) bool { return v > 0 }) {
			s.Label, s.Dashed = s.Label+": whole machine", true
			p.Series = append(p.Series, s)
		}
	}
	return p
}

func (r *Run) memoryPlot() plot {
	p := plot{Title: "Resident memory of the target", Unit: "MiB", Kind: overTime}
	for i := range r.Targets {
		if r.Targets[i].Kind != TargetDirect {
			p.Series = append(p.Series, r.overTurns(i, func(p ProcessPoint, _ float64) float64 { return float64(p.RSS) / (1 << 20) }))
		}
	}
	return p
}

// metricPlots has a plot for each metric, with a line for each target and set of labels.
func (r *Run) metricPlots() []plot {
	var all []plot
	at := map[string]int{}
	for i, target := range r.Targets {
		lines := map[string]*sequence{}
		var names []string
		counter := map[string]bool{}
		for _, turn := range target.Turns {
			start := turn.Start.Sub(r.Started).Seconds()
			for _, m := range turn.Metrics {
				if lines[m.Name] == nil {
					names = append(names, m.Name)
					lines[m.Name] = &sequence{Colour: i, X: []value{}, Y: []value{}}
				}
				counter[m.Name] = m.Counter
				lines[m.Name].addMetric(start, m)
			}
		}
		for _, name := range names {
			base, labels, _ := strings.Cut(name, "{")
			if _, ok := at[base]; !ok {
				at[base] = len(all)
				p := plot{Title: base, Kind: overTime}
				if counter[name] {
					p.Unit = "per second"
				}
				all = append(all, p)
			}
			lines[name].Label = strings.TrimSpace(target.Name + " " + strings.TrimSuffix(labels, "}"))
			all[at[base]].Series = append(all[at[base]].Series, *lines[name])
		}
	}
	return all
}

// addMetric adds the points of a turn: values, or growth per second.
func (s *sequence) addMetric(start float64, m Metric) {
	for i, p := range m.Points {
		switch {
		case !m.Counter:
			s.add(start+p.Second, p.Value)
		case i > 0 && p.Second > m.Points[i-1].Second && p.Value >= m.Points[i-1].Value: // less: the proxy was restarted
			before := m.Points[i-1]
			s.add(start+(p.Second+before.Second)/2, (p.Value-before.Value)/(p.Second-before.Second))
		}
	}
	if n := len(m.Points); n > 0 {
		s.add(start+m.Points[n-1].Second+0.01, math.NaN())
	}
}
