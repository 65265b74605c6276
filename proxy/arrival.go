// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProxyProtocol says whether connections to an endpoint begin with a header that tells
// the client's address (the PROXY protocol, versions 1 and 2, of HAProxy).
type ProxyProtocol uint8

const (
	// ProxyProtocolOff takes such a header for a broken frame.
	ProxyProtocolOff ProxyProtocol = iota
	// ProxyProtocolOptional reads a header if there is one. Only for ports that clients
	// cannot reach past the balancer: anybody may claim any address.
	ProxyProtocolOptional
	// ProxyProtocolRequired refuses connections without a header.
	ProxyProtocolRequired
)

// SendProxy is the version of the PROXY protocol header that brokers are sent, before
// anything else.
type SendProxy uint8

const (
	// SendProxyOff sends none.
	SendProxyOff SendProxy = 0
	// SendProxyV1 sends the readable form.
	SendProxyV1 SendProxy = 1
	// SendProxyV2 sends the binary form.
	SendProxyV2 SendProxy = 2
)

// arrival is a connection between accept and its session.
type arrival struct {
	endpoint *endpoint
	conn     net.Conn
	// peer is the client's address, as the PROXY protocol tells it where it is used;
	// local is the address that the client connected to.
	peer, local net.Addr
	// prefix are bytes that were read behind a PROXY protocol header.
	prefix []byte
	// fd and tls are what the session gets.
	fd  int
	tls *tlsLayer
}

// keepAlive finds peers that are gone without a word, and keeps address translation
// and load balancers (which forget a silent connection after minutes) awake.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// admit gives an accepted connection to a loop, after its PROXY protocol header and its
// TLS handshake where the endpoint has those.
func (e *endpoint) admit(a *arrival) {
	if e.ProxyProtocol == ProxyProtocolOff { // else the client is not known yet
		if err := e.server.admission.hopeless(a.peer); err != nil {
			resetConn(a.conn)
			e.refuse(a, err)
			return
		}
	}
	if tcp, ok := a.conn.(*net.TCPConn); ok {
		// NoDelay is Go's default. A peer that left already makes this fail; its session
		// will find out.
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	if e.TLS == nil && e.ProxyProtocol == ProxyProtocolOff {
		var err error
		a.fd, err = detach(a.conn)
		e.hand(a, err)
		return
	}
	ctx, cancel := context.WithCancelCause(e.server.ctx)
	if !e.server.pending.enter(ctx, a, cancel) || !e.server.background(func() { e.receive(ctx, a); cancel(nil) }) {
		cancel(nil)
		e.server.pending.leave(a)
		resetConn(a.conn)
	}
}

// receive readies an arrival off the loops; all of it may take HandshakeTimeout.
func (e *endpoint) receive(ctx context.Context, a *arrival) {
	ctx, cancel := context.WithTimeout(ctx, e.server.opts.HandshakeTimeout)
	defer cancel()
	conn := a.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := e.server.recovered(func() error { return a.greet(ctx) })
	e.server.pending.leave(a)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errManyPending) {
			err = cause
		}
		_ = conn.Close()
	}
	e.hand(a, err)
}

// greet reads what comes before Kafka's own bytes. On success the descriptor lives on, and
// the connection is closed.
func (a *arrival) greet(ctx context.Context) (err error) {
	if a.endpoint.ProxyProtocol != ProxyProtocolOff {
		if err := a.readHeader(); err != nil {
			return fmt.Errorf("PROXY protocol: %w", err)
		}
	}
	if a.endpoint.TLS == nil {
		a.fd, err = detach(a.conn)
		return err
	}
	if err := a.hear(); err != nil {
		return err
	}
	g := &guest{Conn: a.conn, a: a, ctx: ctx}
	defer g.giveTurn()
	if err := g.takeTurn(); err != nil {
		return err
	}
	a.fd, a.tls, err = handshake(ctx, g, a.prefix, PeerClient, a.endpoint.TLS())
	a.prefix = nil
	return err
}

// hear waits for the client's first byte and keeps it: a client that has said nothing yet
// costs no more than a goroutine.
func (a *arrival) hear() error {
	if len(a.prefix) > 0 {
		return nil
	}
	first, err := a.more(make([]byte, 0, 1), 1)
	switch {
	case err == nil:
		a.prefix = first
		return nil
	case left(err):
		return errSilent
	}
	return fmt.Errorf("waiting for the client's first bytes: %w", err)
}

