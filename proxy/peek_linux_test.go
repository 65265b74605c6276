// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The head of a large frame after a large one is looked at, and spliced with the rest: nothing
// of it is read or written. A small one after that is looked at once, and read.
func TestHeadsOfLargeFramesAreNotRead(t *testing.T) {
	f, s, client, broker := oneSession(t, 1<<20)
	l := s.loops[0]
	client.arrive(slices.Concat(request(1, 11, 1), request(1, 11, 2), request(1, 11, 3), request(1, 11, 4)))
	f.round(l)
	l.count.calls = calls{}
	large := make([]byte, spliceMin+20_000)
	sent := slices.Concat(response(1, large...), response(2, large...), response(3, large...), response(4, 1, 2, 3))
	broker.arrive(sent)
	f.round(l)
	compare(t, "what the client got", client.read(1<<20), sent)
	got := l.count.calls
	got.bytes = 0
	// The first is read in two pieces, of readSize and the rest. The others cost a look each,
	// and the last is read then.
	if want := (calls{reads: 2 + 3 + 1, writes: 2 + 1, splices: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Frames pass as they came wherever the bytes of a head are cut, after a large frame.
func TestHeadsAfterLargeFramesInPieces(t *testing.T) {
	large := make([]byte, 2*readSize)
	for i := range large {
		large[i] = byte(i / 251)
	}
	for cut := range 16 {
		for _, next := range [][]byte{response(2, large...), response(2, 1, 2, 3, 4)} {
			f, s, client, broker := oneSession(t, 1<<20)
			client.arrive(slices.Concat(request(1, 11, 1), request(1, 11, 2), request(1, 11, 3)))
			f.round(s.loops[0])
			sent := slices.Concat(response(1, large...), next, response(3, large...))
			at := len(large) + 8 + cut
			broker.arrive(sent[:at])
			f.round(s.loops[0])
			broker.arrive(sent[at:])
			f.round(s.loops[0])
			compare(t, "what the client got", client.read(1<<20), sent)
			if f.misuse != "" || len(s.loops[0].sessions) != 1 {
				t.Errorf("cut at %d: %d sessions; %s", cut, len(s.loops[0].sessions), f.misuse)
			}
		}
	}
}

// A peer that resets after a large frame is known to be gone; one that ends there is not. The
// kernel reports a reset once, to the call that only looks too.
func TestResetAfterALargeFrame(t *testing.T) {
	for _, tt := range []struct {
		name string
		what func(*fakeSocket)
		gone bool
	}{{"reset", (*fakeSocket).cut, true}, {"ended", (*fakeSocket).end, false}} {
		f, s, client, broker := oneSession(t, 1<<20)
		client.arrive(request(1, 11, 1))
		f.round(s.loops[0])
		sent := response(1, make([]byte, 2*readSize)...)
		broker.arrive(sent)
		f.round(s.loops[0])
		compare(t, "what the client got", client.read(1<<20), sent)
		se := only(s.loops[0])
		tt.what(broker)
		f.round(s.loops[0])
		if !se.broker.ended || se.broker.shut != tt.gone {
			t.Errorf("%s: the broker has ended: %v, is gone: %v; want true and %v", tt.name, se.broker.ended, se.broker.shut, tt.gone)
		}
	}
}

// A response out of order is found by looking too.
func TestWrongOrderAfterALargeFrame(t *testing.T) {
	f, s, client, broker := oneSession(t, 1<<20)
	client.arrive(slices.Concat(request(1, 11, 1), request(1, 11, 2)))
	f.round(s.loops[0])
	first := response(1, make([]byte, 2*readSize)...)
	broker.arrive(slices.Concat(first, response(7, make([]byte, 2*readSize)...)))
	f.round(s.loops[0])
	compare(t, "what the client got", client.read(1<<20), first)
	s.loops[0].tick(f.now.Add(2 * closingTimeout))
	if got := testutil.ToFloat64(s.metrics.ended.WithLabelValues(reasonOrder.String())); got != 1 {
		t.Errorf("%v sessions ended as %s, want 1", got, reasonOrder)
	}
}
