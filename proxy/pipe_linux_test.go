// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/rewrite"
)

// The pipes that are open are told, and how often there was none: here for two clients
// that read nothing of a large answer, with room for one pipe.
func TestPipesAreCounted(t *testing.T) {
	const size = 64 << 20
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		writeAnswer(c, 1, size)
		silence(c)
	})
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxPipes = 1 })
	told := func(want float64) {
		t.Helper()
		tickAfter(t, s, 0)
		if got := testutil.ToFloat64(s.metrics.pipes); got != want {
			t.Errorf("%v pipes are told, want %v", got, want)
		}
	}
	first := connect(t, s)
	mustWrite(t, first, request(1, 11, 1))
	awaitStuck(t, s, brokerOf, clientOf)
	told(1)
	missed := func() float64 { return testutil.ToFloat64(s.metrics.unspliced) }
	if got := missed(); got != 0 {
		t.Errorf("%v pieces found no pipe, want 0", got)
	}
	second := connect(t, s)
	mustWrite(t, second, request(1, 11, 1))
	await(t, "pieces that find no pipe are counted", func() bool {
		tickAfter(t, s, 0)
		return missed() > 0
	})
	checkAnswer(t, first, 1, size)
	checkAnswer(t, second, 1, size)
	awaitOnLoop(t, s, "the pipe is idle", func(l *loop) bool { return len(l.pipes.idle) == l.pipes.open })
	told(0)
}
