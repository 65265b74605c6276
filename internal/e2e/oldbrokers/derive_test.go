// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
	"tiergate/upstream"
)

// derived is a highest tiered offset, or -1.
type derived struct {
	offset int64
	// unlimited is what was uploaded of the epoch that decides, also where the epoch ends
	// before that in the log: Kafka 3.6 does not limit it to the epoch's end.
	unlimited int64
}

// derive returns the highest tiered offset of a partition of a tiered topic, from what the
// reader knows and from requests to the leader, one at a time.
func derive(ctx context.Context, conn *kafka.Conn, reader *upstream.Cluster, topic string, p upstream.TopicPartition) (derived, error) {
	start, err := listOffset(ctx, conn, topic, p.Partition, codec.EarliestTimestamp)
	if err != nil {
		return derived{}, err
	}
	last, err := listOffset(ctx, conn, topic, p.Partition, codec.LatestTimestamp)
	if err != nil {
		return derived{}, err
	}
	if err := reader.AwaitTiered(ctx, []upstream.TopicPartition{p}); err != nil {
		return derived{}, fmt.Errorf("%w; %w", err, reader.TieredOffsetsReady())
	}
	highest, known := reader.HighestTiered(p)
	if !known || highest.Cut {
		return derived{}, fmt.Errorf("%s-%d is not known", topic, p.Partition)
	}
	for _, e := range highest.Epochs {
		if e.Epoch > last.Epoch {
			continue
		}
		epoch, end, err := epochEnd(ctx, conn, topic, p.Partition, e.Epoch)
		if err != nil {
			return derived{}, err
		}
		if epoch == e.Epoch && (end > start.Offset || epoch == last.Epoch) {
			return derived{offset: min(e.Offset, end-1), unlimited: e.Offset}, nil
		}
	}
	return derived{offset: -1, unlimited: -1}, nil
}

// listOffset asks at version 8, which every broker here has.
func listOffset(ctx context.Context, conn *kafka.Conn, topic string, partition int32, timestamp int64) (kafka.Position, error) {
	return listOffsetAt(ctx, conn, 8, topic, partition, timestamp)
}

func listOffsetAt(ctx context.Context, conn *kafka.Conn, version int16, topic string, partition int32, timestamp int64) (kafka.Position, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := conn.Request(ctx, req)
	if err != nil {
		return kafka.Position{}, err
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return kafka.Position{Offset: got.Offset, Epoch: got.LeaderEpoch}, kerr.ErrorForCode(got.ErrorCode)
}

func epochEnd(ctx context.Context, conn *kafka.Conn, topic string, partition, leaderEpoch int32) (epoch int32, end int64, err error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, -1, leaderEpoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := conn.Request(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	got := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	return got.LeaderEpoch, got.EndOffset, kerr.ErrorForCode(got.ErrorCode)
}

// must ends the test when there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
