// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tiergate/loadtest/report"
)

// marks enclose the part of a document that a run of a scenario writes.
func marks(scenario string) (begin, end string) {
	return fmt.Sprintf("<!-- loadtest %s: begin -->", scenario), fmt.Sprintf("<!-- loadtest %s: end -->", scenario)
}

// Insert returns document with text in place of what stood between the marks of the
// scenario.
func Insert(document []byte, scenario, text string) ([]byte, error) {
	begin, end := marks(scenario)
	head, rest, ok := bytes.Cut(document, []byte(begin))
	_, tail, ended := bytes.Cut(rest, []byte(end))
	if !ok || !ended {
		return nil, fmt.Errorf("the document has no lines %q and %q", begin, end)
	}
	return slices.Concat(head, []byte(begin+"\n"+strings.TrimSpace(text)+"\n"), []byte(end), tail), nil
}

// InsertInto puts the report into a Markdown file, between the marks of its scenario. Its
// headings go two levels down.
func InsertInto(file string, r *report.Run) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(report.Text(r), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "#") {
			lines[i] = "##" + l
		}
	}
	document, err = Insert(document, r.Scenario.Name, strings.Join(lines, "\n"))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, document, 0o644)
}

// Time is about how long a run takes, in words, without starting and verifying.
func (s *Scenario) Time() string {
	total := time.Duration(0)
	for i := range s.Phases {
		p := &s.Phases[i]
		turns := 0
		for _, t := range p.Targets {
			if len(p.workloadsOn(t)) > 0 {
				turns++
			}
		}
		total += time.Duration(p.Rounds*turns) * time.Duration(p.WarmUp+p.Duration)
	}
	return total.Round(time.Second).String()
}
