// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"time"
)

// Row is one catch-up.
type Row struct {
	Case   string `json:"case"`
	Kafka  string `json:"kafka"`
	Path   string `json:"path"`
	Policy Policy `json:"policy"`
	Outcome
	Traffic Traffic `json:"traffic"`
	// InISR is the time from the Fetch at the end until the metadata shows the replica in
	// the ISR: the leader's AlterPartition, and a look every 50 ms.
	InISR time.Duration `json:"in_isr_ns"`
	// LogBytes are those of the leader's log from the log start on, uploaded ones too.
	LogBytes int64 `json:"log_bytes"`
}
