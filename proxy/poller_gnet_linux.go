// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
)

// openPoller opens the poller that the options name.
func openPoller(o Options) (poller, error) {
	if o.EventLoop == EventLoopEpoll {
		return openEpoll(o.SpareProcessors > 0)
	}
	return openGnet()
}

// add registers a socket for interestRead.
func (p *gnetPoller) add(fd int) error {
	p.controls++
	return p.gnet.AddRead(&netpoll.PollAttachment{FD: fd}, true)
}

// modify changes what is reported of a socket. gnet has no way to change a socket to
// writing alone or to nothing: it is registered anew for writing then, which reports at
// once that it has room, if it has.
func (p *gnetPoller) modify(fd int, from, to interest) error {
	p.controls++
	at := &netpoll.PollAttachment{FD: fd}
	switch {
	case to == interestRead|interestWrite:
		return p.gnet.ModReadWrite(at, true)
	case to == interestRead:
		return p.gnet.ModRead(at, true)
	case from&interestRead == 0:
		p.controls--
		return nil // for writing already
	}
	p.controls++
	return errors.Join(p.gnet.Delete(fd), p.gnet.AddWrite(at, true))
}

// edgesOfGnet reads an event of gnet's poller.
func edgesOfGnet(ev netpoll.IOEvent, _ netpoll.IOFlags) edges { return edgesOf(ev) }
