// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"io"
	"time"

	"tiergate/loadtest/kafka"
)

// What other harnesses need of this one: layer 4 proxies at their best, and meters.

// Relay is a layer 4 proxy between two addresses.
type Relay struct {
	// Peer is PeerHAProxy or PeerNginx.
	Peer string
	// Listen and Broker are host:port.
	Listen, Broker string
	// Threads is how many threads that move bytes it may have.
	Threads int
	// Folder keeps its configuration; one for each relay.
	Folder string
	// Stderr takes what it says.
	Stderr io.Writer
}

// Start starts the relay, set as it suits bulk best, and returns when it accepts
// connections. The caller ends the process.
func (r Relay) Start(ctx context.Context) (*kafka.Process, error) {
	if err := find(r.Peer); err != nil {
		return nil, err
	}
	s := setting{broker: r.Broker, threads: r.Threads, folder: r.Folder, workload: Workload{Kind: KindBulk}, stderr: r.Stderr}
	up, err := startAt(ctx, r.Peer, r.Listen, s)
	if err != nil {
		return nil, err
	}
	return up.process, nil
}

// Family returns pid and its children, sorted.
func Family(pid int) ([]int, error) { return family(pid) }

// CPUTime returns the CPU time that processes have used, all threads together.
func CPUTime(pids []int) (time.Duration, error) { return cpuTime(pids) }

// MachineBusy returns the CPU time that all processes of the machine have used.
func MachineBusy() (time.Duration, error) { return machineBusy() }

// Resident returns the resident memory of processes in bytes.
func Resident(pids []int) (int64, error) {
	m, err := memoryOf(pids)
	return m.now, err
}

// Peak returns the highest resident memory that processes have had, in bytes.
func Peak(pids []int) (int64, error) {
	m, err := memoryOf(pids)
	return m.peak, err
}

// Missing says in a sentence that a peer is not installed; nil if it is.
func Missing(peer string) error { return find(peer) }
