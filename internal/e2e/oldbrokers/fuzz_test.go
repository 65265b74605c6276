// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/kafka"
)

const (
	metadataTopic = "__remote_log_metadata"
	metadataCount = 3 // its partitions, as the launcher has them
)

// Each round compares every partition once, after a restart of the broker.
var (
	rounds            = flag.Int("rounds", 2, "restarts of random histories")
	historyPartitions = flag.Int("histories", 100, "partitions with random histories")
)

// TestRandomHistoriesBesideTheLeader writes random histories of segments into the metadata
// topic: unfinished, deleted, overlapping, of foreign epochs, with ends beyond the log. A
// restarted broker reads the same records, and says what it makes of them.
func TestRandomHistoriesBesideTheLeader(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ctx := testContext(t)
		b := newBench(t, version)
		const topic = "histories"
		must(t, b.cluster.CreateTopic(ctx, topic, int32(*historyPartitions), 1, map[string]string{
			"remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1", "local.retention.ms": "-1",
		}))
		id := b.idOf(t, ctx, topic)
		rng := rand.New(rand.NewPCG(1, 2))
		ends := make([]int64, *historyPartitions)
		for round := range *rounds {
			b.grow(t, ctx, rng, topic, ends)
			b.write(t, ctx, randomHistories(rng, id, ends, int32(2*round+2)))
			must(t, b.cluster.Restart(ctx))
			b.awaitTasks(t, ctx, *historyPartitions, looked)
			b.compare(t, ctx, "random histories, restarted", noCause)
		}
		b.summary(t)
	})
}

// awaitTasks waits until the copy tasks of so many partitions have looked for their highest
// offset, and found what done wants.
func (b *bench) awaitTasks(t *testing.T, ctx context.Context, partitions int, done func(kafka.TieredInMemory) bool) {
	t.Helper()
	must(t, kafka.Poll(ctx, "copy tasks", func(ctx context.Context) error {
		memory, err := b.memory(ctx)
		if err != nil {
			return err
		}
		n := 0
		for _, of := range memory {
			for _, m := range of {
				if m.Task != nil && done(m) {
					n++
				}
			}
		}
		if n < partitions {
			return fmt.Errorf("%d of %d have", n, partitions)
		}
		return nil
	}))
}

// looked is any result of a copy task.
func looked(kafka.TieredInMemory) bool { return true }

// grow appends records to every partition, so that the epochs of the log differ.
func (b *bench) grow(t *testing.T, ctx context.Context, rng *rand.Rand, topic string, ends []int64) {
	t.Helper()
	var records []*kgo.Record
	for partition := range ends {
		n := rng.IntN(12)
		ends[partition] += int64(n)
		for range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte("x")})
		}
	}
	b.produce(t, ctx, records)
}

// produce uses a client of its own: one that has met a topic before it was deleted knows
// its old id.
func (b *bench) produce(t *testing.T, ctx context.Context, records []*kgo.Record) {
	t.Helper()
	client, err := b.cluster.Client()
	must(t, err)
	defer client.Close()
	must(t, client.ProduceSync(ctx, records...).FirstErr())
}

// write writes events into the metadata topic, in their order for each partition.
func (b *bench) write(t *testing.T, ctx context.Context, events []tierlog.RemoteEvent) {
	t.Helper()
	var records []*kgo.Record
	for _, e := range events {
		records = append(records, &kgo.Record{
			Topic: metadataTopic, Partition: metadataPartition(e.Segment.TopicID, e.Segment.Partition), Value: e.Value(),
		})
	}
	b.produce(t, ctx, records)
}

// metadataPartition is RemoteLogMetadataTopicPartitioner, with franz-go's murmur2: not with
// the one that is tested.
func metadataPartition(id [16]byte, partition int32) int32 {
	hash := int32(1)
	for _, bits := range []uint64{binary.BigEndian.Uint64(id[8:]), binary.BigEndian.Uint64(id[:8])} {
		hash = 31*hash + int32(bits^bits>>32)
	}
	hash = 31*hash + partition
	key := binary.BigEndian.AppendUint32(nil, uint32(hash))
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic(metadataTopic).Partition(&kgo.Record{Key: key}, metadataCount))
}

// randomHistories returns a few segments for each partition, with whatever became of them.
func randomHistories(rng *rand.Rand, id [16]byte, ends []int64, epochs int32) []tierlog.RemoteEvent {
	var events []tierlog.RemoteEvent
	for partition, end := range ends {
		for range rng.IntN(4) {
			s := tierlog.RemoteSegment{Topic: "histories", TopicID: id, Partition: int32(partition)}
			for i := range s.ID {
				s.ID[i] = byte(rng.Uint32())
			}
			// Not beyond the log: such a log start ends every copy task with an error.
			s.Start = rng.Int64N(max(end, 1))
			s.End = s.Start + rng.Int64N(end+5)
			at, epoch := s.Start, rng.Int32N(epochs+1)
			for range 1 + rng.IntN(3) {
				s.Epochs = append(s.Epochs, tierlog.EpochStart{Epoch: epoch, Offset: at})
				at, epoch = at+rng.Int64N(s.End-at+1), epoch+1+rng.Int32N(2)
			}
			rng.Shuffle(len(s.Epochs), func(i, j int) { s.Epochs[i], s.Epochs[j] = s.Epochs[j], s.Epochs[i] })
			states := []int8{tierlog.CopySegmentStarted, tierlog.CopySegmentFinished, tierlog.DeleteSegmentStarted, tierlog.DeleteSegmentFinished}
			for _, state := range states[:[]int{1, 2, 2, 2, 2, 3, 4}[rng.IntN(7)]] {
				events = append(events, tierlog.RemoteEvent{Segment: s, State: state})
			}
		}
	}
	return events
}
