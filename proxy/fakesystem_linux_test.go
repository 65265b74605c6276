// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeSystem is an operating system in memory: sockets, pipes, an edge-triggered poller and
// a clock, all of one goroutine. What runs off the loops is queued in jobs and runs when the
// test says so.
type fakeSystem struct {
	rnd *rand.Rand
	// rough: calls are interrupted, move less than they could, and fail.
	rough bool
	now   time.Time
	socks map[int]*fakeSocket
	pipes map[int]*fakePipe
	// null is what the descriptors of sockets are duplicates of: real ones, so that what
	// takes a descriptor over (detach) has one.
	null *os.File
	// dialed are the sockets of connections that were dialed and whose descriptors, which
	// detach makes, were not seen yet: the loop's next new descriptor is the first's.
	dialed []*fakeSocket
	// order is the descriptors of sockets in the order in which they were opened.
	order []int
	pipe  int
	tasks []func()
	jobs  []func()
	// inline: what is posted runs at once.
	inline bool
	more   bool
	// misuse is the first thing that no program may do, such as using a closed descriptor.
	misuse string
}

// fakeSocket is a connected TCP socket, with its peer's view of it.
type fakeSocket struct {
	// in are bytes that the peer sent and that were not read yet; ended: it has ended its
	// direction after them.
	in    []byte
	ended bool
	// out are bytes that were sent and that the peer has not read yet, room at most.
	out  []byte
	room int
	// shut: our direction was shut down. reset: the connection was reset by the peer; told:
	// and a call has returned that. gone: our end is closed; rst: with a reset.
	shut, reset, told, gone, rst bool
	lingers                      bool
	// failed: a call failed for want of memory.
	failed bool
	// full: a write has taken less than it was given. woken: the poller has an event.
	full, woken bool
	watched     bool
	interest    interest
}

// fakePipe is a pipe; both its descriptors lead to it.
type fakePipe struct {
	bytes []byte
	size  int
}

const fakePipes = 1 << 20 // descriptors from here on are pipes

func newFakeSystem(seed uint64, null *os.File) *fakeSystem {
	return &fakeSystem{
		rnd: rand.New(rand.NewPCG(seed, 1)), null: null, pipe: fakePipes,
		now:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		socks: map[int]*fakeSocket{}, pipes: map[int]*fakePipe{},
	}
}

// system is what loops get.
func (f *fakeSystem) system() system {
	return system{
		openPoller: func(Options) (poller, error) { return f, nil },
		spawn:      func(_ *sync.WaitGroup, job func()) { f.jobs = append(f.jobs, job) },
		now:        func() time.Time { return f.now },
		receive:    f.receive,
		peek:       f.peek,
		send:       f.send,
		sendMore:   f.send,
		linger: func(fd int, l *unix.Linger) error {
			f.socket(fd).lingers = l.Onoff != 0
			return nil
		},
		shutdown: func(fd, _ int) error {
			s := f.socket(fd)
			s.shut, s.woken = true, true
			return nil
		},
		close: f.closeDescriptor,
		pipeSystem: pipeSystem{
			splice: f.splice, pipe: f.openPipe, resize: f.resize,
		},
	}
}

// nullFile opens the file for newFakeSystem.
func nullFile(t *testing.T) *os.File {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return null
}

// server makes a server with one loop that nobody runs.
func (f *fakeSystem) server(opts Options) (*Server, error) {
	opts.Loops = 1
	s, err := New(opts)
	if err != nil {
		return nil, err
	}
	s.sys = f.system()
	for i, e := range s.opts.Endpoints {
		s.endpoints = append(s.endpoints, &endpoint{Endpoint: e, server: s, index: i})
	}
	l, err := newLoop(s)
	s.loops = []*loop{l}
	return s, err
}

// once reports true once in n times, where calls are rough.
func (f *fakeSystem) once(n int) bool { return f.rough && f.rnd.IntN(n) == 0 }

// wrong notes a misuse.
func (f *fakeSystem) wrong(format string, args ...any) {
	if f.misuse == "" {
		f.misuse = fmt.Sprintf(format, args...)
	}
}

