// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/loadtest/kafka"
)

// testCalls has a client of each kind do all that clients do: produce, consume in groups of
// every protocol, in transactions, in share groups, and administer.
func testCalls(t *testing.T, ctx context.Context, w *whole, prefix string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	t.Run("all", func(t *testing.T) { // ends with the last of them
		t.Run("java", func(t *testing.T) {
			t.Parallel()
			c := watch(t, "Java", w.java(t, ctx, "calls", w.bootstrap, prefix+"-java"))
			t.Log(c.wait(t, ctx))
			w.checkTargets(t, "Java", c.targets(t))
		})
		t.Run("librdkafka", func(t *testing.T) {
			t.Parallel()
			c := watch(t, "librdkafka", w.librdkafka(t, "calls", w.bootstrap, prefix+"-librdkafka"))
			t.Log(c.wait(t, ctx))
			w.checkTargets(t, "librdkafka", c.targets(t))
		})
		t.Run("franz-go", func(t *testing.T) {
			t.Parallel()
			c := &franzCalls{whole: w, topic: prefix + "-franz-go"}
			c.run(t, ctx)
			w.checkTargets(t, "franz-go", c.seen.targets())
		})
	})
}

// franzCalls is what testdata/Calls.java does, with franz-go.
type franzCalls struct {
	*whole
	topic string
	seen  dialer
	admin *kadm.Client
}

func (c *franzCalls) run(t *testing.T, ctx context.Context) {
	c.admin = kadm.NewClient(c.franz(t, &c.seen))
	c.describe(t, ctx)
	responses, err := c.admin.CreateTopics(ctx, 3, 3, nil, c.topic, c.topic+"-share")
	must(t, err)
	must(t, responses.Error())
	must(t, kafka.Poll(ctx, "leaders of the new topics", func(ctx context.Context) error {
		offsets, err := c.admin.ListEndOffsets(ctx, c.topic, c.topic+"-share")
		return errors.Join(err, offsets.Error())
	}))
	c.produceAndConsume(t, ctx)
	c.share(t, ctx)
	c.alter(t, ctx)
	c.remove(t, ctx)
}

func (c *franzCalls) describe(t *testing.T, ctx context.Context) {
	m, err := c.admin.BrokerMetadata(ctx)
	must(t, err)
	if ids := m.Brokers.NodeIDs(); !slices.Equal(ids, []int32{1, 2, 3}) || !slices.Contains(ids, m.Controller) {
		t.Errorf("brokers %v, controller %d", ids, m.Controller)
	}
	_, err = c.admin.DescribeAllLogDirs(ctx, nil)
	must(t, err)
}

// values are text and a number, sorted.
func values(text string, count int) []string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprint(text, i))
	}
	slices.Sort(all)
	return all
}

func (c *franzCalls) send(t *testing.T, ctx context.Context, cl *kgo.Client, topic, text string, count int) {
	t.Helper()
	var batch []*kgo.Record
	for i := range count {
		batch = append(batch, &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: fmt.Append(nil, text, i)})
	}
	must(t, cl.ProduceSync(ctx, batch...).FirstErr())
}

// consume consumes until it has count records, accepts them where that is due, and returns
// their values, sorted.
func consume(t *testing.T, ctx context.Context, cl *kgo.Client, count int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all []string
	for len(all) < count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records consumed: %v", len(all), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, string(r.Value)) })
	}
	slices.Sort(all)
	return all
}

func wantValues(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d values %v\nwant %d", what, len(got), got, len(want))
	}
}

