// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/cache"
	"tiergate/codec"
)

const (
	// minRefresh is the time between two requests for the broker list, whoever wants
	// one: the answer is shared for so long.
	minRefresh = time.Second
	// recheckEvery is the time between two requests for the broker list because a broker
	// could not be dialed: it may have moved a moment ago.
	recheckEvery = 100 * time.Millisecond
	// recheckPatience is how long a dial that has failed waits for such a list.
	recheckPatience = 2 * time.Second
	// readyRefreshes is for how many refresh intervals a broker that was reached makes
	// the cluster ready.
	readyRefreshes = 2
)

// Node is a broker: NodeID, Host, Port, Rack.
type Node = cache.Node

// Cluster is one Kafka cluster as the proxy sees it. All methods are safe for
// concurrent use; each says whether it blocks.
type Cluster struct {
	opts    Options
	now     func() time.Time
	metrics *metrics
	warned  warnings
	client  *kgo.Client // the service client; connects when it has something to ask
	failed  *failures
	prefer  preference
	nodes   cache.Nodes
	tiered  map[string]struct{} // Options.TieredTopics

	lists     *cache.Loading[struct{}, refreshed]           // asking for the broker list
	rechecks  *cache.Loading[struct{}, refreshed]           // asking for it because a dial failed
	statuses  *cache.Loading[string, codec.RemoteStorage]   // by topic, as looked up
	lastKnown *cache.Loading[string, codec.RemoteStorage]   // by topic, for when no lookup tells; only Put and Get
	system    *cache.Loading[struct{}, codec.RemoteStorage] // remote.log.storage.system.enable
	wanted    chan struct{}                                 // one element: refresh soon

	tieredReader *tieredReader // nil: Options.TieredOffsets are off

	nextServer atomic.Uint32             // where the next DialBootstrap begins
	selfDialed noted                     // addresses that Options.Own refused
	reachedAt  atomic.Pointer[time.Time] // when a broker was last reached
	refusedBy  atomic.Pointer[refreshed] // the last refresh, if it failed

	startOnce sync.Once
	closeOnce sync.Once
	stop      context.CancelFunc // of everything that Start began
	running   context.Context
	loops     sync.WaitGroup
}

// refreshed is the outcome of a request for the broker list.
type refreshed struct{ err error }

// New checks the options and prepares everything. It connects to nothing: a cluster
// that is down is no fault here. The caller must Close it.
func New(opts Options) (*Cluster, error) {
	return newCluster(opts, time.Now)
}

func newCluster(opts Options, now func() time.Time) (*Cluster, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	c := &Cluster{
		opts:   opts,
		now:    now,
		warned: warnings{now: now},
		failed: newFailures(now),
		prefer: preference{now: now},
		tiered: make(map[string]struct{}, len(opts.TieredTopics)),
		wanted: make(chan struct{}, 1),
	}
	for _, topic := range opts.TieredTopics {
		c.tiered[topic] = struct{}{}
	}
	c.running, c.stop = context.WithCancel(context.Background())
	if c.client, err = c.newServiceClient(opts.BootstrapServers...); err != nil {
		return nil, fmt.Errorf("upstream: service client: %w", err)
	}
	// A request may be tried on a second broker when the first lets it time out.
	bounds := cache.Options{MaxEntries: 1, LoadTimeout: 2 * opts.RequestTimeout, Now: now}
	c.lists = cache.NewLoading(c.loadBrokerList, bounds)
	c.rechecks = cache.NewLoading(c.recheckBrokerList, bounds)
	c.system = cache.NewLoading(c.loadRemoteStorageSystem, bounds)
	bounds.MaxEntries = opts.MaxTopics
	c.statuses = cache.NewLoading(c.loadStatuses, bounds)
	c.lastKnown = cache.NewLoading[string, codec.RemoteStorage](nil, bounds)
	if opts.TieredOffsets == TieredOffsetsFromMetadataTopic {
		c.tieredReader = newTieredReader(c)
	}
	c.metrics = newMetrics(c)
	if err := c.metrics.register(opts.Registerer); err != nil {
		c.Close()
		return nil, fmt.Errorf("upstream: register metrics: %w", err)
	}
	return c, nil
}

