// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"

	"tiergate/codec"
	"tiergate/rewrite"
)

// produceKey is the API key of Produce.
const produceKey = 0

// requests walks what the client sends.
type requests struct{ *session }

// open enters the request in the exchanges, unless it must be looked into first.
func (s requests) open(head []byte) (part, error) {
	switch {
	case s.loop.draining:
		s.requests.stall = stallClosed
		return 0, errStalled
	case s.exchanges.len() >= s.loop.server.opts.MaxInflight:
		s.requests.stall = stallInflight
		return 0, errStalled
	case s.tokens != tokensNone:
		if taken, err := s.token(head); taken || err != nil {
			return partPass, err
		}
	}
	if err := s.requests.least(head, codec.RequestFixedLen); err != nil {
		return 0, err
	}
	e := exchange{
		correlationID: codec.RequestCorrelationID(head),
		key:           codec.RequestKey(head),
		version:       codec.RequestVersion(head),
	}
	request, response, err := s.talk.Request(e.key, e.version)
	if err != nil {
		return 0, err
	}
	switch response {
	case rewrite.Hold:
		e.answer = answerRewrite
	case rewrite.Front:
		e.answer = answerFront
	case rewrite.Walk:
		e.answer = answerWalk
	case rewrite.Opaque:
	}
	if request == rewrite.Hold {
		s.loop.count.request(e.key)
		return partHold, nil
	}
	if e.key == saslHandshakeKey && e.version == 0 {
		mechanism, err := saslMechanism(head)
		if err != nil {
			return 0, err
		}
		// What follows the answer is not framed like this request: wait for it.
		s.handshake, s.requests.stall, e.answer = tokensOf(mechanism), stallHandshake, answerHandshake
	}
	if e.key == produceKey {
		answered, err := s.produce(&e, head)
		if err != nil {
			return 0, err
		}
		if !answered {
			s.loop.count.request(e.key)
			return partPass, nil
		}
	}
	s.loop.count.request(e.key)
	s.exchanges.push(e)
	return partPass, nil
}

// produce reports whether a Produce request is entered in the exchanges: with acks 0 it gets
// no response. In a version that is newer than known, acks may stand elsewhere or mean
// something else, so the guess only counts as probable, until the next response shows
// whether it was right. A wrong guess that is relied on closes the session, or keeps it open
// for ever.
func (s requests) produce(e *exchange, head []byte) (answered bool, err error) {
	acks, err := codec.ProduceAcks(head)
	if errors.Is(err, codec.ErrShort) {
		return false, errNeedMore
	}
	if e.version > codec.ProduceKnown {
		e.maybe, e.silent = true, err == nil && acks == 0
		// Requests without a response, one after the other, would be entered without end.
		return !e.silent || s.exchanges.silent < maxSilent, nil
	}
	if err != nil {
		return false, fmt.Errorf("produce v%d request: %w", e.version, err)
	}
	return acks != 0, nil
}

// maxSilent bounds the exchanges of a session that probably get no response: in a thousand
// requests without one the guess has shown to be right.
const maxSilent = 1024

// collected takes a ListOffsets request: the only one that is ever held.
func (s requests) collected(frame []byte, _ int64) ([]byte, error) {
	return s.listOffsets(frame)
}

// opaque is true: no request is changed before the broker could tell.
func (requests) opaque() bool { return true }
