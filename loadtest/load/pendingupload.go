// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// pendingUploadJob has many clients ask for one timestamp of every partition of a topic,
// each on connections of its own, the next request when the answer is there.
type pendingUploadJob struct {
	setting
	shared *sharedTopic
	got    *measured
	asking []*asker

	mu    sync.Mutex
	truth *truth
	begun int // number of the snapshot that was begun last
}

func (j *pendingUploadJob) measured() []*measured { return []*measured{j.got} }

func (j *pendingUploadJob) prepare(context.Context) error {
	j.shared = j.cluster.topics[j.spec.Topic]
	n := j.shared.spec.Partitions
	text := fmt.Sprintf("%d clients, each asks for timestamp %d of %d partitions at once, again and again", j.spec.Clients, j.spec.Timestamp, n)
	if j.spec.Every > 0 {
		text += fmt.Sprintf(", with pauses of %s", j.spec.Every)
	}
	operation := fmt.Sprintf("answers of %d partitions", n)
	j.got = j.measure("", text, operation, "from sending a request until its answer was there", closedLoop)
	j.truth = newTruth(j.shared.spec.Tiered)
	for i := range j.spec.Clients {
		delay := time.Duration(j.spec.Every) * time.Duration(i) / time.Duration(j.spec.Clients)
		j.asking = append(j.asking, &asker{job: j, gauge: j.got.meter.gauge(), delay: delay})
	}
	return nil
}