// read waits for bytes of the client.
func (a *arrival) read(b []byte) (int, error) {
	return a.endpoint.server.pending.awaiting(a, a.conn.Read, b)
}

// guest is the connection of an arrival during its TLS handshake. It has a turn while the
// handshake is worked on, and none while the client's bytes are waited for: otherwise so
// many clients that stop in the middle would keep everybody out.
type guest struct {
	net.Conn
	a     *arrival
	ctx   context.Context
	turns *turns // not nil while it has a turn
}

// Read gives the turn back until bytes are there.
func (g *guest) Read(b []byte) (int, error) {
	g.giveTurn()
	n, err := g.a.read(b)
	if turnErr := g.takeTurn(); turnErr != nil {
		return n, turnErr
	}
	return n, err
}

// SyscallConn is for detach.
func (g *guest) SyscallConn() (syscall.RawConn, error) {
	c, ok := g.Conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("connection of type %T has no descriptor", g.Conn)
	}
	return c.SyscallConn()
}

func (g *guest) takeTurn() error {
	turns := &g.a.endpoint.server.pending.turns
	if err := turns.take(g.ctx, shareOf(g.a.peer)); err != nil {
		return err
	}
	g.turns = turns
	return nil
}

func (g *guest) giveTurn() {
	if g.turns != nil {
		g.turns.give()
		g.turns = nil
	}
}

// hand gives a descriptor to the next loop, or says why there is none.
func (e *endpoint) hand(a *arrival, err error) {
	if err == nil {
		err = e.server.seat(a.peer)
		if err != nil {
			resetOnClose(a.fd)
			closeFD(a.fd)
		}
	}
	if err != nil {
		e.refuse(a, err)
		return
	}
	a.conn = nil
	l := e.server.pick()
	l.post(func() { newSession(l, a) })
}

// resetConn closes a connection that gets no session. A client takes an ordinary end before
// the first response for missing TLS or wrong credentials, and franz-go gives up on it.
func resetConn(c net.Conn) {
	resetOn(c)
	_ = c.Close()
}

// resetOn lets the close of a connection reset it.
func resetOn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// refuse counts a connection that got no session, and says why, once in a while.
func (e *endpoint) refuse(a *arrival, err error) {
	why := refusalHandshake
	switch {
	case e.server.ctx.Err() != nil:
		return
	case errors.Is(err, errSilent):
		e.server.log.Debug("connection closed before sending any data", "listener", e.Listener, "client", a.peer.String())
		return
	case errors.Is(err, errTooManySessions):
		why = refusalSessions
	case errors.Is(err, errTooManyOfClient):
		why = refusalClient
	case errors.Is(err, errManyPending):
		why = refusalPending
	case localShortage(err):
		why = refusalShortage
	}
	e.server.metrics.refused.WithLabelValues(why).Inc()
	if n, ok := e.faults.allow(); ok {
		e.server.log.Warn("connection refused", "listener", e.Listener, "client", a.peer.String(), "error", err, "suppressed", n)
	}
}

// dialBroker opens a broker connection: PROXY protocol header and TLS included.
func (e *endpoint) dialBroker(ctx context.Context, peer, local net.Addr, serverName string) (int, *tlsLayer, error) {
	dial := e.Dial
	if e.DialName != nil {
		dial = func(ctx context.Context) (net.Conn, error) { return e.DialName(ctx, serverName) }
	}
	c, err := dial(ctx)
	if err != nil {
		return -1, nil, err
	}
	if e.SendProxy != SendProxyOff {
		if err = sendHeader(ctx, c, e.SendProxy, peer, local); err != nil {
			_ = c.Close()
			return -1, nil, fmt.Errorf("send PROXY protocol header: %w", err)
		}
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
	at := c.RemoteAddr()
	fd, layer, err := handshake(ctx, c, nil, PeerBroker, e.BrokerTLS(name))
	if err != nil {
		return -1, nil, fmt.Errorf("%v: %w", at, err)
	}
	return fd, layer, nil
}

// reasonOfDial says which close reason a failed dial is.
func reasonOfDial(err error) reason {
	if localShortage(err) {
		return reasonShortage
	}
	return reasonDial
}

// localShortage reports whether this machine lacked something for one more connection.
func localShortage(err error) bool {
	var says interface{ LocalShortage() bool }
	if errors.As(err, &says) {
		return says.LocalShortage()
	}
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EADDRNOTAVAIL) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// reported reports whether what made a dial fail is in the log already.
func reported(err error) bool {
	var says interface{ Reported() bool }
	return errors.As(err, &says) && says.Reported()
}
