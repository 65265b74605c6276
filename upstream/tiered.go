// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/cache/tiered"
	"tiergate/codec"
)

const (
	// verifyEvery is the time between two comparisons of the reader's position with the
	// end of the topic.
	verifyEvery = time.Second
	// freshFor is how long such a comparison counts: what the reader says is at most so
	// old. Several comparisons may fail before it says nothing.
	freshFor = 5 * time.Second
	// appliedAtOnce records go into the index under one lock, about 0.3 ms: loops wait for it.
	appliedAtOnce = 256
	// maxReread is the longest time before a reader that failed begins again.
	maxReread = 30 * time.Second
	// Fetch buffers of the reader's client, per broker and per partition of the topic.
	maxFetchBytes          = 8 << 20
	maxFetchPartitionBytes = 1 << 20
)

// TieredOffsets says whether highest tiered offsets are read from __remote_log_metadata.
type TieredOffsets uint8

const (
	// TieredOffsetsOff leaves the topic alone.
	TieredOffsetsOff TieredOffsets = iota
	// TieredOffsetsFromMetadataTopic reads the topic from Start to Close: for brokers that
	// have no -5 (Kafka 3.6 to 3.8). The service client needs READ on it.
	TieredOffsetsFromMetadataTopic
)

// TopicPartition is a partition of a topic by the topic's id.
type TopicPartition struct {
	TopicID   tiered.UUID
	Partition int32
}

// HighestTiered returns the highest tiered offset of each leader epoch of a partition, as
// they were in __remote_log_metadata at most 5 s ago. known is false while the topic has
// not been read, when its end has not been seen for 5 s, and where what it says of the
// partition cannot be relied on. It never blocks: loops call it.
func (c *Cluster) HighestTiered(p TopicPartition) (highest tiered.Highest, known bool) {
	if c.tieredReader == nil {
		return tiered.Highest{}, false
	}
	return c.tieredReader.highest(p)
}

// AwaitTiered waits until HighestTiered knows of everything that the topic held of these
// partitions at the time of the call, or ctx ends: then it returns ctx's error.
func (c *Cluster) AwaitTiered(ctx context.Context, partitions []TopicPartition) error {
	if c.tieredReader == nil {
		return errors.New("tiered offsets are not read")
	}
	return c.tieredReader.await(ctx, partitions)
}

// TieredOffsetsReady returns nil while HighestTiered can tell: the whole topic has been
// read, and its end seen within the last 5 s. Otherwise it says why not. It never blocks.
func (c *Cluster) TieredOffsetsReady() error {
	if c.tieredReader == nil {
		return errors.New("tiered offsets are not read")
	}
	return c.tieredReader.ready()
}

// tieredReader keeps an index of the topic current, with a client of its own.
type tieredReader struct {
	cluster *Cluster
	metrics *tieredMetrics
	kick    chan struct{} // one element: compare with the end of the topic now

	mu       sync.RWMutex
	index    *tiered.Index // nil: nothing is read
	sources  []tieredSource
	progress chan struct{} // closed, and another made, when a source was verified
	complete bool          // the end of every source has been seen since the reading began
	failed   error         // why the last reading ended
	logged   string        // the last failure that was logged; empty after a complete reading
}

// tieredSource is what is known of the end of one partition of the topic.
type tieredSource struct {
	end    int64     // as the broker gave it last
	target int64     // an end that the reader has yet to reach
	asked  time.Time // before the broker was asked for target; zero: no target
	fresh  time.Time // everything that was there at this time is in the index; zero: not yet
}

func newTieredReader(c *Cluster) *tieredReader {
	r := &tieredReader{
		cluster: c, kick: make(chan struct{}, 1), progress: make(chan struct{}),
		failed: errors.New("the topic " + codec.RemoteLogMetadata + " has not been read yet"),
	}
	r.metrics = newTieredMetrics(r)
	return r
}

// run reads until ctx ends. What makes a reading end makes it begin again from the start
// of the topic, after 1 s, then 2 s and so on up to 30 s.
func (r *tieredReader) run(ctx context.Context) {
	retry := minRefresh
	for ctx.Err() == nil {
		began := r.cluster.now()
		err := r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.ended(err) {
			retry = minRefresh
		}
		r.cluster.opts.Logger.Debug("reader of tiered offsets ended", "error", err, "after", r.cluster.now().Sub(began))
		timer := time.NewTimer(jitter(retry))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		retry = min(2*retry, maxReread)
	}
}

