// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/codec"
)

// Records says whether a topic has records behind its offsets.
type Records uint8

const (
	// ProducedRecords topics can be read: every offset of the model is a record in
	// kfake, and what clients produce is appended to the model.
	ProducedRecords Records = iota
	// NoRecords topics answer ListOffsets and OffsetForLeaderEpoch only. A start with
	// thousands of partitions or millions of offsets is then as fast as with none.
	// Clients must not produce to them.
	NoRecords
)

// DescribeConfigs says whether clients may ask for configs.
type DescribeConfigs uint8

const (
	DescribeConfigsAllowed DescribeConfigs = iota
	// DescribeConfigsDenied answers topics with TOPIC_AUTHORIZATION_FAILED and brokers
	// with CLUSTER_AUTHORIZATION_FAILED, as brokers do to a principal without
	// DESCRIBE_CONFIGS.
	DescribeConfigsDenied
)

// Options configure a Cluster. The zero value is three brokers of Kafka 4.1 without
// topics.
type Options struct {
	// Version is what the brokers answer as. Default: Kafka41.
	Version Version
	// NodeVersions are the brokers that differ, as during a rolling upgrade: by node
	// id. Only ListOffsets and its row in ApiVersions differ; all else is of the
	// newest version of the cluster.
	NodeVersions map[int32]Version
	// Brokers is their number; node ids count from 0. Default 3.
	Brokers int
	// Ports to listen on at 127.0.0.1, one for each broker. Default: free ports.
	Ports []int
	// Topics exist when New returns.
	Topics []Topic
	// DescribeConfigs can be changed later with SetDescribeConfigs.
	DescribeConfigs DescribeConfigs
	// SystemRemoteStorage is the brokers' remote.log.storage.system.enable. The zero
	// value says false; New does not look at whether topics agree.
	SystemRemoteStorage codec.RemoteStorage
	// TLS makes the brokers speak TLS.
	TLS *tls.Config
	// Kfake has more options for kfake, such as SASL users. kfake.ListenFn,
	// kfake.TLS, kfake.NumBrokers, kfake.Ports and kfake.MaxVersions are taken.
	Kfake []kfake.Opt
	// Client has options for the simulation's own client, which produces the records:
	// TLS and SASL, where the brokers want them.
	Client []kgo.Opt
	// OnRequest sees every request frame of a client before it is handled, size field
	// included. It must not keep or change the frame, and must not call the Cluster.
	// It is called concurrently, by one goroutine per connection.
	OnRequest func(nodeID int32, frame []byte)
}

// Cluster is a running simulation. All methods may be called from any goroutine.
type Cluster struct {
	options   Options
	kfake     *kfake.Cluster
	addresses []string
	client    *kgo.Client
	ctx       context.Context // ends when Close is called
	cancel    context.CancelFunc

	counts counts

	// mu guards the models and everything that says how they are answered. It is held
	// while kfake is asked for the state of its logs, and while records are produced,
	// so nothing that kfake waits for may take it for the client's own requests.
	mu              sync.Mutex
	closed          bool
	topics          map[string]*topic
	describeConfigs DescribeConfigs
	system          codec.RemoteStorage

	connsMu sync.Mutex
	conns   map[*conn]struct{}
	stopped bool
	drained sync.WaitGroup // one for each connection
}

// errClosed ends what runs into Close.
var errClosed = errors.New("sim: the cluster is closed")

