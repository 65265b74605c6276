// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
	"tiergate/upstream"
)

// live are versions whose brokers have -5, or -6 too.
var live = flag.String("live", kafka.Kafka43, "versions of Kafka with -5, comma-separated")

// TestTieredOffsetsBesideLatestTiered compares with what brokers answer themselves: -5, and
// from Kafka 4.2 on -6.
func TestTieredOffsetsBesideLatestTiered(t *testing.T) {
	for version := range strings.SplitSeq(*live, ",") {
		t.Run(version, func(t *testing.T) {
			ctx := testContext(t)
			b := newBench(t, version)
			logs, err := b.cluster.BuildLogStates(ctx, "state", kafka.LogStates())
			must(t, err)
			total := liveCount{}
			b.compareLive(t, ctx, logs, &total)
			for range 2 {
				must(t, b.cluster.Restart(ctx))
				must(t, kafka.AwaitSettled(ctx, logs))
				b.compareLive(t, ctx, logs, &total)
			}
			t.Logf("Kafka %s: %+v", version, total)
		})
	}
}

// liveCount counts comparisons, and differences by the causes of docs/operations.md.
type liveCount struct{ LatestTiered, PendingUpload, CopyDisabled, DeletedEpochs int }

// compareLive compares every log once.
func (b *bench) compareLive(t *testing.T, ctx context.Context, logs []kafka.StateLog, total *liveCount) {
	t.Helper()
	conn, err := kafka.Dial(ctx, b.cluster.Node(1).Address(), "compare")
	must(t, err)
	defer conn.Close()
	for _, l := range logs {
		tier := int64(-1)
		if l.Tiered() { // as the proxy asks for the status first
			d, err := derive(ctx, conn, b.reader, l.Topic, upstream.TopicPartition{TopicID: b.idOf(t, ctx, l.Topic)})
			must(t, err)
			tier = d.offset
		}
		start, err := listOffset(ctx, conn, l.Topic, 0, codec.EarliestTimestamp)
		must(t, err)
		answered, err := listOffsetAt(ctx, conn, 9, l.Topic, 0, codec.LatestTieredTimestamp)
		must(t, err)
		total.LatestTiered++
		switch {
		case answered.Offset == tier:
		case l.State.Name == kafka.CopyingSwitchedOff && answered.Offset == -1:
			total.CopyDisabled++
			continue
		case tier == -1 && answered.Offset < start.Offset:
			total.DeletedEpochs++
		default:
			t.Errorf("log state %q: derived %d, -5 is %v", l.State.Name, tier, answered)
		}
		if b.cluster.Jars().Version != kafka.Kafka43 {
			continue
		}
		native, err := listOffsetAt(ctx, conn, 11, l.Topic, 0, codec.EarliestPendingUploadTimestamp)
		must(t, err)
		total.PendingUpload++
		if got := b.pendingUpload(t, ctx, conn, l, tier); got != native.Offset {
			t.Errorf("log state %q: -6 from the derived %d is %d, native %v", l.State.Name, tier, got, native)
		}
	}
}

// pendingUpload applies the rules of the -6 specification to a highest tiered offset.
func (b *bench) pendingUpload(t *testing.T, ctx context.Context, conn *kafka.Conn, l kafka.StateLog, tier int64) int64 {
	t.Helper()
	at := map[int64]int64{}
	for _, timestamp := range []int64{codec.EarliestLocalTimestamp, codec.EarliestTimestamp, codec.LatestTimestamp} {
		p, err := listOffset(ctx, conn, l.Topic, 0, timestamp)
		must(t, err)
		at[timestamp] = p.Offset
	}
	local, start, last := at[codec.EarliestLocalTimestamp], at[codec.EarliestTimestamp], at[codec.LatestTimestamp]
	x := max(tier+1, start)
	if tier < 0 && (!l.Tiered() || local > start) || x >= last {
		return -1
	}
	return x
}

// idOf asks for the id of a topic.
func (b *bench) idOf(t *testing.T, ctx context.Context, topic string) [16]byte {
	t.Helper()
	id, err := b.cluster.TopicID(ctx, topic)
	if err != nil {
		t.Fatal(fmt.Errorf("id of %s: %w", topic, err))
	}
	return id
}
