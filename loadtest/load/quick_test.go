// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"

	"tiergate/loadtest/report"
)

// logProgress shows a run in the test's log.
type logProgress struct{ t *testing.T }

func (p logProgress) Say(format string, args ...any) { p.t.Logf(format, args...) }

func (p logProgress) Second(s Second) {
	for i, point := range s.Points {
		p.t.Logf("%s %v %s: %+v", s.Target, s.Elapsed, s.Workloads[i], point)
	}
}

// TestQuick plays the scenario that needs Go only: every kind of workload, with every
// verification, directly and through tiergate.
func TestQuick(t *testing.T) {
	s, err := Open("quick")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Scenario: s, Tool: "test", Progress: logProgress{t}})
	if r != nil {
		t.Log("\n" + report.Text(r))
	}
	if err != nil {
		t.Fatal(err)
	}
}
