// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TieredStorage says whether brokers have a remote log storage.
type TieredStorage uint8

const (
	// TieredStorageOff is remote.log.storage.system.enable=false.
	TieredStorageOff TieredStorage = iota
	// TieredStorageOn is a LocalTieredStorage in a folder that all nodes share.
	TieredStorageOn
)

// Options describe a cluster. Version is required; everything else has a default.
type Options struct {
	// Version of Kafka, such as Kafka41.
	Version string
	// Nodes of the cluster. Default: one with node id 1.
	Nodes []NodeOptions
	// TieredStorage of every node. Default: off.
	TieredStorage TieredStorage
	// Properties of every node, stronger than those of the launcher.
	Properties map[string]string
	// HeapMiB is the largest heap of a node. Default 384.
	HeapMiB int
	// JVM are more options of the nodes' Java.
	JVM []string
	// Dir keeps the files of the cluster. Default: a temporary folder that Close removes.
	Dir string
	// Logger gets the progress. Default: none.
	Logger *slog.Logger
}

// NodeOptions describe one node, broker and controller at once.
type NodeOptions struct {
	// NodeID is node.id, at least 0.
	NodeID int32
	// Listeners beside PLAINTEXT, which every node has: it is where the brokers talk to
	// each other and where Cluster's own clients ask.
	Listeners []Listener
	// Properties of this node, stronger than Options.Properties.
	Properties map[string]string
	// JVM are more options of this node's Java, beside Options.JVM.
	JVM []string
}

// Listener is one more listener of a node.
type Listener struct {
	// Name, in capital letters, not PLAINTEXT or CONTROLLER.
	Name string
	// Protocol is PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL. What the
	// last three need besides goes into NodeOptions.Properties.
	Protocol string
	// Port on 127.0.0.1. Default: a free one.
	Port int
	// Advertised is the host:port that clients of this listener are told. Default: its
	// own address.
	Advertised string
	// AdvertisedHost is told with the listener's own port, where Advertised is empty. A
	// name that does not resolve shows who follows it.
	AdvertisedHost string
}

// advertised returns what clients are told.
func (l Listener) advertised() string {
	switch {
	case l.Advertised != "":
		return l.Advertised
	case l.AdvertisedHost != "":
		return net.JoinHostPort(l.AdvertisedHost, strconv.Itoa(l.Port))
	}
	return Loopback(l.Port)
}

// Cluster is a set of running brokers. Methods are safe for concurrent use, except that
// one node must not be started and stopped at the same time.
type Cluster struct {
	jars    Jars
	options Options
	dir     string
	ownsDir bool
	nodes   []*Node
	log     *slog.Logger

	adminOnce sync.Once
	admin     *kgo.Client
	adminErr  error
}

// startTimeout bounds the start of a cluster. A broker takes 3 to 10 s.
const startTimeout = 3 * time.Minute

