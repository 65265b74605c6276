// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"io"
	"os"
)

// splitStderr returns standard error: only Linux can open a pipe anew.
func splitStderr() io.Writer { return os.Stderr }
