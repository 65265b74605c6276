// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/binary"

	"tiergate/codec"
)

// After SaslHandshake version 0 the client and the broker exchange SASL tokens that
// are framed by a size and nothing else, until authentication is over; nothing on the
// wire says when that is. (From version 1 on, tokens travel in SaslAuthenticate
// requests, which are like any other.) Sources: KIP-43, KIP-152,
// SaslServerAuthenticator.handleSaslToken.

// The API keys of SaslHandshake and SaslAuthenticate.
const (
	saslHandshakeKey    = 17
	saslAuthenticateKey = 36
)

// tokens says whether frames are raw SASL tokens now.
type tokens uint8

const (
	// tokensNone: frames are Kafka messages.
	tokensNone tokens = iota
	// tokensOne: the client's next frame is a token, and the only one: PLAIN.
	tokensOne
	// tokensMany: the client's frames are tokens until one cannot be.
	tokensMany
)

// saslMechanism returns the mechanism of a SaslHandshake request of version 0 or 1.
func saslMechanism(head []byte) (string, error) {
	if len(head) < codec.SizeLen+int(codec.Size(head)) && len(head) < codec.MaxRequestHead {
		return "", errNeedMore
	}
	_, off, err := codec.RequestBody(head, codec.Classic)
	if err != nil {
		return "", err
	}
	c := codec.NewCursor(head[off:], codec.Classic)
	mechanism := string(c.String())
	return mechanism, c.Err()
}

// tokensOf returns what follows a successful handshake of version 0.
func tokensOf(mechanism string) tokens {
	if mechanism == "PLAIN" {
		return tokensOne
	}
	return tokensMany
}

// saslAnswered takes the answer to a handshake of version 0: only success is followed
// by tokens.
func (s *session) saslAnswered(frame []byte) {
	if len(frame) < codec.ResponseFixedLen+2 || binary.BigEndian.Uint16(frame[codec.ResponseFixedLen:]) != 0 {
		s.handshake = tokensNone
		return
	}
	s.tokens = s.handshake
	s.handshake = tokensNone
	// A token may be empty.
	s.requests.limits.Min, s.responses.limits.Min = 0, 0
}

// isToken reports whether a client's frame, while tokens are exchanged, is one of them.
// The first byte of a Kafka request is the high byte of its key: zero for every key
// below 256. SCRAM and OAUTHBEARER tokens begin with a letter or 0x01, those of GSSAPI
// with 0x60 or 0x05; a PLAIN token does begin with zero, but there is exactly one.
func (s *session) isToken(head []byte) (bool, error) {
	switch {
	case s.tokens == tokensOne || codec.Size(head) == 0:
		return true, nil
	case len(head) <= codec.SizeLen:
		return false, errNeedMore
	}
	return head[codec.SizeLen] != 0, nil
}

// token passes a client's token, or ends the exchange of tokens at the first request.
// The answer to the only token is entered in the exchanges. Of several tokens the last
// may go unanswered (GSSAPI), so there the broker's are recognised by no exchange being
// open.
func (s *session) token(head []byte) (is bool, err error) {
	is, err = s.isToken(head)
	if err != nil {
		return false, err
	}
	switch {
	case !is:
		s.tokens, s.tokensOwed = tokensNone, false
	case s.tokens == tokensOne:
		s.tokens = tokensNone
		s.exchanges.push(exchange{answer: answerToken})
	default:
		s.tokensOwed = true
	}
	return is, nil
}