// ended forgets everything, and reports whether the reading had come to the end of the topic.
func (r *tieredReader) ended(err error) (complete bool) {
	r.mu.Lock()
	r.metrics.keep(r.index)
	complete, r.complete = r.complete, false
	r.index, r.sources, r.failed = nil, nil, err
	repeated := r.logged == err.Error()
	r.logged = err.Error()
	r.mu.Unlock()
	r.metrics.restarts.Inc()
	if !repeated {
		r.cluster.opts.Logger.Warn("tiered offsets are not known; -5 and -6 are answered with -1 in front of brokers without -5; trying again", "topic", codec.RemoteLogMetadata, "error", err)
	}
	return complete
}

// highest is HighestTiered.
func (r *tieredReader) highest(p TopicPartition) (tiered.Highest, bool) {
	now := r.cluster.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.index == nil {
		return tiered.Highest{}, false
	}
	source := tiered.MetadataPartition(p.TopicID, p.Partition, len(r.sources))
	if !r.sources[source].isFresh(now) {
		return tiered.Highest{}, false
	}
	return r.index.Highest(p.TopicID, p.Partition)
}

func (s tieredSource) isFresh(now time.Time) bool {
	return !s.fresh.IsZero() && now.Sub(s.fresh) <= freshFor
}

// ready is TieredOffsetsReady.
func (r *tieredReader) ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.index == nil {
		return r.failed
	}
	return r.stale(r.cluster.now())
}

// stale returns nil when every partition of the topic is fresh. The caller holds the lock.
func (r *tieredReader) stale(now time.Time) error {
	for i, s := range r.sources {
		switch {
		case s.isFresh(now):
		case s.fresh.IsZero():
			return fmt.Errorf("partition %d of %s is not read to its end: offset %d of %d", i, codec.RemoteLogMetadata, r.index.Position(int32(i)), s.end)
		default:
			return fmt.Errorf("the end of partition %d of %s was not seen for %v", i, codec.RemoteLogMetadata, now.Sub(s.fresh).Round(time.Second))
		}
	}
	return nil
}

// await is AwaitTiered.
func (r *tieredReader) await(ctx context.Context, partitions []TopicPartition) error {
	since := r.cluster.now()
	for {
		r.mu.RLock()
		progress, done := r.progress, r.verifiedSince(since, partitions)
		r.mu.RUnlock()
		if done {
			return nil
		}
		select {
		case r.kick <- struct{}{}:
		default: // one is wanted already
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// verifiedSince reports whether the index holds all that the topic held of partitions at a
// time. The caller holds the lock.
func (r *tieredReader) verifiedSince(since time.Time, partitions []TopicPartition) bool {
	if r.index == nil {
		return false
	}
	for _, p := range partitions {
		if r.sources[tiered.MetadataPartition(p.TopicID, p.Partition, len(r.sources))].fresh.Before(since) {
			return false
		}
	}
	return true
}

// read reads the topic until it fails or ctx ends.
func (r *tieredReader) read(ctx context.Context) error {
	opts, err := r.cluster.serviceOptions(r.cluster.opts.BootstrapServers...)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(opts,
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // an offset that is gone is an error: begin again
		kgo.FetchMaxBytes(maxFetchBytes), kgo.FetchMaxPartitionBytes(maxFetchPartitionBytes),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.RetryBackoffFn(func(failures int) time.Duration {
			return jitter(min(100*time.Millisecond<<min(failures, 5), 2*time.Second))
		}),
		kgo.WithHooks(r.metrics))...)
	if err != nil {
		return err
	}
	defer client.Close()
	topic, err := r.open(ctx, client)
	if err != nil {
		return r.cluster.plain(err)
	}
	ctx, stop := context.WithCancel(ctx)
	var verifying sync.WaitGroup
	defer verifying.Wait()
	defer stop()
	ended := make(chan error, 1)
	verifying.Go(func() {
		ended <- r.verify(ctx, client, topic)
		stop()
	})
	err = r.poll(ctx, client)
	select {
	case err = <-ended: // first: poll ends because of it
	default:
	}
	return err
}

// open begins with an empty index, and has the client fetch every partition of the topic
// that is there from its first record on.
func (r *tieredReader) open(ctx context.Context, client *kgo.Client) (metadataTopic, error) {
	topic, err := describeMetadataTopic(ctx, client)
	if err != nil {
		return topic, err
	}
	starts, err := topic.offsets(ctx, client, codec.EarliestTimestamp)
	if err != nil {
		return topic, err
	}
	index := tiered.New(topic.partitions, tiered.Limits{Partitions: r.cluster.opts.MaxTieredPartitions, AllInFlight: r.cluster.opts.MaxInFlightSegments})
	from := make(map[int32]kgo.Offset, topic.partitions)
	for i := range int32(topic.partitions) { //nolint:gosec // as Kafka counts partitions
		start, ok := starts[i]
		if !ok {
			return topic, fmt.Errorf("partition %d of %s: no start offset from its leader", i, codec.RemoteLogMetadata)
		}
		if start > 0 {
			index.Fail(i, fmt.Errorf("the topic begins at offset %d: a finite retention (remote.log.metadata.topic.retention.ms) has removed records", start))
			r.cluster.opts.Logger.Warn("tiered offsets are not known for good", "topic", codec.RemoteLogMetadata, "partition", i, "error", index.Fault(i))
		}
		index.Seek(i, start)
		from[i] = kgo.NewOffset().At(start)
	}
	r.mu.Lock()
	r.index, r.sources, r.complete = index, make([]tieredSource, topic.partitions), false
	r.mu.Unlock()
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{codec.RemoteLogMetadata: from})
	return topic, nil
}

// poll reads records into the index.
func (r *tieredReader) poll(ctx context.Context, client *kgo.Client) error {
	for {
		fetches := client.PollRecords(ctx, 10_000)
		if err := ctx.Err(); err != nil {
			return err
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			// Data loss, an offset that is gone, a right that is: all that kgo does not retry.
			return fmt.Errorf("partition %d: %w", errs[0].Partition, r.cluster.plain(errs[0].Err))
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for records := p.Records; len(records) > 0; {
				n := min(len(records), appliedAtOnce)
				r.apply(p.Partition, records[:n])
				records = records[n:]
			}
		})
	}
}

