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
	Tables []pageTable
	// Plots says that the script puts plots there: it is the title of their section.
	Plots string
}

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

// pageSections puts the plots below the sections of the same title; those that have none
// come after the last section that has plots, as workloads do, or first.
func pageSections(sections []section, all plots) []pageSection {
	rest := map[string]bool{}
	for _, s := range all.Sections {
		rest[s.Title] = true
	}
	var pages []pageSection
	last := 0
	for _, s := range sections {
		p := pageSection{Title: s.title, Text: s.text}
		for _, t := range s.tables {
			if len(t.Rows) > 0 {
				p.Tables = append(p.Tables, t.page())
			}
		}
		pages = append(pages, p)
		if rest[s.title] {
			pages[len(pages)-1].Plots = s.title
			delete(rest, s.title)
			last = len(pages)
		}
	}
	var others []pageSection
	for _, s := range all.Sections {
		if rest[s.Title] {
			others = append(others, pageSection{Title: s.Title, Plots: s.Title})
		}
	}
	return append(pages[:last:last], append(others, pages[last:]...)...)
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
