// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tiergate/loadtest/report"
)

// Kind is what a fault is, in a word that scenarios and reports use.
type Kind string

// The kinds of faults.
const (
	// KindBrokerRestart: SIGTERM, a controlled shutdown, and a start.
	KindBrokerRestart Kind = "broker-restart"
	// KindBrokerKill: SIGKILL, as a power cut, and a start.
	KindBrokerKill Kind = "broker-kill"
	// KindProxyRestart: the proxy is stopped and started.
	KindProxyRestart Kind = "proxy-restart"
	// KindLeaderMove: partitions get another leader, and their old one back at the end.
	KindLeaderMove Kind = "leader-move"
	// KindLatency: bytes take longer.
	KindLatency Kind = "latency"
	// KindBandwidth: no more than so many bytes per second.
	KindBandwidth Kind = "bandwidth"
	// KindCutFIN: connections are closed as a process closes them that ends.
	KindCutFIN Kind = "cut-fin"
	// KindCutRST: connections are reset.
	KindCutRST Kind = "cut-rst"
	// KindHalfOpen: connections fall silent: bytes are swallowed, and nothing says so.
	KindHalfOpen Kind = "half-open"
	// KindBlackhole: the same for all connections, and for new ones.
	KindBlackhole Kind = "blackhole"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		KindBrokerRestart, KindBrokerKill, KindProxyRestart, KindLeaderMove, KindLatency,
		KindBandwidth, KindCutFIN, KindCutRST, KindHalfOpen, KindBlackhole,
	}
}

// Fault is one fault. It can begin and end several times, one after the other. Its methods
// are for one goroutine; different faults are independent.
type Fault interface {
	Kind() Kind
	// Begin puts the fault in force and returns when it is. After an error it may be in
	// force in part: End cleans up.
	Begin(ctx context.Context) error
	// End takes the fault back and returns when all is as before; of cuts there is nothing
	// to take back. It must be called after Begin, whatever came of that.
	End(ctx context.Context) error
	// String says in one line what the fault does; after Begin, what it did.
	String() string
}

// endTime is the most that End gets when the run has been ended: a broker takes a while to start.
const endTime = 2 * time.Minute

// Play begins a fault, waits, and ends it, also when ctx is over before, and then still
// within two minutes. The mark is what became of it, whatever the error.
func Play(ctx context.Context, f Fault, lasting time.Duration) (report.Mark, error) {
	mark := report.Mark{At: time.Now(), Kind: string(f.Kind())}
	err := f.Begin(ctx)
	if err == nil && lasting > 0 {
		timer := time.NewTimer(lasting)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	err = errors.Join(err, f.End(end))
	mark.Until, mark.Text = time.Now(), f.String()
	if err != nil {
		err = fmt.Errorf("fault %s: %w", f.Kind(), err)
		mark.Text += ": " + err.Error()
	}
	return mark, err
}
