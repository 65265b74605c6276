// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package proxy

import "golang.org/x/sys/unix"

// receive reads from a socket.
func receive(fd int, p []byte) (int, error) { return unix.Read(fd, p) }

// peek is receive that leaves the bytes where they are. There is no splice here, so nothing
// ever does.
func peek(fd int, p []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, p, unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return n, err
}

// send writes to a socket.
func send(fd int, p []byte) (int, error) { return unix.Write(fd, p) }

// sendMore is send for bytes that others follow at once. There is no splice here, so
// nothing ever does.
func sendMore(fd int, p []byte) (int, error) { return send(fd, p) }
