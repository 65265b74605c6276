// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// segmentMillis is segment.ms: a record that is younger than the first one of the active
// segment by more begins a new segment. Topics here roll by their records' timestamps,
// never by size or waiting, so that every segment ends where it should.
const segmentMillis = 10 * 60 * 1000

// Shape is how much a topic holds.
type Shape struct {
	// ValueSize is the size of a record's value in bytes, at least 8.
	ValueSize int `json:"value_bytes"`
	// BatchRecords are the records of a batch.
	BatchRecords int `json:"batch_records"`
	// SegmentBatches are the batches of a full segment, and twice those of the active one
	// unless ActiveBatches says otherwise.
	SegmentBatches int `json:"segment_batches"`
	ActiveBatches  int `json:"active_batches"`
	// DeletedSegments are uploaded and gone locally, where the case deletes any.
	DeletedSegments int `json:"deleted_segments"`
	// LocalSegments are uploaded and still local.
	LocalSegments int `json:"local_segments"`
}

// Small is the shape of the table and of the tests: segments of 100 records and 100 KiB.
func Small() Shape {
	return Shape{ValueSize: 1000, BatchRecords: 10, SegmentBatches: 10, ActiveBatches: 5, DeletedSegments: 2, LocalSegments: 3}
}

// Headline is 256 MiB that are uploaded and still local, 64 MiB that are uploaded only, and
// 4 MiB that are not uploaded yet, in segments of 16 MiB.
func Headline() Shape {
	return Shape{ValueSize: 16*1024 - 16, BatchRecords: 16, SegmentBatches: 64, ActiveBatches: 16, DeletedSegments: 4, LocalSegments: 16}
}

// batchBytes is the size of a batch.
func (s Shape) batchBytes() int64 {
	return int64(len(written{records: s.BatchRecords, valueSize: s.ValueSize}.appendTo(nil)))
}

// segmentRecords are the records of a full segment.
func (s Shape) segmentRecords() int64 { return int64(s.BatchRecords * s.SegmentBatches) }

// uploaded is the offset after the full segments, all of which are uploaded in the end.
func (s Shape) uploaded() int64 { return s.segmentRecords() * int64(s.DeletedSegments+s.LocalSegments) }

// local is the first offset of the first local segment where segments were deleted.
func (s Shape) local() int64 { return s.segmentRecords() * int64(s.DeletedSegments) }

// active are the records of the active segment.
func (s Shape) active() int64 { return int64(s.BatchRecords * s.ActiveBatches) }

// end is the log end offset.
func (s Shape) end() int64 { return s.uploaded() + s.active() }

// within is an offset in the middle of a batch, in the last segment of those that may be
// deleted.
func (s Shape) within() int64 { return s.local() - s.segmentRecords()/2 + int64(s.BatchRecords/2) }

// localRetention are the local.retention.bytes that keep the local segments and the active
// one, exactly.
func (s Shape) localRetention() string {
	return strconv.FormatInt(s.batchBytes()*int64(s.SegmentBatches*s.LocalSegments+s.ActiveBatches), 10)
}

// Topic is a topic of one partition. It knows every byte of the leader's log.
type Topic struct {
	// Name of the topic.
	Name  string
	Shape Shape
	// LogStart is the offset that records were deleted before.
	LogStart int64

	cluster  *kafka.Cluster
	producer *Peers
	batches  []written
	now      time.Time // timestamp of the next batch
}

// newTopic creates the topic with its replicas on the given nodes; the first one leads.
func newTopic(ctx context.Context, cluster *kafka.Cluster, name string, shape Shape, nodes []int32, configs map[string]string) (*Topic, error) {
	t := &Topic{Name: name, Shape: shape, cluster: cluster, now: time.Now().Add(-24 * time.Hour)}
	t.producer = &Peers{Bootstrap: cluster.Node(nodes[0]).Address(), Topic: name, As: Identity{NodeID: -1, BrokerEpoch: -1}}
	cl, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	topic.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: nodes}}
	all := map[string]string{"segment.ms": strconv.Itoa(segmentMillis), "retention.ms": "-1", "min.insync.replicas": "1"}
	maps.Copy(all, configs)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: kmsg.StringPtr(all[key])})
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("create topic %s: %w", name, err)
	}
	if got := resp.Topics[0]; got.ErrorCode != 0 {
		return nil, fmt.Errorf("create topic %s: %w (%v)", name, kerr.ErrorForCode(got.ErrorCode), got.ErrorMessage)
	}
	return t, nil
}

// close ends the topic's connections.
func (t *Topic) close() { t.producer.Close() }

