// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/internal/testkit/recorder"
	gates "tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// nodes of the cluster of TestSeveralBrokers, whose node ids start at 1.
const severalNodes = 2

// several is a cluster of two brokers with tiergate before it, on a listener that rewrites
// addresses, and recorders before its bootstrap port and before each node's.
type several struct {
	cluster   *kafka.Cluster
	bootstrap *recorder.Recorder
	nodes     map[int32]*recorder.Recorder // by node id
}

// TestSeveralBrokers has what one broker does not: leaders elsewhere, and answers that say
// where they are (KIP-951).
func TestSeveralBrokers(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := &several{nodes: make(map[int32]*recorder.Recorder)}
	s.cluster = gates.Brokers(t, kafka.Options{
		Version: kafka.Kafka41, TieredStorage: kafka.TieredStorageOn, Logger: progress(),
		Nodes: []kafka.NodeOptions{{NodeID: 1}, {NodeID: 2}},
	})
	s.open(t, ctx)
	const topic, partitions = "spread", 6
	must(t, s.cluster.CreateTopic(ctx, topic, partitions, 1, map[string]string{"remote.storage.enable": "true"}))
	s.produce(t, ctx, topic, partitions)

	t.Run("traffic", func(t *testing.T) { franzTraffic(t, ctx, s.bootstrap.Address(), "spread-franz-go") })
	t.Run("newcomer", func(t *testing.T) {
		var want []string
		for p := range int32(partitions) {
			want = append(want, shellLine(topic, p, 0))
		}
		if r := pendingUploadShell(t, ctx, s.bootstrap.Address(), topic); r.Stdout != strings.Join(want, "") {
			t.Errorf("%v\nwant on stdout\n%s", r, strings.Join(want, ""))
		}
	})
	t.Run("wrong leader", func(t *testing.T) { s.askWrongLeaders(t, ctx, topic) })
	s.checkAddresses(t, ctx)
}

// open starts tiergate and the recorders, as stand.open does.
func (s *several) open(t *testing.T, ctx context.Context) {
	t.Helper()
	ports, err := kafka.FreePorts(1 + severalNodes)
	must(t, err)
	startGate(t, ctx, fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
listeners:
  - name: clients
    bootstrap: "127.0.0.2:%d"
    nodes: "127.0.0.2:%d-%d"
    first_node_id: 1
    advertised_host: "127.0.0.1"
`, s.cluster.BootstrapServers()[0], ports[0], ports[1], ports[severalNodes]))
	through := func(port int) *recorder.Recorder {
		return record(t, kafka.Loopback(port), "127.0.0.2:"+strconv.Itoa(port))
	}
	s.bootstrap = through(ports[0])
	for i := range int32(severalNodes) {
		s.nodes[1+i] = through(ports[1+i])
	}
}

// produce puts a record into each partition.
func (s *several) produce(t *testing.T, ctx context.Context, topic string, partitions int32) {
	t.Helper()
	cl, err := s.cluster.Client()
	must(t, err)
	defer cl.Close()
	for p := range partitions {
		must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")}).FirstErr())
	}
}

// askWrongLeaders asks each node for a partition that another one leads, at the newest
// versions that tiergate offers. The broker answers NOT_LEADER_OR_FOLLOWER and, from some
// version on, with the leader's address.
func (s *several) askWrongLeaders(t *testing.T, ctx context.Context, topic string) {
	for nodeID, recorder := range s.nodes {
		conn := dial(t, ctx, recorder.Address())
		offered := offeredVersions(t, ctx, conn)
		id, partition := s.ledElsewhere(t, ctx, conn, topic, nodeID)

		fetch := kmsg.NewPtrFetchRequest()
		fetch.Version, fetch.MaxBytes, fetch.SessionEpoch = offered[fetch.Key()], 1<<20, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic, ft.TopicID = topic, id
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.PartitionMaxBytes = partition, 1<<20
		ft.Partitions = append(ft.Partitions, fp)
		fetch.Topics = append(fetch.Topics, ft)
		resp, err := conn.Request(ctx, fetch)
		must(t, err)
		fetched := resp.(*kmsg.FetchResponse)
		if code := fetched.Topics[0].Partitions[0].ErrorCode; code != 6 {
			t.Errorf("Fetch v%d of %s-%d from node %d: error code %d, not NOT_LEADER_OR_FOLLOWER", fetch.Version, topic, partition, nodeID, code)
		}
		t.Logf("Fetch v%d to the wrong leader, node %d, names %+v", fetch.Version, nodeID, fetched.Brokers)

		cluster := kmsg.NewPtrDescribeClusterRequest()
		cluster.Version = offered[cluster.Key()]
		_, err = conn.Request(ctx, cluster)
		must(t, err)
	}
}

// offeredVersions returns the newest version of each API that tiergate and kmsg know.
func offeredVersions(t *testing.T, ctx context.Context, conn *kafka.Conn) map[int16]int16 {
	t.Helper()
	resp, err := conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
	must(t, err)
	offered := make(map[int16]int16)
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if req := kmsg.RequestForKey(k.ApiKey); req != nil {
			offered[k.ApiKey] = min(k.MaxVersion, req.MaxVersion())
		}
	}
	return offered
}

// ledElsewhere returns a partition that the node does not lead.
func (s *several) ledElsewhere(t *testing.T, ctx context.Context, conn *kafka.Conn, topic string, nodeID int32) (id [16]byte, partition int32) {
	t.Helper()
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(topic)
	metadata.Topics = append(metadata.Topics, mt)
	resp, err := conn.Request(ctx, metadata)
	must(t, err)
	for _, topic := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range topic.Partitions {
			if p.Leader != nodeID {
				return topic.TopicID, p.Partition
			}
		}
	}
	t.Fatalf("node %d leads everything", nodeID)
	return id, 0
}

// checkAddresses makes sure that every address that clients were told is a node's port of
// tiergate, and that all nodes were named.
func (s *several) checkAddresses(t *testing.T, ctx context.Context) {
	t.Helper()
	told := make(map[string]int)
	responses := 0
	for _, r := range append(slices.Collect(maps.Values(s.nodes)), s.bootstrap) {
		must(t, r.AwaitEnd(ctx))
		responses += addressesTold(t, r, told)
	}
	report(t, "rewriting before %d brokers: %d responses name %v", severalNodes, responses, told)
	for _, r := range s.nodes {
		if told[r.Address()] == 0 {
			t.Errorf("no client was told of %s", r.Address())
		}
		delete(told, r.Address())
	}
	if len(told) != 0 {
		t.Errorf("clients were told addresses that are not tiergate's: %v", told)
	}
}
