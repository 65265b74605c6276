// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"time"
)

// faults are those of a turn, under way.
type faults struct{}

func (u *turn) startFaults(context.Context, time.Time) *faults { return nil }

// wait ends them and returns when all are over.
func (f *faults) wait() error { return nil }

func (v *validator) faultFaults(string, *Phase, *FaultAt) {}
