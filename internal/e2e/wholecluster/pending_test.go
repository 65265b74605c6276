// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// pendingPartitions of a tiered topic.
const pendingPartitions = 4

// pendingTopic is a tiered topic whose log is changed while it is asked for -6.
type pendingTopic struct {
	*whole
	name     string
	leaders  []int32
	active   [pendingPartitions]int64 // where the active segments begin
	producer *kgo.Client
}

// createPending creates the topic, empty, with a replica on every node.
func createPending(t *testing.T, ctx context.Context, w *whole, name string) *pendingTopic {
	t.Helper()
	must(t, w.cluster.CreateTopic(ctx, name, pendingPartitions, nodes, map[string]string{
		"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "2097152",
	}))
	producer, err := w.cluster.Client(kgo.ProducerLinger(20 * time.Millisecond))
	must(t, err)
	t.Cleanup(producer.Close)
	p := &pendingTopic{whole: w, name: name, leaders: shifted(0, pendingPartitions, name)[name], producer: producer}
	w.moveLeaders(t, ctx, leaders{name: p.leaders})
	return p
}

// appendSegment adds 600 KB in one batch, of which two do not fit into a segment: so each
// begins a new one. The segment before the last must be uploaded first, or deleted: then
// no more than one is uploaded at a time, and no answer lies between two samples.
func (p *pendingTopic) appendSegment(t *testing.T, ctx context.Context, partition int32) {
	t.Helper()
	p.awaitUpload(t, ctx, partition)
	var batch []*kgo.Record
	for range 6 {
		batch = append(batch, &kgo.Record{Topic: p.name, Partition: partition, Value: make([]byte, 100_000)})
	}
	results := p.producer.ProduceSync(ctx, batch...)
	must(t, results.FirstErr())
	p.active[partition] = results[0].Record.Offset
}

// awaitUpload waits until all of a partition but the active segment is in the remote
// storage, or deleted.
func (p *pendingTopic) awaitUpload(t *testing.T, ctx context.Context, partition int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	must(t, kafka.Poll(ctx, fmt.Sprintf("an upload of %s-%d", p.name, partition), func(context.Context) error {
		tiered, start := p.lookup(t, ctx, partition, codec.LatestTieredTimestamp), p.lookup(t, ctx, partition, codec.EarliestTimestamp)
		if tiered+1 < p.active[partition] && start < p.active[partition] {
			return fmt.Errorf("uploaded up to %d, deleted before %d, and the active segment begins at %d", tiered, start, p.active[partition])
		}
		return nil
	}))
}

// appendSmall adds a record of a few bytes.
func (p *pendingTopic) appendSmall(t *testing.T, ctx context.Context, partition int32) {
	t.Helper()
	must(t, p.producer.ProduceSync(ctx, &kgo.Record{Topic: p.name, Partition: partition, Value: []byte("small")}).FirstErr())
}

// move has the next node lead a partition.
func (p *pendingTopic) move(t *testing.T, ctx context.Context, partition int32) {
	t.Helper()
	p.leaders[partition] = p.leaders[partition]%nodes + 1
	p.moveLeaders(t, ctx, leaders{p.name: p.leaders})
}

// deleteTo deletes the records before an offset; -1 is all.
func (p *pendingTopic) deleteTo(t *testing.T, ctx context.Context, partition int32, offset int64) {
	t.Helper()
	until := make(kadm.Offsets)
	until.AddOffset(p.name, partition, offset, -1)
	resp, err := p.admin.DeleteRecords(ctx, until)
	must(t, errors.Join(err, resp.Error()))
}

// lookup asks the leader for a place in a partition.
func (p *pendingTopic) lookup(t *testing.T, ctx context.Context, partition int32, timestamp int64) int64 {
	t.Helper()
	found, err := p.cluster.ListOffsets(ctx, []string{p.name}, []int32{partition}, timestamp)
	must(t, err)
	return found[p.name][partition].Offset
}

// step changes one partition in one way.
func (p *pendingTopic) step(t *testing.T, ctx context.Context, random *rand.Rand, partition int32) {
	t.Helper()
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		p.appendSegment(t, ctx, partition)
	case 9:
		p.appendSmall(t, ctx, partition)
	case 4, 5, 6:
		p.move(t, ctx, partition)
	case 7:
		start, last := p.lookup(t, ctx, partition, codec.EarliestTimestamp), p.lookup(t, ctx, partition, codec.LatestTimestamp)
		p.deleteTo(t, ctx, partition, start+random.Int64N(last-start+1))
	case 8:
		p.deleteTo(t, ctx, partition, -1)
	}
}

// testPending changes logs, moves leaders and deletes records, one thing at a time, while
// every node is asked for -6 of all partitions all the time, and uploads run as they do.
func testPending(t *testing.T, ctx context.Context, w *whole, name string) {
	const steps = 60
	p := createPending(t, ctx, w, name)
	s := startAskers(t, ctx, w, name, pendingPartitions, false)
	random := rand.New(rand.NewPCG(6, 1023))
	for i := range steps {
		p.step(t, ctx, random, int32(i%pendingPartitions))
		s.awaitRounds(t, ctx)
	}
	seen := s.end(t)
	compared := reportAnswers(t, seen)
	if offsets := distinctOffsets(seen); offsets < 12 || seen[failed(notLeaderCode)] == 0 || seen[answer{0, kafka.NoPosition}] == 0 {
		t.Errorf("%d answers with %d different offsets, %d times NOT_LEADER_OR_FOLLOWER, %d times nothing pending: too few of a kind for a test",
			compared, offsets, seen[failed(notLeaderCode)], seen[answer{0, kafka.NoPosition}])
	}
}

// reportAnswers shows what kinds of answers there were, and returns their number. Errors
// other than those that tell a client to look for the leader or to come again are faults.
func reportAnswers(t *testing.T, seen map[answer]int) int {
	t.Helper()
	total, none := 0, 0
	codes := make(map[int16]int)
	for a, n := range seen {
		total += n
		codes[a.code] += n
		if a.code == 0 && a.Offset < 0 {
			none += n
		}
	}
	t.Logf("%d answers: %d different offsets, %d times nothing pending, error codes %v", total, distinctOffsets(seen), none, codes)
	for code, n := range codes {
		switch code {
		case 0, 3, 5, 6, 9, 78: // UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE
		default:
			t.Errorf("%d answers with error code %d", n, code)
		}
	}
	return total
}

func distinctOffsets(seen map[answer]int) int {
	n := 0
	for a := range seen {
		if a.code == 0 && a.Offset >= 0 {
			n++
		}
	}
	return n
}