// End is the log end offset.
func (t *Topic) End() int64 {
	if len(t.batches) == 0 {
		return 0
	}
	return t.batches[len(t.batches)-1].next()
}

// bytesOf is the size of the batches in the leader's log that hold [from, End).
func (t *Topic) bytesOf(from int64) int64 {
	var n int64
	for _, w := range t.batches {
		if w.next() > from {
			n += t.Shape.batchBytes()
		}
	}
	return n
}

// roll has the next batch begin a new segment.
func (t *Topic) roll() { t.now = t.now.Add((segmentMillis + 60_000) * time.Millisecond) }

// segments appends full segments and rolls after each.
func (t *Topic) segments(ctx context.Context, n int) error {
	for range n {
		if err := t.append(ctx, t.Shape.SegmentBatches); err != nil {
			return err
		}
		t.roll()
	}
	return nil
}

// append produces batches.
func (t *Topic) append(ctx context.Context, batches int) error {
	leader, epoch, err := t.producer.Leader(ctx)
	if err != nil {
		return err
	}
	for range batches {
		w := written{first: t.End(), records: t.Shape.BatchRecords, valueSize: t.Shape.ValueSize, epoch: epoch, timestamp: t.now.UnixMilli()}
		if err := t.produce(ctx, leader.(*remoteLeader), w); err != nil {
			return fmt.Errorf("produce to %s at %d: %w", t.Name, w.first, err)
		}
		t.batches = append(t.batches, w)
	}
	return nil
}

// produce sends one batch and checks its offset. A leader may not know yet that it leads.
func (t *Topic) produce(ctx context.Context, leader *remoteLeader, w written) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	partition := kmsg.ProduceRequestTopicPartition{Records: w.produced()}
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: t.Name, TopicID: leader.topicID, Partitions: []kmsg.ProduceRequestTopicPartition{partition}}}
	return kafka.Poll(ctx, "a leader that takes records", func(ctx context.Context) error {
		resp, err := leader.session.request(ctx, req)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if got.ErrorCode == 0 && got.BaseOffset != w.first {
			return fmt.Errorf("got offset %d, not %d", got.BaseOffset, w.first)
		}
		return kerr.ErrorForCode(got.ErrorCode)
	})
}

// deleteBefore moves the log start offset.
func (t *Topic) deleteBefore(ctx context.Context, offset int64) error {
	cl, err := t.cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: t.Name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}}}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("delete records of %s: %w", t.Name, err)
	}
	if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.LowWatermark != offset {
		return fmt.Errorf("delete records of %s before %d: the log starts at %d (%w)", t.Name, offset, got.LowWatermark, kerr.ErrorForCode(got.ErrorCode))
	}
	t.LogStart = offset
	return nil
}

// elect has another node lead, by making it the preferred one.
func (t *Topic) elect(ctx context.Context, nodes ...int32) error {
	cl, err := t.cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	order := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	order.TimeoutMillis = 30_000
	order.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{
		Topic: t.Name, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: nodes}},
	}}
	if _, err := order.RequestWith(ctx, cl); err != nil {
		return fmt.Errorf("reassign %s: %w", t.Name, err)
	}
	return kafka.Poll(ctx, fmt.Sprintf("node %d leads %s", nodes[0], t.Name), func(ctx context.Context) error {
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.TimeoutMillis = 30_000
		elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: t.Name, Partitions: []int32{0}}}
		if _, err := elect.RequestWith(ctx, cl); err != nil {
			return err
		}
		_, partition, err := t.producer.metadata(ctx)
		if err == nil && partition.Leader != nodes[0] {
			err = fmt.Errorf("node %d leads", partition.Leader)
		}
		return err
	})
}

// offsets are the answers that tell a tiered log's state.
type offsets struct{ start, local, tiered, last int64 }

// await waits until the leader says so.
func (t *Topic) await(ctx context.Context, want offsets) error {
	return kafka.Poll(ctx, fmt.Sprintf("%s: %+v", t.Name, want), func(ctx context.Context) error {
		leader, epoch, err := t.producer.Leader(ctx)
		if err != nil {
			return err
		}
		var got offsets
		for _, ask := range []struct {
			timestamp int64
			into      *int64
		}{
			{codec.EarliestTimestamp, &got.start},
			{codec.EarliestLocalTimestamp, &got.local},
			{codec.LatestTieredTimestamp, &got.tiered},
			{codec.LatestTimestamp, &got.last},
		} {
			at, err := leader.ListOffset(ctx, epoch, ask.timestamp)
			if err != nil {
				return err
			}
			*ask.into = at.Offset
		}
		if got != want {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}