// New starts a cluster. Close it.
func New(options Options) (*Cluster, error) {
	if options.Brokers == 0 {
		options.Brokers = max(3, len(options.Ports))
	}
	if n := len(options.Ports); n != 0 && n != options.Brokers {
		return nil, fmt.Errorf("sim: %d ports for %d brokers", n, options.Brokers)
	}
	options.NodeVersions = maps.Clone(options.NodeVersions)
	c := &Cluster{
		options:         options,
		topics:          make(map[string]*topic),
		describeConfigs: options.DescribeConfigs,
		system:          options.SystemRemoteStorage,
		conns:           make(map[*conn]struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start() error {
	newest, err := c.newest().versions()
	if err != nil {
		return err
	}
	ports := c.options.Ports
	if len(ports) == 0 {
		ports = make([]int, c.options.Brokers)
	}
	opts := append([]kfake.Opt{
		kfake.ClusterID("tiergate-sim"),
	}, c.options.Kfake...)
	opts = append(opts,
		kfake.NumBrokers(c.options.Brokers),
		kfake.Ports(ports...),
		kfake.MaxVersions(newest),
		kfake.ListenFn(c.listenFn()),
	)
	if c.kfake, err = kfake.NewCluster(opts...); err != nil {
		return fmt.Errorf("sim: start kfake: %w", err)
	}
	c.addresses = c.kfake.ListenAddrs()
	if c.client, err = c.newClient(); err != nil {
		return fmt.Errorf("sim: the client for records: %w", err)
	}
	return c.AddTopics(c.options.Topics...)
}

// listenFn gives each kfake broker its listener. kfake calls it once per broker, in
// the order of node ids, before it returns.
func (c *Cluster) listenFn() func(network, address string) (net.Listener, error) {
	next := int32(0)
	return func(network, address string) (net.Listener, error) {
		ln, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		if c.options.TLS != nil {
			ln = tls.NewListener(ln, c.options.TLS)
		}
		next++
		return &listener{Listener: ln, cluster: c, nodeID: next - 1}, nil
	}
}

func (c *Cluster) newClient() (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.addresses...),
		kgo.ClientID(ownClientID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(0),
		kgo.DisableClientMetrics(),
	}, c.options.Client...)...)
}

// newest is the highest version of any broker.
func (c *Cluster) newest() Version {
	newest := c.options.Version
	for _, v := range c.options.NodeVersions {
		if v.maxListOffsets() > newest.maxListOffsets() {
			newest = v
		}
	}
	return newest
}

func (c *Cluster) versionOf(nodeID int32) Version {
	if v, ok := c.options.NodeVersions[nodeID]; ok {
		return v
	}
	return c.options.Version
}

// Addresses returns host:port of the brokers; the index is the node id.
func (c *Cluster) Addresses() []string { return slices.Clone(c.addresses) }

// Kfake is the cluster beneath, for its faults and controls. Topics of this
// simulation are moved with MoveLeader and Update rather than with kfake's methods. Its
// methods block for ever after Close.
func (c *Cluster) Kfake() *kfake.Cluster { return c.kfake }

// Leader returns the node id of a partition's leader, or -1.
func (c *Cluster) Leader(topic string, partition int32) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return -1
	}
	return c.kfake.LeaderFor(topic, partition)
}

// SetDescribeConfigs allows or denies DescribeConfigs from now on.
func (c *Cluster) SetDescribeConfigs(d DescribeConfigs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.describeConfigs = d
}

// SetSystemRemoteStorage changes what brokers say of themselves.
func (c *Cluster) SetSystemRemoteStorage(r codec.RemoteStorage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.system = r
}

// CloseConnections cuts every client connection, as a broker restart does.
func (c *Cluster) CloseConnections() {
	c.connsMu.Lock()
	defer c.connsMu.Unlock()
	for nc := range c.conns {
		_ = nc.Conn.Close() // kfake closes the rest when its read fails
	}
}

func (c *Cluster) track(nc *conn) (net.Conn, error) {
	c.connsMu.Lock()
	defer c.connsMu.Unlock()
	if c.stopped {
		_ = nc.Conn.Close()
		return nil, net.ErrClosed
	}
	c.conns[nc] = struct{}{}
	c.drained.Add(1)
	return nc, nil
}

func (c *Cluster) untrack(nc *conn) {
	c.connsMu.Lock()
	defer c.connsMu.Unlock()
	delete(c.conns, nc)
	c.drained.Done()
}

// Close stops the brokers and returns when every connection is closed. It may be
// called more than once.
func (c *Cluster) Close() {
	c.cancel()
	if c.client != nil {
		c.client.Close()
	}
	c.mu.Lock()
	closed := c.closed
	c.closed = true // nobody asks kfake anything from here on: it would wait for ever
	c.mu.Unlock()
	if closed || c.kfake == nil {
		return
	}
	c.connsMu.Lock()
	c.stopped = true
	c.connsMu.Unlock()
	c.kfake.Close()
	c.drained.Wait()
}
