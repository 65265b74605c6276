// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text is the report for a terminal. It is Markdown too, so that it can be kept as a page.
func Text(r *Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.title())
	for _, line := range r.headline() {
		fmt.Fprintf(&b, "%s\n", line)
	}
	fmt.Fprintf(&b, "\n**%s**\n", r.Verdict.Outcome.Words())
	writeList(&b, r.Verdict.Reasons)
	for _, s := range r.sections() {
		if s.text == "" && !slices.ContainsFunc(s.tables, func(t Table) bool { return len(t.Rows) > 0 }) {
			continue // has plots only
		}
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		if s.text != "" {
			fmt.Fprintf(&b, "\n%s\n", s.text)
		}
		writeItems(&b, s.items)
		for _, t := range s.tables {
			if len(t.Rows) > 0 {
				fmt.Fprintf(&b, "\n%s", t.markdown())
			}
		}
	}
	return b.String()
}

func (r *Run) title() string {
	if r.Scenario.Name == "" {
		return "Load test"
	}
	return "Load test: " + r.Scenario.Name
}

// writeList writes sentences without full stops.
func writeList(b *strings.Builder, sentences []string) {
	items := make([]string, len(sentences))
	for i, s := range sentences {
		items[i] = s + "."
	}
	writeItems(b, items)
}

func writeItems(b *strings.Builder, items []string) {
	if len(items) > 0 {
		b.WriteByte('\n')
	}
	for _, s := range items {
		fmt.Fprintf(b, "- %s\n", s)
	}
}

// markdown renders the table with columns of even width; those of numbers are aligned to
// the right.
func (t Table) markdown() string {
	widths, right := t.columns()
	var b strings.Builder
	writeRow(&b, t.Head, widths, right)
	rules := make([]string, len(widths))
	for i, w := range widths {
		rules[i] = strings.Repeat("-", w)
		if right[i] {
			rules[i] = rules[i][1:] + ":"
		}
	}
	writeRow(&b, rules, widths, right)
	for _, row := range t.Rows {
		writeRow(&b, row, widths, right)
	}
	return b.String()
}

// columns returns how wide the columns are in characters, at least 3, and which hold numbers.
func (t Table) columns() (widths []int, right []bool) {
	widths, right = make([]int, len(t.Head)), make([]bool, len(t.Head))
	for i, cell := range t.Head {
		widths[i], right[i] = max(3, utf8.RuneCountInString(escape(cell))), true
	}
	for _, row := range t.Rows {
		for i, cell := range row[:min(len(row), len(widths))] {
			widths[i] = max(widths[i], utf8.RuneCountInString(escape(cell)))
			right[i] = right[i] && numeric(cell)
		}
	}
	return widths, right
}

// numeric says whether a cell is a number, with a unit or a spread, or stands for one.
func numeric(cell string) bool {
	digits := false
	for _, word := range strings.Fields(cell) {
		switch word = strings.Trim(word, "(+-)×"); word {
		case none, "to", "s", "ms", "MB/s", "MiB":
			digits = digits || word == none
		default:
			if strings.Trim(strings.TrimSuffix(word, "/s"), "0123456789.,:") != "" {
				return false
			}
			digits = true
		}
	}
	return digits
}

// escape keeps a cell within its cell.
func escape(cell string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
}

func writeRow(b *strings.Builder, row []string, widths []int, right []bool) {
	for i, width := range widths {
		cell := ""
		if i < len(row) {
			cell = escape(row[i])
		}
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
		if right[i] {
			fmt.Fprintf(b, "| %s%s ", pad, cell)
		} else {
			fmt.Fprintf(b, "| %s%s ", cell, pad)
		}
	}
	b.WriteString("|\n")
}
