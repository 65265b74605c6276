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
	openPoller func(Options) (poller, error)
	// spawn runs f in a goroutine that is counted.
	spawn func(work *sync.WaitGroup, f func())
	// now is the clock, where the time of the last tick is too coarse.
	now func() time.Time
	// receive, peek, send and sendMore move bytes of a socket; see the functions of these names.
	receive, peek, send, sendMore func(fd int, p []byte) (int, error)
	// linger sets SO_LINGER: whether closing resets the connection.
	linger func(fd int, l *unix.Linger) error
	// shutdown ends a socket's directions as in shutdown(2).
	shutdown func(fd, how int) error
	close    func(fd int) error
	pipeSystem
}

// kernel is the real system.
func kernel() system {
	return system{
		openPoller: openPoller,
		spawn:      (*sync.WaitGroup).Go,
		now:        time.Now,
		receive:    receive, peek: peek, send: send, sendMore: sendMore,
		linger: func(fd int, l *unix.Linger) error {
			return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, l)
		},
		shutdown:   unix.Shutdown,
		close:      unix.Close,
		pipeSystem: kernelPipes(),
	}
}
