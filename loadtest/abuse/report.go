// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"fmt"
	"slices"
	"strings"
)

// Text returns the table in Markdown.
func (r *Report) Text() string {
	var b strings.Builder
	haproxy := r.HAProxy
	if haproxy == "" {
		haproxy = "not installed here"
	}
	fmt.Fprintf(&b, "tiergate %s, HAProxy %s; %d cores of %s, %s. %v for each attack; %d well-behaved clients, each exchange within %v.\n\n",
		r.Tiergate, haproxy, r.Cores, r.CPU, r.Date, r.Duration, r.Clients, r.Within)
	b.WriteString("| attack | memory, peak (bound), MiB | CPU, cores | served | holds | HAProxy: memory | CPU | served |\n|---|---:|---:|---:|---|---:|---:|---:|\n")
	for _, name := range r.attacks() {
		own, other := r.row(name, TargetTiergate), r.row(name, TargetHAProxy)
		fmt.Fprintf(&b, "| %s ", name)
		if own == nil {
			b.WriteString("| | | | ")
		} else {
			fmt.Fprintf(&b, "| %d (%d) | %.2f | %d of %d | %s ", own.PeakBytes>>20, own.BoundBytes>>20, own.cores(), own.Served, own.Clients, own.verdict())
		}
		switch {
		case other != nil:
			fmt.Fprintf(&b, "| %d | %.2f | %d of %d |\n", other.PeakBytes>>20, other.cores(), other.Served, other.Clients)
		case r.HAProxy == "":
			b.WriteString("| not installed | | |\n")
		default:
			b.WriteString("| - | | |\n")
		}
	}
	b.WriteString("\n")
	for _, name := range r.attacks() {
		r.explain(&b, name)
	}
	return b.String()
}

// explain says what an attack does, and what it did to tiergate.
func (r *Report) explain(b *strings.Builder, name string) {
	row := r.row(name, TargetTiergate)
	if row == nil {
		return
	}
	fmt.Fprintf(b, "- **%s**: %s. %d connections; %d of %d exchanges of the clients in time, the slowest %.0f ms", name, row.Words, row.Connections,
		row.Exchanges-row.Missed, row.Exchanges, 1000*row.SlowestSeconds)
	if row.Responses+row.Refused > 0 {
		fmt.Fprintf(b, "; %d of %d large responses arrived", row.Responses, row.Responses+row.Refused)
	}
	b.WriteString(".\n")
	for _, line := range []struct{ title, text string }{
		{"Clients that are not served are no fault here", row.Accepted}, {"**Missed**", strings.Join(row.Faults, "; ")}, {"The machine was busy", row.Busy},
	} {
		if line.text != "" {
			fmt.Fprintf(b, "  %s: %s.\n", line.title, line.text)
		}
	}
}

// attacks returns the names of the attacks in the report, in order.
func (r *Report) attacks() []string {
	var names []string
	for _, row := range r.Rows {
		if !slices.Contains(names, row.Attack) {
			names = append(names, row.Attack)
		}
	}
	return names
}

func (r *Report) row(attack, target string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Attack == attack && r.Rows[i].Target == target {
			return &r.Rows[i]
		}
	}
	return nil
}

func (r *Row) cores() float64 { return r.CPUSeconds / max(r.Seconds, 0.001) }

func (r *Row) verdict() string {
	switch {
	case !r.Held():
		return "**missed**"
	case r.Busy != "":
		return "yes, busy"
	}
	return "yes"
}
