// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/codec"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/kafka"
	"tiergate/loadtest/report"
)

// cluster is brokers that run. admin asks them directly.
type cluster struct {
	spec  Cluster
	real  *kafka.Cluster // of kind: real
	sim   *sim.Cluster   // of kind: sim
	admin *kgo.Client
	// bootstrap are the direct addresses.
	bootstrap []string
	topics    map[string]*sharedTopic
}

// retrySoon is the backoff of all clients of the harness: kgo's own begins at 250 ms, in
// which a whole test on the simulated cluster is over.
func retrySoon(tries int) time.Duration {
	return min(20*time.Millisecond<<min(tries, 6), time.Second)
}

// baseOptions are those of every client of the harness.
func baseOptions(bootstrap []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap...),
		kgo.ClientID("tiergate-loadtest"),
		kgo.RetryBackoffFn(retrySoon),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.DisableClientMetrics(),
		kgo.DialTimeout(5 * time.Second),
		// A connection that ends before its first answer is one that was cut, and no sign
		// of TLS, which is what the client takes it for.
		kgo.AlwaysRetryEOF(),
	}
}

// startCluster starts brokers with a listener for each target that wants one.
func startCluster(ctx context.Context, spec Cluster, listeners []listenerFor, log *slog.Logger) (*cluster, error) {
	c := &cluster{spec: spec, topics: make(map[string]*sharedTopic)}
	var err error
	switch spec.Kind {
	case ClusterReal:
		err = c.startReal(ctx, listeners, log)
	case ClusterSim:
		err = c.startSim()
	case ClusterExisting:
		c.bootstrap = spec.Bootstrap
	}
	if err == nil {
		c.admin, err = kgo.NewClient(append(baseOptions(c.bootstrap), kgo.RetryTimeout(30*time.Second))...)
	}
	if err == nil {
		err = c.admin.Ping(ctx)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("cluster %s: %w", spec.Name, err)
	}
	return c, nil
}

func (c *cluster) close() {
	if c.admin != nil {
		c.admin.Close()
	}
	if c.real != nil {
		c.real.Close()
	}
	if c.sim != nil {
		c.sim.Close()
	}
}

// listenerFor is one more listener on every broker of a real cluster, for one target.
type listenerFor struct {
	name string
	// ports are where the brokers listen, by the index of the node.
	ports []int
	// advertised are the addresses that clients of the listener are told; nil: the
	// listener's own.
	advertised []string
}

func (c *cluster) startReal(ctx context.Context, listeners []listenerFor, log *slog.Logger) error {
	o := kafka.Options{
		Version: c.spec.Version, HeapMiB: int(c.spec.Heap >> 20), JVM: c.spec.JVM, Dir: c.spec.Dir, Logger: log,
		Properties: map[string]string{
			// Throughput, which the launcher's small brokers are not made for.
			"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1", // the kernel's own tuning
			"log.retention.check.interval.ms": "1000", "message.max.bytes": strconv.Itoa(16 << 20),
		},
	}
	if c.spec.Tiered {
		o.TieredStorage = kafka.TieredStorageOn
	}
	maps.Copy(o.Properties, c.spec.Properties)
	for i := range c.spec.Brokers {
		n := kafka.NodeOptions{NodeID: int32(i)}
		for _, l := range listeners {
			k := kafka.Listener{Name: l.name, Port: l.ports[i]}
			if l.advertised != nil {
				k.Advertised = l.advertised[i]
			}
			n.Listeners = append(n.Listeners, k)
		}
		o.Nodes = append(o.Nodes, n)
	}
	var err error
	if c.real, err = kafka.Launch(ctx, o); err != nil {
		return err
	}
	c.bootstrap = c.real.BootstrapServers()
	return nil
}

// simVersions are what a simulated broker can answer as, by Kafka's major and minor.
func simVersions() map[string]sim.Version {
	return map[string]sim.Version{
		"3.8": sim.Kafka38, "3.9": sim.Kafka39, "4.0": sim.Kafka40, "4.1": sim.Kafka41, "4.2": sim.Kafka42, "4.3": sim.Kafka43,
	}
}