// Launch fetches the jars if need be, starts all nodes, and returns when each of them
// answers and every partition has a leader. The caller must Close the cluster.
func Launch(ctx context.Context, options Options) (*Cluster, error) {
	log := options.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := Check(ctx, options.Version); err != nil {
		return nil, err
	}
	jars, err := Fetch(ctx, options.Version, log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{jars: jars, options: options, dir: options.Dir, log: log}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "tiergate-kafka-"+options.Version+"-"); err != nil {
			return nil, fmt.Errorf("folder of the cluster: %w", err)
		}
		c.ownsDir = true
	}
	if err := c.launch(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// launch lays the nodes out and starts them.
func (c *Cluster) launch(ctx context.Context) error {
	if err := c.layout(); err != nil {
		return err
	}
	began := time.Now()
	if err := each(c.nodes, func(n *Node) error { return n.format(ctx) }); err != nil {
		return err
	}
	if err := c.StartNodes(ctx); err != nil {
		return err
	}
	c.log.Info("Kafka is up", "version", c.jars.Version, "nodes", len(c.nodes), "took", time.Since(began).Round(time.Second/10).String())
	return nil
}

// layout gives every node its ports, folder and properties.
func (c *Cluster) layout() error {
	nodes := c.options.Nodes
	if len(nodes) == 0 {
		nodes = []NodeOptions{{NodeID: 1}}
	}
	for _, o := range nodes {
		ports, err := FreePorts(2 + len(o.Listeners))
		if err != nil {
			return err
		}
		n := &Node{cluster: c, options: o, jars: c.jars, dir: filepath.Join(c.dir, fmt.Sprintf("node-%d", o.NodeID)), controllerPort: ports[0]}
		n.listeners = append(n.listeners, Listener{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Port: ports[1]})
		for i, l := range o.Listeners {
			if l.Protocol == "" {
				l.Protocol = "PLAINTEXT"
			}
			if l.Port == 0 {
				l.Port = ports[2+i]
			}
			n.listeners = append(n.listeners, l)
		}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		if err := n.writeProperties(); err != nil {
			return err
		}
	}
	return nil
}

// StartNodes starts every node that is not running, at the same time, and waits until
// all of them answer.
func (c *Cluster) StartNodes(ctx context.Context) error {
	for _, n := range c.nodes {
		if n.Running() {
			continue
		}
		if err := n.launch(); err != nil {
			return err
		}
	}
	return each(c.nodes, func(n *Node) error { return n.waitReady(ctx) })
}

// Restart stops every node with SIGTERM and starts it again on its data and ports. Each
// partition gets a new leader epoch.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := each(c.nodes, func(n *Node) error { return n.Stop(ctx) }); err != nil {
		return err
	}
	return c.StartNodes(ctx)
}

// Close kills every node and removes the folder of the cluster unless Options.Dir named
// it. Calling it again has no effect.
func (c *Cluster) Close() {
	if c.admin != nil {
		c.admin.Close()
	}
	for _, n := range c.nodes {
		n.Kill()
	}
	if c.ownsDir {
		if err := os.RemoveAll(c.dir); err != nil {
			c.log.Warn("folder of the cluster stays behind", "error", err)
		}
	}
}

// Jars returns the jars that the cluster began with, for tools of the same version.
func (c *Cluster) Jars() Jars { return c.jars }

// Dir returns the folder of the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Node returns the node with that id; nil when there is none.
func (c *Cluster) Node(nodeID int32) *Node {
	for _, n := range c.nodes {
		if n.options.NodeID == nodeID {
			return n
		}
	}
	return nil
}

// Nodes returns all nodes in the order of Options.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// BootstrapServers returns the PLAINTEXT addresses of all nodes.
func (c *Cluster) BootstrapServers() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Address())
	}
	return addrs
}

// Client returns a new franz-go client of the PLAINTEXT listeners, which the caller
// must close. It produces uncompressed unless opts say otherwise: compressed records
// fill no segment.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(c.BootstrapServers()...),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RequestRetries(50),
	}, opts...)
	return kgo.NewClient(all...)
}

// own returns the cluster's client, for topics, records and configs.
func (c *Cluster) own() (*kgo.Client, error) {
	c.adminOnce.Do(func() { c.admin, c.adminErr = c.Client() })
	return c.admin, c.adminErr
}

// properties returns what a node's server.properties says, in the order of strength:
// the launcher's, the cluster's, the node's.
func (c *Cluster) properties(n *Node) map[string]string {
	p := n.baseProperties()
	if c.options.TieredStorage == TieredStorageOn {
		maps.Copy(p, c.tieredProperties())
	}
	maps.Copy(p, c.options.Properties)
	maps.Copy(p, n.options.Properties)
	return p
}

// each calls f for every element at the same time and returns all errors together.
func each[T any](of []T, f func(T) error) error {
	errs := make([]error, len(of))
	var wg sync.WaitGroup
	for i, v := range of {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
