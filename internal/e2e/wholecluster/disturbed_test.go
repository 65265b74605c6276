// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/loadtest/kafka"
)

// numbered are clients of each kind that produce numbers, idempotently, and consume them in
// a group, each from a topic of its own, until they are told to end.
type numbered struct {
	*whole
	topics []string
	ends   []func(*testing.T) outcome
}

// outcome is what a client tells of its numbers. Those that were consumed again, from
// the same offset, are told apart: at least once is what a group promises, and clients
// make use of that now and then when connections are cut. A number that is at two
// offsets counts twice in consumed, for every client.
type outcome struct {
	what                             string
	sent, distinct, consumed, errors int
	again                            int
	detail                           string
	seen                             targets
}

// startNumbered starts one of each kind, all from 0.
func startNumbered(t *testing.T, ctx context.Context, w *whole, prefix string) *numbered {
	t.Helper()
	n := &numbered{whole: w}
	for _, kind := range []string{"java", "librdkafka", "franz-go"} {
		n.topics = append(n.topics, prefix+"-"+kind)
	}
	must(t, w.cluster.CreateTopics(ctx, n.topics, nodes, nodes, nil))
	n.process(t, ctx, watch(t, "Java", w.java(t, ctx, "numbered", w.bootstrap, n.topics[0])))
	n.process(t, ctx, watch(t, "librdkafka", w.librdkafka(t, "numbered", w.bootstrap, n.topics[1])))
	n.franzGo(t, ctx, n.topics[2])
	n.awaitProgress(t, ctx)
	return n
}

// process adds a client that runs in a process.
func (n *numbered) process(t *testing.T, ctx context.Context, c *watched) {
	n.ends = append(n.ends, func(t *testing.T) outcome {
		c.end(t)
		o := outcome{what: c.what}
		out := c.wait(t, ctx)
		_, err := fmt.Sscanf(out, "sent %d distinct %d consumed %d errors %d again %d\n", &o.sent, &o.distinct, &o.consumed, &o.errors, &o.again)
		if err != nil {
			t.Fatalf("%s says %q: %v", c.what, out, err)
		}
		o.detail, o.seen = c.output(), c.targets(t)
		return o
	})
}

// franzGo adds franz-go in this process.
func (n *numbered) franzGo(t *testing.T, ctx context.Context, topic string) {
	t.Helper()
	var d dialer
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	f := &franzNumbers{topic: topic, seen: make(map[string]struct{}), places: make(map[place]int), told: make(chan struct{}), produced: make(chan struct{}), consumed: make(chan struct{})}
	producer := n.franz(t, &d, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	// In the classic protocol franz-go gives its membership up, and says so to the
	// application, when every address refuses connections (isRetryableBrokerErr in its
	// errors.go): as ours does while tiergate restarts. In the one of KIP-848 it does not.
	consumer := n.franz(t, &d, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-group"), kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	go f.produce(ctx, producer)
	go f.consume(ctx, consumer)
	n.ends = append(n.ends, func(*testing.T) outcome {
		close(f.told)
		<-f.produced
		awaiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_ = kafka.Poll(awaiting, "all numbers", func(context.Context) error { // what is missing is in the outcome
			if f.distinct.Load() < f.sent {
				return errors.New("not all yet")
			}
			return nil
		})
		stop()
		<-f.consumed
		o := outcome{what: "franz-go", sent: int(f.sent), distinct: len(f.seen), errors: int(f.errors.Load()), seen: d.targets()}
		if err := f.first.Load(); err != nil {
			o.detail = (*err).Error()
		}
		o.consumed = len(f.places)
		for _, times := range f.places {
			if times > 1 {
				o.again++
			}
		}
		return o
	})
}

// place is where a number is.
type place struct {
	partition int32
	offset    int64
	number    string
}

// franzNumbers is the state of a franz-go client; sent is the producer's until produced is
// closed, seen and places the
// consumer's until consumed is.
type franzNumbers struct {
	topic                    string
	sent                     int64
	seen                     map[string]struct{}
	places                   map[place]int
	distinct, errors         atomic.Int64
	first                    atomic.Pointer[error]
	told, produced, consumed chan struct{}
}

func (f *franzNumbers) failed(err error) {
	f.errors.Add(1)
	f.first.CompareAndSwap(nil, &err)
}

// produce sends a number every few milliseconds until it is told to end.
func (f *franzNumbers) produce(ctx context.Context, cl *kgo.Client) {
	defer close(f.produced)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			cl.Produce(ctx, &kgo.Record{Partition: int32(f.sent % nodes), Value: strconv.AppendInt(nil, f.sent, 10)}, func(_ *kgo.Record, err error) {
				if err != nil {
					f.failed(err)
				}
			})
			f.sent++
		case <-f.told:
			if err := cl.Flush(ctx); err != nil {
				f.failed(err)
			}
			return
		}
	}
}

