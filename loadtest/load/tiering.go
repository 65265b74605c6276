// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"tiergate/codec"
)

// tieringJob changes again and again whether topics are tiered, half of the time through the
// target and half of the time past it, and sends requests for -6 of them all the time. Nothing
// of the topics is ever uploaded, so the right offset is that of the first record for a tiered
// topic, and none for one that is not.
type tieringJob struct {
	setting
	got *measured

	mu     sync.Mutex
	counts struct{ answers, wrong int64 }
}

// How long after every broker has a change the old offset is still right: changes that went
// through the target, and changes past it. docs/operations.md promises these times.
const (
	freshThrough = 3 * time.Second
	freshPast    = 15 * time.Second
)

func (j *tieringJob) measured() []*measured { return []*measured{j.got} }

func (j *tieringJob) prepare(context.Context) error {
	text := fmt.Sprintf("%s whose tiering is switched every %s, with deletion and creation under the same name, half of the changes past the target",
		several(j.spec.Clients, "topic"), j.spec.every())
	j.got = j.measure("", text, "responses", "from sending a request until its response was there", closedLoop)
	return nil
}

func (j *tieringJob) run(ctx context.Context, stop <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range j.spec.Clients {
		client, err := kgo.NewClient(append(baseOptions(j.target.bootstrap), kgo.RetryTimeout(patience), kgo.RequestRetries(1000))...)
		if err != nil {
			return err
		}
		t := &switched{
			job: j, name: fmt.Sprintf("%s-%d", j.topic, i), through: client, gauge: j.got.meter.gauge(),
			direct: kadm.NewClient(j.cluster.admin), admin: kadm.NewClient(client),
		}
		g.Go(func() error {
			defer client.Close()
			return t.run(ctx, stop, i)
		})
	}
	return g.Wait()
}

func (j *tieringJob) finish(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.got.counts.Answers, j.got.counts.Wrong = j.counts.answers, j.counts.wrong
	if j.counts.answers == 0 {
		return errors.New("no response was compared in all the time")
	}
	return nil
}

func (j *tieringJob) close(ctx context.Context) {
	for i := range j.spec.Clients {
		_ = j.cluster.deleteTopic(ctx, fmt.Sprintf("%s-%d", j.topic, i)) // the next turn has other ones
	}
}

// switched is one topic of one partition.
type switched struct {
	job     *tieringJob
	name    string
	through *kgo.Client
	admin   *kadm.Client // through the target
	direct  *kadm.Client
	gauge   *gauge
}

// tiering is what is changed.
type tiering struct {
	tiered, anew bool // the topic is deleted and created
}

// changes are gone through in turn. Kafka deletes what is uploaded of a topic that is no
// longer tiered if the change asks for it, which is nothing here.
func changes() []tiering {
	return []tiering{
		{tiered: true, anew: true},
		{tiered: false},
		{tiered: true},
		{tiered: false, anew: true},
		{tiered: true},
		{tiered: true, anew: true},
		{tiered: false, anew: true},
	}
}

func (s *switched) run(ctx context.Context, stop <-chan struct{}, first int) error {
	ctx, cancel := stopContext(ctx, stop)
	defer cancel()
	previous := tiering{tiered: true}
	for n := first; ctx.Err() == nil; n++ {
		change := changes()[n%len(changes())]
		if n == first {
			change.anew = true // there is no topic yet
		}
		admin, fresh := s.admin, freshThrough
		if n/len(changes())%2 == 1 {
			admin, fresh = s.direct, freshPast
		}
		if err := s.change(ctx, admin, change, previous, fresh); err != nil && ctx.Err() == nil {
			return fmt.Errorf("topic %s, change %d: %w", s.name, n, err)
		}
		previous = change
	}
	return nil
}

// change makes one change, and sends requests until it has held for a while.
func (s *switched) change(ctx context.Context, admin *kadm.Client, to, from tiering, fresh time.Duration) error {
	var id kadm.TopicID
	now := to
	err := s.retry(ctx, func(ctx context.Context) (err error) {
		id, err = s.attempt(ctx, admin, now)
		// Not all that was sent and given up may have been carried out yet: from the start.
		now.anew = now.anew || err != nil
		return err
	})
	if err != nil {
		return err
	}
	settled := time.Now()
	for time.Since(settled) < fresh+time.Duration(s.job.spec.every()) {
		began := time.Now()
		offset, err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.gauge.retry()
		} else {
			s.gauge.record(began, time.Now(), 0)
			s.compare(ctx, offset, to, from, began.Sub(settled), fresh, id)
		}
		pause(ctx, nil, 100*time.Millisecond)
	}
	return nil
}

