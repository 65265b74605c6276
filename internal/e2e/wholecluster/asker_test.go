// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// answer is what one partition's -6 is answered with.
type answer struct {
	code int16
	kafka.Position
}

// String is the offset and epoch, or the error.
func (a answer) String() string {
	if a.code != 0 {
		return fmt.Sprintf("error code %d", a.code)
	}
	return a.Position.String()
}

func failed(code int16) answer { return answer{code, kafka.NoPosition} }

// sample is what was answered for all partitions at one time.
type sample []answer

// moment is a sample of a node's own answers, and where the logs began then.
type moment struct{ pending, start sample }

// askers ask every node for -6 of all partitions of a topic, again and again, directly and
// through tiergate, and compare: what tiergate answers must be what the node itself
// answered between the start of the request and its end. A broker of 4.3 says so natively;
// for an older one the four look-ups and the epochs are asked for directly, and composed
// as the rules of the -6 specification have it, by code that shares nothing with tiergate's.
type askers struct {
	*whole
	topic      string
	partitions int32
	restarts   bool // nodes may go away and come back
	all        []*asker
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// asker is the part of one node.
type asker struct {
	*askers
	nodeID          int32
	native          bool // of the direct connection's broker
	direct, through *kafka.Conn
	rounds          atomic.Int64

	// For the test, when it has ended.
	compared, discarded, faults int
	passed                      int // answers that the log start passed: OFFSET_NOT_AVAILABLE
	seen                        map[answer]int

	mu    sync.Mutex
	spans [][]span // of each partition, what the node itself answered
}

// span is an answer that samples in a row had.
type span struct {
	answer
	from, to time.Time
}

// startAskers starts one for each node.
func startAskers(t *testing.T, ctx context.Context, w *whole, topic string, partitions int32, restarts bool) *askers {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	s := &askers{whole: w, topic: topic, partitions: partitions, restarts: restarts, stop: stop}
	for id := int32(1); id <= nodes; id++ {
		a := &asker{askers: s, nodeID: id, seen: make(map[answer]int), spans: make([][]span, partitions)}
		s.all = append(s.all, a)
		s.running.Go(func() { a.run(t, ctx) })
	}
	s.awaitRounds(t, ctx)
	return s
}

// awaitRounds waits until every asker has begun and ended a round since.
func (s *askers) awaitRounds(t *testing.T, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, a := range s.all {
		after := a.rounds.Load() + 2
		must(t, kafka.Poll(ctx, fmt.Sprintf("node %d to be asked", a.nodeID), func(context.Context) error {
			if now := a.rounds.Load(); now < after {
				return fmt.Errorf("round %d of %d", now, after)
			}
			return nil
		}))
	}
}

// end stops all and returns how often each answer came.
func (s *askers) end(t *testing.T) map[answer]int {
	t.Helper()
	s.stop()
	s.running.Wait()
	seen := make(map[answer]int)
	for _, a := range s.all {
		t.Logf("node %d: %d rounds, %d answers compared, %d of them OFFSET_NOT_AVAILABLE since the records were deleted meanwhile, %d tries while the broker was away",
			a.nodeID, a.rounds.Load(), a.compared, a.passed, a.discarded)
		for answer, n := range a.seen {
			seen[answer] += n
		}
	}
	return seen
}

// run asks until ctx ends.
func (a *asker) run(t *testing.T, ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	defer a.close()
	for ctx.Err() == nil && a.faults < 5 {
		if err := a.round(t, ctx); err != nil && ctx.Err() == nil {
			a.discarded++
			if !a.restarts {
				a.fault(t, "node %d: %v", a.nodeID, err)
			}
			a.close()
		}
		a.rounds.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (a *asker) fault(t *testing.T, format string, args ...any) {
	a.faults++
	t.Errorf(format, args...)
}

func (a *asker) close() {
	for _, c := range []*kafka.Conn{a.direct, a.through} {
		if c != nil {
			_ = c.Close()
		}
	}
	a.direct, a.through = nil, nil
}

// open opens both connections and asks what the node can do.
func (a *asker) open(ctx context.Context) error {
	if a.direct != nil {
		return nil
	}
	var err error
	if a.direct, err = kafka.Dial(ctx, a.cluster.Node(a.nodeID).Address(), "direct"); err != nil {
		return err
	}
	newest, err := newestListOffsets(ctx, a.direct)
	if err != nil {
		return err
	}
	a.native = newest >= 11
	if a.through, err = kafka.Dial(ctx, a.nodeAddrs[a.nodeID], "through"); err != nil {
		return err
	}
	if newest, err = newestListOffsets(ctx, a.through); err == nil && newest != 11 {
		err = fmt.Errorf("tiergate offers ListOffsets up to v%d", newest)
	}
	return err
}

// newestListOffsets asks for the newest version of ListOffsets.
func newestListOffsets(ctx context.Context, conn *kafka.Conn) (int16, error) {
	resp, err := conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		return 0, err
	}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey == int16(kmsg.ListOffsets) {
			return k.MaxVersion, nil
		}
	}
	return 0, errors.New("no ListOffsets in ApiVersions")
}

// round samples the node, asks through tiergate while it is sampled on, samples it once
// more, and compares. An error means that a connection was lost.
func (a *asker) round(t *testing.T, ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := a.open(ctx); err != nil {
		return err
	}
	first, err := a.sample(ctx)
	if err != nil {
		return err
	}
	moments := []moment{first}
	answered := make(chan struct{})
	sampled := make(chan error, 1)
	go func() {
		for last := false; ; {
			m, err := a.sample(ctx)
			moments = append(moments, m)
			if err != nil || last {
				sampled <- err
				return
			}
			select {
			case <-answered:
				last = true // one more, begun after the answer
			default:
			}
		}
	}()
	got, err := a.ask(ctx, a.through)
	close(answered)
	if directErr := <-sampled; directErr != nil {
		return directErr
	}
	if err != nil {
		return a.lost(t, ctx, err)
	}
	a.compare(t, got, moments)
	return nil
}

// lost says whether a connection through tiergate was lost because the broker goes away:
// then the direct one is lost as well.
func (a *asker) lost(t *testing.T, ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if _, direct := a.sample(ctx); direct != nil && ctx.Err() == nil {
			return err
		}
	}
	a.fault(t, "node %d serves on, and the session through tiergate was lost: %v", a.nodeID, err)
	return err
}

