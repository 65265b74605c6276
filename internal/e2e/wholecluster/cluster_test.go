// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// nodes of the cluster: their ids are 1 to nodes.
const nodes = 3

// clients is the listener that brokers advertise with a name that nobody resolves.
const clients = "CLIENTS"

// brokerName is what a node advertises at that listener, with the listener's port.
func brokerName(nodeID int32) string { return fmt.Sprintf("broker-%d.kafka.invalid", nodeID) }

// whole is the cluster, and tiergate before it.
type whole struct {
	cluster   *kafka.Cluster
	admin     *kadm.Client // of the brokers' own listeners
	gate      *stand.Gate
	bootstrap string           // of tiergate
	nodeAddrs map[int32]string // of tiergate, by node id
	leaking   []string         // addresses of a listener without one for the last node, its bootstrap first
}

// startWhole starts the brokers, which are tiered, in Kafka 4.1.1.
func startWhole(t *testing.T, ctx context.Context) *whole {
	t.Helper()
	var options []kafka.NodeOptions
	for id := range int32(nodes) {
		options = append(options, kafka.NodeOptions{NodeID: id + 1, Listeners: []kafka.Listener{{Name: clients, AdvertisedHost: brokerName(id + 1)}}})
	}
	w := &whole{}
	w.cluster = stand.Brokers(t, kafka.Options{
		Version: kafka.Kafka41, TieredStorage: kafka.TieredStorageOn, Logger: progress(), Nodes: options,
		Properties: map[string]string{
			// One node or another is down at times, and everything goes on.
			"min.insync.replicas": "2",
			"rlmm.config.remote.log.metadata.topic.replication.factor": "3",
			// Segments are rolled by the test, not by whoever leads a partition of these.
			"offsets.topic.segment.bytes": "104857600",
		},
	})
	t.Cleanup(func() { w.showBrokerErrors(t) })
	client, err := w.cluster.Client()
	must(t, err)
	t.Cleanup(client.Close)
	w.admin = kadm.NewClient(client)
	// Share groups are a preview in 4.1 and finalised in 4.2.
	w.finalize(t, ctx, "share.version", 1)
	return w
}

// showBrokerErrors shows the last errors in the brokers' logs if the test failed.
func (w *whole) showBrokerErrors(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, n := range w.cluster.Nodes() {
		log, err := os.ReadFile(n.LogPath())
		if err != nil {
			t.Log(err)
			continue
		}
		var errors strings.Builder
		left := 0
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "] ERROR ") {
				left = 8 // with some of the stack below it
			}
			if left--; left >= 0 {
				errors.WriteString(line)
			}
		}
		t.Logf("--- errors in the log of node %d\n%s", n.NodeID(), tail(errors.String()))
	}
}

// finalize raises a feature of the cluster to a level.
func (w *whole) finalize(t *testing.T, ctx context.Context, feature string, level int16) {
	t.Helper()
	updated, err := w.admin.UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: feature, MaxVersionLevel: level, UpgradeType: 1})
	must(t, err)
	must(t, updated.Error())
}

// open returns the cluster with a tiergate of its own before it. mode is
// earliest_pending_upload.
func (w whole) open(t *testing.T, ctx context.Context, mode string) *whole {
	t.Helper()
	w.nodeAddrs = make(map[int32]string)
	ports, err := kafka.FreePorts(2 * (1 + nodes))
	must(t, err)
	var servers, hosts []string
	for _, n := range w.cluster.Nodes() {
		_, port, _ := net.SplitHostPort(n.ListenerAddress(clients))
		servers = append(servers, strconv.Quote(net.JoinHostPort(brokerName(n.NodeID()), port)))
		hosts = append(hosts, fmt.Sprintf("    %s: 127.0.0.1", brokerName(n.NodeID())))
		w.nodeAddrs[n.NodeID()] = kafka.Loopback(ports[n.NodeID()])
	}
	w.bootstrap, w.leaking = kafka.Loopback(ports[0]), nil
	for _, port := range ports[1+nodes : 1+2*nodes] {
		w.leaking = append(w.leaking, kafka.Loopback(port))
	}
	w.gate = stand.Start(t, ctx, fmt.Sprintf(`
upstream:
  bootstrap_servers: [%s]
  hosts:
%s
listeners:
  - name: clients
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    first_node_id: 1
    advertised_host: "127.0.0.1"
  - name: leaking
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    first_node_id: 1
    advertised_host: "127.0.0.1"
    unmapped_nodes: passthrough
earliest_pending_upload: %s
`, strings.Join(servers, ", "), strings.Join(hosts, "\n"), w.bootstrap, ports[1], ports[nodes], w.leaking[0], ports[2+nodes], ports[2*nodes], mode))
	return &w
}

