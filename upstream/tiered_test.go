// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/cache/tiered"
	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

const metadataPartitions = 3

// metadataLog is a cluster with the metadata topic, and a producer for it.
type metadataLog struct {
	*kfake.Cluster
	client *kgo.Client
}

func newMetadataLog(t *testing.T, opts ...kfake.Opt) *metadataLog {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &metadataLog{cluster, client}
}

func withTopic() kfake.Opt { return kfake.SeedTopics(metadataPartitions, codec.RemoteLogMetadata) }

// write writes what becomes of a segment, and waits until it is written.
func (m *metadataLog) write(t *testing.T, s tierlog.RemoteSegment, states ...int8) {
	t.Helper()
	for _, state := range states {
		m.raw(t, tiered.MetadataPartition(s.TopicID, s.Partition, metadataPartitions), tierlog.RemoteEvent{Segment: s, State: state}.Value())
	}
}

func (m *metadataLog) raw(t *testing.T, partition int32, value []byte) {
	t.Helper()
	r := &kgo.Record{Topic: codec.RemoteLogMetadata, Partition: partition, Value: value}
	if err := m.client.ProduceSync(testContext(t), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// uploaded is a segment of a topic's partition 0 that ends at an offset of epoch 0.
func uploaded(topic byte, end int64) tierlog.RemoteSegment {
	return tierlog.RemoteSegment{
		Topic: "t", TopicID: tiered.UUID{topic}, ID: tiered.UUID{topic, byte(end), byte(end >> 8)}, End: end, Epochs: []tierlog.EpochStart{{}},
	}
}

func of(topic byte) TopicPartition { return TopicPartition{TopicID: tiered.UUID{topic}} }

// reader is a cluster that reads tiered offsets.
func (m *metadataLog) reader(t *testing.T, opts Options) *Cluster {
	t.Helper()
	opts.BootstrapServers, opts.TieredOffsets = m.ListenAddrs(), TieredOffsetsFromMetadataTopic
	c := newTestCluster(t, opts, time.Now)
	c.Start(t.Context())
	return c
}

// shown waits for all that is written, and returns what is known then: "unknown", or the
// offsets of the epochs, newest first.
func shown(t *testing.T, c *Cluster, topic byte) string {
	t.Helper()
	if err := c.AwaitTiered(testContext(t), []TopicPartition{of(topic)}); err != nil {
		t.Fatalf("topic %d: %v; %v", topic, err, c.TieredOffsetsReady())
	}
	return now(c, topic)
}

func now(c *Cluster, topic byte) string {
	h, known := c.HighestTiered(of(topic))
	if !known {
		return "unknown"
	}
	return strings.Trim(fmt.Sprint(h.Epochs), "[]{}")
}

func TestTieredOffsetsAreReadAndFollowed(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	for topic := byte(1); topic <= 20; topic++ {
		m.write(t, uploaded(topic, 100+int64(topic)), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	}
	registry, log := prometheus.NewRegistry(), &logged{}
	c := m.reader(t, Options{Registerer: registry, Logger: log.logger()})
	for topic := byte(1); topic <= 20; topic++ {
		if got, want := shown(t, c, topic), fmt.Sprintf("0 %d", 100+int(topic)); got != want {
			t.Errorf("topic %d: got %q, want %q", topic, got, want)
		}
	}
	if got := shown(t, c, 21); got != "" {
		t.Errorf("a topic without records: got %q, want nothing", got)
	}
	eventually(t, "readiness", func() bool { return c.TieredOffsetsReady() == nil })
	// What is written from now on is there as soon as it is waited for.
	for end := int64(200); end < 230; end++ {
		m.write(t, uploaded(7, end), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
		if got, want := shown(t, c, 7), fmt.Sprintf("0 %d", end); got != want {
			t.Fatalf("after a write: got %q, want %q", got, want)
		}
	}
	m.write(t, uploaded(7, 230), tierlog.CopySegmentStarted)
	if got := shown(t, c, 7); got != "0 229" {
		t.Errorf("with a segment in flight: got %q, want 0 229", got)
	}
	for name, want := range map[string]map[string]float64{
		"tiergate_upstream_tiered_records_total":         {"": 101},
		"tiergate_upstream_tiered_partitions":            {"known": 20},
		"tiergate_upstream_tiered_in_flight_segments":    {"": 1},
		"tiergate_upstream_tiered_lag_records":           {},
		"tiergate_upstream_tiered_refused_records_total": {},
		"tiergate_upstream_tiered_evictions_total":       {},
		"tiergate_upstream_tiered_reader_restarts_total": {},
		"tiergate_upstream_tiered_ready":                 {"": 1},
	} {
		wantCounted(t, registry, name, want)
	}
	if got := log.lines("tiered offsets are known"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
}

func TestTieredOffsetsOfAClusterThatDoesNotReadThem(t *testing.T) {
	c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t)}}, time.Now)
	_, known := c.HighestTiered(of(1))
	if known || c.TieredOffsetsReady() == nil || c.AwaitTiered(t.Context(), nil) == nil {
		t.Error("tiered offsets are known without being read")
	}
}

func TestTieredOffsetsWithoutTheTopicOrTheRightToReadIt(t *testing.T) {
	m := newMetadataLog(t)
	log := &logged{}
	c := m.reader(t, Options{Logger: log.logger()})
	eventually(t, "the reason", func() bool {
		return strings.Contains(c.TieredOffsetsReady().Error(), "topic __remote_log_metadata: UNKNOWN_TOPIC_OR_PARTITION")
	})
	if got := now(c, 1); got != "unknown" {
		t.Errorf("got %q, want unknown", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.AwaitTiered(ctx, []TopicPartition{of(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("await: %v, want that its context ended", err)
	}
	// The topic appears; then the right to read it is withdrawn, and granted again.
	if _, err := kadm.NewClient(m.client).CreateTopic(testContext(t), metadataPartitions, 1, nil, codec.RemoteLogMetadata); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, c, 1); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	m.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fetch := req.(*kmsg.FetchRequest)
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range fetch.Topics {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, kerr.TopicAuthorizationFailed.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		if len(resp.Topics) == 0 {
			m.KeepControl()
			return nil, nil, false
		}
		return resp, nil, true // once
	})
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished) // ends the fetches that wait
	eventually(t, "a warning", func() bool { return len(log.lines("TOPIC_AUTHORIZATION_FAILED")) > 0 })
	if got := shown(t, c, 1); got != "0 9" {
		t.Errorf("got %q, want 0 9", got)
	}
}

func TestTieredOffsetsOfATopicThatIsCreatedAnew(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	registry := prometheus.NewRegistry()
	c := m.reader(t, Options{Registerer: registry})
	if got := shown(t, c, 1); got != "0 9" {
		t.Fatalf("got %q, want 0 9", got)
	}
	admin := kadm.NewClient(m.client)
	if _, err := admin.DeleteTopic(testContext(t), codec.RemoteLogMetadata); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(testContext(t), metadataPartitions, 1, nil, codec.RemoteLogMetadata); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing known of the old topic", func() bool { return now(c, 1) == "" })
	wantCounted(t, registry, "tiergate_upstream_tiered_records_total", map[string]float64{"": 2})
}

func TestTieredOffsetsOfRecordsThatWereRemoved(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	home := tiered.MetadataPartition(tiered.UUID{1}, 0, metadataPartitions)
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: codec.RemoteLogMetadata, Partition: home, At: 1})
	if _, err := kadm.NewClient(m.client).DeleteRecords(testContext(t), to); err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	c := m.reader(t, Options{Logger: log.logger()})
	eventually(t, "readiness: other partitions are known", func() bool { return c.TieredOffsetsReady() == nil })
	for topic := byte(1); topic < 10; topic++ {
		want := ""
		if tiered.MetadataPartition(tiered.UUID{topic}, 0, metadataPartitions) == home {
			want = "unknown"
		}
		if got := now(c, topic); got != want {
			t.Errorf("topic %d: got %q, want %q", topic, got, want)
		}
	}
	if got := log.lines("a finite retention"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
}

func TestTieredOffsetsAfterARecordThatCannotBeRead(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	log := &logged{}
	c := m.reader(t, Options{Logger: log.logger()})
	if got := shown(t, c, 1); got != "0 9" {
		t.Fatalf("got %q, want 0 9", got)
	}
	home := tiered.MetadataPartition(tiered.UUID{1}, 0, metadataPartitions)
	m.raw(t, home, []byte{2, 0, 0}) // a frame version of the future
	if got := shown(t, c, 1); got != "unknown" {
		t.Errorf("got %q, want unknown", got)
	}
	if got := log.lines("frame version 2, want 1"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
}

// While the end of the topic cannot be seen, what was read gets too old.
func TestTieredOffsetsGetTooOld(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: m.ListenAddrs(), TieredOffsets: TieredOffsetsFromMetadataTopic}, clock.now)
	c.Start(t.Context())
	if got := shown(t, c, 1); got != "0 9" {
		t.Fatalf("got %q, want 0 9", got)
	}
	answering := make(chan struct{})
	m.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-answering:
			return nil, nil, false
		default:
		}
		m.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
			t := kmsg.NewListOffsetsResponseTopic()
			t.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, kerr.OffsetNotAvailable.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
	eventually(t, "what was read to become too old", func() bool {
		clock.pass(time.Second)
		return now(c, 1) == "unknown"
	})
	if err := c.TieredOffsetsReady(); err == nil || !strings.Contains(err.Error(), "was not seen for") {
		t.Errorf("ready: %v", err)
	}
	close(answering)
	if got := shown(t, c, 1); got != "0 9" {
		t.Errorf("got %q, want 0 9 again", got)
	}
}

