// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is one socket of a session. The loop owns it.
type conn struct {
	fd      int
	session *session
	// readable and writable are set by edges from the poller and cleared by EAGAIN, or
	// by a read or write that moved less than it could. A connected socket has room, so
	// writable is true from the start.
	readable, writable bool
	// interest is what the poller reports; see session.watch.
	interest interest
	// hungUp: the peer has ended its direction. A short read then does not mean that
	// the socket is drained, since the end itself brings no further edge.
	hungUp bool
	// ended: read returned the end, or failed: nothing more comes from here.
	ended bool
	// shut: our direction was shut down, or writing failed: nothing more goes there.
	shut bool
	// owed are bytes taken over for this socket that it did not take yet. Under TLS they are
	// plaintext that is not encrypted yet, and come after tls.sealed.
	owed backlog
	// piped is a pipe with bytes for this socket, or nil. They come before owed.
	piped *pipe
	// taken counts the bytes that the socket took, for its progress deadline.
	taken uint64
	// going watches that they are taken.
	going progress
	// tls is nil on a plaintext connection.
	tls *tlsLayer
}

// owes reports whether bytes wait for this socket. Nothing is read for it meanwhile.
func (c *conn) owes() bool {
	return c.owed.len() > 0 || c.piped != nil || c.tls != nil && c.tls.sealed.len() > 0
}

// pending returns how many bytes in memory wait for this socket.
func (c *conn) pending() int {
	if c.tls == nil {
		return c.owed.len()
	}
	return c.owed.len() + c.tls.sealed.len()
}

// memory returns how many bytes the connection keeps allocated for either direction.
func (c *conn) memory() int {
	if c.tls == nil {
		return c.owed.memory()
	}
	return c.owed.memory() + c.tls.sealed.memory() + cap(c.tls.wire.in)
}

// dead reports whether neither direction is left, as after a reset.
func (c *conn) dead() bool { return c.ended && c.shut }

// gone marks that nothing can be sent any more.
func (c *conn) gone() {
	c.shut, c.owed = true, backlog{}
	if c.tls != nil {
		c.tls.sealed = backlog{}
	}
	c.dropPipe()
}

// watch sets the socket's interest; f reads from it. Interest in reading goes when bytes are
// known to be there and f cannot use them, and comes back when f has read all there were:
// both are known then, where each change costs a system call.
func (c *conn) watch(f *flow, l *loop) error {
	want := c.interest &^ interestWrite
	switch {
	case c.ended || !c.readable:
		want |= interestRead
	case f.blocked():
		want &^= interestRead
	}
	if c.owes() && !c.writable {
		want |= interestWrite
	}
	if want == c.interest {
		return nil
	}
	from := c.interest
	c.interest = want
	return l.poller.modify(c.fd, from, want)
}

// errPeerClosed is how reading says that the peer has ended its direction.
var errPeerClosed = errors.New("closed by the peer")

// detach takes the descriptor out of a connection of package net: the caller owns it
// from then on, and c is closed. The descriptor is non-blocking already.
func detach(c net.Conn) (int, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		_ = c.Close()
		return -1, fmt.Errorf("connection of type %T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		_ = c.Close()
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		if fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); dupErr != nil {
			resetOnClose(int(old)) // a client is to try again
		}
	})
	// Closing the original also takes it out of Go's own poller, explicitly; the
	// duplicate keeps the connection open.
	_ = c.Close()
	if err = errors.Join(err, dupErr); err != nil {
		return -1, fmt.Errorf("take over descriptor: %w", err)
	}
	return fd, nil
}

// closeFD closes a descriptor that no session owns.
func closeFD(fd int) { _ = unix.Close(fd) }

// resetOnClose is conn.resetOnClose for a descriptor that no session owns.
func resetOnClose(fd int) { _ = setLinger(fd, &unix.Linger{Onoff: 1}) }

// setLinger sets SO_LINGER.
func setLinger(fd int, l *unix.Linger) error {
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, l)
}

// resetOnClose lets the close of the socket, also the one by the kernel when the process is
// killed, reset the connection (RST) instead of ending it (FIN).
func (c *conn) resetOnClose() { _ = c.sys().linger(c.fd, &unix.Linger{Onoff: 1}) }

// endOnClose undoes resetOnClose.
func (c *conn) endOnClose() { _ = c.sys().linger(c.fd, &unix.Linger{}) }

// sys returns the system calls of the connection's loop.
func (c *conn) sys() *system { return &c.session.loop.sys }

// calls counts the system calls of the connection's loop.
func (c *conn) calls() *calls { return &c.session.loop.count.calls }

