// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
)

// state is where a session is in its life.
type state uint8

const (
	// stateDialing: the client is there and not read; the broker connection is being
	// opened off the loop.
	stateDialing state = iota
	// stateOpen: both sides are there. One or both may have ended their direction.
	stateOpen
	// stateClosing: nothing new is taken up; what is owed is flushed, and what still
	// comes is dropped, until both sides have ended or closeBy has come.
	stateClosing
	// stateEnded: the sockets are closed. Late posts and stale events find this.
	stateEnded
)

// closingTimeout bounds stateClosing: it is only there so that the peer reads the last
// bytes before the socket goes.
const closingTimeout = 2 * time.Second

// session is one client connection and one broker connection. The loop owns it.
type session struct {
	loop     *loop
	endpoint *endpoint
	// peer is the client; local is the address that it connected to.
	peer, local net.Addr
	state       state
	// closing is why stateClosing was entered.
	closing reason
	client  conn
	broker  conn
	// requests flow from client to broker, responses the other way.
	requests  flow
	responses flow
	// served: an answer for the client has begun to come, other than to ApiVersions. A
	// client reads an ordinary end before that as wrong credentials or lack of TLS, and
	// franz-go gives up on it (kgo.AlwaysRetryEOF); after a reset it tries again. So until
	// then closing resets the client, also the closing that the kernel does for a process
	// that was killed.
	served bool
	// authenticated: a response has begun to come other than to ApiVersions and SASL's
	// requests: the broker takes the client for one of its own.
	authenticated bool
	// leftFirst is the side whose direction ended first, or nil.
	leftFirst *conn
	exchanges exchanges
	talk      rewrite.Conversation
	// lookup is the -6 answer that is being made, or nil.
	lookup *lookup
	// handshake is what follows once the SaslHandshake under way succeeds; tokens is what
	// the client's frames are now; tokensOwed: the broker may send tokens.
	handshake, tokens tokens
	tokensOwed        bool
	// askID is the correlation id of the last ask.
	askID int32
	// cancel ends work off the loop: dialing, looking statuses up.
	cancel context.CancelFunc
	ctx    context.Context
	// closeBy ends the session; zero means never. lastActive is the tick before the last
	// event.
	closeBy, lastActive time.Time
	// lastEvent is the number of the last event on the loop.
	lastEvent uint64
	// opened is when the session began, coarsely.
	opened time.Time
	// fault is why the client's bytes cannot be read on; nil while they can. faulty is the
	// reason that it is.
	fault  error
	faulty reason
	// moved: bytes came in since the last tick, so one side took what it was owed.
	moved bool
	// working is what the frame takes that is worked on off the loop.
	working int64
	// buffered is what the session adds to the account.
	buffered int64
	// alert is why a peer ended TLS, where it said so.
	alert error
}

// newSession takes an accepted client in and starts to dial. It owns the arrival's
// descriptor.
func newSession(l *loop, a *arrival) {
	e := a.endpoint
	s := &session{loop: l, endpoint: e, peer: a.peer, local: a.local, lastActive: l.now, opened: l.now, talk: rewrite.NewConversation(&e.Rules)}
	s.client = conn{fd: a.fd, session: s, tls: a.tls}
	s.broker = conn{fd: -1, session: s}
	s.requests = flow{
		session: s, from: &s.client, to: &s.broker, walker: requests{s}, stall: stallDial, carry: a.prefix,
		limits: codec.Limits{Min: codec.RequestFixedLen - codec.SizeLen, Max: l.server.opts.MaxRequestBytes},
	}
	s.responses = flow{
		session: s, from: &s.broker, to: &s.client, walker: responses{s},
		limits: codec.Limits{Min: codec.ResponseFixedLen - codec.SizeLen, Max: l.server.opts.MaxResponseBytes},
	}
	s.client.resetOnClose() // until it is served
	if l.draining {
		_ = l.sys.close(a.fd)
		l.server.admission.leave(a.peer)
		return
	}
	if err := l.add(&s.client); err != nil {
		l.server.log.Warn("client socket refused by the poller", "error", err)
		l.server.admission.leave(a.peer)
		return
	}
	s.ctx, s.cancel = context.WithCancel(l.server.ctx)
	l.sessions[s] = struct{}{}
	l.count.opened[e.index]++
	s.dial()
}