func TestTieredOffsetsOverLeadersThatMoveAndConnectionsThatBreak(t *testing.T) {
	m := newMetadataLog(t, withTopic())
	registry := prometheus.NewRegistry()
	c := m.reader(t, Options{Registerer: registry})
	for round := range int64(3) {
		m.write(t, uploaded(1, 10+round), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
		if got, want := shown(t, c, 1), fmt.Sprintf("0 %d", 10+round); got != want {
			t.Fatalf("round %d: got %q, want %q", round, got, want)
		}
		for p := range int32(metadataPartitions) {
			if err := m.MoveTopicPartition(codec.RemoteLogMetadata, p, (p+int32(round))%3); err != nil {
				t.Fatal(err)
			}
		}
		m.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("the connection breaks"), true
		})
	}
	m.write(t, uploaded(1, 20), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	if got := shown(t, c, 1); got != "0 20" {
		t.Fatalf("got %q, want 0 20", got)
	}
	wantCounted(t, registry, "tiergate_upstream_tiered_reader_restarts_total", map[string]float64{})
}

func TestCheckTieredOffsets(t *testing.T) {
	check := func(m *metadataLog, want string) {
		t.Helper()
		c := newTestCluster(t, Options{BootstrapServers: m.ListenAddrs()}, time.Now)
		if err := c.BrokerList(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.CheckTieredOffsets(testContext(t))); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	check(newMetadataLog(t), "[there is no topic __remote_log_metadata: tiered storage is off in the brokers, or another RemoteLogMetadataManager is in use]")
	m := newMetadataLog(t, withTopic())
	m.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	check(m, "[]")
	m.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		m.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, topic := range req.(*kmsg.MetadataRequest).Topics {
			t := kmsg.NewMetadataResponseTopic()
			t.Topic, t.ErrorCode = topic.Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, len(resp.Topics) > 0
	})
	check(m, "[__remote_log_metadata may not be read: grant READ on it to the service client (client id tiergate)]")

	custom := newMetadataLog(t, withTopic(), kfake.NumBrokers(1))
	custom.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		custom.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, "0"
		config := kmsg.NewDescribeConfigsResponseResourceConfig()
		config.Name, config.Value = metadataManagerClass, kmsg.StringPtr("com.example.Manager")
		r.Configs = append(r.Configs, config)
		resp.Resources = append(resp.Resources, r)
		return resp, nil, true
	})
	check(custom, "[node 0 has remote.log.metadata.manager.class.name=com.example.Manager: what is uploaded is not in the topic __remote_log_metadata; "+
		"only org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager writes it]")

	short := newMetadataLog(t, withTopic())
	short.write(t, uploaded(1, 9), tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)
	home := tiered.MetadataPartition(tiered.UUID{1}, 0, metadataPartitions)
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: codec.RemoteLogMetadata, Partition: home, At: 1})
	if _, err := kadm.NewClient(short.client).DeleteRecords(testContext(t), to); err != nil {
		t.Fatal(err)
	}
	check(short, fmt.Sprintf("[partition %d of __remote_log_metadata: the topic begins at offset 1: "+
		"a finite retention (remote.log.metadata.topic.retention.ms) has removed records]", home))
}
