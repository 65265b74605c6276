// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse_test

import (
	"strings"
	"testing"
	"time"

	"tiergate/loadtest/abuse"
	"tiergate/loadtest/gate"
)

// A thin slice of the table. Clients have more time than in the table: machines that run
// tests are busy.
func TestAttacksHold(t *testing.T) {
	dir := t.TempDir()
	binary, err := gate.Binary(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"slow half frames", "never read Metadata", "log reader stalled"}
	r, err := abuse.Run(t.Context(), abuse.Options{
		Binary: binary, Attacks: names, Targets: []string{abuse.TargetTiergate},
		Duration: 2 * time.Second, Within: 10 * time.Second, Clients: 50, Folder: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if !row.Held() || row.Connections == 0 || row.Served != 50 || row.PeakBytes == 0 {
			t.Errorf("%+v", row)
		}
	}
	if len(r.Rows) != len(names) {
		t.Errorf("%d rows, want %d", len(r.Rows), len(names))
	}
}

func TestUnknownAttack(t *testing.T) {
	_, err := abuse.Run(t.Context(), abuse.Options{Binary: "true", Attacks: []string{"flood"}})
	if err == nil || !strings.HasPrefix(err.Error(), `unknown attack "flood": want one of half frames, slow half frames`) {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	r := &abuse.Report{Tiergate: "v1", HAProxy: "2.6", CPU: "CPU", Cores: 2, Date: "2026-01-02", Duration: 10 * time.Second, Within: 2 * time.Second, Clients: 50, Rows: []abuse.Row{
		{Attack: "a", Words: "does a", Target: abuse.TargetTiergate, PeakBytes: 20 << 20, BoundBytes: 192 << 20, CPUSeconds: 5, Seconds: 10, Clients: 50, Served: 50, Exchanges: 100, SlowestSeconds: 0.1, Connections: 7},
		{Attack: "a", Words: "does a", Target: abuse.TargetHAProxy, PeakBytes: 15 << 20, CPUSeconds: 1, Seconds: 10, Clients: 50, Served: 49, Faults: []string{"of HAProxy"}},
		{Attack: "b", Words: "does b", Target: abuse.TargetTiergate, Clients: 50, Served: 1, Faults: []string{"49 of 50"}, Busy: "1 of 5"},
	}}
	want := `tiergate v1, HAProxy 2.6; 2 cores of CPU, 2026-01-02. 10s for each attack; 50 well-behaved clients, each exchange within 2s.

| attack | memory, peak (bound), MiB | CPU, cores | served | holds | HAProxy: memory | CPU | served |
|---|---:|---:|---:|---|---:|---:|---:|
| a | 20 (192) | 0.50 | 50 of 50 | yes | 15 | 0.10 | 49 of 50 |
| b | 0 (0) | 0.00 | 1 of 50 | **missed** | - | | |

- **a**: does a. 7 connections; 100 of 100 exchanges of the clients in time, the slowest 100 ms.
- **b**: does b. 0 connections; 0 of 0 exchanges of the clients in time, the slowest 0 ms.
  **Missed**: 49 of 50.
  The machine was busy: 1 of 5.
`
	if got := r.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.Held() {
		t.Error("Held although b has a fault")
	}
}
