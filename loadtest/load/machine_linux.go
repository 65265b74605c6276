// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"tiergate/loadtest/bench"
	"tiergate/loadtest/kafka"
	"tiergate/loadtest/report"
)

// relayText says which program a layer 4 target is.
func (t *target) relayText() string {
	m := bench.ThisMachine()
	if t.spec.Kind == TargetHAProxy {
		return fmt.Sprintf("%s, TCP mode, splice in both directions, %d threads", m.HAProxy, t.threads())
	}
	return fmt.Sprintf("%s, stream, buffers of 128 KiB, %d workers", m.Nginx, t.threads())
}

// startRelays starts one layer 4 proxy for each broker.
func (t *target) startRelays(ctx context.Context) ([]*kafka.Process, error) {
	var up []*kafka.Process
	for i, broker := range t.brokers() {
		folder := filepath.Join(t.folder, fmt.Sprint(i))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return up, err
		}
		r := bench.Relay{Peer: string(t.spec.Kind), Listen: t.listens[i], Broker: broker, Threads: t.threads(), Folder: folder, Stderr: t.log}
		p, err := r.Start(ctx)
		if err != nil {
			return up, err
		}
		up = append(up, p)
	}
	return up, nil
}

// relayMissing says in a sentence that the program of a target is not installed.
func relayMissing(kind TargetKind) error { return bench.Missing(string(kind)) }

// used is what processes have used so far.
type used struct {
	cpu, harness, machine time.Duration
	rss                   int64
}

// usedBy asks the kernel. Processes that have ended are left out.
func usedBy(pids []int) used {
	var u used
	for _, pid := range pids {
		family, err := bench.Family(pid)
		if err != nil {
			continue
		}
		cpu, cpuErr := bench.CPUTime(family)
		rss, rssErr := bench.Resident(family)
		if cpuErr == nil && rssErr == nil {
			u.cpu += cpu
			u.rss += rss
		}
	}
	u.harness, _ = bench.CPUTime([]int{os.Getpid()})
	u.machine, _ = bench.MachineBusy()
	return u
}

// thisMachine describes the machine for the report.
func thisMachine() report.Environment {
	m := bench.ThisMachine()
	e := report.Environment{
		CPU: m.CPU, Cores: m.Cores, Memory: memoryTotal(), System: runtime.GOOS + "/" + runtime.GOARCH, Kernel: m.Kernel, Congestion: m.Congestion, Go: m.Go,
	}
	for _, s := range []report.Software{
		{Name: "HAProxy", Version: strings.TrimPrefix(m.HAProxy, "HAProxy version ")},
		{Name: "nginx", Version: strings.TrimPrefix(m.Nginx, "nginx/")},
	} {
		if s.Version != "" {
			e.Software = append(e.Software, s)
		}
	}
	return e
}

// memoryTotal reads "MemTotal:  24684460 kB" of /proc/meminfo; 0 when it is not there.
func memoryTotal() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "MemTotal:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib << 10
}
