// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock that other processes respect and that the kernel
// drops when this process ends. It waits for the holder, or until ctx ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: held by another process: %w", path, err)
		}
	}
}

// signalGroup sends a signal to a process and all its children.
func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
