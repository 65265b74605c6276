// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/recorder"
	"tiergate/loadtest/kafka"
)

// differential asks the same broker twice, through tiergate that always synthesises and
// directly, and compares the whole answers, byte by byte but for the throttle time.
type differential struct {
	proxied, native *kafka.Conn
	comparisons     int
	different       int
	repeated        int // because a look-up by time timed out in the broker
}

// maxShown bounds the failures that are printed.
const maxShown = 20

// compare sends a request both ways, one after the other.
func (d *differential) compare(t *testing.T, ctx context.Context, what string, req *kmsg.ListOffsetsRequest) {
	t.Helper()
	d.comparisons++
	got, want := ask(t, ctx, d.proxied, req), ask(t, ctx, d.native, req)
	for tries := 1; tries < 3 && (d.remoteReadTimedOut(t, req, got) || d.remoteReadTimedOut(t, req, want)); tries++ {
		d.repeated++
		got, want = ask(t, ctx, d.proxied, req), ask(t, ctx, d.native, req)
	}
	if bytes.Equal(got, want) {
		return
	}
	d.different++
	if d.different > maxShown {
		return
	}
	t.Errorf("%s:\nthrough tiergate %+v\nnative           %+v\n%x\n%x",
		what, answers(decoded(t, req, got)), answers(decoded(t, req, want)), got, want)
}

// remoteReadTimedOut says whether a look-up by time in the remote storage ended in
// REQUEST_TIMED_OUT, which a busy broker answers now and then, with or without a proxy
// (DelayedRemoteListOffsets). It says nothing of the log, so the request is repeated.
func (d *differential) remoteReadTimedOut(t *testing.T, req *kmsg.ListOffsetsRequest, frame []byte) bool {
	t.Helper()
	timedOut := make(map[string]bool)
	for _, a := range answers(decoded(t, req, frame)) {
		if a.errorCode == kerr.RequestTimedOut.Code {
			timedOut[a.topic] = true
		}
	}
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			byTime := p.Timestamp >= 0 || p.Timestamp == codec.MaxTimestamp
			if byTime && timedOut[topic.Topic] {
				return true
			}
		}
	}
	return false
}

// decoded decodes a ListOffsets answer.
func decoded(t *testing.T, req *kmsg.ListOffsetsRequest, frame []byte) *kmsg.ListOffsetsResponse {
	t.Helper()
	resp, err := kafka.DecodeResponse(int16(kmsg.ListOffsets), req.Version, frame)
	must(t, err)
	return resp.(*kmsg.ListOffsetsResponse)
}

// ask returns the raw answer with correlation id and throttle time set to 0, after a
// check of the correlation id. The throttle time is the first field of the body, after
// the empty tag section of the header.
func ask(t *testing.T, ctx context.Context, c *kafka.Conn, req *kmsg.ListOffsetsRequest) []byte {
	t.Helper()
	ids, err := c.Send(ctx, req)
	must(t, err)
	frame, err := c.Receive(ctx)
	must(t, err)
	if got := codec.ResponseCorrelationID(frame); got != ids[0] {
		t.Fatalf("correlation id %d came back as %d: %x", ids[0], got, frame)
	}
	codec.PutResponseCorrelationID(frame, 0)
	body, err := codec.ResponseBody(frame, codec.Flexible)
	must(t, err)
	binary.BigEndian.PutUint32(frame[body:], 0)
	return frame
}

// round compares everything once, on new connections: after a restart of the broker the
// old ones are gone.
func (d *differential) round(t *testing.T, ctx context.Context, s *stand, rng *rand.Rand) {
	t.Helper()
	d.proxied, d.native = dial(t, ctx, s.directA.Address()), dial(t, ctx, s.cluster.Node(nodeID).Address())
	epochs := make(map[string]int32)
	for _, l := range s.logs {
		epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
		must(t, err)
		epochs[l.Topic] = epoch
	}
	d.states(t, ctx, s, epochs)
	d.errors(t, ctx, s)
	d.mixes(t, ctx, s, epochs, rng)
	d.checkSynthesised(t, ctx, s)
}

// checkSynthesised makes sure that the answers were composed: no -6 reached the broker
// through tiergate, which this broker would have answered itself.
func (d *differential) checkSynthesised(t *testing.T, ctx context.Context, s *stand) {
	t.Helper()
	d.proxied.Close()
	must(t, s.directB.AwaitEnd(ctx))
	lookups := 0
	for _, session := range s.directB.Sessions() {
		for _, f := range session.Frames(recorder.ToBroker) {
			req, err := kafka.DecodeRequest(f.Bytes)
			must(t, err)
			list, ok := req.(*kmsg.ListOffsetsRequest)
			if !ok {
				continue
			}
			lookups++
			for _, topic := range list.Topics {
				for _, p := range topic.Partitions {
					if p.Timestamp == codec.EarliestPendingUploadTimestamp {
						t.Fatalf("tiergate passed -6 on: %x", f.Bytes)
					}
				}
			}
		}
	}
	if want := 4 * len(s.logs); lookups < want {
		t.Fatalf("tiergate made %d look-ups, which is too few to be true", lookups)
	}
	s.directB.Forget()
	s.directA.Forget()
}

