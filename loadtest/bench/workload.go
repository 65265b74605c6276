// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
)

// Kind says what a workload measures.
type Kind string

const (
	// KindBulk: throughput and CPU per GB of large frames.
	KindBulk Kind = "bulk"
	// KindPing: requests per second, latency and CPU per request of small frames.
	KindPing Kind = "ping"
	// KindTLSBulk and KindTLSPing: the same with TLS towards the client.
	KindTLSBulk Kind = "tls-bulk"
	KindTLSPing Kind = "tls-ping"
	// KindIdle: memory per connection that has done one exchange.
	KindIdle Kind = "idle"
	// KindStalled: memory while clients do not read what they asked for, and whether
	// every byte is right when they do.
	KindStalled Kind = "stalled"
)

// tls reports whether clients speak TLS.
func (k Kind) tls() bool { return k == KindTLSBulk || k == KindTLSPing }

// bulk reports whether throughput counts, rather than requests.
func (k Kind) bulk() bool { return k == KindBulk || k == KindTLSBulk || k == KindStalled }

// timed reports whether the workload runs for a given time.
func (k Kind) timed() bool { return k != KindIdle && k != KindStalled }

// counted reports whether further rounds count system calls and events.
func (k Kind) counted() bool { return k == KindBulk || k == KindPing }

// Workload is one line of the comparison.
type Workload struct {
	Name string
	Kind Kind
	// Conns is the number of client connections, Pipeline the requests in flight on each.
	Conns, Pipeline int
	Exchange        Exchange
	// MaxRounds bounds the rounds, 0 does not: memory does not vary as time does.
	MaxRounds int
}

// Frames of the workloads, in bytes.
const (
	pingSize = 200
	bulkSize = 1 << 20
	// batchSize is a frame of one batch of 64 KiB.
	batchSize = 64<<10 + 512
	hugeSize  = 64 << 20
	stallSize = 50 << 20
)

// Workloads returns all of them, in the order in which they run.
func Workloads() []Workload {
	down := func(size int) Exchange { return Exchange{Key: fetchKey, Request: 100, Answer: size} }
	upOf := func(size int) Exchange { return Exchange{Key: produceKey, Request: size, Answer: ackSize} }
	up := upOf(bulkSize)
	ping := Exchange{Key: fetchKey, Request: pingSize, Answer: pingSize}
	return []Workload{
		{Name: "down-1MiB-1", Kind: KindBulk, Conns: 1, Pipeline: 2, Exchange: down(bulkSize)},
		{Name: "down-1MiB-16", Kind: KindBulk, Conns: 16, Pipeline: 2, Exchange: down(bulkSize)},
		{Name: "up-1MiB-1", Kind: KindBulk, Conns: 1, Pipeline: 2, Exchange: up},
		{Name: "up-1MiB-16", Kind: KindBulk, Conns: 16, Pipeline: 2, Exchange: up},
		{Name: "down-64MiB-4", Kind: KindBulk, Conns: 4, Pipeline: 2, Exchange: down(hugeSize)},
		{Name: "down-64KiB-16", Kind: KindBulk, Conns: 16, Pipeline: 8, Exchange: down(batchSize)},
		{Name: "up-64KiB-16", Kind: KindBulk, Conns: 16, Pipeline: 8, Exchange: upOf(batchSize)},
		{Name: "ping-64x1", Kind: KindPing, Conns: 64, Pipeline: 1, Exchange: ping},
		{Name: "ping-64x8", Kind: KindPing, Conns: 64, Pipeline: 8, Exchange: ping},
		{Name: "ping-1000x1", Kind: KindPing, Conns: 1000, Pipeline: 1, Exchange: ping},
		{Name: "ping-1000x8", Kind: KindPing, Conns: 1000, Pipeline: 8, Exchange: ping},
		{Name: "tls-down-1MiB-16", Kind: KindTLSBulk, Conns: 16, Pipeline: 2, Exchange: down(bulkSize)},
		{Name: "tls-up-1MiB-16", Kind: KindTLSBulk, Conns: 16, Pipeline: 2, Exchange: up},
		{Name: "tls-ping-64x8", Kind: KindTLSPing, Conns: 64, Pipeline: 8, Exchange: ping},
		{Name: "idle-1000", Kind: KindIdle, Conns: 1000, Pipeline: 1, Exchange: ping, MaxRounds: 2},
		{Name: "idle-9000", Kind: KindIdle, Conns: 9000, Pipeline: 1, Exchange: ping, MaxRounds: 2},
		{Name: "stalled-200x50MiB", Kind: KindStalled, Conns: 200, Pipeline: 1, Exchange: down(stallSize), MaxRounds: 1},
	}
}

// Words says in a sentence what the workload does.
func (w Workload) Words() string {
	frame := max(w.Exchange.Request, w.Exchange.Answer)
	size := fmt.Sprintf("%d B", frame)
	switch {
	case frame >= 1<<20:
		size = fmt.Sprintf("%d MiB", frame>>20)
	case frame >= 1<<10:
		size = fmt.Sprintf("%d KiB", frame>>10)
	}
	switch w.Kind {
	case KindBulk, KindTLSBulk:
		what, key := "answers", "Fetch"
		if w.Exchange.upload() {
			what, key = "requests", "Produce"
		}
		return fmt.Sprintf("%s %s of %s on %s, %d in flight on each", key, what, size, connections(w.Conns), w.Pipeline)
	case KindPing, KindTLSPing:
		return fmt.Sprintf("requests and answers of %s on %s, %d in flight on each", size, connections(w.Conns), w.Pipeline)
	case KindIdle:
		return fmt.Sprintf("%s that have done one exchange of %s", connections(w.Conns), size)
	case KindStalled:
		return fmt.Sprintf("%s that ask for %s each, read nothing for a while, and then compare every byte", connections(w.Conns), size)
	}
	return string(w.Kind)
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}