// allowed are the addresses that clients may connect to.
func (w *whole) allowed() []string {
	addrs := []string{w.bootstrap}
	for _, addr := range w.nodeAddrs {
		addrs = append(addrs, addr)
	}
	return addrs
}

// checkTargets makes sure that a client connected to every node through tiergate, and to
// nothing else.
func (w *whole) checkTargets(t *testing.T, what string, seen targets) {
	t.Helper()
	if found := seen.elsewhere(w.allowed()); len(found) > 0 {
		t.Errorf("%s turned to %v, which are not tiergate", what, found)
	}
	for _, addr := range w.allowed() {
		if seen[addr] == 0 {
			t.Errorf("%s never connected to %s: %v; is it watched at all?", what, addr, seen)
		}
	}
}

// java returns the command of the Java client, which is of Kafka 4.3.
func (w *whole) java(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	return jars(t, ctx).Command(kafka.Tool{Class: "Calls", Args: args, ClassPath: os.Getenv(toolsEnv)}, t.TempDir())
}

func jars(t *testing.T, ctx context.Context) kafka.Jars {
	t.Helper()
	j, err := kafka.Fetch(ctx, kafka.Kafka43, progress())
	must(t, err)
	return j
}

// librdkafka returns the command of the librdkafka client.
func (w *whole) librdkafka(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	interpreter, err := python()
	must(t, err)
	return exec.Command(interpreter, append([]string{"testdata/librdkafka.py"}, args...)...)
}

// franz returns a franz-go client of tiergate that is watched.
func (w *whole) franz(t *testing.T, d *dialer, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.bootstrap), kgo.Dialer(d.dial), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// leaders says which node is to lead each partition of a topic.
type leaders map[string][]int32

// shifted has partition p of each topic led by node 1 + (p + shift) modulo nodes.
func shifted(shift int, partitions int, topics ...string) leaders {
	l := make(leaders)
	for _, topic := range topics {
		for p := range partitions {
			l[topic] = append(l[topic], int32(1+(p+shift)%nodes))
		}
	}
	return l
}

// moveLeaders makes nodes the preferred leaders of partitions, has them elected, and waits
// until they lead.
func (w *whole) moveLeaders(t *testing.T, ctx context.Context, to leaders) {
	t.Helper()
	var reassign kadm.AlterPartitionAssignmentsReq
	set := make(kadm.TopicsSet)
	for topic, leaders := range to {
		for p, leader := range leaders {
			replicas := []int32{leader}
			for id := int32(1); id <= nodes; id++ {
				if id != leader {
					replicas = append(replicas, id)
				}
			}
			reassign.Assign(topic, int32(p), replicas)
			set.Add(topic, int32(p))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	must(t, kafka.Poll(ctx, "leaders to be moved", func(ctx context.Context) error {
		if w.checkLeaders(ctx, to) == nil {
			return nil
		}
		if _, err := w.admin.AlterPartitionAssignments(ctx, reassign); err != nil {
			return err
		}
		if _, err := w.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		return w.checkLeaders(ctx, to)
	}))
}

// checkLeaders is nil when the nodes lead that are to.
func (w *whole) checkLeaders(ctx context.Context, to leaders) error {
	for topic, leaders := range to {
		m, err := w.admin.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		for p, want := range leaders {
			if now := m.Topics[topic].Partitions[int32(p)]; now.Leader != want || now.Err != nil {
				return fmt.Errorf("%s-%d is led by node %d, not %d: %w", topic, p, now.Leader, want, now.Err)
			}
		}
	}
	return nil
}