// offsetNotAvailable tells a client to ask again.
const offsetNotAvailable = 78

// compare looks for each of tiergate's answers among the node's own.
func (a *asker) compare(t *testing.T, got sample, moments []moment) {
	for p, answer := range got {
		a.compared++
		a.seen[answer]++
		if slices.ContainsFunc(moments, func(m moment) bool { return m.pending[p] == answer }) {
			continue
		}
		if answer == failed(offsetNotAvailable) && moments[0].start[p] != moments[len(moments)-1].start[p] {
			a.passed++ // the log start passed the answer before its epoch was found
			continue
		}
		var own []string
		for _, m := range moments {
			own = append(own, fmt.Sprintf("%v (start %v)", m.pending[p], m.start[p]))
		}
		a.fault(t, "%s-%d asked of node %d (native %v): tiergate answers %v, and the node itself in the same time %v",
			a.topic, p, a.nodeID, a.native, answer, slices.Compact(own))
	}
}

// ask asks for -6 in one request of all partitions.
func (a *asker) ask(ctx context.Context, conn *kafka.Conn) (sample, error) {
	resp, err := conn.Request(ctx, a.listOffsets(11, codec.EarliestPendingUploadTimestamp))
	if err != nil {
		return nil, err
	}
	return a.answers(resp)
}

