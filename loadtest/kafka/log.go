// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// Position is an offset and the leader epoch of the record there; -1 means none.
type Position struct {
	Offset int64
	Epoch  int32
}

// String is the form of the vectors table, offset/epoch.
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Offset, p.Epoch) }

// NoPosition is what a broker answers where there is nothing to point at.
var NoPosition = Position{Offset: -1, Epoch: -1}

// Log is partition 0 of a topic with one partition, and what the test did to it. Its
// methods are for one goroutine; different logs are independent.
type Log struct {
	// Topic is the name.
	Topic string
	// Epochs are the leader epochs that have records, or the latest one, with the
	// offset that each begins at: what the leader epoch cache is made from.
	Epochs []Position
	// LogStart is the offset that records were deleted before; 0 at first.
	LogStart int64
	// End is the log end offset: that of the next record.
	End int64
	// LastStable is where the oldest open transaction begins; End without one.
	LastStable int64
	// HighestUploaded is the last offset that Await ever saw on the disk of the remote
	// storage; -1 for none. Unlike Disk it remembers what was deleted since.
	HighestUploaded int64

	cluster  *Cluster
	producer *kgo.Client   // holds the open transaction
	ahead    time.Duration // of the clock, in the timestamps of records: see Roll
}

// CreateTopic creates a topic with its replicas on as many nodes as replicas says, and
// waits until every partition has a leader that answers.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int32, replicas int16, configs map[string]string) error {
	return c.CreateTopics(ctx, []string{name}, partitions, replicas, configs)
}

// CreateTopics is CreateTopic for several topics in one request.
func (c *Cluster) CreateTopics(ctx context.Context, names []string, partitions int32, replicas int16, configs map[string]string) error {
	cl, err := c.own()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
		for _, key := range slices.Sorted(maps.Keys(configs)) {
			t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: kmsg.StringPtr(configs[key])})
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w (%s)", t.Topic, err, deref(t.ErrorMessage))
		}
	}
	return c.awaitLeaders(ctx, names, partitions)
}

// awaitLeaders waits until every partition of the topics answers ListOffsets.
func (c *Cluster) awaitLeaders(ctx context.Context, topics []string, partitions int32) error {
	var all []int32
	for p := range partitions {
		all = append(all, p)
	}
	return Poll(ctx, fmt.Sprintf("leaders of %d topics", len(topics)), func(ctx context.Context) error {
		_, err := c.ListOffsets(ctx, topics, all, codec.LatestTimestamp)
		return err
	})
}

// ListOffsets asks the leaders for one timestamp of the given partitions of every topic.
// Any error of a partition is an error of the call.
func (c *Cluster) ListOffsets(ctx context.Context, topics []string, partitions []int32, timestamp int64) (map[string]map[int32]Position, error) {
	cl, err := c.own()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.TimeoutMillis = 10_000
	for _, topic := range topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, partition := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = partition, timestamp
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("ListOffsets %d: %w", timestamp, err)
	}
	of := make(map[string]map[int32]Position)
	for _, t := range resp.Topics {
		of[t.Topic] = make(map[int32]Position)
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("ListOffsets %d of %s-%d: %w", timestamp, t.Topic, p.Partition, err)
			}
			of[t.Topic][p.Partition] = Position{Offset: p.Offset, Epoch: p.LeaderEpoch}
		}
	}
	return of, nil
}

