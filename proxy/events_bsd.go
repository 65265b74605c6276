// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package proxy

import (
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// edges are what one event of the poller says about a socket.
type edges struct {
	readable, writable, hungUp, failed bool
}

// edgesOf reads a kqueue event: one filter each, with the end of the peer's direction
// as a flag.
func edgesOf(ev netpoll.IOEvent, flags netpoll.IOFlags) edges {
	failed := netpoll.IsErrorEvent(ev, flags)
	return edges{
		readable: failed || netpoll.IsReadEvent(ev),
		writable: failed || netpoll.IsWriteEvent(ev),
		hungUp:   failed || flags&unix.EV_EOF != 0,
		failed:   failed && flags&unix.EV_ERROR != 0,
	}
}
