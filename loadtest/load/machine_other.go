// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package load

import (
	"context"
	"errors"
	"runtime"
	"time"

	"tiergate/loadtest/kafka"
	"tiergate/loadtest/report"
)

var errLinuxOnly = errors.New("targets haproxy and nginx are for Linux only")

func (t *target) relayText() string { return "" }

func (t *target) startRelays(context.Context) ([]*kafka.Process, error) { return nil, errLinuxOnly }

func relayMissing(TargetKind) error { return errLinuxOnly }

// used is what processes have used so far: not known here.
type used struct {
	cpu, harness, machine time.Duration
	rss                   int64
}

func usedBy([]int) used { return used{} }

// thisMachine describes the machine for the report.
func thisMachine() report.Environment {
	return report.Environment{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
}
