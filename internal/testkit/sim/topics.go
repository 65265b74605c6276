// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/internal/testkit/tierlog"
)

// Topic is a topic with the models of its partitions.
type Topic struct {
	Name string
	// Partitions are the models, by partition. The cluster owns them from New or
	// AddTopics on; use Update and Model. remote.storage.enable of the topic is what
	// the model of partition 0 says.
	Partitions []*tierlog.Log
	// Configs are topic configs that kfake shows and, where it knows them, follows:
	// cleanup.policy, retention.ms and the like.
	Configs map[string]string
	// Records says whether there is something to fetch.
	Records Records
}

type topic struct {
	name       string
	records    Records
	partitions []*partition
}

type partition struct {
	log *tierlog.Log
	// transaction is set while a client's open transaction, not a test, holds the
	// model's last stable offset.
	transaction bool
}

// AddTopics creates topics, with the records that their models speak of.
func (c *Cluster) AddTopics(topics ...Topic) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range topics {
		if err := c.addTopic(t); err != nil {
			return fmt.Errorf("sim: topic %s: %w", t.Name, err)
		}
	}
	return nil
}

func (c *Cluster) addTopic(t Topic) error {
	if c.closed {
		return errClosed
	}
	if len(t.Partitions) == 0 {
		return fmt.Errorf("no partitions")
	}
	if err := c.kfake.CreateTopic(t.Name, int32(len(t.Partitions)), maps.Clone(t.Configs)); err != nil {
		return err
	}
	added := &topic{name: t.Name, records: t.Records}
	for _, l := range t.Partitions {
		added.partitions = append(added.partitions, &partition{log: l})
	}
	for p := range added.partitions {
		if err := c.follow(added, int32(p)); err != nil {
			return err
		}
	}
	c.topics[t.Name] = added
	return nil
}

// Update lets change move the model of a partition: append, upload, delete, a new
// leader epoch. It returns when kfake has followed: records exist for what was
// appended, and its leader epoch is the model's. No answer is given meanwhile, so
// clients see all of the change or nothing. change must not call the Cluster.
func (c *Cluster) Update(topic string, partition int32, change func(*tierlog.Log)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, p, err := c.partition(topic, partition)
	if err != nil {
		return err
	}
	c.catchUp(t)
	change(p.log)
	return c.follow(t, partition)
}

// Model returns a copy of a partition's model as it is now, with everything that
// clients have produced or deleted.
func (c *Cluster) Model(topic string, partition int32) (*tierlog.Log, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, p, err := c.partition(topic, partition)
	if err != nil {
		return nil, err
	}
	c.catchUp(t)
	return p.log.Clone(), nil
}

// MoveLeader makes a node the leader of a partition, in a new leader epoch.
func (c *Cluster) MoveLeader(topic string, partition, nodeID int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, _, err := c.partition(topic, partition)
	if err != nil {
		return err
	}
	c.catchUp(t)
	if err := c.kfake.MoveTopicPartition(topic, partition, nodeID); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	c.catchUp(t) // the new epoch
	return nil
}

// partition needs c.mu.
func (c *Cluster) partition(name string, p int32) (*topic, *partition, error) {
	if c.closed {
		return nil, nil, errClosed
	}
	t := c.topics[name]
	if t == nil || p < 0 || int(p) >= len(t.partitions) {
		return nil, nil, fmt.Errorf("sim: no model of %s-%d", name, p)
	}
	return t, t.partitions[p], nil
}

// catchUp brings into the models of a topic what happened in kfake: records produced
// or deleted by clients, their open transactions, new leaders. It needs c.mu, and the
// cluster must not be closed.
func (c *Cluster) catchUp(t *topic) {
	infos := c.kfake.PartitionInfos(t.name)
	for i, p := range t.partitions[:min(len(infos), len(t.partitions))] {
		if epoch := infos[i].Epoch; epoch > p.log.LeaderEpoch() {
			p.log.NewLeaderEpoch(epoch)
		}
		if t.records == ProducedRecords {
			p.catchUp(infos[i])
		}
	}
}

// catchUp is for partitions with records. kfake has one replica, so its high watermark
// is the log end.
func (p *partition) catchUp(info *kfake.PartitionInfo) {
	p.log.Append(info.LastStableOffset - p.log.LogEnd())
	switch open := info.LastStableOffset < info.HighWatermark; {
	case open: // before what the transaction appended: stable offsets never move back
		p.log.SetLastStableOffset(info.LastStableOffset)
		p.transaction = true
	case p.transaction:
		p.log.ReleaseLastStableOffset()
		p.transaction = false
	}
	p.log.Append(info.HighWatermark - p.log.LogEnd())
	if info.LogStartOffset > p.log.LogStart() {
		p.log.DeleteRecords(info.LogStartOffset)
	}
}

// follow brings kfake to where the model of a partition is: leader epoch, records, log
// start. It needs c.mu.
func (c *Cluster) follow(t *topic, partition int32) error {
	info := c.kfake.PartitionInfo(t.name, partition)
	if info == nil {
		return fmt.Errorf("sim: %s-%d is gone from kfake", t.name, partition)
	}
	log := t.partitions[partition].log
	end := info.HighWatermark
	for epoch := info.Epoch; epoch <= log.LeaderEpoch(); epoch++ {
		if epoch > info.Epoch { // kfake raises the epoch when a leader follows itself
			if err := c.kfake.MoveTopicPartition(t.name, partition, info.Leader); err != nil {
				return fmt.Errorf("sim: %w", err)
			}
		}
		upTo := log.EpochEndOffset(epoch, -1).EndOffset
		if epoch == log.LeaderEpoch() {
			upTo = log.LogEnd()
		}
		if t.records == ProducedRecords && upTo > end {
			if err := c.produce(t.name, partition, end, upTo); err != nil {
				return err
			}
			end = upTo
		}
	}
	if t.records == ProducedRecords && log.LogStart() > info.LogStartOffset {
		if err := c.kfake.DeleteRecords(t.name, partition, log.LogStart()); err != nil {
			return fmt.Errorf("sim: delete records below %d of %s-%d: %w", log.LogStart(), t.name, partition, err)
		}
	}
	return nil
}

// produce appends the records of the offsets from..upTo-1 to kfake's log.
func (c *Cluster) produce(topic string, partition int32, from, upTo int64) error {
	records := make([]*kgo.Record, 0, upTo-from)
	for offset := from; offset < upTo; offset++ {
		records = append(records, &kgo.Record{
			Topic:     topic,
			Partition: partition,
			Value:     fmt.Appendf(nil, "%s-%d@%d", topic, partition, offset),
		})
	}
	if err := c.client.ProduceSync(c.ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("sim: produce offsets %d to %d of %s-%d: %w", from, upTo-1, topic, partition, err)
	}
	return nil
}