func (a *asker) listOffsets(version int16, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = version, -1, 10_000
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = a.topic
	for p := range a.partitions {
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Partition, lp.Timestamp = p, timestamp
		topic.Partitions = append(topic.Partitions, lp)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// answers takes a ListOffsets answer apart: every partition once, no timestamps.
func (a *asker) answers(resp kmsg.Response) (sample, error) {
	s := make(sample, a.partitions)
	got := 0
	for _, topic := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range topic.Partitions {
			if topic.Topic != a.topic || p.Partition < 0 || p.Partition >= a.partitions {
				return nil, fmt.Errorf("an answer for %s-%d", topic.Topic, p.Partition)
			}
			s[p.Partition] = answer{p.ErrorCode, kafka.Position{Offset: p.Offset, Epoch: p.LeaderEpoch}}
			got++
		}
	}
	if got != int(a.partitions) {
		return nil, fmt.Errorf("answers for %d partitions, want %d", got, a.partitions)
	}
	return s, nil
}

// sample asks the node itself, and notes what it says.
func (a *asker) sample(ctx context.Context) (moment, error) {
	began := time.Now()
	now, err := a.own(ctx)
	if err != nil {
		return moment{}, err
	}
	ended := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, answer := range now.pending {
		if n := len(a.spans[p]); n > 0 && a.spans[p][n-1].answer == answer {
			a.spans[p][n-1].to = ended
		} else {
			a.spans[p] = append(a.spans[p], span{answer, began, ended})
		}
	}
	return now, nil
}

// own is the node's own answer: native, or composed from its look-ups.
func (a *asker) own(ctx context.Context) (moment, error) {
	if a.native {
		resps, err := pipelined(ctx, a.direct, a.listOffsets(11, codec.EarliestPendingUploadTimestamp), a.listOffsets(11, codec.EarliestTimestamp))
		if err != nil {
			return moment{}, err
		}
		pending, err := a.answers(resps[0])
		if err != nil {
			return moment{}, err
		}
		start, err := a.answers(resps[1])
		return moment{pending, start}, err
	}
	var reqs []kmsg.Request
	for _, timestamp := range []int64{codec.EarliestLocalTimestamp, codec.EarliestTimestamp, codec.LatestTieredTimestamp, codec.LatestTimestamp} {
		reqs = append(reqs, a.listOffsets(10, timestamp))
	}
	resps, err := pipelined(ctx, a.direct, append(reqs, a.epochs())...)
	if err != nil {
		return moment{}, err
	}
	return a.composed(resps)
}

// pipelined sends all requests at once and returns their answers.
func pipelined(ctx context.Context, conn *kafka.Conn, reqs ...kmsg.Request) ([]kmsg.Response, error) {
	if _, err := conn.Send(ctx, reqs...); err != nil {
		return nil, err
	}
	resps := make([]kmsg.Response, len(reqs))
	for i, req := range reqs {
		frame, err := conn.Receive(ctx)
		if err != nil {
			return nil, err
		}
		if resps[i], err = kafka.DecodeResponse(req.Key(), req.GetVersion(), frame); err != nil {
			return nil, err
		}
	}
	return resps, nil
}

// mostEpochs is more than any partition of these tests gets.
const mostEpochs = 60

// epochs asks for the end of every leader epoch there may be, of all partitions: a broker
// answers each, also of the same partition.
func (a *asker) epochs() *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = a.topic
	for p := range a.partitions {
		for epoch := range int32(mostEpochs) {
			ep := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			ep.Partition, ep.LeaderEpoch = p, epoch
			topic.Partitions = append(topic.Partitions, ep)
		}
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// composed is what a broker with -6 would answer, of the answers to -4, -2, -5, -1 and the
// epochs.
func (a *asker) composed(resps []kmsg.Response) (moment, error) {
	var looked [4]sample
	for i := range looked {
		var err error
		if looked[i], err = a.answers(resps[i]); err != nil {
			return moment{}, err
		}
	}
	ends := make([][]kmsg.OffsetForLeaderEpochResponseTopicPartition, a.partitions)
	for _, topic := range resps[4].(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range topic.Partitions {
			ends[p.Partition] = append(ends[p.Partition], p)
		}
	}
	s := make(sample, a.partitions)
	for p := range s {
		s[p] = compose(looked[0][p], looked[1][p], looked[2][p], looked[3][p], ends[p])
	}
	return moment{s, looked[1]}, nil
}

// compose does it for a partition of a tiered topic.
func compose(local, start, tier, last answer, ends []kmsg.OffsetForLeaderEpochResponseTopicPartition) answer {
	for _, l := range []answer{local, start, tier, last} {
		if l.code != 0 {
			return failed(l.code)
		}
	}
	none := answer{0, kafka.NoPosition}
	if tier.Offset < 0 {
		if local.Offset != start.Offset || start.Offset >= last.Offset {
			return none
		}
		return start
	}
	x := max(tier.Offset+1, start.Offset)
	if x >= last.Offset {
		return none
	}
	for _, e := range ends { // in the order asked, epochs from 0 on
		if e.ErrorCode != 0 {
			return failed(e.ErrorCode)
		}
		if e.EndOffset > x {
			return answer{0, kafka.Position{Offset: x, Epoch: e.LeaderEpoch}}
		}
	}
	return answer{0, kafka.Position{Offset: x, Epoch: -1}}
}

// saidAround says whether any node itself gave an answer between two times, or within
// some seconds of them: which node a client asked, and when exactly, is not known.
func (s *askers) saidAround(partition int32, want answer, from, to time.Time) bool {
	const around = 3 * time.Second
	return slices.ContainsFunc(s.all, func(a *asker) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.ContainsFunc(a.spans[partition], func(sp span) bool {
			return sp.answer == want && sp.from.Before(to.Add(around)) && sp.to.After(from.Add(-around))
		})
	})
}
