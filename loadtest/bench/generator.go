// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tiergate/codec"
)

// Exchange is the shape of the frames of a workload.
type Exchange struct {
	// Key is fetchKey or produceKey.
	Key int16
	// Request and Answer are the lengths of frames, in bytes.
	Request, Answer int
}

// upload reports whether the bulk of the bytes goes to the broker.
func (x Exchange) upload() bool { return x.Request > x.Answer }

// tally is what was done since the last reset.
type tally struct {
	// bytes of the larger direction: of answers as they arrive, of requests when they
	// are answered.
	bytes    int64
	requests int64
	latency  histogram
}

// generator is one thread that keeps requests in flight on all its connections. Its
// methods are for one goroutine at a time.
type generator struct {
	exchange Exchange
	// pipeline is how many requests of a connection are in flight.
	pipeline int
	pattern  *pattern
	// compares: every byte of an answer is compared, instead of dropped in the kernel.
	compares bool
	poll     *poller
	conns    map[int32]*clientConn
	in, out  []byte
	now      time.Time
	tally    tally
	// unanswered is how many requests are in flight or still to be sent.
	unanswered int64
}

// clientConn is one connection of the generator.
type clientConn struct {
	fd int
	// credit is how many requests may be sent now; sentPart bytes of the first are.
	credit   int
	sentPart int
	// quota is how many requests may still be sent at all.
	quota int64
	// sent is the id of the next request, answered that of the next answer.
	sent, answered int32
	// since says when request id was sent, at id modulo pipeline.
	since []time.Time
	// head is the start of an answer's head; left bytes of the body are to come.
	head    []byte
	left    int
	blocked bool
}

// unlimited is a quota that no run reaches.
const unlimited = 1 << 40

func newGenerator(x Exchange, pipeline int, p *pattern) (*generator, error) {
	poll, err := newPoller()
	if err != nil {
		return nil, err
	}
	return &generator{
		exchange: x, pipeline: pipeline, pattern: p, poll: poll, conns: map[int32]*clientConn{},
		in: make([]byte, 4*pieceSize), out: make([]byte, 0, readSize+smallFrame),
	}, nil
}

// close resets all connections. It may be called again.
func (g *generator) close() {
	if g.conns == nil {
		return
	}
	for _, c := range g.conns {
		_ = unix.Close(c.fd)
	}
	g.conns = nil
	_ = unix.Close(g.poll.fd)
}