// Start begins to keep the node map current, now and every MetadataRefresh, until
// ctx ends or Close. It does not wait for a broker. Only the first call counts.
func (c *Cluster) Start(ctx context.Context) {
	c.startOnce.Do(func() {
		c.loops.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(c.running, cancel)()
			c.keepNodes(ctx)
		})
		if c.tieredReader != nil {
			c.loops.Go(func() {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(c.running, cancel)()
				c.tieredReader.run(ctx)
			})
		}
	})
}

// Close ends the service client, the lookups under way and what Start began, and
// waits until all of it has ended. Connections that were dialed stay: they are their
// sessions'. Dials after Close still work where they need no broker list.
func (c *Cluster) Close() {
	c.closeOnce.Do(func() {
		c.stop()
		c.client.Close() // first: it ends the requests that the loads wait for
		c.lists.Close()
		c.rechecks.Close()
		c.statuses.Close()
		c.system.Close()
	})
	c.loops.Wait()
}

// Nodes returns the known brokers, sorted by node id. The slice is shared: callers
// must not write to it, and may keep it. It never blocks.
func (c *Cluster) Nodes() []Node { return c.nodes.Snapshot() }

// ObserveNodes learns the brokers that one response to a client names, with their real
// addresses. It never blocks: loops call it. What names no broker (node id -1, no host)
// is ignored.
func (c *Cluster) ObserveNodes(named ...Node) { c.nodes.Observe(named...) }

// Ready returns nil when some broker was reached within the last two refresh
// intervals: a connection was opened, or one answered the service client. Else it
// says since when and why not. It never blocks.
func (c *Cluster) Ready() error {
	window := readyRefreshes * max(c.opts.MetadataRefresh, minRefresh)
	at := c.reachedAt.Load()
	if at != nil && c.now().Sub(*at) <= window {
		return nil
	}
	since := "no broker was reached yet"
	if at != nil {
		since = fmt.Sprintf("no broker was reached for %v", c.now().Sub(*at).Round(time.Second))
	}
	if last := c.refusedBy.Load(); last != nil {
		return fmt.Errorf("%s: %w", since, last.err)
	}
	return fmt.Errorf("%s", since)
}

func (c *Cluster) reached() {
	now := c.now()
	c.reachedAt.Store(&now)
}

// wantRefresh makes the loop that Start began ask for the broker list soon.
func (c *Cluster) wantRefresh() {
	select {
	case c.wanted <- struct{}{}:
	default: // one is wanted already
	}
}

// BrokerList asks the cluster for its brokers, as the service client, unless that was
// done within the last second. Its error says why there is no list. It blocks for twice
// RequestTimeout at the most, and until ctx ends.
func (c *Cluster) BrokerList(ctx context.Context) error { return c.refresh(ctx) }

// refresh asks for the broker list, or shares the answer of less than a second ago.
func (c *Cluster) refresh(ctx context.Context) error {
	got, err := c.lists.Load(ctx, []struct{}{{}})
	if err != nil {
		return fmt.Errorf("asking for the broker list: %w", err)
	}
	return got[struct{}{}].err
}

// keepNodes refreshes until ctx ends. After a failure it asks again after 1 s, then
// 2 s and so on up to MetadataRefresh.
func (c *Cluster) keepNodes(ctx context.Context) {
	retry := minRefresh
	for {
		err := c.refresh(ctx)
		wait := c.opts.MetadataRefresh
		if err != nil {
			wait = min(retry, wait)
			retry = min(2*retry, c.opts.MetadataRefresh)
		} else {
			retry = minRefresh
		}
		timer := time.NewTimer(jitter(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-c.wanted:
			timer.Stop()
		}
	}
}

// jitter spreads d by a tenth either way, so that many proxies do not ask at once.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // spreads load, keeps no secret
}
