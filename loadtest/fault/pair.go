// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// state is what a relay does with a connection.
type state uint8

const (
	// passing: bytes, half-closes and resets go on as they come.
	passing state = iota
	// silent: bytes are read and thrown away, nothing is passed on, not even the end.
	silent
	// finished: both sides got FIN; what they send is thrown away until they close too.
	finished
	// ended: both sockets are closed, or about to be.
	ended
)

// pair is a connection of a client and the one to the target that belongs to it.
//
// It has a reader and a writer for each direction with a queue between them, and run, which
// waits for all of them and closes what is still open. A state only ever grows; left is closed
// when the pair stops passing, which ends the writers.
type pair struct {
	relay  *Relay
	number int
	client *net.TCPConn
	left   chan struct{}

	mu     sync.Mutex
	state  state
	target *net.TCPConn // nil until it is connected, and for ever when silent from the start
}

// run dials the target and passes bytes until both directions have ended.
func (p *pair) run(ctx context.Context) {
	defer p.relay.remove(p)
	defer p.close()
	if p.is(silent) { // from the start
		p.discard(p.client)
		return
	}
	if err := p.dial(ctx); err != nil {
		p.reset()
		return
	}
	var streams sync.WaitGroup
	for d := range direction(directions) {
		from, to := p.client, p.target
		if d == toClient {
			from, to = to, from
		}
		s := &stream{pair: p, direction: d, from: from, to: to, queue: newQueue(), luck: p.relay.luck(p, d)}
		streams.Go(s.read)
		streams.Go(s.write)
	}
	streams.Wait()
}

// dial connects to the target. The client is not read before. A pair that is cut meanwhile
// is not connected.
func (p *pair) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", p.relay.target)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = conn.(*net.TCPConn)
	if p.state != passing {
		return errors.New("cut while it was connected")
	}
	return nil
}

func (p *pair) is(s state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == s
}

// become changes the state, and says whether it did.
func (p *pair) become(s state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= s {
		return false
	}
	if p.state == passing {
		close(p.left)
	}
	p.state = s
	return true
}

// sockets returns those that there are.
func (p *pair) sockets() []*net.TCPConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.target == nil {
		return []*net.TCPConn{p.client}
	}
	return []*net.TCPConn{p.client, p.target}
}

// silence makes the pair half-open, seen from both sides.
func (p *pair) silence() bool { return p.become(silent) }

// finish closes both sides as the kernel does for a process that ends with nothing unread:
// FIN, and some time later a reset for what still comes.
func (p *pair) finish() bool {
	if !p.become(finished) {
		return false
	}
	for _, conn := range p.sockets() {
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
	}
	return true
}

// reset closes both sides with RST.
func (p *pair) reset() bool {
	if !p.become(ended) {
		return false
	}
	for _, conn := range p.sockets() {
		_ = conn.SetLinger(0) // tcp(7): a close with lingering off and a time of 0 sends RST
		_ = conn.Close()
	}
	return true
}

// close closes what is still open.
func (p *pair) close() {
	p.become(ended)
	for _, conn := range p.sockets() {
		_ = conn.Close()
	}
}

// discard throws away what comes from a side until it ends, and closes that side only.
func (p *pair) discard(from *net.TCPConn) {
	_, _ = io.Copy(io.Discard, from)
	_ = from.Close()
}