// LeaderEpoch returns the current leader epoch of partition 0 of a topic, and the leader.
func (c *Cluster) LeaderEpoch(ctx context.Context, topic string) (epoch, leader int32, err error) {
	cl, err := c.own()
	if err != nil {
		return 0, 0, err
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, fmt.Errorf("metadata of %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == 0 && p.ErrorCode == 0 && p.Leader >= 0 {
				return p.LeaderEpoch, p.Leader, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%s-0 has no leader", topic)
}

// TopicID returns the id of a topic.
func (c *Cluster) TopicID(ctx context.Context, topic string) (id [16]byte, err error) {
	cl, err := c.own()
	if err != nil {
		return id, err
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return id, fmt.Errorf("metadata of %s: %w", topic, err)
	}
	return resp.Topics[0].TopicID, kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// CreateLog creates a topic of one partition and one replica.
func (c *Cluster) CreateLog(ctx context.Context, topic string, configs map[string]string) (*Log, error) {
	if err := c.CreateTopic(ctx, topic, 1, 1, configs); err != nil {
		return nil, err
	}
	l := &Log{Topic: topic, HighestUploaded: -1, cluster: c}
	return l, l.noteEpoch(ctx)
}

// noteEpoch notes the current leader epoch. Like LeaderEpochFileCache.assign it replaces
// an earlier epoch that begins at the same offset, one without records.
func (l *Log) noteEpoch(ctx context.Context) error {
	epoch, _, err := l.cluster.LeaderEpoch(ctx, l.Topic)
	if err != nil {
		return err
	}
	if n := len(l.Epochs); n > 0 && l.Epochs[n-1].Epoch == epoch {
		return nil
	}
	if n := len(l.Epochs); n > 0 && l.Epochs[n-1].Offset == l.End {
		l.Epochs = l.Epochs[:n-1]
	}
	l.Epochs = append(l.Epochs, Position{Offset: l.End, Epoch: epoch})
	return nil
}

// EpochOf returns the position of an offset: with the epoch that it was written under.
func (l *Log) EpochOf(offset int64) Position {
	epoch := int32(-1)
	for _, e := range l.Epochs {
		if e.Offset <= offset {
			epoch = e.Epoch
		}
	}
	return Position{Offset: offset, Epoch: epoch}
}

// rollAfter is the segment.ms of logs that are rolled with Roll: longer than any test.
const rollAfter = 10 * time.Minute

// Roll has the next append begin a new segment, without waiting: its records, and those
// after them, bear timestamps that are later than those before by more than rollAfter,
// which must be the topic's segment.ms. Brokers take timestamps up to an hour ahead
// (message.timestamp.after.max.ms).
func (l *Log) Roll() { l.ahead += rollAfter + time.Minute }

// Append produces records of valueSize bytes, uncompressed, and checks that they got the
// offsets that follow.
func (l *Log) Append(ctx context.Context, records, valueSize int) error {
	cl, err := l.cluster.own()
	if err != nil {
		return err
	}
	return l.append(ctx, cl, records, valueSize)
}

func (l *Log) append(ctx context.Context, cl *kgo.Client, records, valueSize int) error {
	if err := l.noteEpoch(ctx); err != nil {
		return err
	}
	batch := make([]*kgo.Record, records)
	now := time.Now().Add(l.ahead)
	for i := range batch {
		batch[i] = &kgo.Record{Topic: l.Topic, Partition: 0, Value: make([]byte, valueSize), Timestamp: now}
	}
	for i, r := range cl.ProduceSync(ctx, batch...) {
		if r.Err != nil {
			return fmt.Errorf("produce to %s: %w", l.Topic, r.Err)
		}
		if want := l.End + int64(i); r.Record.Offset != want {
			return fmt.Errorf("produce to %s: record %d got offset %d, not %d", l.Topic, i, r.Record.Offset, want)
		}
	}
	if l.LastStable == l.End {
		l.LastStable += int64(records)
	}
	l.End += int64(records)
	return nil
}

// AppendOpen appends records in a transaction that stays open until CommitOpen, or for
// the 15 minutes that the broker allows (transaction.max.timeout.ms).
func (l *Log) AppendOpen(ctx context.Context, records, valueSize int) error {
	cl, err := l.cluster.Client(kgo.TransactionalID(l.Topic), kgo.TransactionTimeout(15*time.Minute))
	if err != nil {
		return err
	}
	l.producer = cl
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	begin := l.End
	if err := l.append(ctx, cl, records, valueSize); err != nil {
		return err
	}
	l.LastStable = min(begin, l.LastStable)
	return nil
}

// CloseProducer ends the client of an open transaction and leaves the transaction open.
func (l *Log) CloseProducer() {
	if l.producer != nil {
		l.producer.Close()
		l.producer = nil
	}
}

// DeleteRecordsBefore moves the log start offset.
func (l *Log) DeleteRecordsBefore(ctx context.Context, offset int64) error {
	cl, err := l.cluster.own()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: l.Topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: offset}}}}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("delete records of %s: %w", l.Topic, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("delete records of %s before %d: %w", l.Topic, offset, err)
			}
			if p.LowWatermark != offset {
				return fmt.Errorf("delete records of %s before %d: the log now starts at %d", l.Topic, offset, p.LowWatermark)
			}
		}
	}
	l.LogStart = offset
	return nil
}

