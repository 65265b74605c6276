// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import "time"

// The proxies that are attacked.
const (
	TargetTiergate = "tiergate"
	TargetHAProxy  = "haproxy"
)

// Allowance is the resident memory that tiergate may have beyond max_buffered_bytes: the
// program, Go's garbage, sessions, and buffers of loops.
const Allowance = 128 << 20

// Options of Run.
type Options struct {
	// Binary is the tiergate program.
	Binary string
	// Attacks are names of attacks, Targets the proxies that are attacked. Default: all.
	Attacks, Targets []string
	// Duration is how long each attack lasts.
	Duration time.Duration
	// Within is the time in which an exchange of a well-behaved client must be complete,
	// from before it connects to its last response.
	Within time.Duration
	// Clients is the number of well-behaved clients.
	Clients int
	// Folder keeps configurations and logs.
	Folder string
	// Progress is called with every row when it is complete.
	Progress func(Row)
}

// Report has the rows of a run, in the order of Attacks.
type Report struct {
	Tiergate string        `json:"tiergate"`
	HAProxy  string        `json:"haproxy"`
	CPU      string        `json:"cpu"`
	Cores    int           `json:"cores"`
	Date     string        `json:"date"`
	Duration time.Duration `json:"duration_ns"`
	Within   time.Duration `json:"within_ns"`
	Clients  int           `json:"clients"`
	Rows     []Row         `json:"rows"`
}

// Row is what one attack did to one proxy.
type Row struct {
	Attack string `json:"attack"`
	Words  string `json:"words"`
	Target string `json:"target"`
	// PeakBytes is the highest resident memory of the process (VmHWM), and BoundBytes what
	// it must not exceed; 0 for no bound.
	PeakBytes  int64 `json:"peak_bytes"`
	BoundBytes int64 `json:"bound_bytes,omitempty"`
	// CPUSeconds of the process, all threads, in Seconds of attack.
	CPUSeconds float64 `json:"cpu_seconds"`
	Seconds    float64 `json:"seconds"`
	// Clients tried; Served is how many of them completed every exchange in time.
	Clients int `json:"clients"`
	Served  int `json:"served"`
	// Exchanges of all clients, those of them that were Missed, and the slowest complete one.
	Exchanges      int     `json:"exchanges"`
	Missed         int     `json:"missed"`
	SlowestSeconds float64 `json:"slowest_seconds"`
	// Connections that the attack opened, large responses that it read to the end, and
	// those instead of which its connection was closed.
	Connections int64 `json:"connections"`
	Responses   int64 `json:"responses"`
	Refused     int64 `json:"refused"`
	// Accepted is why clients that are not served are no fault here; empty if they are.
	Accepted string `json:"accepted,omitempty"`
	// Faults are sentences that say what did not hold.
	Faults []string `json:"faults,omitempty"`
	// Busy is set when control clients without a proxy were not served in time either.
	Busy string `json:"busy,omitempty"`
}

// Held is true when the row has no fault.
func (r Row) Held() bool { return len(r.Faults) == 0 }

// Held is true when tiergate has no fault in any row.
func (r *Report) Held() bool {
	for _, row := range r.Rows {
		if row.Target == TargetTiergate && !row.Held() {
			return false
		}
	}
	return true
}
