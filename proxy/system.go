// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// system is what a loop and its sessions use of the operating system: one call each, so that
// what is made of its result and its error stays above. Tests put their own in place of
// kernel's, to have calls fail that do so rarely, and to do without sockets.
type system struct {
	// openPoller opens a loop's poller; see the function of that name.
	openPoller func(holds bool) (readiness, error)
	// spawn runs f in a goroutine that is counted.
	spawn func(work *sync.WaitGroup, f func())
	// now is the clock, where the time of the last tick is too coarse.
	now func() time.Time
	// receive, send and sendMore move bytes of a socket; see the functions of these names.
	receive, send, sendMore func(fd int, p []byte) (int, error)
	// linger sets SO_LINGER: whether closing resets the connection.
	linger func(fd int, l *unix.Linger) error
	// shutdown ends a socket's directions as in shutdown(2).
	shutdown func(fd, how int) error
	close    func(fd int) error
	pipeSystem
}

// readiness is what a loop needs of its poller.
type readiness interface {
	// add registers a socket for both directions.
	add(fd int) error
	// post has f run between events, after what was posted before. Safe for any goroutine.
	// After stop was posted, f never runs.
	post(f func()) error
	// stop ends run after the tasks posted before it. Safe for any goroutine.
	stop()
	// again has turns called after the events of the present round.
	again()
	// run calls event for each socket that changed, and turns when again was called.
	run(event func(fd int, e edges), turns func()) error
	// close closes the poller, after run.
	close()
}

// kernel is the real system.
func kernel() system {
	return system{
		openPoller: func(holds bool) (readiness, error) { return openPoller(holds) },
		spawn:      (*sync.WaitGroup).Go,
		now:        time.Now,
		receive:    receive, send: send, sendMore: sendMore,
		linger: func(fd int, l *unix.Linger) error {
			return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, l)
		},
		shutdown:   unix.Shutdown,
		close:      unix.Close,
		pipeSystem: kernelPipes(),
	}
}
