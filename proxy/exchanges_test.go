// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"math/rand/v2"
	"testing"
)

// The queue does what a slice does, at every place of its ring, and an empty one keeps
// little memory after a burst.
func TestExchangesAreAQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var q exchanges
	var model []exchange
	for round := range 200 {
		for range rnd.IntN(1 + rnd.IntN(1024)) {
			e := exchange{correlationID: int32(rnd.Uint32()), key: int16(round), answer: answer(rnd.IntN(3))}
			q.push(e)
			model = append(model, e)
		}
		keep := 0
		if rnd.IntN(4) > 0 {
			keep = rnd.IntN(len(model) + 1)
		}
		for len(model) > keep {
			if got := q.oldest(); *got != model[0] {
				t.Fatalf("round %d: the oldest is %+v, want %+v", round, *got, model[0])
			}
			q.pop()
			model = model[1:]
		}
		if q.len() != len(model) {
			t.Fatalf("round %d: length %d, want %d", round, q.len(), len(model))
		}
		if q.len() == 0 && (q.oldest() != nil || len(q.ring) > idleExchanges) {
			t.Fatalf("round %d: an empty queue with oldest %v and a ring of %d", round, q.oldest(), len(q.ring))
		}
	}
}