// read fills p from the connection. n is 0 with a nil error when there is nothing now;
// after errPeerClosed or another error nothing more will come.
func (c *conn) read(p []byte) (int, error) {
	if c.tls != nil {
		return c.readTLS(p)
	}
	n, err := c.readRaw(p)
	c.ended = err != nil
	return n, err
}

// readRaw reads from the socket.
func (c *conn) readRaw(p []byte) (int, error) {
	for {
		c.calls().reads++
		n, err := c.sys().receive(c.fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n, err = c.received("read", n, err); n > 0 {
			c.calls().bytes += uint64(n)
			if n < len(p) && !c.hungUp {
				c.readable = false
			}
		}
		return n, err
	}
}

// peek shows the next bytes of a plaintext connection, and leaves them for a read or a splice.
// The results are those of read.
func (c *conn) peek(p []byte) (int, error) {
	for {
		c.calls().reads++
		n, err := c.sys().peek(c.fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n, err = c.received("read", n, err)
		// The kernel reports a failure once: a later read would mistake it for an ordinary end.
		c.ended = err != nil
		return n, err
	}
}

// received turns the result of a system call that takes bytes from the socket into that of
// read. call names it in errors.
func (c *conn) received(call string, n int, err error) (int, error) {
	switch {
	case err == nil && n == 0:
		return 0, errPeerClosed
	case err == nil:
		return n, nil
	case errors.Is(err, unix.EAGAIN):
		c.readable = false
		return 0, nil
	default:
		return 0, fmt.Errorf("%s: %w", call, err)
	}
}

// write hands p to the connection, or keeps a copy of what it does not take: p is the
// caller's again on return. When writing fails the peer is gone; that is no error
// here, since what the peer sent before may still be there to read. Bytes for a peer
// that is gone are dropped.
func (c *conn) write(p []byte) { c.owed.add(c.offer(p, c.sys().send)) }

// give is write for bytes that become the connection's: what it does not take at once is
// kept without a copy.
func (c *conn) give(p []byte) {
	if rest := len(c.offer(p, c.sys().send)); rest > 0 {
		c.owed.give(p)
		c.owed.drop(len(p) - rest)
	}
}

// writeHead is write for bytes that a splice follows at once: the socket may keep them
// until then, and send them in one segment with what comes.
func (c *conn) writeHead(p []byte) { c.owed.add(c.offer(p, c.sys().sendMore)) }

// offer writes as much of p as the socket takes now, and returns the rest: all of p while
// other bytes wait, nothing when the peer is gone.
func (c *conn) offer(p []byte, send func(fd int, p []byte) (int, error)) []byte {
	for len(p) > 0 && !c.owes() && c.writable && !c.shut {
		if c.tls == nil {
			p = p[c.push(p, send):]
			continue
		}
		n := min(len(p), sealedPiece)
		c.writeSealed(c.encrypt(p[:n]))
		p = p[n:]
	}
	if c.shut {
		return nil
	}
	return p
}

// flush writes what is owed as far as the socket takes it.
func (c *conn) flush() {
	if c.piped != nil {
		c.flushPipe()
	}
	if c.tls != nil {
		c.flushSealed()
	}
	if c.owed.len() == 0 || !c.writable || c.piped != nil {
		return
	}
	owed := c.owed
	c.owed = backlog{} // what offer writes does not wait behind itself
	rest := c.offer(owed.front(), c.sys().send)
	if !c.shut {
		owed.drop(owed.len() - len(rest))
		c.owed = owed
	}
}

// push writes until all is written or the socket takes no more, and returns how much
// was written. A failed write shuts our direction.
func (c *conn) push(p []byte, send func(fd int, p []byte) (int, error)) (done int) {
	for done < len(p) {
		c.calls().writes++
		n, err := send(c.fd, p[done:])
		switch {
		case err == nil:
			done += n
			c.calls().bytes += uint64(n)
			c.taken += uint64(n)
			if done < len(p) {
				// A short write means that the socket's buffer is full; the edge that says
				// it has room again comes after that.
				c.writable = false
				return done
			}
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.writable = false
			return done
		default:
			c.gone()
			return done
		}
	}
	return done
}

// shutdown ends our direction once nothing is owed any more.
func (c *conn) shutdown() {
	if !c.shut && !c.owes() {
		c.notifyClose()
	}
	if !c.shut && !c.owes() {
		c.shut = true
		// It fails only when the peer is gone, which reading will show.
		_ = c.sys().shutdown(c.fd, unix.SHUT_WR)
	}
}
