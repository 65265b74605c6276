// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// reservePorts locks one file per port for the life of this process: the descriptors are
// left open, and the kernel drops the locks at its end. It is false when another process
// or an earlier call has one of them. Where the files cannot be had, nothing is reserved.
func reservePorts(ports []int) bool {
	dir := filepath.Join(os.TempDir(), "tiergate-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return true
	}
	for _, port := range ports {
		path := filepath.Join(dir, strconv.Itoa(port))
		fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o666)
		if err != nil {
			continue
		}
		if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			syscall.Close(fd)
			return false
		}
	}
	return true
}

// signalGroup sends a signal to a process and all its children.
func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