// dial opens the broker connection off the loop.
func (s *session) dial() {
	ctx, cancel := context.WithTimeout(s.ctx, s.loop.server.opts.DialTimeout)
	name := s.serverName()
	s.loop.server.background(func() {
		defer cancel()
		fd, layer := -1, (*tlsLayer)(nil)
		err := s.loop.server.recovered(func() (err error) {
			fd, layer, err = s.endpoint.dialBroker(ctx, s.peer, s.local, name)
			return err
		})
		s.loop.post(func() { s.loop.guard(s, func() { s.dialed(fd, layer, err) }) })
	})
}

// serverName is the name that decides about the broker; empty where none does.
func (s *session) serverName() string {
	if s.endpoint.DialName == nil {
		return ""
	}
	return s.client.tls.conn.ConnectionState().ServerName
}

// behind says which broker the session is for.
func (s *session) behind() string {
	switch name := s.serverName(); {
	case s.endpoint.DialName == nil:
		return s.endpoint.Broker
	case name == "":
		return s.endpoint.Broker + ": none"
	default:
		return s.endpoint.Broker + ": " + name
	}
}

// dialed is the end of dial.
func (s *session) dialed(fd int, layer *tlsLayer, err error) {
	switch {
	case s.state == stateEnded:
		if err == nil {
			_ = s.loop.sys.close(fd)
		}
		return
	case err != nil && s.ctx.Err() != nil:
		s.end(reasonShutdown, nil)
		return
	case errors.Is(err, errPanic):
		s.end(reasonPanic, err)
		return
	case err != nil:
		s.end(reasonOfDial(err), err)
		return
	}
	s.broker.fd, s.broker.tls = fd, layer
	if err = s.loop.add(&s.broker); err != nil {
		s.broker.fd = -1
		s.end(reasonDial, err)
		return
	}
	s.state = stateOpen
	s.requests.stall = goes
	s.advance(&s.requests)
	if s.state != stateEnded {
		// A TLS handshake may have read ahead.
		s.advance(&s.responses)
	}
}

// event takes what the poller said about one of the sockets.
func (s *session) event(c *conn, e edges) {
	s.loop.events++
	s.loop.count.events++
	s.lastActive, s.lastEvent = s.loop.now, s.loop.events
	c.readable = c.readable || e.readable
	c.writable = c.writable || e.writable
	c.hungUp = c.hungUp || e.hungUp
	if s.state == stateDialing {
		if e.failed {
			s.end(reasonClientClosed, nil)
		}
		return
	}
	moved := s.loop.count.calls.bytes
	from, to := &s.requests, &s.responses
	if c == &s.broker {
		from, to = to, from
	}
	if e.readable {
		s.advance(from)
	}
	if e.writable && s.state != stateEnded {
		s.advance(to)
	}
	if s.loop.count.calls.bytes == moved && s.state != stateEnded && !e.hungUp {
		s.loop.count.useless++
	}
}

// advance pumps a flow and does what follows from it.
func (s *session) advance(f *flow) {
	if s.state == stateDialing {
		return
	}
	if !s.pump(f) {
		return
	}
	// What is read when one stall is over may bring the next, and that may be over too.
	for next := s.nextStall(); next != s.requests.stall; next = s.nextStall() {
		s.requests.stall = next
		if !s.pump(&s.requests) {
			return
		}
	}
	if s.requests.stall == stallLookup && s.lookup.machine != nil {
		s.sendLookups()
	}
	s.settle()
}

// rest brings up to date what others know of the session, after each piece of work for it.
func (s *session) rest() {
	if s.state == stateEnded {
		return
	}
	s.account()
	if err := s.watch(); err != nil {
		s.end(reasonShortage, err)
	}
}

// watch has the poller report what the session waits for, and nothing else: an event that
// changes nothing wakes the loop in vain. Of a socket known to have bytes that cannot be used
// now it reports none; of one that takes no more, and has output pending, when there is
// room again.
func (s *session) watch() error {
	if s.state == stateDialing {
		return nil // nothing is known of the client's bytes yet
	}
	if err := s.client.watch(&s.requests, s.loop); err != nil {
		return err
	}
	return s.broker.watch(&s.responses, s.loop)
}

