// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package proxy

import (
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// openPoller opens the poller that the options name.
func openPoller(Options) (poller, error) { return openGnet() }

// add registers a socket for both directions, always: kqueue reports them apart.
func (p *gnetPoller) add(fd int) error {
	p.controls++
	return p.gnet.AddReadWrite(&netpoll.PollAttachment{FD: fd}, true)
}

// modify does nothing; see add.
func (*gnetPoller) modify(int, interest, interest) error { return nil }

// edgesOfGnet reads a kqueue event: one filter each, with the end of the peer's direction
// as a flag.
func edgesOfGnet(ev netpoll.IOEvent, flags netpoll.IOFlags) edges {
	failed := netpoll.IsErrorEvent(ev, flags)
	return edges{
		readable: failed || netpoll.IsReadEvent(ev),
		writable: failed || netpoll.IsWriteEvent(ev),
		hungUp:   failed || flags&unix.EV_EOF != 0,
		failed:   failed && flags&unix.EV_ERROR != 0,
	}
}
