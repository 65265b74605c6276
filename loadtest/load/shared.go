// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// sharedTopic is one of Scenario.Topics on one cluster.
type sharedTopic struct {
	spec   Topic
	ledger *ledger
	// starts and ends are those after the records were produced.
	starts, ends map[int32]int64

	// The flow: a producer, and on a simulated cluster what uploads.
	stop    chan struct{}
	flowing sync.WaitGroup
	mu      sync.Mutex
	flowErr error
}

// createShared creates a topic, fills it, and starts its flow.
func (c *cluster) createShared(ctx context.Context, spec Topic, number uint64) error {
	t := &sharedTopic{spec: spec, ledger: newLedger(number), stop: make(chan struct{}), starts: make(map[int32]int64)}
	configs := maps.Clone(spec.Configs)
	if configs == nil {
		configs = make(map[string]string)
	}
	if spec.Uploaded {
		for key, value := range map[string]string{"segment.bytes": "1048576", "local.retention.bytes": "1"} {
			if configs[key] == "" {
				configs[key] = value
			}
		}
	}
	if err := c.createTopic(ctx, newTopic{spec.Name, spec.Partitions, spec.Replicas, spec.Tiered, configs}); err != nil {
		return err
	}
	c.topics[spec.Name] = t
	if err := t.fill(ctx, c); err != nil {
		return fmt.Errorf("fill topic %s: %w", spec.Name, err)
	}
	var err error
	if t.ends, err = c.endOffsets(ctx, spec.Name); err != nil {
		return err
	}
	for p := range int32(spec.Partitions) {
		t.starts[p] = 0
	}
	// First, since it may be the flow that ends the segments.
	t.flow(c)
	if spec.Uploaded {
		return t.awaitUpload(ctx, c)
	}
	return nil
}

// workload is how the topic's records are produced.
func (t *sharedTopic) workload() *Workload {
	w := &Workload{}
	w.setDefaults()
	w.Partitions, w.RecordSize, w.InFlight = t.spec.Partitions, t.spec.RecordSize, 5000
	w.Batch = max(w.Batch, t.spec.RecordSize+4096)
	return w
}

// fill produces the records, the same number in every partition.
func (t *sharedTopic) fill(ctx context.Context, c *cluster) error {
	if t.spec.Records == 0 {
		return nil
	}
	w := t.workload()
	w.InFlight = min(w.InFlight, t.spec.Records)
	p, err := newProducer(ctx, w, c.bootstrap, t.spec.Name, 0, t.ledger, newMeter(closedLoop).gauge())
	if err != nil {
		return err
	}
	defer p.client.Close()
	p.burst = max(1, min(p.burst, int64(t.spec.Records/t.spec.Partitions)))
	for range t.spec.Records {
		if p.one(ctx, nil, nil) == nil {
			return ctx.Err()
		}
	}
	return errors.Join(p.flush(ctx), p.failure())
}

// awaitUpload waits until every partition has records that are in remote storage only.
func (t *sharedTopic) awaitUpload(ctx context.Context, c *cluster) error {
	if c.sim != nil {
		return t.upload(c, 0)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for stop := make(chan struct{}); ; {
		local, err := t.localStarts(ctx, c)
		if err != nil {
			return err
		}
		waiting := 0
		for p := range int32(t.spec.Partitions) {
			if t.ends[p] > 0 && local[p] == 0 {
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		if !pause(ctx, stop, 200*time.Millisecond) {
			return fmt.Errorf("topic %s: %d partitions still have all of their records on the broker's disk: %w", t.spec.Name, waiting, ctx.Err())
		}
	}
}

// simActive records at the end of a simulated log are not uploaded, simLocal are on the disk.
const (
	simActive = 5
	simLocal  = 20
)

// upload moves the simulated logs of the partitions with that remainder by 4; of all, the
// first time.
func (t *sharedTopic) upload(c *cluster, turn int) error {
	for p := range int32(t.spec.Partitions) {
		if turn > 0 && int(p)%4 != turn%4 {
			continue
		}
		err := c.sim.Update(t.spec.Name, p, func(l *tierlog.Log) {
			l.Upload(l.LogEnd() - simActive - 1)
			l.DeleteLocal(l.LogEnd() - simLocal)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// flow appends records all the time, until close.
func (t *sharedTopic) flow(c *cluster) {
	if t.spec.Flow == 0 {
		return
	}
	note := func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.flowErr = errors.Join(t.flowErr, err)
	}
	w := t.workload()
	w.InFlight = max(1000, t.spec.Flow)
	p, err := newProducer(context.Background(), w, c.bootstrap, t.spec.Name, 1, t.ledger, newMeter(openLoop).gauge())
	if err != nil {
		note(err)
		return
	}
	p.burst = 1
	t.flowing.Go(func() {
		defer p.client.Close()
		note(p.run(context.Background(), t.stop, newPace(time.Now(), float64(t.spec.Flow), 0, 1)))
	})
	if c.sim == nil || !t.spec.Tiered {
		return
	}
	t.flowing.Go(func() {
		for turn := 1; pause(context.Background(), t.stop, 50*time.Millisecond); turn++ {
			if err := t.upload(c, turn); err != nil {
				note(err)
				return
			}
		}
	})
}

// close ends the flow.
func (t *sharedTopic) close() error {
	close(t.stop)
	t.flowing.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flowErr != nil {
		return fmt.Errorf("flow of topic %s: %w", t.spec.Name, t.flowErr)
	}
	return nil
}

// localStarts returns the first offsets that are on the brokers' disks.
func (t *sharedTopic) localStarts(ctx context.Context, c *cluster) (map[int32]int64, error) {
	found, err := c.lookup(ctx, t.spec.Name, t.spec.Partitions, codec.EarliestLocalTimestamp)
	if err != nil {
		return nil, err
	}
	m := make(map[int32]int64)
	for p, at := range found {
		m[int32(p)] = at.offset
	}
	return m, nil
}

// position is an answer of ListOffsets; -1 and -1 for none.
type position struct {
	offset int64
	epoch  int32
}

// lookup asks the leaders directly for one timestamp of every partition of a topic. An
// error of any partition is an error of the call.
func (c *cluster) lookup(ctx context.Context, topic string, partitions int, timestamp int64) ([]position, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range int32(partitions) {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, timestamp
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.admin)
	if err != nil {
		return nil, fmt.Errorf("ListOffsets %d of %s: %w", timestamp, topic, err)
	}
	found, count := make([]position, partitions), 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("ListOffsets %d of %s-%d: %w", timestamp, topic, p.Partition, err)
			}
			found[p.Partition] = position{p.Offset, p.LeaderEpoch}
			count++
		}
	}
	if count != partitions {
		return nil, fmt.Errorf("ListOffsets %d of %s: %d answers for %d partitions", timestamp, topic, count, partitions)
	}
	return found, nil
}
