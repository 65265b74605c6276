// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// pollEvents is the most events of one round.
	pollEvents = 256
	// holdProcessor is how long, in milliseconds, a loop without work waits before it
	// gives its processor back to the Go scheduler. Each time it does, sysmon looks every
	// 20 us for a while, about 250 us of CPU time; holding on costs a signal of some
	// microseconds every 10 ms. With 2 ms instead, a broker that sends in bursts made a
	// gigabyte cost half as much again (docs/performance.md).
	holdProcessor = 100
	// maxInterrupted signals, which come every 10 ms, end that time too.
	maxInterrupted = 10
	// edgeTriggered is EPOLLET in the type of epoll's events.
	edgeTriggered = uint32(1) << 31
)

// epoll is a poller of our own. It exists beside gnet's because of what waiting costs
// in a Go program. gnet's waits with a system call that the scheduler knows of and yields
// after a round without events. While a thread is in such a call, sysmon may take its processor
// away: it does so every 10 ms at the latest, then looks every 20 us for a while, and
// another thread is woken to use the processor and finds nothing to run. Where a broker is
// sent much, that is a fifth of a loop's CPU time (docs/performance.md). So this one waits for
// a while in a system call that the scheduler does not know of, and only then in a known one.
//
// Neither a stopped world nor a goroutine that waits for a processor waits for it: the
// signal that preempts a goroutine, after 10 ms at the latest, ends the call.
type epoll struct {
	fd, wake int
	// holds: waiting may keep the processor for a while, since other goroutines have
	// one of their own.
	holds  bool
	events []unix.EpollEvent
	// interrupted counts signals since the last event: waits for which the processor was
	// wanted. maxInterrupted of them are as long as holdProcessor.
	interrupted int
	// more: turns is to be called, so the next round does not wait.
	more    bool
	stopped bool
	calls   calls

	mu    sync.Mutex
	tasks []func()
	// woken: wake was written to and not read since.
	woken bool
	// spare is the slice that tasks was before; the loop's.
	spare []func()
}

// openEpoll opens a poller. holds says whether the process has processors
// (GOMAXPROCS) to spare for others than loops.
func openEpoll(holds bool) (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &epoll{fd: fd, wake: -1, holds: holds, events: make([]unix.EpollEvent, pollEvents)}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	// Edge triggered: it need not be read to be quiet.
	if err = p.control(unix.EPOLL_CTL_ADD, p.wake, unix.EPOLLIN); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close closes the poller, after run.
func (p *epoll) close() {
	_ = unix.Close(p.fd)
	if p.wake >= 0 {
		_ = unix.Close(p.wake)
	}
}

// add registers a socket for interestRead.
func (p *epoll) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd, eventsOf(interestRead)) }

// modify changes what is reported of a socket. What is so already is reported anew, so no
// edge is lost.
func (p *epoll) modify(fd int, _, to interest) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, eventsOf(to))
}

// eventsOf returns the events that are reported for an interest.
func eventsOf(i interest) uint32 {
	// The end of the peer's direction counts whatever is wanted: muting it would lose resets.
	events := uint32(unix.EPOLLRDHUP)
	if i&interestRead != 0 {
		events |= unix.EPOLLIN
	}
	if i&interestWrite != 0 {
		events |= unix.EPOLLOUT
	}
	return events
}

func (p *epoll) control(op, fd int, events uint32) error {
	p.calls.controls++
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events | edgeTriggered, Fd: int32(fd)}))
}

// post has f run between events, after what was posted before. Safe for any goroutine.
// After stop was posted, f never runs.
func (p *epoll) post(f func()) error {
	p.mu.Lock()
	p.tasks = append(p.tasks, f)
	wake := !p.woken
	p.woken = true
	p.mu.Unlock()
	if !wake {
		return nil
	}
	one := [8]byte{1}
	_, err := unix.Write(p.wake, one[:])
	if errors.Is(err, unix.EAGAIN) {
		// The counter is full, which takes 2^64-2 posts; it wakes all the same.
		err = nil
	}
	return os.NewSyscallError("write", err)
}

// stop ends run after the tasks posted before it. Safe for any goroutine.
func (p *epoll) stop() { _ = p.post(func() { p.stopped = true }) }

// again has turns called after the events of the present round.
func (p *epoll) again() { p.more = true }

// run calls event for each socket that changed, and turns when again was called.
func (p *epoll) run(event func(fd int, e edges), turns func()) error {
	for !p.stopped {
		n, err := p.wait()
		if err != nil {
			return err
		}
		tasks := false
		for i := range p.events[:n] {
			if fd := int(p.events[i].Fd); fd == p.wake {
				tasks = true
			} else {
				event(fd, edgesOf(p.events[i].Events))
			}
		}
		if tasks {
			p.runTasks()
		}
		if p.more {
			p.more = false
			turns()
		}
	}
	return nil
}

// runTasks runs what was posted until now.
func (p *epoll) runTasks() {
	p.mu.Lock()
	tasks := p.tasks
	p.tasks, p.spare, p.woken = p.spare[:0], tasks, false
	p.mu.Unlock()
	for i, f := range tasks {
		tasks[i] = nil
		if !p.stopped {
			f()
		}
	}
}

// wait returns how many events there are: at least one, unless more is set or a signal
// came.
func (p *epoll) wait() (n int, err error) {
	switch {
	case p.more:
		n, err = p.waitRaw(0)
	case p.holds && p.interrupted < maxInterrupted:
		if n, err = p.waitRaw(holdProcessor); n > 0 {
			p.interrupted = 0
			break
		}
		if err != nil {
			p.interrupted++
			break
		}
		fallthrough
	default:
		p.calls.waits++
		n, err = unix.EpollWait(p.fd, p.events, -1)
		p.interrupted = 0
	}
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, os.NewSyscallError("epoll_wait", err)
}

// waitRaw is epoll_wait behind the scheduler's back.
func (p *epoll) waitRaw(milliseconds int) (int, error) {
	p.calls.waits++
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(p.events))), uintptr(len(p.events)), uintptr(milliseconds), 0, 0) //nolint:gosec // the kernel fills the slice
	return result(n, errno)
}

// count adds the system calls since the last count.
func (p *epoll) count(c *calls) {
	c.waits += p.calls.waits
	c.controls += p.calls.controls
	p.calls = calls{}
}

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
