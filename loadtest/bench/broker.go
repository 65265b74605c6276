// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"tiergate/codec"
)

const (
	// pieceSize is the most that one system call sends, and what one read of small frames
	// may bring.
	pieceSize = 1 << 20
	readSize  = 64 << 10
	// smallFrame: frames up to this size are put together before they are sent.
	smallFrame = 4 << 10
	// ackSize is the frame that answers a Produce request.
	ackSize = 64
)

// Broker answers Fetch requests with as many bytes as they ask for and Produce requests
// with a short frame. It is one thread.
type Broker struct {
	listener int
	address  string
	stop     int
	poll     *poller
	conns    map[int32]*brokerConn
	pattern  *pattern
	in, out  []byte
}

// NewBroker listens on a free port of 127.0.0.1.
func NewBroker() (*Broker, error) {
	poll, err := newPoller()
	if err != nil {
		return nil, err
	}
	b := &Broker{poll: poll, conns: map[int32]*brokerConn{}, pattern: newPattern(), in: make([]byte, pieceSize), out: make([]byte, 0, 2*readSize)}
	if b.listener, b.address, err = listen(); err != nil {
		return nil, err
	}
	if b.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return b, errors.Join(poll.watch(unix.EPOLL_CTL_ADD, b.listener, unix.EPOLLIN), poll.watch(unix.EPOLL_CTL_ADD, b.stop, unix.EPOLLIN))
}

// Address returns where the broker listens.
func (b *Broker) Address() string { return b.address }

// Stop ends Serve. It may be called from any goroutine.
func (b *Broker) Stop() {
	_, _ = unix.Write(b.stop, binary.NativeEndian.AppendUint64(nil, 1))
}

// Serve answers until Stop, then closes everything. A connection that fails, or that
// sends what no generator sends, is closed.
func (b *Broker) Serve() error {
	defer b.close()
	for {
		events, err := b.poll.wait(-1)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch int(e.Fd) {
			case b.stop:
				return nil
			case b.listener:
				if err = b.accept(); err != nil {
					return err
				}
			default:
				if c := b.conns[e.Fd]; c != nil && c.event(b, e.Events) != nil {
					delete(b.conns, e.Fd)
					_ = unix.Close(c.fd)
				}
			}
		}
	}
}

func (b *Broker) close() {
	for _, c := range b.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(b.listener)
	_ = unix.Close(b.stop)
	_ = unix.Close(b.poll.fd)
}

// accept takes all connections that wait.
func (b *Broker) accept() error {
	for {
		fd, _, err := unix.Accept4(b.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		// A peer that is gone already shows when it is read.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		b.conns[int32(fd)] = &brokerConn{fd: fd}
		if err = b.poll.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
}

// owed is an answer that was not sent whole yet.
type owed struct {
	id     int32
	length int
}

type brokerConn struct {
	fd int
	// head is the start of a request that is not there whole.
	head []byte
	// skip bytes of a Produce request are still to come; ack answers it then.
	skip int
	ack  int32
	// bulk: the last request was a large one, so of the next only the head is read.
	bulk bool
	// answers from first on are owed, and at bytes of that one are sent.
	answers   []owed
	first, at int
	// blocked: waits for room to send and is not read.
	blocked bool
}

// event reads and answers. Any error ends the connection.
func (c *brokerConn) event(b *Broker, events uint32) error {
	if events&unix.EPOLLIN != 0 {
		if err := c.read(b); err != nil && !errors.Is(err, errBlocked) {
			return err
		}
	} else if events&unix.EPOLLOUT == 0 {
		return errEnded
	}
	return c.flush(b)
}

// read takes one piece of what has arrived.
func (c *brokerConn) read(b *Broker) error {
	if c.skip > 0 {
		n, err := discard(c.fd, b.in[:min(c.skip, len(b.in))])
		c.skipped(n)
		return err
	}
	limit := readSize
	if c.bulk {
		limit = max(produceHead, fetchHead)
	}
	n := copy(b.in, c.head)
	m, err := receive(c.fd, b.in[n:n+limit])
	if err != nil {
		return err
	}
	return c.requests(b.in[:n+m])
}

// skipped counts bytes of a Produce request.
func (c *brokerConn) skipped(n int) {
	if c.skip -= n; c.skip == 0 && n > 0 {
		c.answers = append(c.answers, owed{c.ack, ackSize})
	}
}

// requests enters what is to be answered.
func (c *brokerConn) requests(in []byte) error {
	for len(in) >= codec.RequestFixedLen {
		length := codec.SizeLen + int(codec.Size(in))
		id := codec.RequestCorrelationID(in)
		c.bulk = length > readSize
		if codec.RequestKey(in) == produceKey {
			c.skip, c.ack = length, id
			n := min(length, len(in))
			c.skipped(n)
			in = in[n:]
			continue
		}
		if codec.RequestKey(in) != fetchKey || length < fetchHead || length > readSize {
			return fmt.Errorf("no request of this benchmark: %x", in[:codec.RequestFixedLen])
		}
		if len(in) < length {
			break
		}
		c.answers = append(c.answers, owed{id, int(binary.BigEndian.Uint32(in[fetchHead-4:]))})
		in = in[length:]
	}
	c.head = append(c.head[:0], in...)
	return nil
}

// flush sends what is owed as far as it goes.
func (c *brokerConn) flush(b *Broker) error {
	for c.first < len(c.answers) {
		small, body := c.gather(b)
		n, err := send(c.fd, small, body)
		if err != nil && !errors.Is(err, errBlocked) {
			return err
		}
		c.advance(n)
		if n < len(small)+len(body) {
			return c.block(b)
		}
	}
	c.answers, c.first = c.answers[:0], 0
	if c.blocked {
		c.blocked = false
		return b.poll.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN)
	}
	return nil
}

// block waits for room.
func (c *brokerConn) block(b *Broker) error {
	if c.blocked {
		return nil
	}
	c.blocked = true
	return b.poll.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLOUT)
}

// gather puts small answers, or the head of a large one, together in the broker's buffer, and
// points at the next piece of the large one's body.
func (c *brokerConn) gather(b *Broker) (small, body []byte) {
	at := c.at
	small = b.out[:0]
	for _, a := range c.answers[c.first:] {
		if at < codec.ResponseFixedLen {
			var head [codec.ResponseFixedLen]byte
			small = append(small, appendAnswerHead(head[:0], a.id, a.length)[at:]...)
			at = codec.ResponseFixedLen
		}
		body = b.pattern.at(a.id, int64(at), min(a.length-at, pieceSize))
		if a.length-at > smallFrame {
			break
		}
		small = append(small, body...)
		at, body = 0, nil
		if len(small) > readSize {
			break
		}
	}
	return small, body
}

// advance drops n sent bytes.
func (c *brokerConn) advance(n int) {
	c.at += n
	for c.first < len(c.answers) && c.at >= c.answers[c.first].length {
		c.at -= c.answers[c.first].length
		c.first++
	}
}
