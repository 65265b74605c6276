// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// endpoint is a listening socket and what belongs to it.
type endpoint struct {
	Endpoint
	server   *Server
	index    int
	listener net.Listener
	faults   quiet
	unmapped sync.Map // node id -> struct{}: warned of already
}

// Accepting backs off like this when the process or the machine has no descriptors
// left: the condition passes when sessions end.
const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// accept hands connections to the loops until the listener is closed.
func (e *endpoint) accept() {
	backoff := acceptBackoffMin
	for {
		c, err := e.listener.Accept()
		if err == nil {
			backoff = acceptBackoffMin
			e.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if n, ok := e.faults.allow(); ok {
			e.server.log.Warn("cannot accept connections, trying again",
				"listener", e.Listener, "address", e.Address, "error", err, "suppressed", n)
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, acceptBackoffMax)
		case <-e.server.ctx.Done():
			return
		}
	}
}

// keepAlive finds peers that are gone without a word, and keeps address translation
// and load balancers (which forget a silent connection after minutes) awake.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// admit gives an accepted connection to a loop, after its TLS handshake if the endpoint
// has TLS.
func (e *endpoint) admit(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		// NoDelay is Go's default. A peer that left already makes this fail; its session
		// will find out.
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	if e.TLS == nil {
		fd, err := detach(c)
		e.hand(fd, nil, c.RemoteAddr(), err)
		return
	}
	select {
	case e.server.handshakes <- struct{}{}:
	case <-e.server.ctx.Done():
		_ = c.Close()
		return
	}
	e.server.background(func() {
		defer func() { <-e.server.handshakes }()
		ctx, cancel := context.WithTimeout(e.server.ctx, e.server.opts.HandshakeTimeout)
		defer cancel()
		fd, layer, err := handshake(ctx, c, tls.Server, e.TLS())
		e.hand(fd, layer, c.RemoteAddr(), err)
	})
}

// hand gives a descriptor to the next loop, or says why there is none.
func (e *endpoint) hand(fd int, layer *tlsLayer, peer net.Addr, err error) {
	if err != nil {
		if n, ok := e.faults.allow(); ok {
			e.server.log.Warn("connection refused", "listener", e.Listener, "client", peer.String(), "error", err, "suppressed", n)
		}
		return
	}
	l := e.server.pick()
	l.post(func() { newSession(l, e, fd, layer, peer) })
}

// dialBroker opens a broker connection, TLS included.
func (e *endpoint) dialBroker(ctx context.Context) (int, *tlsLayer, error) {
	c, err := e.Dial(ctx)
	if err != nil {
		return -1, nil, err
	}
	if e.BrokerTLS == nil {
		fd, err := detach(c)
		return fd, nil, err
	}
	name := ""
	if named, ok := c.(interface{ ServerName() string }); ok {
		name = named.ServerName()
	}
	ctx, cancel := context.WithTimeout(ctx, e.server.opts.HandshakeTimeout)
	defer cancel()
	return handshake(ctx, c, tls.Client, e.BrokerTLS(name))
}

// logEnd writes one line for a session that a fault ended, and none at this level for
// those that a peer ended.
func (e *endpoint) logEnd(s *session, why reason, err error) {
	if !why.fault() {
		e.server.log.Debug("session ended", "listener", e.Listener, "client", s.peer.String(), "broker", e.Broker, "reason", why.String())
		return
	}
	if n, ok := e.faults.allow(); ok {
		e.server.log.Warn("session closed: "+why.sentence(), "listener", e.Listener, "client", s.peer.String(),
			"broker", e.Broker, "reason", why.String(), "error", err, "suppressed", n)
	}
}

// warnUnmapped warns of each node once per endpoint.
func (e *endpoint) warnUnmapped(nodes []int32) {
	for _, id := range nodes {
		if _, seen := e.unmapped.LoadOrStore(id, struct{}{}); !seen {
			e.server.log.Warn("a broker has no port on this listener: clients cannot reach it until the listener's nodes range is extended",
				"listener", e.Listener, "node", id)
		}
	}
}

// quiet lets a burst of log lines through and then one every so often, so that a
// broker that is down, or a scanner, does not fill the log.
type quiet struct {
	mu         sync.Mutex
	from       time.Time
	lines      int
	suppressed int
}

const (
	quietBurst = 20
	quietEvery = 10 * time.Second
)

// allow reports whether a line may be written now, and how many were suppressed since
// the last one. Safe for any goroutine.
func (q *quiet) allow() (suppressed int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.from) >= quietEvery {
		q.from, q.lines = now, 0
	}
	if q.lines >= quietBurst {
		q.suppressed++
		return 0, false
	}
	q.lines++
	suppressed, q.suppressed = q.suppressed, 0
	return suppressed, true
}
