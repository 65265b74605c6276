// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// newProduce is a Produce request of a version that nobody knows yet, with acks where version
// 13 has it.
func newProduce(id int32, acks byte) []byte {
	frame := request(produceKey, codec.ProduceKnown+1, id)
	// An empty tag section of the header, no transactional id, acks.
	return frameOf(append(frame[codec.SizeLen:], 0, 0, acks, acks)...)
}

// A Produce version that is newer than known may have acks elsewhere: whether its requests
// have responses, the responses tell. What they are seems to be (acks) is once right and
// once wrong.
func TestProduceOfANewVersion(t *testing.T) {
	const yes, no = 0xff, 0
	for _, c := range []struct {
		name           string
		acks, answered []byte
	}{
		{"acks are where they were", []byte{no, yes, no, no, yes}, []byte{no, yes, no, no, yes}},
		{"all have responses", []byte{no, yes, no, no, yes}, []byte{yes, yes, yes, yes, yes}},
		{"none has a response", []byte{no, yes, no, no, yes}, []byte{no, no, no, no, no}},
		{"the other way round", []byte{no, yes, no, no, yes}, []byte{yes, no, yes, yes, no}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s, client, broker := oneSession(t, 1<<20)
			var sent, want []byte
			for i := range int32(5) {
				sent = append(sent, newProduce(i, c.acks[i])...)
				if c.answered[i] == yes {
					want = append(want, response(i, 'p')...)
				}
			}
			sent = append(sent, request(30, 1, 5)...)
			want = append(want, response(5, 'x')...)
			client.arrive(sent)
			f.round(s.loops[0])
			compare(t, "what the broker got", broker.read(1<<20), sent)
			var got []byte
			for _, b := range want { // byte by byte
				broker.arrive([]byte{b})
				f.round(s.loops[0])
				got = append(got, client.read(1<<20)...)
			}
			compare(t, "what the client got", got, want)
			if se := only(s.loops[0]); se == nil || !se.idle() || se.exchanges.n != 0 {
				t.Error("the session is not idle")
			}
		})
	}
}

// Requests that seem to have no response keep nothing: no memory, no idle session, no drain.
// A response with the id of none of them is a fault.
func TestProduceOfANewVersionWithoutResponses(t *testing.T) {
	f, s, client, broker := oneSession(t, 1<<20)
	for range 3 * maxSilent {
		client.arrive(newProduce(7, 0))
		f.round(s.loops[0])
		broker.read(1 << 20)
	}
	se := only(s.loops[0])
	if se == nil || se.requests.stall != goes || se.exchanges.n > maxSilent || !se.idle() {
		t.Fatalf("the session: %+v", se)
	}
	client.arrive(request(30, 1, 8))
	f.round(s.loops[0])
	broker.arrive(response(8))
	f.round(s.loops[0])
	compare(t, "the response", client.read(100), response(8))
	client.arrive(bytes.Join([][]byte{newProduce(9, 0), request(30, 1, 10)}, nil))
	f.round(s.loops[0])
	broker.arrive(response(11))
	f.round(s.loops[0])
	tickOn(f, s, 5*time.Second)
	if got := testutil.ToFloat64(s.metrics.ended.WithLabelValues(reasonOrder.String())); got != 1 {
		t.Errorf("%v sessions ended as out of order, want 1", got)
	}
}

// The broker's silence during a lookup is noticed although Produce requests that may have no
// response came before it.
func TestLookupTimeoutBehindProduceOfANewVersion(t *testing.T) {
	f, s, client, _ := oneSession(t, 1<<20)
	old := &oldBroker{logs: map[string][]*tierlog.Log{"u": {tieredWithoutUploads()}}}
	client.arrive(append(newProduce(1, 0), frameOfRequest(old.offsetsRequest(11, -6), 2)...))
	f.round(s.loops[0])
	tickOn(f, s, 25*time.Second)
	if got := testutil.ToFloat64(s.metrics.ended.WithLabelValues(reasonLookupTimeout.String())); got != 1 {
		t.Errorf("%v sessions ended for the lookup, want 1", got)
	}
}

// tickOn lets time pass second by second.
func tickOn(f *fakeSystem, s *Server, d time.Duration) {
	for ; d > 0; d -= time.Second {
		f.now = f.now.Add(time.Second)
		s.loops[0].tick(f.now)
	}
}
