// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package proxy

import (
	"errors"
	"fmt"

	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
	"golang.org/x/sys/unix"
)

// poller tells a loop which of its sockets changed, and runs what other goroutines post:
// gnet's, over kqueue.
type poller struct {
	gnet *netpoll.Poller
	// wakeRead is readable when a round is to follow: that is after the events of the
	// round that runs. (A task that posts itself would not do: netpoll runs tasks until
	// none is left.)
	wakeRead, wakeSend int
}

// openPoller opens a poller. gnet's waits as it does, whatever the processors are.
func openPoller(bool) (*poller, error) {
	gnet, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	p := &poller{gnet: gnet}
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
func (p *poller) close() {
	_ = unix.Close(p.wakeRead)
	_ = unix.Close(p.wakeSend)
	_ = p.gnet.Close()
}

// add registers a socket for both directions, always: kqueue reports them apart.
func (p *poller) add(fd int) error {
	return p.gnet.AddReadWrite(&netpoll.PollAttachment{FD: fd}, true)
}

// modify does nothing; see add.
func (*poller) modify(int, interest, interest) error { return nil }

// post has f run between events, after what was posted before. Safe for any goroutine.
// After stop was posted, f never runs.
func (p *poller) post(f func()) error {
	// High priority keeps all tasks in one queue, and so in order.
	return p.gnet.Trigger(queue.HighPriority, func(any) error {
		f()
		return nil
	}, nil)
}

// stop ends run after the tasks posted before it. Safe for any goroutine.
func (p *poller) stop() {
	_ = p.gnet.Trigger(queue.HighPriority, func(any) error { return gneterrors.ErrEngineShutdown }, nil)
}

// again has turns called after the events of the present round.
func (p *poller) again() {
	// A full pipe wakes too.
	_, _ = unix.Write(p.wakeSend, []byte{0})
}

// run calls event for each socket that changed, and turns when again was called.
func (p *poller) run(event func(fd int, e edges), turns func()) error {
	err := p.gnet.Polling(func(fd int, ev netpoll.IOEvent, flags netpoll.IOFlags) error {
		if fd != p.wakeRead {
			event(fd, edgesOf(ev, flags))
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

// receive reads from a socket.
func receive(fd int, p []byte) (int, error) { return unix.Read(fd, p) }

// send writes to a socket.
func send(fd int, p []byte) (int, error) { return unix.Write(fd, p) }

// sendMore is send for bytes that others follow at once. There is no splice here, so
// nothing ever does.
func sendMore(fd int, p []byte) (int, error) { return send(fd, p) }
