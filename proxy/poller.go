// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import "fmt"

// EventLoop names the poller of the loops.
type EventLoop uint8

const (
	// EventLoopGnet is gnet's, on every platform.
	EventLoopGnet EventLoop = iota
	// EventLoopEpoll is an epoll of our own, on Linux only: a fifth less CPU time where a
	// broker is sent much, for twice the processors (Options.SpareProcessors).
	EventLoopEpoll
)

// String returns the name that configurations use.
func (e EventLoop) String() string {
	switch e {
	case EventLoopGnet:
		return "gnet"
	case EventLoopEpoll:
		return "epoll"
	default:
		return fmt.Sprintf("EventLoop(%d)", uint8(e))
	}
}

// poller tells a loop which of its sockets changed, and runs what other goroutines post.
// All methods but post and stop are for the loop's goroutine.
type poller interface {
	// add registers a socket for interestRead, edge-triggered.
	add(fd int) error
	// modify changes a socket's interest. What is so already is reported anew.
	modify(fd int, from, to interest) error
	// post has f run between events, after what was posted before. Safe for any goroutine.
	// After stop was posted, f never runs.
	post(f func()) error
	// stop ends run after the tasks posted before it. Safe for any goroutine.
	stop()
	// again has turns called after the events of the present round.
	again()
	// run calls event for each socket that changed, and turns when again was called.
	run(event func(fd int, e edges), turns func()) error
	// count adds the system calls since the last count.
	count(c *calls)
	// close closes the poller, after run.
	close()
}

// calls counts the system calls of a loop.
type calls struct {
	// waits are those for events, controls those that change what is waited for.
	waits, controls uint64
	// reads and writes are those of sockets, splices those between a socket and a pipe.
	reads, writes, splices uint64
	// bytes is what the latter have moved; a splice from a socket and one to a socket count both.
	bytes uint64
}

// interest is what the poller reports of a socket, beside the end of the peer's direction
// and failures.
type interest uint8

const (
	interestRead interest = 1 << iota
	interestWrite
)

// edges are what one event of the poller says about a socket.
type edges struct {
	readable, writable, hungUp, failed bool
}