// account keeps the session's part of the account right.
func (s *session) account() {
	now := int64(s.client.memory()+s.broker.memory()) + s.working
	for _, f := range []*flow{&s.requests, &s.responses} {
		now += int64(cap(f.carry)) + int64(cap(f.held))*f.cost()
	}
	if s.lookup != nil {
		now += s.lookup.size
	}
	if now != s.buffered {
		changed := now - s.buffered
		s.buffered = now
		s.loop.server.account.add(changed)
	}
}

// serve marks the session as served.
func (s *session) serve() {
	if !s.served {
		s.served = true
		s.client.endOnClose()
	}
}

// pump pumps a flow; a fault of the protocol ends the session.
func (s *session) pump(f *flow) bool {
	err := f.pump()
	if err == nil {
		return true
	}
	side := "client"
	if f == &s.responses {
		side = "broker"
	}
	s.fail(f, reasonOf(err), fmt.Errorf("from the %s: %w", side, err))
	return false
}

// fail ends the session for bytes of one side that cannot be read on. What was sent before
// them is delivered first, as a broker does: requests reach the broker and its responses
// to them the client.
func (s *session) fail(f *flow, why reason, err error) {
	s.fault, s.faulty = err, why
	switch {
	case f == &s.responses && s.served:
		s.close(why)
	case f == &s.requests && (s.served || !s.delivered()):
		f.stall, f.carry, f.held = stallFault, nil, nil
		s.closeBy = s.loop.now.Add(s.loop.server.opts.LingerTimeout)
		s.settle()
	default:
		s.end(why, err)
	}
}

// nextStall says what stalls the requests from now on. Half of the exchanges must be
// answered before more are taken up, so that the client is not read frame by frame. What
// waits for a broker that has left waits for ever: the session only finishes then.
func (s *session) nextStall() stall {
	now, over := s.requests.stall, false
	switch now {
	case stallInflight:
		over = s.exchanges.len() <= s.loop.server.opts.MaxInflight/2
	case stallLookup:
		over = s.lookup == nil
	case stallHandshake:
		over = s.handshake == tokensNone
	case stallMemory:
	case goes, stallDial, stallMachine, stallFault, stallClosed:
		return now
	}
	switch {
	case over:
		return goes
	case s.responses.done:
		s.lookup = nil
		return stallClosed
	}
	return now
}

// settle ends or closes the session when it has nothing left to do.
func (s *session) settle() {
	if s.leftFirst == nil && (s.requests.done || s.responses.done) {
		s.leftFirst = &s.broker
		if s.requests.done {
			s.leftFirst = &s.client
		}
	}
	if s.fault != nil && s.client.hungUp {
		// Its end is not read any more behind what cannot be, and is passed on all the same.
		s.broker.shutdown()
	}
	switch {
	case s.requests.done && s.responses.done && !s.client.owes() && !s.broker.owes():
		s.end(s.endReason(), nil)
	case s.fault != nil && s.state == stateOpen && (s.responses.done || s.delivered()):
		s.close(s.faulty)
	case s.loop.draining && s.state == stateOpen && s.idle() && !s.served:
		s.end(reasonDrained, nil)
	case s.loop.draining && s.state == stateOpen && s.idle():
		s.close(reasonDrained)
	case s.state == stateOpen && s.broker.dead():
		s.close(reasonBrokerClosed)
	case s.state == stateOpen && s.client.dead():
		s.close(reasonClientClosed)
	}
}

// endReason says which side left first.
func (s *session) endReason() reason {
	if s.state == stateClosing {
		return s.closing
	}
	if s.leftFirst == &s.broker {
		return reasonBrokerClosed
	}
	return reasonClientClosed
}

// idle reports whether no exchange is under way in either direction.
func (s *session) idle() bool { return s.requests.left == 0 && s.delivered() }

// delivered reports whether no request is unanswered and nothing waits to be written.
func (s *session) delivered() bool {
	return s.exchanges.len() == 0 && s.lookup == nil && s.responses.left == 0 && !s.client.owes() && !s.broker.owes()
}