// AlterConfigs sets configs of the topic and leaves the others alone.
func (l *Log) AlterConfigs(ctx context.Context, configs map[string]string) error {
	return l.cluster.AlterTopicConfigs(ctx, l.Topic, configs)
}

// AlterTopicConfigs sets configs of a topic and leaves the others alone.
func (c *Cluster) AlterTopicConfigs(ctx context.Context, topic string, configs map[string]string) error {
	cl, err := c.own()
	if err != nil {
		return err
	}
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{
			Name: key, Op: kmsg.IncrementalAlterConfigOpSet, Value: kmsg.StringPtr(configs[key]),
		})
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("configs of %s: %w", topic, err)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("configs of %s: %w (%s)", topic, err, deref(r.ErrorMessage))
		}
	}
	return nil
}

// Lookups are the four answers that the -6 answer is composed from.
type Lookups struct{ Start, Local, Tiered, Last Position }

// String names the timestamps, as the vectors table does.
func (k Lookups) String() string {
	return fmt.Sprintf("-2: %v, -4: %v, -5: %v, -1: %v", k.Start, k.Local, k.Tiered, k.Last)
}

// Lookups asks the leader, as a consumer that reads uncommitted records. Where the broker
// has no -5 (Kafka 3.6 to 3.8), Tiered is what the folder of the remote storage holds.
func (l *Log) Lookups(ctx context.Context) (Lookups, error) {
	var k Lookups
	old := l.cluster.withoutLatestTiered()
	if old {
		d, err := l.Disk()
		if err != nil {
			return Lookups{}, err
		}
		if k.Tiered = NoPosition; d.HighestUploaded() >= 0 {
			k.Tiered = l.EpochOf(d.HighestUploaded())
		}
	}
	for _, ask := range []struct {
		timestamp int64
		into      *Position
	}{{codec.EarliestLocalTimestamp, &k.Local}, {codec.EarliestTimestamp, &k.Start}, {codec.LatestTieredTimestamp, &k.Tiered}, {codec.LatestTimestamp, &k.Last}} {
		if old && ask.timestamp == codec.LatestTieredTimestamp {
			continue
		}
		of, err := l.cluster.ListOffsets(ctx, []string{l.Topic}, []int32{0}, ask.timestamp)
		if err != nil {
			return Lookups{}, err
		}
		*ask.into = of[l.Topic][0]
	}
	return k, nil
}

// Await waits until the broker's look-ups, and what the disk holds, are as cond wants.
func (l *Log) Await(ctx context.Context, what string, cond func(Lookups, Disk) error) error {
	return Poll(ctx, l.Topic+": "+what, func(ctx context.Context) error {
		k, err := l.Lookups(ctx)
		if err != nil {
			return err
		}
		d, err := l.Disk()
		if err != nil {
			return err
		}
		l.HighestUploaded = max(l.HighestUploaded, d.HighestUploaded())
		if err := cond(k, d); err != nil {
			return fmt.Errorf("%w; look-ups %v; disk %v", err, k, d)
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

func deref(s *string) string {
	if s == nil {
		return "no message"
	}
	return *s
}

// DeleteTopic deletes a topic, and waits until the broker knows it no more.
func (c *Cluster) DeleteTopic(ctx context.Context, topic string) error {
	cl, err := c.own()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.TopicNames, req.Topics = []string{topic}, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("delete topic %s: %w (%s)", topic, err, deref(t.ErrorMessage))
		}
	}
	return Poll(ctx, "the end of topic "+topic, func(ctx context.Context) error {
		if _, _, err := c.LeaderEpoch(ctx, topic); err == nil {
			return errNotYet
		}
		return nil
	})
}