// compare counts an offset. age is how long every broker had the change when the request was
// sent. Brokers may carry out late what a client gave up and sent again: an offset that seems
// wrong does not count where the topic was deleted or created once more since then.
func (s *switched) compare(ctx context.Context, offset int64, to, from tiering, age, fresh time.Duration, id kadm.TopicID) {
	want := map[bool]int64{true: 0, false: -1}
	if offset != want[to.tiered] && (age >= fresh || offset != want[from.tiered]) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var now kadm.TopicID
		err := s.retry(ctx, func(ctx context.Context) (err error) {
			now, err = s.settled(ctx, to)
			return err
		})
		if err != nil || now != id {
			s.gauge.retry()
			return
		}
	}
	j := s.job
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts.answers++
	if offset == want[to.tiered] || offset == want[from.tiered] && age < fresh {
		return
	}
	j.counts.wrong++
	if len(j.got.notes) < 5 {
		j.got.notes = append(j.got.notes, fmt.Sprintf("topic %s, tiered %v (before: %v, made anew: %v) for %s at every broker: offset %d",
			s.name, to.tiered, from.tiered, to.anew, age.Round(time.Millisecond), offset))
	}
}

// attempt makes the change once, and waits until every broker has it.
func (s *switched) attempt(ctx context.Context, admin *kadm.Client, to tiering) (id kadm.TopicID, err error) {
	if err := s.apply(ctx, admin, to); err != nil {
		return id, err
	}
	if to.anew {
		if err := s.produce(ctx); err != nil {
			return id, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.retry(ctx, func(ctx context.Context) error {
		id, err = s.settled(ctx, to)
		return err
	})
	return id, err
}

// retry repeats what faults may disturb.
func (s *switched) retry(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		s.gauge.retry()
		if !pause(ctx, nil, 100*time.Millisecond) {
			return err
		}
	}
}

// apply makes the change. It may have been made in part before.
func (s *switched) apply(ctx context.Context, admin *kadm.Client, to tiering) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	enable := strconv.FormatBool(to.tiered)
	if !to.anew {
		configs := []kadm.AlterConfig{
			{Op: kadm.SetConfig, Name: "remote.storage.enable", Value: &enable},
			{Op: kadm.SetConfig, Name: "remote.log.delete.on.disable", Value: kadm.StringPtr(strconv.FormatBool(!to.tiered))},
		}
		altered, err := admin.AlterTopicConfigs(ctx, configs, s.name)
		if err != nil {
			return err
		}
		response, err := altered.On(s.name, nil)
		if err != nil {
			return err
		}
		return response.Err
	}
	if _, err := admin.DeleteTopic(ctx, s.name); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	_, err := admin.CreateTopic(ctx, 1, int16(s.job.spec.Replicas), map[string]*string{"remote.storage.enable": &enable}, s.name)
	return err
}

// produce adds a few records by a client of its own: one that knew the topic before would
// first have to find out that it is another one.
func (s *switched) produce(ctx context.Context) error {
	client, err := kgo.NewClient(append(baseOptions(s.job.target.bootstrap), kgo.DefaultProduceTopic(s.name), kgo.RecordDeliveryTimeout(askTimeout))...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, kgo.StringRecord("a"), kgo.StringRecord("b"), kgo.StringRecord("c")).FirstErr()
}

// settled has no error when every broker that the cluster lists has the topic as it was
// changed, with its records. The id says which topic of that name it is.
func (s *switched) settled(ctx context.Context, to tiering) (id kadm.TopicID, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	meta, err := s.direct.Metadata(ctx, s.name)
	if err != nil {
		return id, err
	}
	id = meta.Topics[s.name].ID
	ends, err := s.job.cluster.endOffsets(ctx, s.name)
	if err != nil {
		return id, err
	}
	if ends[0] == 0 {
		return id, fmt.Errorf("topic %s has no records", s.name)
	}
	for _, b := range meta.Brokers {
		broker := s.job.cluster.admin.Broker(int(b.NodeID))
		known := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &s.name
		known.Topics = append(known.Topics, topic)
		m, err := known.RequestWith(ctx, broker)
		if err != nil {
			return id, err
		}
		if len(m.Topics) != 1 || m.Topics[0].ErrorCode != 0 || kadm.TopicID(m.Topics[0].TopicID) != id {
			return id, fmt.Errorf("broker %d has another topic %s", b.NodeID, s.name)
		}
		describe := kmsg.NewPtrDescribeConfigsRequest()
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName, resource.ConfigNames = kmsg.ConfigResourceTypeTopic, s.name, []string{"remote.storage.enable"}
		describe.Resources = append(describe.Resources, resource)
		c, err := describe.RequestWith(ctx, broker)
		if err != nil {
			return id, err
		}
		if len(c.Resources) != 1 || len(c.Resources[0].Configs) != 1 || c.Resources[0].Configs[0].Value == nil ||
			*c.Resources[0].Configs[0].Value != strconv.FormatBool(to.tiered) {
			return id, fmt.Errorf("broker %d does not have the new configuration of %s yet", b.NodeID, s.name)
		}
	}
	return id, nil
}

// ask sends one request for -6 through the target.
func (s *switched) ask(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 10_000
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = s.name
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = codec.EarliestPendingUploadTimestamp
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, s.through)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("a ListOffsets response without the partition")
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}
