// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

// answer is what a session does with the response of an exchange.
type answer uint8

const (
	// answerPass streams to the client.
	answerPass answer = iota
	// answerRewrite is held whole, changed, and sent to the client.
	answerRewrite
	// answerFront is held as far as its addresses reach; the rest streams to the client.
	answerFront
	// answerWalk streams to the client, and its end may change on the way.
	answerWalk
	// answerAsk belongs to an ask of ours: it is held whole and never sent on.
	answerAsk
	// answerHandshake is a SaslHandshake of version 0: what follows a success is no Kafka
	// message.
	answerHandshake
	// answerToken is a SASL token without a Kafka header, and streams to the client.
	answerToken
)

// exchange is one request that a broker owes a response for.
type exchange struct {
	correlationID int32
	key, version  int16
	answer        answer
	// maybe: it is not known whether a response will come. silent: probably none.
	maybe, silent bool
}

// authenticated reports whether a response to the exchange says that the broker has
// authenticated the client, where it demands that: all but ApiVersions and SASL's own
// exchanges are refused before (SaslServerAuthenticator).
func (e *exchange) authenticated() bool {
	return e.answer != answerToken && e.key != apiVersionsKey && e.key != saslHandshakeKey && e.key != saslAuthenticateKey
}

// exchanges is the FIFO of what a broker owes on one connection. A broker works on one
// request of a connection at a time and answers in order. The zero value is empty.
type exchanges struct {
	ring []exchange
	head int
	n    int
	// silent is how many of them probably get no response.
	silent int
}

// len returns how many responses are owed.
func (q *exchanges) len() int { return q.n - q.silent }

// push enters the request that was sent last.
func (q *exchanges) push(e exchange) {
	if q.n == len(q.ring) {
		grown := make([]exchange, max(4, 2*q.n))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = e
	q.n++
	if e.silent {
		q.silent++
	}
}

// oldest returns the exchange whose response comes next, or nil. The pointer is valid
// until the next push or pop.
func (q *exchanges) oldest() *exchange {
	if q.n == 0 {
		return nil
	}
	return &q.ring[q.head]
}

// at returns the i-th oldest.
func (q *exchanges) at(i int) *exchange { return &q.ring[(q.head+i)%len(q.ring)] }

// owed returns the oldest whose response probably comes, or nil.
func (q *exchanges) owed() *exchange {
	for i := range q.n {
		if e := q.at(i); !e.silent {
			return e
		}
	}
	return nil
}

// skip drops the oldest exchanges that a response with this correlation id proves to have
// none: those that need not have one, in front of the exchange that it is for. A broker
// answers in order.
func (q *exchanges) skip(correlationID int32) {
	for i := range q.n {
		switch e := q.at(i); {
		case e.correlationID == correlationID:
			for range i {
				q.pop()
			}
			return
		case !e.maybe:
			return
		}
	}
}

// idleExchanges is the largest ring that an empty queue keeps: a session that once had
// a thousand requests under way is to be idle as cheaply as others.
const idleExchanges = 16

// pop drops the oldest. The queue must not be empty.
func (q *exchanges) pop() {
	if q.ring[q.head].silent {
		q.silent--
	}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	if q.n == 0 && len(q.ring) > idleExchanges {
		q.ring, q.head = nil, 0
	}
}