// connect opens n connections that will send quota requests each.
func (g *generator) connect(address string, n int, quota int64) error {
	for range n {
		fd, err := dial(address)
		if err != nil {
			return err
		}
		credit := int(min(int64(g.pipeline), quota))
		c := &clientConn{fd: fd, quota: quota - int64(credit), credit: credit, since: make([]time.Time, g.pipeline)}
		g.conns[int32(fd)] = c
		g.unanswered += quota
		if err = g.poll.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		g.now = time.Now()
		if err = g.send(c); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// run serves the connections until the time has come, or until every request is answered.
// When ctx ends first, or a connection ends or fails, that is an error.
func (g *generator) run(ctx context.Context, until time.Time) error {
	for g.unanswered > 0 {
		events, err := g.poll.wait(20)
		if err != nil {
			return err
		}
		if g.now = time.Now(); !g.now.Before(until) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range events {
			c := g.conns[e.Fd]
			if err = c.event(g, e.Events); err != nil && !errors.Is(err, errBlocked) {
				return fmt.Errorf("after %d answers on this connection: %w", c.answered, err)
			}
		}
	}
	return nil
}

// event takes what epoll says about a connection.
func (c *clientConn) event(g *generator, events uint32) error {
	if events&^unix.EPOLLOUT != 0 {
		if err := c.receive(g); err != nil {
			return err
		}
	}
	if c.credit > 0 {
		return g.send(c)
	}
	return nil
}

// receive reads once. What is large is dropped in the kernel, except for heads.
func (c *clientConn) receive(g *generator) error {
	if g.compares {
		return c.take(g, pieceSize/4)
	}
	if g.exchange.Answer <= readSize {
		return c.take(g, readSize)
	}
	if c.left <= smallFrame {
		// The end of one answer and the head of the next.
		if err := c.take(g, c.left+codec.ResponseFixedLen-len(c.head)); err != nil || c.left == 0 {
			return err
		}
	}
	n, err := discard(c.fd, g.in[:min(c.left, len(g.in))])
	c.arrived(g, n)
	return err
}

// take reads up to limit bytes and looks at them.
func (c *clientConn) take(g *generator, limit int) error {
	n, err := receive(c.fd, g.in[:limit])
	if err != nil {
		return err
	}
	for in := g.in[:n]; len(in) > 0; {
		if c.left == 0 {
			n = min(len(in), codec.ResponseFixedLen-len(c.head))
			c.head = append(c.head, in[:n]...)
			in = in[n:]
			if err = c.begin(g); err != nil {
				return err
			}
			continue
		}
		n = min(len(in), c.left)
		if g.compares {
			if err = g.pattern.compare(c.answered, int64(g.exchange.Answer-c.left), in[:n]); err != nil {
				return err
			}
		}
		c.arrived(g, n)
		in = in[n:]
	}
	return nil
}

// begin checks the head of an answer once it is whole.
func (c *clientConn) begin(g *generator) error {
	if len(c.head) < codec.ResponseFixedLen {
		return nil
	}
	length, id := codec.SizeLen+int(codec.Size(c.head)), codec.ResponseCorrelationID(c.head)
	if length != g.exchange.Answer || id != c.answered {
		return fmt.Errorf("answer %d of %d bytes, want %d of %d", id, length, c.answered, g.exchange.Answer)
	}
	c.left = length - codec.ResponseFixedLen
	c.head = c.head[:0]
	return nil
}

// arrived counts n bytes of the body, and the answer when they are the last.
func (c *clientConn) arrived(g *generator, n int) {
	c.left -= n
	if !g.exchange.upload() {
		g.tally.bytes += int64(n)
	}
	if n == 0 || c.left > 0 {
		return
	}
	if g.exchange.upload() {
		g.tally.bytes += int64(g.exchange.Request)
	}
	g.tally.requests++
	g.tally.latency.add(g.now.Sub(c.since[int(c.answered)%g.pipeline]))
	c.answered++
	g.unanswered--
	if c.quota > 0 {
		c.quota--
		c.credit++
	}
}

// send sends requests as far as credit and the socket allow.
func (g *generator) send(c *clientConn) error {
	for c.credit > 0 {
		small, body := g.gather(c)
		n, err := send(c.fd, small, body)
		if err != nil && !errors.Is(err, errBlocked) {
			return err
		}
		c.advance(g, n)
		if n < len(small)+len(body) {
			if !c.blocked {
				c.blocked = true
				return g.poll.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN|unix.EPOLLOUT)
			}
			return nil
		}
	}
	if c.blocked {
		c.blocked = false
		return g.poll.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN)
	}
	return nil
}

// gather puts as many small requests together as may be sent, or the head of a large
// one, and points at the next piece of the large one's body.
func (g *generator) gather(c *clientConn) (small, body []byte) {
	small, length := g.out[:0], g.exchange.Request
	if length > smallFrame {
		small = g.appendHead(small, c.sent)
		head := len(small)
		small = small[min(c.sentPart, head):]
		at := max(c.sentPart, head)
		return small, g.pattern.at(c.sent, int64(at), min(length-at, pieceSize))
	}
	for i := range min(c.credit, readSize/length) {
		id := c.sent + int32(i)
		start := len(small)
		small = g.appendHead(small, id)
		head := len(small) - start
		small = append(small, g.pattern.at(id, int64(head), length-head)...)
	}
	return small[c.sentPart:], nil
}

func (g *generator) appendHead(dst []byte, id int32) []byte {
	if g.exchange.Key == produceKey {
		return appendProduceHead(dst, id, g.exchange.Request)
	}
	return appendFetchHead(dst, id, g.exchange.Request, g.exchange.Answer)
}

// advance notes n sent bytes. A request counts as sent from its first byte on.
func (c *clientConn) advance(g *generator, n int) {
	for n > 0 {
		if c.sentPart == 0 {
			c.since[int(c.sent)%g.pipeline] = g.now
		}
		m := min(n, g.exchange.Request-c.sentPart)
		n -= m
		if c.sentPart += m; c.sentPart == g.exchange.Request {
			c.sentPart = 0
			c.sent++
			c.credit--
		}
	}
}