// replicaIDs are a consumer, Kafka's debugging consumer, the broker itself, and a broker
// that there is not. The last two may ask without ClusterAction here: an authorizer
// would want it, and there is none.
var replicaIDs = []int32{consumer, -2, nodeID, 7}

// states compares -6 alone, for every log, reader and current leader epoch.
func (d *differential) states(t *testing.T, ctx context.Context, s *stand, epochs map[string]int32) {
	t.Helper()
	for _, l := range s.logs {
		epoch := epochs[l.Topic]
		for _, isolation := range []int8{readUncommitted, readCommitted} {
			for _, replicaID := range replicaIDs {
				for _, current := range []int32{anyEpoch, epoch, epoch - 1, epoch + 1} {
					what := fmt.Sprintf("log state %q, isolation level %d, replica id %d, current leader epoch %d of %d",
						l.State.Name, isolation, replicaID, current, epoch)
					d.compare(t, ctx, what, listOffsets(11, replicaID, isolation, want{l.Topic, 0, -6, current}))
				}
			}
		}
	}
}

// errors compares what brokers refuse, alone and beside good partitions.
func (d *differential) errors(t *testing.T, ctx context.Context, s *stand) {
	t.Helper()
	good, other := s.logs[3].Topic, s.logs[6].Topic
	for name, wants := range map[string][]want{
		"unknown topic":                     {pending("no-such-topic")},
		"unknown topic beside a good one":   {pending(good), pending("no-such-topic"), pending(other)},
		"unknown partition":                 {{good, 17, -6, anyEpoch}},
		"unknown and good partition":        {{good, 0, -6, anyEpoch}, {good, 17, -6, anyEpoch}},
		"negative partition":                {{good, -1, -6, anyEpoch}},
		"empty topic name":                  {pending("")},
		"impossible topic name":             {pending("no/such topic")},
		"partition twice":                   {pending(good), pending(good)},
		"partition three times":             {pending(good), pending(good), pending(good), pending(other)},
		"partition twice, -6 and -1":        {pending(good), {good, 0, -1, anyEpoch}},
		"partition twice, -1 and -2":        {{good, 0, -1, anyEpoch}, {good, 0, -2, anyEpoch}, pending(other)},
		"topic in two places":               {pending(good), pending(other), pending(good)},
		"unknown negative timestamps":       {{good, 0, -7, anyEpoch}},
		"unknown negative timestamp and -6": {{good, 0, -7, anyEpoch}, pending(other)},
		"smallest timestamp and -6":         {{good, 0, -1 << 63, anyEpoch}, pending(other)},
		"impossible current leader epoch":   {{good, 0, -6, -17}},
		"internal topic":                    {pending("__remote_log_metadata"), pending(good)},
		"no topics":                         nil,
	} {
		d.compare(t, ctx, name, listOffsets(11, consumer, readUncommitted, wants...))
		d.compare(t, ctx, name+", read committed", listOffsets(11, consumer, readCommitted, wants...))
	}
	noPartitions := listOffsets(11, consumer, readUncommitted, pending(good), pending(other))
	noPartitions.Topics[0].Partitions = nil
	d.compare(t, ctx, "a topic without partitions", noPartitions)
	strange := listOffsets(11, consumer, 9, pending(good))
	d.compare(t, ctx, "isolation level 9", strange)
}

// mixes compares random requests: any topics, timestamps, epochs, in any order, with
// some partitions twice.
func (d *differential) mixes(t *testing.T, ctx context.Context, s *stand, epochs map[string]int32, rng *rand.Rand) {
	t.Helper()
	now := time.Now().UnixMilli()
	timestamps := []int64{-6, -6, -6, -5, -4, -3, -2, -1, -7, 0, now - 3_600_000, now + 3_600_000}
	for i := range 60 {
		var wants []want
		for range 1 + rng.IntN(2*len(s.logs)) {
			w := want{topic: s.logs[rng.IntN(len(s.logs))].Topic, timestamp: timestamps[rng.IntN(len(timestamps))], epoch: anyEpoch}
			switch rng.IntN(12) {
			case 0:
				w.topic = fmt.Sprintf("no-such-topic-%d", rng.IntN(3))
			case 1:
				w.partition = int32(rng.IntN(3))
			case 2, 3, 4:
				w.epoch = epochs[w.topic] - 1 + int32(rng.IntN(3))
			}
			wants = append(wants, w)
		}
		req := listOffsets(11, replicaIDs[rng.IntN(len(replicaIDs))], int8(rng.IntN(2)), wants...)
		d.compare(t, ctx, fmt.Sprintf("mix %d: %+v", i, wants), req)
	}
}

// restarts is how often the broker is restarted between rounds, besides the restarts
// that bring the logs into their states.
const restarts = 2

// testDifferential is the main proof: the rules of the -6 answer over look-ups against
// the native answer, on the same log of the same broker.
func testDifferential(t *testing.T, ctx context.Context, s *stand) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the random requests: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var d differential
	d.round(t, ctx, s, rng)
	for range restarts {
		s.restart(t, ctx)
		d.round(t, ctx, s, rng)
	}
	report(t, "differential: %d comparisons, %d different", d.comparisons, d.different)
	t.Logf("%d requests were repeated because a look-up by time in the remote storage timed out", d.repeated)
	if d.comparisons < 1000 {
		t.Errorf("%d comparisons are fewer than 1000", d.comparisons)
	}
}
