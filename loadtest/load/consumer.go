// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumer reads some partitions of one topic from their start and gives every record to
// a reading.
type consumer struct {
	topic  string
	client *kgo.Client
	gauge  *gauge
	// latency: of each record, from when it was due until it arrived.
	latency latency
	reading *reading
	mine    []int32
	// next is the offset after the last one that arrived, by partition.
	next map[int32]int64
	// behind is what a slow consumer has to wait for: rate records per second.
	rate float64
}

// latency says whether a consumer measures it.
type latency uint8

const (
	latencyNone latency = iota
	latencyOfRecords
)

// consumerOptions are how a workload reads.
func (w *Workload) consumerOptions() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.FetchMaxPartitionBytes(int32(w.FetchBytes)),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.KeepControlRecords(), // their offsets count, where a partition ends with one
		kgo.WithPools(&recordPool{}),
	}
	if w.Transaction > 0 {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if w.ConsumeRate > 0 {
		opts = append(opts, kgo.MaxConcurrentFetches(1))
	}
	return opts
}

// newConsumer connects a consumer of its own partitions.
func newConsumer(w *Workload, bootstrap []string, topic string, mine []int32, from map[int32]int64, r *reading, g *gauge) (*consumer, error) {
	c := &consumer{topic: topic, gauge: g, reading: r, mine: mine, next: make(map[int32]int64), rate: w.ConsumeRate}
	start := make(map[int32]kgo.Offset)
	for _, p := range mine {
		c.next[p] = from[p]
		start[p] = kgo.NewOffset().At(from[p])
	}
	opts := append(baseOptions(bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}), kgo.WithHooks(retries{g}))
	var err error
	c.client, err = kgo.NewClient(append(opts, w.consumerOptions()...)...)
	return c, err
}

// mineOf are the partitions of consumer i of n.
func mineOf(partitions, i, n int) []int32 {
	var mine []int32
	for p := i; p < partitions; p += n {
		mine = append(mine, int32(p))
	}
	return mine
}

// poll takes what has arrived, or waits for it until ctx ends.
func (c *consumer) poll(ctx context.Context) (int, error) {
	fetches := c.client.PollRecords(ctx, c.most())
	if err := fetchError(ctx, fetches, c.gauge); err != nil {
		return 0, err
	}
	now, count := time.Now(), 0
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		records, bytes := 0, 0
		for _, r := range p.Records {
			c.next[p.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				records++
				bytes += c.take(r, now)
			}
			r.Recycle()
		}
		if c.latency == latencyNone {
			c.gauge.add(now, records, bytes)
		}
		count += records
	})
	return count, nil
}

// take gives a record to the reading and returns its size.
func (c *consumer) take(r *kgo.Record, now time.Time) int {
	size := len(r.Value) + len(r.Key)
	st, err := c.reading.arrived(r.Partition, r.Offset, r.Value)
	if err == nil && c.latency == latencyOfRecords {
		c.gauge.record(st.dueTime(), now, size)
	}
	return size
}

// most is how many records a poll may take: a slow consumer takes a tenth of a second's.
func (c *consumer) most() int {
	if c.rate > 0 {
		return max(1, int(c.rate/10))
	}
	return 0
}

// fetchError is what is wrong for good. A client tells of more, which it tries again:
// brokers that restart, leaders that move, remote storage that is not up yet, which
// brokers answer with UNKNOWN_SERVER_ERROR.
func fetchError(ctx context.Context, fetches kgo.Fetches, g *gauge) error {
	for _, e := range fetches.Errors() {
		var k *kerr.Error
		var session *kgo.ErrGroupSession // the group is joined again
		switch {
		case ctx.Err() != nil, errors.Is(e.Err, context.DeadlineExceeded):
		case errors.As(e.Err, &k) && (k.Retriable || k == kerr.UnknownServerError), errors.As(e.Err, &session):
			g.retry()
			pause(ctx, nil, 20*time.Millisecond)
		case errors.Is(e.Err, kgo.ErrClientClosed):
			return e.Err
		default:
			return fmt.Errorf("fetch %s-%d: %w", e.Topic, e.Partition, e.Err)
		}
	}
	return nil
}

// run reads until stop, as fast as it may.
func (c *consumer) run(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := stopContext(ctx, stop)
	defer cancel()
	for ctx.Err() == nil {
		began := time.Now()
		n, err := c.poll(ctx)
		if err != nil {
			return err
		}
		if c.rate > 0 && !pause(ctx, stop, time.Duration(float64(n)/c.rate*float64(time.Second))-time.Since(began)) {
			break
		}
	}
	return nil
}

// until reads until every partition of this consumer is at its end.
func (c *consumer) until(ctx context.Context, ends map[int32]int64) error {
	c.rate = 0
	for !c.at(ends) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s was not read to its end: %s: %w", c.topic, c.position(ends), ctx.Err())
		}
		if _, err := c.poll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// at says whether all partitions are at the given ends.
func (c *consumer) at(ends map[int32]int64) bool {
	for _, p := range c.mine {
		if c.next[p] < ends[p] {
			return false
		}
	}
	return true
}

// position says how far the partitions are that are not at their ends.
func (c *consumer) position(ends map[int32]int64) string {
	var text string
	for _, p := range c.mine {
		if c.next[p] < ends[p] {
			text += fmt.Sprintf(" partition %d is at %d of %d", p, c.next[p], ends[p])
		}
	}
	return text
}

// rewind begins at the start again, with another reading.
func (c *consumer) rewind(from map[int32]int64, r *reading) {
	offsets := make(map[int32]kgo.EpochOffset)
	for _, p := range c.mine {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: from[p]}
		c.next[p] = from[p]
	}
	c.reading = r
	c.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{c.topic: offsets})
}

// stopContext is a context that also ends when stop is closed.
func stopContext(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// recordPool keeps the slices of records that a client decodes into.
type recordPool struct{ pool sync.Pool }

// GetRecords is kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if v, ok := p.pool.Get().(*[]kgo.Record); ok && cap(*v) >= n {
		return (*v)[:0]
	}
	return make([]kgo.Record, 0, n) // no more: all of it is cleared when it comes back
}

// PutRecords is kgo.PoolRecords.
func (p *recordPool) PutRecords(r []kgo.Record) { p.pool.Put(&r) }
