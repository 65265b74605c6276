// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"

	"tiergate/codec"
	"tiergate/rewrite"
)

// Faults of frames that the session's close reason depends on.
var (
	errOrder        = errors.New("response out of order")
	errHeldTooLarge = errors.New("frame too large to be held")
	errBufferFull   = errors.New("the proxy holds as many bytes as it may")
)

// responses walks what the broker sends.
type responses struct{ *session }

// open matches the response with the oldest exchange.
func (s responses) open(head []byte) (part, error) {
	e := s.exchanges.oldest()
	if e != nil && e.maybe {
		if err := s.responses.least(head, codec.ResponseFixedLen); err != nil {
			return 0, err
		}
		s.exchanges.skip(codec.ResponseCorrelationID(head))
		e = s.exchanges.oldest()
	}
	if e == nil || e.key != apiVersionsKey && e.answer != answerAsk {
		s.serve()
	}
	if e != nil && e.authenticated() {
		s.authenticated = true
	}
	switch {
	case e == nil && s.tokensOwed:
		// A token of the broker: nothing but a size frames it.
		return partPass, nil
	case e != nil && e.answer == answerToken:
		s.exchanges.pop()
		return partPass, nil
	}
	if err := s.responses.least(head, codec.ResponseFixedLen); err != nil {
		return 0, err
	}
	got := codec.ResponseCorrelationID(head)
	if e == nil {
		return 0, fmt.Errorf("%w: the broker sent correlation id %d, and no response is owed", errOrder, got)
	}
	if got != e.correlationID {
		return 0, fmt.Errorf("%w: the broker sent correlation id %d, next is %d", errOrder, got, e.correlationID)
	}
	switch {
	case e.answer == answerPass:
		s.exchanges.pop()
		return partPass, nil
	case e.answer == answerWalk && codec.SizeLen+int(codec.Size(head)) > len(head):
		s.responses.stream = s.talk.Stream(e.key, e.version)
		return partWalk, nil
	case e.answer == answerFront:
		return partFront, nil
	}
	return partHold, nil
}

// collected takes a response that is not passed on as it is, or its front.
func (s responses) collected(frame []byte, more int64) ([]byte, error) {
	e := *s.exchanges.oldest()
	if e.answer == answerFront {
		return s.front(e, frame, more)
	}
	s.exchanges.pop()
	switch e.answer {
	case answerAsk:
		return s.answered(e, frame)
	case answerHandshake:
		s.saslAnswered(frame)
		return frame, nil
	case answerPass, answerRewrite, answerFront, answerWalk, answerToken:
	}
	var out []byte
	var unmapped []int32
	var err error
	if stream := s.responses.stream; stream != nil {
		s.responses.stream = nil
		out, unmapped, err = stream.Tail(frame)
	} else {
		out, unmapped, err = s.talk.Response(e.key, e.version, frame)
	}
	if e.key == apiVersionsKey && s.talk.Support() == rewrite.SupportNone {
		s.endpoint.warnUnanswerable()
	}
	s.unmapped(unmapped)
	return out, err
}

// front takes the first bytes of a response whose addresses are rewritten.
func (s responses) front(e exchange, front []byte, more int64) ([]byte, error) {
	out, unmapped, err := s.talk.Front(e.key, e.version, front, more)
	if errors.Is(err, codec.ErrShort) {
		return nil, errNeedMore
	}
	s.exchanges.pop()
	s.unmapped(unmapped)
	return out, err
}

// unmapped counts and warns of the nodes that a response named and that have no address.
func (s responses) unmapped(nodes []int32) {
	if len(nodes) > 0 {
		s.loop.count.unmapped[s.endpoint.index] += uint64(len(nodes))
		s.endpoint.unmapped.add(nodes)
		s.endpoint.warnUnmapped(s.loop.sys.now())
	}
}

// opaque is false for the answer to an ask, which is not the client's, and for answers
// that are rewritten.
func (s responses) opaque() bool {
	e := s.exchanges.oldest()
	if e != nil && e.maybe {
		return s.lookup == nil // the bytes may be of a response behind it
	}
	return e == nil || e.answer == answerPass || e.answer == answerToken
}
