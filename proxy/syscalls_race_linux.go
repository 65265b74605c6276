// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Under the race detector the system calls are those of package syscall, which tell it that
// what was done before a send is seen by who receives, in packages syscall and net.

// receive reads from a socket.
func receive(fd int, p []byte) (int, error) { return syscall.Read(fd, p) }

// peek is receive that leaves the bytes where they are.
func peek(fd int, p []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, p, unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return n, err
}

// send writes to a socket.
func send(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }

// sendMore is send for bytes that others follow at once.
func sendMore(fd int, p []byte) (int, error) {
	return unix.SendmsgN(fd, p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|unix.MSG_MORE)
}

// splice moves up to n bytes from one descriptor to the other, of which one is a pipe.
func splice(from, to, n int) (int, error) {
	moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(moved), err
}