func (c *cluster) startSim() error {
	minor := c.spec.Version[:strings.LastIndexByte(c.spec.Version, '.')]
	v, ok := simVersions()[minor]
	if !ok {
		return fmt.Errorf("the simulated cluster answers as Kafka 3.8 to 4.3, not as %s", c.spec.Version)
	}
	o := sim.Options{Version: v, Brokers: c.spec.Brokers}
	if c.spec.Tiered {
		o.SystemRemoteStorage = codec.RemoteStorageEnabled
	}
	var err error
	if c.sim, err = sim.New(o); err != nil {
		return err
	}
	c.bootstrap = c.sim.Addresses()
	return nil
}

// newTopic is what is asked of createTopics.
type newTopic struct {
	name       string
	partitions int
	replicas   int
	tiered     bool
	configs    map[string]string
}

// createTopic creates a topic and returns when every partition has a leader that answers.
func (c *cluster) createTopic(ctx context.Context, t newTopic) error {
	configs := maps.Clone(t.configs)
	if configs == nil {
		configs = make(map[string]string)
	}
	if t.tiered && c.spec.Kind != ClusterSim {
		configs["remote.storage.enable"] = "true"
	}
	if c.sim != nil {
		st := sim.Topic{Name: t.name}
		for range t.partitions {
			l := tierlog.New(0)
			if t.tiered {
				l.SetRemoteStorage(codec.RemoteStorageEnabled)
			}
			st.Partitions = append(st.Partitions, l)
		}
		return c.sim.AddTopics(st)
	}
	values := make(map[string]*string)
	for k, v := range configs {
		values[k] = &v
	}
	replicas := t.replicas
	if c.spec.Kind == ClusterReal {
		replicas = min(replicas, c.spec.Brokers)
	}
	adm := kadm.NewClient(c.admin)
	if _, err := adm.CreateTopic(ctx, int32(t.partitions), int16(replicas), values, t.name); err != nil {
		return fmt.Errorf("create topic %s: %w", t.name, err)
	}
	return c.await(ctx, "leaders of topic "+t.name, func() error {
		o, err := adm.ListEndOffsets(ctx, t.name)
		if err == nil {
			err = o.Error()
		}
		if err == nil && len(o[t.name]) < t.partitions {
			err = errors.New("partitions are missing")
		}
		return err
	})
}

// await calls f until it returns nil, for a minute.
func (c *cluster) await(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return kafka.Poll(ctx, what, func(context.Context) error { return f() })
}

// deleteTopic deletes a topic, as far as it can: the room on the disk is wanted, and
// nothing depends on it.
func (c *cluster) deleteTopic(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := kadm.NewClient(c.admin).DeleteTopic(ctx, name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return err
}

// endOffsets returns where the partitions of a topic end, asked directly.
func (c *cluster) endOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return c.offsets(ctx, topic, kadm.NewClient(c.admin).ListEndOffsets)
}

func (c *cluster) offsets(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	o, err := list(ctx, topic)
	if err == nil {
		err = o.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of topic %s: %w", topic, err)
	}
	m := make(map[int32]int64)
	o.Each(func(l kadm.ListedOffset) { m[l.Partition] = l.Offset })
	return m, nil
}

// nodes returns the brokers as they advertise themselves to admin, by node id.
func (c *cluster) nodes(ctx context.Context) (map[int32]string, error) {
	m, err := kadm.NewClient(c.admin).BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make(map[int32]string)
	for _, b := range m.Brokers {
		nodes[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	return nodes, nil
}

// software says what the cluster runs, for the report.
func (c *cluster) software() report.Software {
	s := report.Software{Name: "cluster " + c.spec.Name}
	switch c.spec.Kind {
	case ClusterReal:
		s.Version = fmt.Sprintf("Apache Kafka %s, %d brokers, heap %s", c.spec.Version, c.spec.Brokers, c.spec.Heap)
	case ClusterSim:
		s.Version = fmt.Sprintf("simulated (kfake), answers as Kafka %s, %d brokers", c.spec.Version, c.spec.Brokers)
	case ClusterExisting:
		s.Version = "existing, at " + strings.Join(c.spec.Bootstrap, ", ")
	}
	return s
}
