// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package proxy

import (
	"errors"
	"fmt"

	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
	"golang.org/x/sys/unix"
)

// gnetPoller is gnet's poller, over epoll or kqueue.
type gnetPoller struct {
	gnet *netpoll.Poller
	// wakeRead is readable when a round is to follow: that is after the events of the
	// round that runs. (A task that posts itself would not do: netpoll runs tasks until
	// none is left.)
	wakeRead, wakeSend int
	// controls counts the calls that change what is waited for.
	controls uint64
}

// openGnet opens a poller.
func openGnet() (*gnetPoller, error) {
	gnet, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	p := &gnetPoller{gnet: gnet}
	var fds [2]int
	if err = unix.Pipe(fds[:]); err != nil {
		_ = gnet.Close()
		return nil, fmt.Errorf("open wake pipe: %w", err)
	}
	p.wakeRead, p.wakeSend = fds[0], fds[1]
	err = gnet.AddRead(&netpoll.PollAttachment{FD: p.wakeRead}, false)
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		err = errors.Join(err, unix.SetNonblock(fd, true))
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("wake pipe: %w", err)
	}
	return p, nil
}

// close closes the poller, after run.
func (p *gnetPoller) close() {
	_ = unix.Close(p.wakeRead)
	_ = unix.Close(p.wakeSend)
	_ = p.gnet.Close()
}

// post has f run between events, after what was posted before. Safe for any goroutine.
// After stop was posted, f never runs.
func (p *gnetPoller) post(f func()) error {
	// High priority keeps all tasks in one queue, and so in order.
	return p.gnet.Trigger(queue.HighPriority, func(any) error {
		f()
		return nil
	}, nil)
}

// stop ends run after the tasks posted before it. Safe for any goroutine.
func (p *gnetPoller) stop() {
	_ = p.gnet.Trigger(queue.HighPriority, func(any) error { return gneterrors.ErrEngineShutdown }, nil)
}

// again has turns called after the events of the present round.
func (p *gnetPoller) again() {
	// A full pipe wakes too.
	_, _ = unix.Write(p.wakeSend, []byte{0})
}

// count adds the system calls since the last count. gnet's waits cannot be counted here.
func (p *gnetPoller) count(c *calls) {
	c.controls += p.controls
	p.controls = 0
}

// run calls event for each socket that changed, and turns when again was called.
func (p *gnetPoller) run(event func(fd int, e edges), turns func()) error {
	err := p.gnet.Polling(func(fd int, ev netpoll.IOEvent, flags netpoll.IOFlags) error {
		if fd != p.wakeRead {
			event(fd, edgesOfGnet(ev, flags))
			return nil
		}
		var drop [8]byte
		_, _ = unix.Read(p.wakeRead, drop[:])
		turns()
		return nil
	})
	if errors.Is(err, gneterrors.ErrEngineShutdown) {
		return nil
	}
	return err
}
