// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// spliceMin is how much of an opaque frame must be left for its bytes to go through a
	// pipe. Below it two more system calls cost more than the copy that they save, by the CPU
	// time of all processes involved (docs/performance.md has the table).
	spliceMin = 48 << 10
	// spliceTail is the same for a frame of which a part was spliced: a shorter rest is read
	// and written.
	spliceTail = 4 << 10
	// pipeMin is the least capacity of a pipe that is worth its use.
	pipeMin = 128 << 10
	// pipeSize is the capacity asked for a pipe. The kernel's default of 64 KiB would
	// need eight times the system calls.
	pipeSize = 512 << 10
	// spliceReadSize is what is read, or looked at, at the front of the frame after a large
	// one: enough for most heads, and little to copy.
	spliceReadSize = 256
)

// pipeSystem is the part of system that pipes need.
type pipeSystem struct {
	// splice moves bytes between a pipe and another descriptor; see the function of that name.
	splice func(from, to, n int) (int, error)
	pipe   func(fds []int, flags int) error
	// resize sets the capacity of the pipe behind a descriptor and returns what it is then.
	resize func(fd, size int) (int, error)
}

func kernelPipes() pipeSystem {
	return pipeSystem{
		splice: splice, pipe: unix.Pipe2,
		resize: func(fd, size int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size) },
	}
}

// pipe carries bytes between two sockets inside the kernel.
type pipe struct {
	read, write int
	// size is the capacity in bytes.
	size int
	// filled is how many bytes are in it.
	filled int
}

// pipes are the idle pipes of a loop and how many it may have.
type pipes struct {
	sys  *system
	idle []*pipe
	open int
	// limit bounds open. An unprivileged user may have 64 MiB in pipes
	// (/proc/sys/fs/pipe-user-pages-soft); the loops share that.
	limit int
	// told is what open was at the last count; none is how often there was no pipe since.
	told int
	none uint64
}

// take returns an empty pipe, or nil when there are as many as allowed or the system
// has none: the bytes are copied then.
func (p *pipes) take() *pipe {
	if n := len(p.idle); n > 0 {
		taken := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return taken
	}
	made := p.make()
	if made == nil {
		p.none++
	}
	return made
}

// make opens a pipe, or returns nil.
func (p *pipes) make() *pipe {
	if p.open >= p.limit {
		return nil
	}
	var fds [2]int
	if p.sys.pipe(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil
	}
	size, err := p.sys.resize(fds[1], pipeSize)
	if err != nil || size < pipeMin {
		// The soft limit of this user is reached: such a small pipe is worse than copying.
		_ = p.sys.close(fds[0])
		_ = p.sys.close(fds[1])
		return nil
	}
	p.open++
	return &pipe{read: fds[0], write: fds[1], size: size}
}

// give takes a pipe back. One that holds bytes is closed.
func (p *pipes) give(back *pipe) {
	if back.filled == 0 {
		p.idle = append(p.idle, back)
		return
	}
	p.drop(back)
}

// drop closes a pipe.
func (p *pipes) drop(old *pipe) {
	_ = p.sys.close(old.read)
	_ = p.sys.close(old.write)
	p.open--
}

// trim closes one idle pipe: a tick calls it, so that a quiet loop gives its pipes back.
func (p *pipes) trim() {
	if n := len(p.idle); n > 0 {
		p.drop(p.idle[n-1])
		p.idle = p.idle[:n-1]
	}
}

// count adds what changed since the last call.
func (p *pipes) count(c *counts) {
	c.pipes += p.open - p.told
	c.pipesMissed += p.none
	p.told, p.none = p.open, 0
}

// close closes all idle pipes.
func (p *pipes) close() {
	for len(p.idle) > 0 {
		p.trim()
	}
}

// splices reports whether the next bytes of the flow can go through a pipe.
func (f *flow) splices() bool {
	least := int64(spliceMin)
	if f.spliced {
		least = spliceTail
	}
	return f.streams() >= least && len(f.carry) == 0 && f.from.readable && !f.from.ended && !f.to.shut && f.piped()
}

// piped reports whether large frames of the flow go through pipes, if there are any.
func (f *flow) piped() bool { return f.from.tls == nil && f.to.tls == nil }

// splice moves bytes of the present frame from socket to pipe to socket, never past the
// frame's end. What the other side does not take stays in the pipe and is owed. ok is
// false when there is no pipe.
func (f *flow) splice() (n int, ok bool, err error) {
	p := f.session.loop.pipes.take()
	if p == nil {
		f.bulk = false
		return 0, false, nil
	}
	n, err = f.from.spliceTo(p, int(min(f.streams(), int64(p.size))))
	if n > 0 {
		f.left -= int64(n)
		if f.part == partWalk {
			f.opaque -= int64(n)
		}
		f.spliced = true
		f.session.received(f, n)
	}
	f.to.piped = p
	f.to.flush()
	return n, true, err
}

// spliceTo fills an empty pipe from the socket, like read. Since the pipe is empty,
// EAGAIN can only mean that the socket has nothing.
func (c *conn) spliceTo(p *pipe, limit int) (int, error) {
	for {
		c.calls().splices++
		n, err := c.sys().splice(c.fd, p.write, limit)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n, err = c.received("splice", n, err)
		c.ended = err != nil
		p.filled += n
		c.calls().bytes += uint64(n)
		return n, err
	}
}

// flushPipe empties the pipe into the socket as far as it takes it, and gives the pipe
// back when it is empty.
func (c *conn) flushPipe() {
	p := c.piped
	for p.filled > 0 && c.writable && !c.shut {
		c.calls().splices++
		n, err := c.sys().splice(p.read, c.fd, p.filled)
		switch {
		case err == nil && n > 0:
			p.filled -= n
			c.calls().bytes += uint64(n)
			c.taken += uint64(n)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.writable = false
		default:
			c.gone()
			return
		}
	}
	if p.filled == 0 {
		c.dropPipe()
	}
}

// dropPipe ends the use of the pipe; bytes in it are lost.
func (c *conn) dropPipe() {
	if c.piped != nil {
		c.session.loop.pipes.give(c.piped)
		c.piped = nil
	}
}
