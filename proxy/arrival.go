// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/pires/go-proxyproto"
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
	if err := e.server.admission.enter(); err != nil {
		_ = a.conn.Close()
		e.refuse(a, err)
		return
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
	if !e.server.background(func() { e.receive(a) }) {
		_ = a.conn.Close()
		e.server.admission.leave()
	}
}

// receive readies an arrival off the loops; all of it may take HandshakeTimeout. One that
// has said nothing yet takes no place among MaxHandshakes: otherwise so many silent
// connections would keep everybody out.
func (e *endpoint) receive(a *arrival) {
	ctx, cancel := context.WithTimeout(e.server.ctx, e.server.opts.HandshakeTimeout)
	defer cancel()
	conn := a.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := e.server.recovered(func() error {
		if err := a.hear(); err != nil {
			return err
		}
		select {
		case e.server.handshakes <- struct{}{}:
			defer func() { <-e.server.handshakes }()
			return a.greet(ctx)
		case <-ctx.Done():
			return fmt.Errorf("waiting for other handshakes: %w", ctx.Err())
		}
	})
	if err != nil {
		_ = conn.Close()
	}
	e.hand(a, err)
}

// hear waits for the client's first bytes and keeps them.
func (a *arrival) hear() error {
	buf := make([]byte, maxProxyHeader)
	n, err := a.conn.Read(buf)
	switch {
	case n > 0:
		a.prefix = buf[:n]
		return nil
	case errors.Is(err, io.EOF):
		return errSilent
	default:
		return fmt.Errorf("waiting for the client's first bytes: %w", err)
	}
}

// greet reads what comes before Kafka's own bytes. The connection is closed in any
// case; on success its descriptor lives on.
func (a *arrival) greet(ctx context.Context) error {
	err := a.readHeader()
	if err != nil {
		_ = a.conn.Close()
		return fmt.Errorf("PROXY protocol: %w", err)
	}
	if a.endpoint.TLS == nil {
		a.fd, err = detach(a.conn)
		return err
	}
	a.fd, a.tls, err = handshake(ctx, a.conn, a.prefix, PeerClient, a.endpoint.TLS())
	a.prefix = nil
	return err
}

// maxProxyHeader bounds the header, and so what may be read behind it.
const maxProxyHeader = 4 << 10

// readHeader reads the PROXY protocol header, and keeps what came behind it.
func (a *arrival) readHeader() error {
	if a.endpoint.ProxyProtocol == ProxyProtocolOff {
		return nil
	}
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(a.prefix), a.conn), maxProxyHeader)
	header, err := proxyproto.Read(r)
	switch {
	case err == nil:
		if source, dest, ok := header.TCPAddrs(); ok && !header.Command.IsLocal() {
			a.peer, a.local = source, dest
		}
	case errors.Is(err, proxyproto.ErrNoProxyProtocol) && a.endpoint.ProxyProtocol == ProxyProtocolOptional:
	case errors.Is(err, proxyproto.ErrNoProxyProtocol) && r.Buffered() == 0:
		return errSilent
	default:
		return err
	}
	a.prefix, err = r.Peek(r.Buffered())
	return err
}

// hand gives a descriptor to the next loop, or says why there is none.
func (e *endpoint) hand(a *arrival, err error) {
	if err == nil {
		err = e.server.admission.identify(a.peer)
		if err != nil {
			closeFD(a.fd)
		}
	}
	if err != nil {
		e.server.admission.leave()
		e.refuse(a, err)
		return
	}
	a.conn = nil
	l := e.server.pick()
	l.post(func() { newSession(l, a) })
}

// refuse counts a connection that got no session, and says why, once in a while.
func (e *endpoint) refuse(a *arrival, err error) {
	why := refusalHandshake
	switch {
	case e.server.ctx.Err() != nil:
		return
	case errors.Is(err, errSilent):
		e.server.log.Debug("connection without a word", "listener", e.Listener, "client", a.peer.String())
		return
	case errors.Is(err, errTooManySessions):
		why = refusalSessions
	case errors.Is(err, errTooManyOfClient):
		why = refusalClient
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

// sendHeader tells the broker who the client is.
func sendHeader(ctx context.Context, c net.Conn, version SendProxy, peer, local net.Addr) error {
	deadline, _ := ctx.Deadline()
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if _, err := proxyproto.HeaderProxyFromAddrs(byte(version), peer, local).WriteTo(c); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}
