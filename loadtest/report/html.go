// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

// What the page is made of. It loads nothing: a report is one file, which is read where
// there is no network, and years later.
var (
	//go:embed uplot/uPlot.iife.min.js
	library string
	//go:embed uplot/uPlot.min.css
	libraryStyle string
	//go:embed page/page.js
	script string
	//go:embed page/page.css
	style string
	//go:embed page/page.html
	pageText string
)

// page is what page.html shows.
type page struct {
	Title    string
	Headline []string
	Outcome  Outcome
	Words    string
	Reasons  []string
	Sections []pageSection
	Plots    plots
	Scenario string
	Library  template.JS
	Script   template.JS
	Style    template.CSS
}

type pageSection struct {
	Title  string
	Text   string
	Items  []string
	Tables []pageTable
	Plots  []pagePlots
}

// pagePlots is a group of plots. Those of several workloads have a title, and are folded
// when there are many.
type pagePlots struct {
	Group, Title string
	Folded       bool
}

// unfolded is how many groups of plots a section may have that are all shown.
const unfolded = 3

// pageTable is a table whose columns of numbers are aligned to the right.
type pageTable struct {
	Head []pageCell
	Rows [][]pageCell
}

type pageCell struct {
	Text, Class string
}

// HTML writes the report as one page that loads nothing from anywhere.
func HTML(w io.Writer, r *Run) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	p := page{
		Title: r.title(), Headline: r.headline(), Outcome: r.Verdict.Outcome, Words: r.Verdict.Outcome.Words(), Reasons: r.Verdict.Reasons,
		Plots: r.plots(), Scenario: r.Scenario.Text,
		// Files of this package, not of a run.
		Library: template.JS(library), Script: template.JS(script), Style: template.CSS(libraryStyle + style),
	}
	p.Sections = pageSections(r.sections(), p.Plots)
	if err = t.Execute(w, p); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// pageSections leaves out what has nothing to show.
func pageSections(sections []section, all plots) []pageSection {
	var pages []pageSection
	for _, s := range sections {
		p := pageSection{Title: s.title, Text: s.text, Items: s.items}
		for _, t := range s.tables {
			if len(t.Rows) > 0 {
				p.Tables = append(p.Tables, t.page())
			}
		}
		for _, name := range s.plots {
			if !all.has(name) {
				continue
			}
			group := pagePlots{Group: name, Folded: len(s.plots) > unfolded}
			if len(s.plots) > 1 {
				group.Title = name
			}
			p.Plots = append(p.Plots, group)
		}
		if len(p.Tables) > 0 || len(p.Plots) > 0 {
			pages = append(pages, p)
		}
	}
	return pages
}

func (t Table) page() pageTable {
	_, right := t.columns()
	row := func(cells []string) []pageCell {
		out := make([]pageCell, len(right))
		for i := range out {
			if i < len(cells) {
				out[i].Text = cells[i]
			}
			switch {
			case right[i]:
				out[i].Class = "number"
			case out[i].Text == "not held":
				out[i].Class = "bad"
			}
		}
		return out
	}
	p := pageTable{Head: row(t.Head)}
	for _, cells := range t.Rows {
		p.Rows = append(p.Rows, row(cells))
	}
	return p
}