func (c *franzCalls) produceAndConsume(t *testing.T, ctx context.Context) {
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	c.send(t, ctx, c.franz(t, &c.seen, manual), c.topic, "plain ", 300)
	committed := append(values("plain ", 300), values("committed ", 100)...)
	slices.Sort(committed)
	reading := []kgo.Opt{
		kgo.ConsumeTopics(c.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(),
	}

	p := c.franz(t, &c.seen, manual, kgo.TransactionalID(c.topic+"-transactions"))
	for text, end := range map[string]kgo.TransactionEndTry{"committed ": kgo.TryCommit, "aborted ": kgo.TryAbort} {
		must(t, p.BeginTransaction())
		c.send(t, ctx, p, c.topic, text, 100)
		must(t, p.EndTransaction(ctx, end))
	}
	p.Close()

	session, err := kgo.NewGroupTransactSession(append(reading, kgo.SeedBrokers(c.bootstrap), kgo.Dialer(c.seen.dial), manual,
		kgo.TransactionalID(c.topic+"-transactions"), kgo.ConsumerGroup(c.topic+"-classic"))...)
	must(t, err)
	must(t, session.Begin())
	wantValues(t, "classic group", consume(t, ctx, session.Client(), 400), committed)
	done, err := session.End(ctx, kgo.TryCommit)
	if err != nil || !done {
		t.Errorf("offsets in a transaction: committed %v, %v", done, err)
	}
	session.Close()

	next := c.franz(t, &c.seen, append(reading, kgo.ConsumerGroup(c.topic+"-consumer"), kgo.ServerSideBalancer())...)
	wantValues(t, "consumer group", consume(t, ctx, next, 400), committed)
	must(t, next.CommitUncommittedOffsets(ctx))
	next.Close()
}

func (c *franzCalls) share(t *testing.T, ctx context.Context) {
	topic, group := c.topic+"-share", c.topic+"-share-group"
	must(t, shareFromStart(ctx, c.franz(t, &c.seen), group))
	c.send(t, ctx, c.franz(t, &c.seen, kgo.RecordPartitioner(kgo.ManualPartitioner())), topic, "shared ", 200)
	cl := c.franz(t, &c.seen, kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	wantValues(t, "share group", consume(t, ctx, cl, 200), values("shared ", 200))
	cl.Close() // acknowledges
	groups, err := c.admin.DescribeShareGroups(ctx, group)
	must(t, err)
	must(t, groups.Error())
}

// shareFromStart has a share group begin at the start of its topics.
func shareFromStart(ctx context.Context, cl *kgo.Client, group string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}

func (c *franzCalls) alter(t *testing.T, ctx context.Context) {
	value := "123456789"
	_, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, c.topic)
	must(t, err)
	// Any broker answers, by the metadata that it has by then.
	must(t, kafka.Poll(ctx, "retention.ms", func(ctx context.Context) error {
		configs, err := c.admin.DescribeTopicConfigs(ctx, c.topic)
		if err != nil {
			return err
		}
		found := slices.ContainsFunc(configs[0].Configs, func(k kadm.Config) bool { return k.Key == "retention.ms" && k.MaybeValue() == value })
		if configs[0].Err != nil || !found {
			return fmt.Errorf("configs: %+v", configs)
		}
		return nil
	}))
	until := make(kadm.Offsets)
	until.AddOffset(c.topic, 0, 10, -1)
	deleted, err := c.admin.DeleteRecords(ctx, until)
	must(t, err)
	must(t, deleted.Error())
	offsets, err := c.admin.ListStartOffsets(ctx, c.topic)
	must(t, err)
	if o, _ := offsets.Lookup(c.topic, 0); o.Offset != 10 || o.Err != nil {
		t.Errorf("start after deletion: %+v, want 10", o)
	}
	partitions, err := c.admin.UpdatePartitions(ctx, 4, c.topic)
	must(t, err)
	must(t, partitions.Error())
	set := make(kadm.TopicsSet)
	set.Add(c.topic, 0)
	elected, err := c.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	must(t, err)
	if e := elected[c.topic][0]; e.Err != nil && !errors.Is(e.Err, kerr.ElectionNotNeeded) {
		t.Errorf("election: %+v", e)
	}
	_, err = c.admin.DescribeProducers(ctx, set)
	must(t, err)
	listed, err := c.admin.ListTransactions(ctx, nil, nil)
	must(t, err)
	if !slices.Contains(listed.TransactionalIDs(), c.topic+"-transactions") {
		t.Errorf("transactions: %v", listed)
	}
}

func (c *franzCalls) remove(t *testing.T, ctx context.Context) {
	groups := []string{c.topic + "-classic", c.topic + "-consumer"}
	listed, err := c.admin.ListGroups(ctx)
	must(t, err)
	for _, g := range append(groups, c.topic+"-share-group") {
		if _, ok := listed[g]; !ok {
			t.Errorf("group %s is not listed", g)
		}
	}
	for _, g := range groups {
		offsets, err := c.admin.FetchOffsets(ctx, g)
		must(t, err)
		if got := len(offsets[c.topic]); got != 3 {
			t.Errorf("group %s has %d offsets, want 3: %v", g, got, offsets)
		}
	}
	deleted, err := c.admin.DeleteGroups(ctx, groups...)
	must(t, err)
	must(t, deleted.Error())
	topics, err := c.admin.DeleteTopics(ctx, c.topic, c.topic+"-share")
	must(t, err)
	must(t, topics.Error())
}
