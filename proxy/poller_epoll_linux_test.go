// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"

	"tiergate/rewrite"
)

// A loop that keeps its processor while it waits serves like any other, and gives the
// processor back when it was wanted often enough: the signals count, and stop.
func TestLoopThatKeepsItsProcessor(t *testing.T) {
	s := newServerWithoutTicks(t, newEcho(t).dial, rewrite.Rules{}, func(o *Options) { o.EventLoop, o.SpareProcessors = EventLoopEpoll, 1 })
	c := connect(t, s)
	for range 3 {
		served(t, c)
	}
	p := s.loops[0].poller.(*epoll)
	onLoop(t, s.loops[0], func() { p.interrupted = maxInterrupted })
	served(t, c) // the next wait is a known one, and ends the count
	onLoop(t, s.loops[0], func() {
		if p.interrupted >= maxInterrupted {
			t.Errorf("%d interruptions are counted after an event", p.interrupted)
		}
	})
}
