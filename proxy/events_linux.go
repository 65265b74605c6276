// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import "golang.org/x/sys/unix"

// edgesOf reads an epoll event.
func edgesOf(ev uint32) edges {
	failed := ev&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	return edges{
		// A failed socket is readable: reading tells the error.
		readable: failed || ev&(unix.EPOLLIN|unix.EPOLLPRI|unix.EPOLLRDHUP) != 0,
		writable: failed || ev&unix.EPOLLOUT != 0,
		hungUp:   failed || ev&unix.EPOLLRDHUP != 0,
		failed:   failed,
	}
}