func (f *franzNumbers) consume(ctx context.Context, cl *kgo.Client) {
	defer close(f.consumed)
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) { f.failed(err) })
		fetches.EachRecord(func(r *kgo.Record) {
			f.seen[string(r.Value)] = struct{}{}
			f.places[place{r.Partition, r.Offset, string(r.Value)}]++
		})
		f.distinct.Store(int64(len(f.seen)))
	}
}

// awaitProgress waits until every client has produced some more.
func (n *numbered) awaitProgress(t *testing.T, ctx context.Context) {
	t.Helper()
	const more = 20
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	before := make(map[string]int64)
	must(t, kafka.Poll(ctx, fmt.Sprintf("%d more records of each client", more), func(ctx context.Context) error {
		offsets, err := n.admin.ListEndOffsets(ctx, n.topics...)
		if err := errors.Join(err, offsets.Error()); err != nil {
			return err
		}
		now := make(map[string]int64)
		offsets.Each(func(o kadm.ListedOffset) { now[o.Topic] += o.Offset })
		var lagging error
		for _, topic := range n.topics {
			if _, ok := before[topic]; !ok {
				before[topic] = now[topic]
			}
			if now[topic] < before[topic]+more {
				lagging = fmt.Errorf("%s has %d records, had %d", topic, now[topic], before[topic])
			}
		}
		return lagging
	}))
}

// end ends all clients: each number must have come back once, no error have reached the
// application, and nobody have turned elsewhere.
func (n *numbered) end(t *testing.T) {
	t.Helper()
	for _, end := range n.ends {
		o := end(t)
		t.Logf("%s: %d numbers sent, %d consumed, %d of them distinct, %d again, %d errors", o.what, o.sent, o.consumed, o.distinct, o.again, o.errors)
		if o.sent == 0 || o.consumed != o.sent || o.distinct != o.sent || o.errors != 0 {
			t.Errorf("%s sent %d numbers and consumed %d, of them %d distinct, with %d errors\n%s", o.what, o.sent, o.consumed, o.distinct, o.errors, o.detail)
		}
		n.checkTargets(t, o.what, o.seen)
	}
}

// testDisturbed moves leaders, restarts a broker under another port, and restarts tiergate,
// while clients work.
func testDisturbed(t *testing.T, ctx context.Context, w *whole, name string, nodeID int32) {
	n := startNumbered(t, ctx, w, name)
	for shift := range nodes {
		w.moveLeaders(t, ctx, shifted(shift, nodes, n.topics...))
		n.awaitProgress(t, ctx)
	}
	node := w.cluster.Node(nodeID)
	before := node.ListenerAddress(clients)
	must(t, node.Stop(ctx))
	must(t, node.MoveListener(clients))
	must(t, node.Start(ctx))
	if node.ListenerAddress(clients) == before {
		t.Fatalf("node %d is at %s again", nodeID, before)
	}
	all := make(leaders)
	for _, topic := range n.topics {
		all[topic] = slices.Repeat([]int32{nodeID}, nodes) // only where it is now do clients get on
	}
	w.moveLeaders(t, ctx, all)
	n.awaitProgress(t, ctx)

	w.gate.Restart(ctx)
	n.awaitProgress(t, ctx)
	w.moveLeaders(t, ctx, shifted(1, nodes, n.topics...))
	w.gate.KillAndRestart(ctx)
	n.awaitProgress(t, ctx)
	n.end(t)
}