func (j *pendingUploadJob) run(ctx context.Context, stop <-chan struct{}) error {
	if err := j.snapshot(ctx); err != nil {
		return fmt.Errorf("what the brokers say themselves: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range j.asking {
		g.Go(func() error { return a.run(ctx, stop) })
	}
	g.Go(func() error {
		c := undisturbed
		for pause(ctx, stop, snapshotEvery) {
			if err := j.snapshotAfter(ctx, c); err != nil {
				c = disturbed // brokers are down: the next one looks over the gap
				continue
			}
			c = undisturbed
		}
		return nil
	})
	return g.Wait()
}

// snapshotEvery is the time between two looks at the brokers' own state. What happens
// between two of them bounds the answers.
const snapshotEvery = time.Second

func (j *pendingUploadJob) snapshot(ctx context.Context) error {
	return j.snapshotAfter(ctx, undisturbed)
}

// snapshotAfter asks the brokers directly, in the order in which -6 is made.
func (j *pendingUploadJob) snapshotAfter(ctx context.Context, c calm) error {
	if int64(j.spec.Timestamp) != codec.EarliestPendingUploadTimestamp {
		return nil
	}
	j.mu.Lock()
	j.begun = j.truth.latest + 1
	j.mu.Unlock()
	n := j.shared.spec.Partitions
	states := make([]state, n)
	for _, ask := range []struct {
		timestamp int64
		into      func(*state) *position
	}{
		{codec.EarliestLocalTimestamp, func(s *state) *position { return &s.local }},
		{codec.EarliestTimestamp, func(s *state) *position { return &s.start }},
		{codec.LatestTieredTimestamp, func(s *state) *position { return &s.tier }},
		{codec.LatestTimestamp, func(s *state) *position { return &s.last }},
	} {
		found, err := j.cluster.lookup(ctx, j.spec.Topic, n, ask.timestamp)
		if err != nil {
			return err
		}
		for p := range found {
			*ask.into(&states[p]) = found[p]
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.truth.snapshot(states, c)
	return nil
}

// finish judges what came after the last snapshot.
func (j *pendingUploadJob) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var err error
	for range 2 { // one more where the latest was begun and not completed
		err = errors.Join(err, j.cluster.await(ctx, "the brokers' own state", func() error { return j.snapshot(ctx) }))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.got.counts.Add(j.truth.counts)
	j.got.notes = j.truth.notes
	return err
}

func (j *pendingUploadJob) close(context.Context) {
	for _, a := range j.asking {
		a.close()
	}
}

// asker is one client.
type asker struct {
	job   *pendingUploadJob
	gauge *gauge
	delay time.Duration // before the first turn: those that pause do not ask all at once
	conns []*askerConn
	next  int32 // correlation id
}

// askerConn is its connection to one broker, and the request for what that one leads.
type askerConn struct {
	conn    *kafka.Conn
	version int16
	frame   []byte
	began   time.Time
	sent    int // the latest snapshot when it was sent
}

func (a *asker) close() {
	for _, c := range a.conns {
		c.conn.Close()
	}
	a.conns = nil
}

// run asks until stop. A connection that breaks is opened anew.
func (a *asker) run(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := stopContext(ctx, stop)
	defer cancel()
	pause(ctx, stop, a.delay)
	for ctx.Err() == nil {
		err := a.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			a.gauge.retry()
			a.close()
			pause(ctx, stop, 100*time.Millisecond)
		case a.job.spec.Every > 0:
			pause(ctx, stop, time.Duration(a.job.spec.Every))
		}
	}
	return nil
}

// askTimeout bounds one exchange: brokers that restart may leave a connection silent.
const askTimeout = 20 * time.Second

// turn asks every broker for what it leads, and takes the answers.
func (a *asker) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if a.conns == nil {
		if err := a.connect(ctx); err != nil {
			return err
		}
	}
	for _, c := range a.conns {
		a.next++
		binary.BigEndian.PutUint32(c.frame[8:], uint32(a.next))
		a.job.mu.Lock()
		c.sent = a.job.truth.latest
		a.job.mu.Unlock()
		c.began = time.Now()
		if err := c.conn.SendBytes(ctx, c.frame); err != nil {
			return err
		}
	}
	for i, c := range a.conns {
		frame, err := c.conn.Receive(ctx)
		if err != nil {
			return err
		}
		if got, want := codec.ResponseCorrelationID(frame), a.next-int32(len(a.conns)-1-i); got != want {
			return fmt.Errorf("correlation id %d came back as %d", want, got)
		}
		if err := a.answered(c, frame, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// answered takes one answer.
func (a *asker) answered(c *askerConn, frame []byte, now time.Time) error {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.SetVersion(c.version)
	body, err := codec.ResponseBody(frame, codec.Flexible)
	if err == nil {
		err = resp.ReadFrom(frame[body:])
	}
	if err != nil {
		return fmt.Errorf("ListOffsets response v%d: %w", c.version, err)
	}
	again, failed := false, false
	j := a.job
	j.mu.Lock()
	list := j.truth.answers(c.sent, j.begun+1, j.shared.spec.Partitions) // by the next snapshot that is begun
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch e := kerr.TypedErrorForCode(p.ErrorCode); {
			case e == nil:
				list[p.Partition].add(p.Offset, p.LeaderEpoch)
			case e.Retriable:
				again = true
			default:
				failed = true
				if len(j.truth.notes) < 5 {
					j.truth.notes = append(j.truth.notes, fmt.Sprintf("partition %d: %s", p.Partition, e.Message))
				}
			}
		}
	}
	j.mu.Unlock()
	switch {
	case failed:
		a.gauge.fail(c.began, now)
	case again:
		return errors.New("a partition has another leader, or none yet")
	default:
		a.gauge.record(c.began, now, len(frame))
	}
	return nil
}

// connect asks who leads what, and opens a connection to each of them, all through the target.
func (a *asker) connect(ctx context.Context) error {
	leaders, err := a.leaders(ctx)
	if err != nil {
		return err
	}
	for address, partitions := range leaders {
		c, err := a.open(ctx, address, partitions)
		if err != nil {
			return err
		}
		a.conns = append(a.conns, c)
	}
	return nil
}

// leaders returns the partitions of the topic by the address of their leader.
func (a *asker) leaders(ctx context.Context) (map[string][]int32, error) {
	conn, err := kafka.Dial(ctx, a.job.target.bootstrap[0], clientID)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(a.job.spec.Topic)
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{topic}
	answer, err := conn.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.MetadataResponse)
	addresses := make(map[int32]string)
	for _, b := range resp.Brokers {
		addresses[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	leaders := make(map[string][]int32)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			address, ok := addresses[p.Leader]
			if p.ErrorCode != 0 || !ok {
				return nil, fmt.Errorf("partition %d has no leader", p.Partition)
			}
			leaders[address] = append(leaders[address], p.Partition)
		}
	}
	if len(leaders) == 0 {
		return nil, fmt.Errorf("topic %s has no partitions", a.job.spec.Topic)
	}
	return leaders, nil
}

const clientID = "tiergate-loadtest"

// open connects to a broker and makes the request, in the newest version that both know.
func (a *asker) open(ctx context.Context, address string, partitions []int32) (*askerConn, error) {
	conn, err := kafka.Dial(ctx, address, clientID)
	if err != nil {
		return nil, err
	}
	answer, err := conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &askerConn{conn: conn}
	for _, k := range answer.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey == kmsg.ListOffsets.Int16() {
			c.version = min(k.MaxVersion, 11)
		}
	}
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = a.job.spec.Topic
	for _, n := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = n, int64(a.job.spec.Timestamp)
		topic.Partitions = append(topic.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = c.version, -1, 10_000
	req.Topics = []kmsg.ListOffsetsRequestTopic{topic}
	c.frame, _ = conn.Frame(req)
	return c, nil
}
