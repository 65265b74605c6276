// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes put a child into a process group of its own, and have the kernel
// kill it when its parent dies in whatever way, a killed test binary among them.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reservePorts locks one byte per port of a file that all test processes share, for the
// life of this process: the descriptor is left open, and the kernel drops the lock at its
// end. It is false when another process or an earlier call has one of the ports. Where
// the file cannot be had, nothing is reserved.
func reservePorts(ports []int) bool {
	path := filepath.Join(os.TempDir(), "tiergate-test-ports.lock")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return true
	}
	// An open file description lock: it belongs to fd, not to the process (fcntl(2)).
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(ports[0]), Len: int64(len(ports))}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != nil {
		_ = unix.Close(fd)
		return false
	}
	return true
}
