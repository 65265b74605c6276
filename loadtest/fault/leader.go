// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pollTime is how long to wait between two looks at the cluster.
const pollTime = 100 * time.Millisecond

// leaderMove makes the next replica in sync the leader, by changing the order of the
// replicas, whose first is the preferred leader, and electing that.
type leaderMove struct {
	client *kgo.Client
	admin  *kadm.Client
	topic  string
	// before are the replicas of each moved partition, in their order.
	before map[int32][]int32
	moved  int
}

// NewLeaderMove returns a fault that gives another leader to every partition of a topic that
// has a second replica in sync, by a change of the replicas' order and a preferred election;
// the end does the same back. The client stays the caller's.
func NewLeaderMove(client *kgo.Client, topic string) Fault {
	return &leaderMove{client: client, admin: kadm.NewClient(client), topic: topic}
}

func (l *leaderMove) Kind() Kind { return KindLeaderMove }

func (l *leaderMove) String() string {
	if l.moved == 0 {
		return "leaders of " + l.topic + " moved"
	}
	return fmt.Sprintf("leaders of %d partitions of %s moved", l.moved, l.topic)
}

// Begin moves the leaders.
func (l *leaderMove) Begin(ctx context.Context) error {
	partitions, err := l.partitions(ctx)
	if err != nil {
		return fmt.Errorf("move leaders of %s: %w", l.topic, err)
	}
	l.before, l.moved = map[int32][]int32{}, 0
	after := map[int32][]int32{}
	for id, p := range partitions {
		if next, ok := nextLeader(p.Leader, p.ISR); ok {
			l.before[id] = p.Replicas
			others := slices.DeleteFunc(slices.Clone(p.Replicas), func(replica int32) bool { return replica == next })
			after[id] = append([]int32{next}, others...)
		}
	}
	if len(after) == 0 {
		return fmt.Errorf("move leaders of %s: no partition has a second replica in sync", l.topic)
	}
	l.moved = len(after)
	return l.lead(ctx, after)
}

// End moves them back, which takes until the old leaders are in sync.
func (l *leaderMove) End(ctx context.Context) error {
	before := l.before
	l.before = nil
	if len(before) == 0 {
		return nil
	}
	return l.lead(ctx, before)
}

// nextLeader returns the replica in sync that comes after the leader in the order of ids.
func nextLeader(leader int32, inSync []int32) (int32, bool) {
	inSync = slices.Sorted(slices.Values(inSync))
	for _, id := range inSync {
		if id > leader {
			return id, true
		}
	}
	if len(inSync) > 0 && inSync[0] != leader {
		return inSync[0], true
	}
	return 0, false
}

// partitions asks a broker: what kadm answers may come from a cache.
func (l *leaderMove) partitions(ctx context.Context) (map[int32]kmsg.MetadataResponseTopicPartition, error) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(l.topic)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, l.client)
	if err != nil {
		return nil, err
	}
	partitions := map[int32]kmsg.MetadataResponseTopicPartition{}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, err
		}
		for _, p := range t.Partitions {
			partitions[p.Partition] = p
		}
	}
	return partitions, nil
}

// lead sets the order of the replicas and waits until the first of each is the leader.
func (l *leaderMove) lead(ctx context.Context, replicas map[int32][]int32) error {
	var assignments kadm.AlterPartitionAssignmentsReq
	elected := kadm.TopicsSet{}
	for partition, order := range replicas {
		assignments.Assign(l.topic, partition, order)
		elected.Add(l.topic, partition)
	}
	answers, err := l.admin.AlterPartitionAssignments(ctx, assignments)
	if err := cmp.Or(err, answers.Error()); err != nil {
		return fmt.Errorf("move leaders of %s: %w", l.topic, err)
	}
	if err = poll(ctx, func() error { return l.elect(ctx, elected) }); err == nil {
		err = poll(ctx, func() error { return l.led(ctx, replicas) })
	}
	if err != nil {
		return fmt.Errorf("move leaders of %s: %w", l.topic, err)
	}
	return nil
}

// poll calls cond until it returns nil, or ctx is over.
func poll(ctx context.Context, cond func() error) error {
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollTime):
		}
	}
}

// elect asks for the preferred leaders. That one leads already is no error.
func (l *leaderMove) elect(ctx context.Context, partitions kadm.TopicsSet) error {
	results, err := l.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, partitions)
	if err != nil {
		return err
	}
	for _, r := range results[l.topic] {
		if r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
			return fmt.Errorf("partition %d: %w", r.Partition, r.Err)
		}
	}
	return nil
}

// led is nil when the first replica of each partition is its leader.
func (l *leaderMove) led(ctx context.Context, replicas map[int32][]int32) error {
	partitions, err := l.partitions(ctx)
	if err != nil {
		return err
	}
	for partition, order := range replicas {
		if leader := partitions[partition].Leader; leader != order[0] {
			return fmt.Errorf("partition %d is led by %d, not yet by %d", partition, leader, order[0])
		}
	}
	return nil
}
