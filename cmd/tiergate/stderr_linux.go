// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"syscall"
)

// splitStderr returns where the log is written, and lets the Go runtime write to standard
// error without waiting: it writes a panic there before it ends the process, and would wait
// for ever on a full pipe whose reader stalls, with every socket open. Of such a text what the
// pipe does not take is lost. The flag is set on a description of our own, so other processes
// that have the pipe are not affected. Where standard error is no pipe nothing changes.
func splitStderr() io.Writer {
	const stderr = 2
	var stat syscall.Stat_t
	if syscall.Fstat(stderr, &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return os.Stderr
	}
	again, err := syscall.Open("/proc/self/fd/2", syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return os.Stderr // no /proc, or no permission
	}
	defer func() { _ = syscall.Close(again) }()
	kept, err := syscall.Dup(stderr)
	if err != nil {
		return os.Stderr
	}
	syscall.CloseOnExec(kept)
	if err = syscall.Dup3(again, stderr, 0); err != nil {
		_ = syscall.Close(kept)
		return os.Stderr
	}
	return os.NewFile(uintptr(kept), "/dev/stderr")
}