// close ends the session without losing what was sent to either side.
func (s *session) close(why reason) {
	s.state, s.closing = stateClosing, why
	s.closeBy = s.loop.now.Add(closingTimeout)
	s.requests.stall, s.responses.stall = stallClosed, stallClosed
	s.client.shutdown()
	s.broker.shutdown()
	s.requests.discard()
	s.responses.discard()
	s.settle()
}

// linger keeps closeBy. A session one side of which has ended its direction lives on
// for LingerTimeout after bytes have moved the last time: the other side may take long
// to read what it was sent. An end that is not read yet, since the other side owes,
// counts.
func (s *session) linger() {
	ended := s.requests.done || s.responses.done || s.client.hungUp || s.broker.hungUp
	if s.state == stateOpen && ended && (s.moved || s.closeBy.IsZero()) {
		s.closeBy = s.loop.now.Add(s.loop.server.opts.LingerTimeout)
	}
	s.moved = false
}

// tick runs about once a second.
func (s *session) tick() {
	s.linger()
	if !s.closeBy.IsZero() && !s.loop.now.Before(s.closeBy) {
		why := reasonLinger
		if s.state == stateClosing {
			why = s.closing
		}
		s.end(why, nil)
		return
	}
	if s.state != stateOpen {
		return
	}
	if s.loop.draining {
		s.settle()
		if s.state != stateOpen {
			return
		}
	}
	if why, err := s.deadline(); err != nil {
		s.end(why, err)
		return
	}
	// Half of a frame is no reason to stay; a request without a response is, since what
	// the broker does for it may take as long as the client likes.
	idle := s.loop.server.opts.IdleTimeout
	if idle > 0 && s.exchanges.len() == 0 && s.lookup == nil && s.loop.now.Sub(s.lastActive) >= idle {
		s.close(reasonIdle)
	}
}

// end closes both sockets at once. It may be called in any state.
func (s *session) end(why reason, err error) {
	if s.state == stateEnded {
		return
	}
	if s.alert != nil && !why.fault() {
		why, err = reasonTLS, s.alert
		if errors.Is(err, errTLSBroken) {
			why = reasonMalformed
		}
	}
	if s.fault != nil && err == nil {
		why, err = s.faulty, s.fault
	}
	s.state = stateEnded
	s.cancel()
	s.client.dropPipe()
	s.broker.dropPipe()
	if !s.served && !why.refusal() {
		// A reset is as near as can be to the refusal that a broker that is down gives. Else the
		// client is to learn that its broker, or its own bytes, ended it.
		s.client.endOnClose()
	}
	s.loop.remove(&s.client)
	if s.broker.fd >= 0 {
		s.loop.remove(&s.broker)
	}
	delete(s.loop.sessions, s)
	s.loop.server.admission.leave(s.peer)
	s.loop.server.account.add(-s.buffered)
	s.buffered = 0
	s.loop.count.ended[s.endpoint.index]++
	s.loop.count.reasons[why]++
	s.endpoint.logEnd(s, why, err)
}

// received counts bytes that came in.
func (s *session) received(f *flow, n int) {
	s.moved = true
	f.received += uint64(n)
	if f == &s.requests {
		s.loop.count.requestBytes += uint64(n)
	} else {
		s.loop.count.responseBytes += uint64(n)
	}
}

// reasonOf tells which close reason a fault of the protocol is.
func reasonOf(err error) reason {
	switch {
	case errors.Is(err, codec.ErrTLSBytes), errors.Is(err, codec.ErrHTTPBytes):
		return reasonForeign
	case errors.Is(err, codec.ErrFrameTooLarge):
		return reasonFrameTooLarge
	case errors.Is(err, errBufferFull):
		return reasonBufferFull
	case errors.Is(err, errHeldTooLarge):
		return reasonHeldTooLarge
	case errors.Is(err, rewrite.ErrUnrewritable):
		return reasonUnrewritable
	case errors.Is(err, errPanic):
		return reasonPanic
	case errors.Is(err, errOrder):
		return reasonOrder
	default:
		return reasonMalformed
	}
}