// open opens a socket.
func (f *fakeSystem) open(room int) (int, *fakeSocket) {
	fd, err := unix.FcntlInt(f.null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	s := &fakeSocket{room: room}
	f.socks[fd] = s
	f.order = append(f.order, fd)
	return fd, s
}

// adopt finds the socket of a descriptor that is new.
func (f *fakeSystem) adopt(fd int) {
	if f.socks[fd] == nil && len(f.dialed) > 0 {
		f.socks[fd] = f.dialed[0]
		f.dialed = f.dialed[1:]
		f.order = append(f.order, fd)
	}
}

func (f *fakeSystem) socket(fd int) *fakeSocket {
	s := f.socks[fd]
	if s == nil {
		f.wrong("descriptor %d is used and not open", fd)
		return &fakeSocket{gone: true}
	}
	return s
}

func (f *fakeSystem) closeDescriptor(fd int) error {
	if p := f.pipes[fd]; p != nil {
		delete(f.pipes, fd)
		return nil
	}
	f.adopt(fd)
	s := f.socket(fd)
	s.gone = true
	// Unread bytes make a close a reset, as SO_LINGER does: what was sent may be lost.
	if s.rst = s.lingers || len(s.in) > 0; s.rst {
		s.out = nil
	}
	delete(f.socks, fd)
	return unix.Close(fd)
}

// take says how many of n bytes a call moves.
func (f *fakeSystem) take(n int) int {
	if n > 1 && f.once(8) {
		return 1 + f.rnd.IntN(n)
	}
	return n
}

func (f *fakeSystem) receive(fd int, p []byte) (int, error) {
	s := f.socket(fd)
	switch {
	case f.once(20):
		return 0, unix.EINTR
	case len(s.in) > 0:
	case s.reset && !s.told:
		s.told = true
		return 0, unix.ECONNRESET
	case s.ended || s.reset:
		return 0, nil
	default:
		return 0, unix.EAGAIN
	}
	n := f.take(min(len(p), len(s.in)))
	copy(p, s.in[:n])
	s.in = s.in[n:]
	if n < len(p) && len(s.in) > 0 {
		s.woken = true // the rest came a moment later
	}
	return n, nil
}

func (f *fakeSystem) peek(fd int, p []byte) (int, error) {
	s := f.socket(fd)
	in := s.in
	n, err := f.receive(fd, p)
	s.in = in
	return n, err
}

func (f *fakeSystem) send(fd int, p []byte) (int, error) {
	s := f.socket(fd)
	switch {
	case s.shut:
		f.wrong("descriptor %d is written to after it was shut down", fd)
		return 0, unix.EPIPE
	case s.reset && !s.told:
		s.told = true
		return 0, unix.ECONNRESET
	case s.reset || s.failed:
		return 0, unix.EPIPE
	case f.once(20):
		return 0, unix.EINTR
	case f.once(2000):
		s.failed = true
		return 0, unix.ENOBUFS
	case len(s.out) >= s.room:
		s.full = true
		return 0, unix.EAGAIN
	}
	able := min(len(p), s.room-len(s.out))
	n := f.take(able)
	if n < able {
		s.woken = true // the room comes a moment later
	}
	s.full = s.full || n < len(p)
	s.out = append(s.out, p[:n]...)
	return n, nil
}

func (f *fakeSystem) openPipe(fds []int, _ int) error {
	if f.once(4) {
		return unix.EMFILE
	}
	p := &fakePipe{size: 64 << 10}
	fds[0], fds[1] = f.pipe, f.pipe+1
	f.pipe += 2
	f.pipes[fds[0]], f.pipes[fds[1]] = p, p
	return nil
}

func (f *fakeSystem) resize(fd, size int) (int, error) {
	if f.once(4) {
		return 0, unix.EPERM
	}
	if f.once(4) {
		size = pipeMin
	}
	f.pipes[fd].size = size
	return size, nil
}

func (f *fakeSystem) splice(from, to, n int) (int, error) {
	if p := f.pipes[to]; p != nil {
		buf := make([]byte, min(n, p.size-len(p.bytes)))
		n, err := f.receive(from, buf)
		if err == nil {
			p.bytes = append(p.bytes, buf[:n]...)
			if s := f.socks[from]; len(s.in) > 0 {
				s.woken = true
			}
		}
		return n, err
	}
	p := f.pipes[from]
	if p == nil {
		f.wrong("descriptor %d is no pipe", from)
		return 0, unix.EBADF
	}
	n, err := f.send(to, p.bytes[:min(n, len(p.bytes))])
	p.bytes = p.bytes[n:]
	return n, err
}

// The poller.

func (f *fakeSystem) add(fd int) error {
	f.adopt(fd)
	if f.once(60) {
		return unix.ENOMEM
	}
	s := f.socket(fd)
	s.watched, s.woken, s.interest = true, true, interestRead
	return nil
}

// modify changes what is reported of a socket, and has it reported anew.
func (f *fakeSystem) modify(fd int, from, to interest) error {
	s := f.socket(fd)
	if s.interest != from {
		f.wrong("the interest in descriptor %d is %b, not %b", fd, s.interest, from)
	}
	if f.once(500) {
		return unix.ENOMEM
	}
	s.interest, s.woken = to, true
	return nil
}

func (f *fakeSystem) post(task func()) error {
	if f.inline {
		task()
	} else {
		f.tasks = append(f.tasks, task)
	}
	return nil
}

func (f *fakeSystem) stop()  {}
func (f *fakeSystem) again() { f.more = true }
func (f *fakeSystem) close() {}

func (f *fakeSystem) count(*calls) {}

func (f *fakeSystem) run(func(int, edges), func()) error { return nil }

// event delivers the event of a socket, if it has one.
func (f *fakeSystem) event(l *loop, fd int) bool {
	s := f.socks[fd]
	if s == nil || !s.watched || !s.woken {
		return false
	}
	s.woken = false
	over := s.reset || s.ended && s.shut
	e := edges{
		readable: over || s.ended || s.interest&interestRead != 0 && len(s.in) > 0,
		writable: over || s.interest&interestWrite != 0 && (s.shut || s.failed || 3*len(s.out) <= 2*s.room),
		hungUp:   over || s.ended,
		failed:   over,
	}
	if e == (edges{}) {
		return false
	}
	l.event(fd, e)
	return true
}

// round delivers all there is: events, tasks, turns. It reports whether there was anything.
func (f *fakeSystem) round(l *loop) (any bool) {
	for _, fd := range append([]int(nil), f.order...) {
		any = f.event(l, fd) || any
	}
	for len(f.tasks) > 0 {
		task := f.tasks[0]
		f.tasks = f.tasks[1:]
		task()
		any = true
	}
	if f.more {
		f.more, any = false, true
		l.takeTurns()
	}
	return any
}

// What a peer does.

// arrive has the peer send p.
func (s *fakeSocket) arrive(p []byte) {
	if len(p) > 0 && !s.gone && !s.reset {
		s.in = append(s.in, p...)
		s.woken = true
	}
}

// read has the peer read up to n bytes.
func (s *fakeSocket) read(n int) []byte {
	n = min(n, len(s.out))
	p := append([]byte(nil), s.out[:n]...)
	s.out = s.out[n:]
	if s.full && 3*len(s.out) <= 2*s.room {
		s.full, s.woken = false, true
	}
	return p
}

// end has the peer end its direction.
func (s *fakeSocket) end() { s.ended, s.woken = true, true }

// cut has the peer reset the connection.
func (s *fakeSocket) cut() { s.reset, s.woken, s.out = true, true, nil }

// over reports whether the peer has seen the end of our direction.
func (s *fakeSocket) over() bool { return len(s.out) == 0 && (s.shut || s.gone) || s.rst || s.reset }

// fakeDialed is a dialed connection; raw is what its descriptor is made of.
type fakeDialed struct {
	net.Conn
	raw syscall.RawConn
}

func (d *fakeDialed) Close() error                          { return nil }
func (d *fakeDialed) SyscallConn() (syscall.RawConn, error) { return d.raw, nil }

// dial is a dial that has succeeded: the broker's socket will be s.
func (f *fakeSystem) dial(s *fakeSocket) net.Conn {
	raw, err := f.null.SyscallConn()
	if err != nil {
		panic(err)
	}
	f.dialed = append(f.dialed, s)
	return &fakeDialed{raw: raw}
}