// apply gives records of one partition to the index.
func (r *tieredReader) apply(source int32, records []*kgo.Record) {
	r.mu.Lock()
	before := r.index.Fault(source)
	for _, record := range records {
		_ = r.index.Apply(source, record.Offset, record.Value) // the index keeps the first error
	}
	fault := r.index.Fault(source)
	r.check(source)
	r.mu.Unlock()
	if before == nil && fault != nil {
		r.cluster.opts.Logger.Warn("a record cannot be read: tiered offsets of the partitions that it may concern are not known",
			"topic", codec.RemoteLogMetadata, "partition", source, "error", fault)
	}
}

// check compares the position in a source with its target. The caller holds the lock.
func (r *tieredReader) check(source int32) {
	s := &r.sources[source]
	if s.asked.IsZero() || r.index.Position(source) < s.target {
		return
	}
	s.fresh, s.asked = s.asked, time.Time{}
	close(r.progress)
	r.progress = make(chan struct{})
	if r.complete || slices.ContainsFunc(r.sources, func(s tieredSource) bool { return s.fresh.IsZero() }) {
		return
	}
	r.complete, r.logged = true, ""
	n := r.index.Counts()
	r.cluster.opts.Logger.Info("tiered offsets are known", "topic", codec.RemoteLogMetadata, "records", n.Records, "partitions", n.Partitions, "unknown", n.Unknown)
}

// verify asks for the ends of the topic's partitions every second, and when await wants
// it, until the topic is another one or ctx ends.
func (r *tieredReader) verify(ctx context.Context, client *kgo.Client, topic metadataTopic) error {
	ticker := time.NewTicker(verifyEvery)
	defer ticker.Stop()
	for {
		if err := r.verifyOnce(ctx, client, topic); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case <-r.kick:
		}
	}
}

// verifyOnce asks for the ends. What cannot be had now is no error: what the reader says
// gets too old by itself.
func (r *tieredReader) verifyOnce(ctx context.Context, client *kgo.Client, topic metadataTopic) error {
	asked := r.cluster.now()
	now, err := describeMetadataTopic(ctx, client)
	if err == nil && now != topic {
		return errors.New("the topic was created anew or has more partitions")
	}
	if err != nil {
		return nil
	}
	ends, err := topic.offsets(ctx, client, codec.LatestTimestamp)
	if err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for source, end := range ends {
		s := &r.sources[source]
		s.end = end
		if s.asked.IsZero() { // a target stays until it is reached, or one that moves on never is
			s.target, s.asked = end, asked
		}
		r.check(source)
	}
	return nil
}
