// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/recorder"
	"tiergate/loadtest/kafka"
)

// The request of many partitions: 200 topics of 10 partitions each, some of them tiered.
const (
	manyTopics     = 200
	manyTiered     = 4
	manyPartitions = 10
	recordsOfEach  = 5 // before a restart, and again after it
	maxCost        = 6 // broker requests for one client request
)

func manyTopic(i int) string { return fmt.Sprintf("many-%03d", i) }

// partitionsOf lists 0 to manyPartitions-1.
func partitionsOf() (all []int32) {
	for p := range int32(manyPartitions) {
		all = append(all, p)
	}
	return all
}

// prepareManyTiered makes the tiered ones of the many topics, and their first records,
// before the broker is restarted.
func prepareManyTiered(t *testing.T, ctx context.Context, s *stand) {
	t.Helper()
	must(t, s.cluster.CreateTopics(ctx, manyNames(0, manyTiered), manyPartitions, 1, map[string]string{
		"remote.storage.enable": "true", "segment.ms": "1000",
	}))
	produceMany(t, ctx, s, manyNames(0, manyTiered), recordsOfEach)
}

// manyNames lists the topics from one number to below another.
func manyNames(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, manyTopic(i))
	}
	return names
}

func produceMany(t *testing.T, ctx context.Context, s *stand, topics []string, each int) {
	t.Helper()
	cl, err := s.cluster.Client()
	must(t, err)
	defer cl.Close()
	var records []*kgo.Record
	for _, topic := range topics {
		for p := range int32(manyPartitions) {
			for range each {
				records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")})
			}
		}
	}
	must(t, cl.ProduceSync(ctx, records...).FirstErr())
}

// finishMany appends to the tiered ones under a later leader epoch. That rolls the
// segments of the first records (segment.ms), which are then uploaded and stay local
// too. The other topics are created, not tiered, with one record in each partition, so
// that only their configs tell that nothing is to be uploaded.
func finishMany(t *testing.T, ctx context.Context, s *stand) {
	t.Helper()
	produceMany(t, ctx, s, manyNames(0, manyTiered), recordsOfEach)
	must(t, s.cluster.CreateTopics(ctx, manyNames(manyTiered, manyTopics), manyPartitions, 1, nil))
	produceMany(t, ctx, s, manyNames(manyTiered, manyTopics), 1)
	must(t, kafka.Poll(ctx, "the upload of the first records", func(ctx context.Context) error {
		of, err := s.cluster.ListOffsets(ctx, manyNames(0, manyTiered), partitionsOf(), codec.LatestTieredTimestamp)
		for topic, partitions := range of {
			for p, at := range partitions {
				if at.Offset != recordsOfEach-1 {
					return fmt.Errorf("%s-%d is uploaded up to %d", topic, p, at.Offset)
				}
			}
		}
		return err
	}))
}

// testManyPartitions asks -6 for 2,000 partitions of 200 topics in one request, and counts
// on the wire what that costs the broker.
func testManyPartitions(t *testing.T, ctx context.Context, s *stand) {
	finishMany(t, ctx, s)
	epoch, _, err := s.cluster.LeaderEpoch(ctx, manyTopic(0))
	must(t, err)
	var wants []want
	for i := range manyTopics {
		for _, p := range partitionsOf() {
			wants = append(wants, want{manyTopic(i), p, codec.EarliestPendingUploadTimestamp, anyEpoch})
		}
	}
	conn := dial(t, ctx, s.directA.Address())
	_, err = conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
	must(t, err)

	describe := int16(kmsg.DescribeConfigs)
	first := askMany(t, ctx, s, conn, wants, epoch)
	described := requestsByKey(t, s.service)[describe]
	second := askMany(t, ctx, s, conn, wants, epoch)
	describedAgain := requestsByKey(t, s.service)[describe] - described
	report(t, "a request of %d partitions of %d topics, all -6: %d broker requests and %d of DescribeConfigs by tiergate's own client; "+
		"asked again, %d and %d", len(wants), manyTopics, first, described, second, describedAgain)
	if first+described > maxCost || second+describedAgain > maxCost {
		t.Errorf("at most %d broker requests are allowed, all connections together", maxCost)
	}
	if described != 1 || describedAgain > 1 { // 1 where the second request came after tiering.status_ttl
		t.Error("the configs of all topics must be described in one request")
	}
	if first < 5 {
		t.Errorf("%d broker requests: the epochs of what is pending cannot have been asked for", first)
	}
}

// askMany sends the request and returns how many requests the broker got for it.
func askMany(t *testing.T, ctx context.Context, s *stand, conn *kafka.Conn, wants []want, epoch int32) int {
	t.Helper()
	session := s.directB.Sessions()[0]
	before := len(session.Frames(recorder.ToBroker))
	resp, err := conn.Request(ctx, listOffsets(11, consumer, readUncommitted, wants...))
	must(t, err)
	cost := len(session.Frames(recorder.ToBroker)) - before
	got := make(map[want]answer)
	for _, a := range answers(resp.(*kmsg.ListOffsetsResponse)) {
		w := want{a.topic, a.partition, codec.EarliestPendingUploadTimestamp, anyEpoch}
		if _, twice := got[w]; twice {
			t.Errorf("%s-%d was answered twice", a.topic, a.partition)
		}
		got[w] = a
	}
	for i, w := range wants {
		right := answer{w.topic, w.partition, 0, -1, kafka.NoPosition}
		if i < manyTiered*manyPartitions {
			right.position = kafka.Position{Offset: recordsOfEach, Epoch: epoch}
		}
		if got[w] != right {
			t.Fatalf("%s-%d: got %+v, want %+v", w.topic, w.partition, got[w], right)
		}
	}
	if len(got) != len(wants) {
		t.Errorf("%d partitions were answered, not %d", len(got), len(wants))
	}
	return cost
}

// requestsByKey counts the requests of all sessions of a recorder.
func requestsByKey(t *testing.T, r *recorder.Recorder) map[int16]int {
	t.Helper()
	counts := make(map[int16]int)
	for _, session := range r.Sessions() {
		exchanges, err := session.Exchanges()
		must(t, err)
		for _, e := range exchanges {
			counts[e.Key()]++
		}
	}
	return counts
}
