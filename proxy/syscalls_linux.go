// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package proxy

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls that move bytes never block, so the scheduler need not know of them
// either. Those of sockets, recvfrom and sendto, cost less than read and write, which
// pass through the file system's layer: 7 % of a small exchange.

// receive reads from a socket.
func receive(fd int, p []byte) (int, error) { return receiveFrom(fd, p, unix.MSG_DONTWAIT) }

// peek is receive that leaves the bytes where they are.
func peek(fd int, p []byte) (int, error) {
	return receiveFrom(fd, p, unix.MSG_DONTWAIT|unix.MSG_PEEK)
}

func receiveFrom(fd int, p []byte, flags uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0) //nolint:gosec // the kernel fills p
	return result(n, errno)
}

// send writes to a socket.
func send(fd int, p []byte) (int, error) {
	return sendTo(fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// sendMore is send for bytes that others follow at once.
func sendMore(fd int, p []byte) (int, error) {
	return sendTo(fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|unix.MSG_MORE)
}

func sendTo(fd int, p []byte, flags uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0) //nolint:gosec // the kernel reads p
	return result(n, errno)
}

// splice moves up to n bytes from one descriptor to the other, of which one is a pipe.
func splice(from, to, n int) (int, error) {
	moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n),
		unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return result(moved, errno)
}
