// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/cache"
)

const (
	remoteStorageEnable       = "remote.storage.enable"            // TopicConfig.REMOTE_LOG_STORAGE_ENABLE_CONFIG
	cleanupPolicy             = "cleanup.policy"                   // TopicConfig.CLEANUP_POLICY_CONFIG
	remoteStorageSystemEnable = "remote.log.storage.system.enable" // RemoteLogManagerConfig
	reasonsShown              = 5                                  // addresses in the text of a failed refresh
)

// newServiceClient makes a client that picks the version of every request from the
// ApiVersions answer of the broker it goes to (KIP-896: a fixed old version is
// refused by newer brokers). It connects when the first request is made.
func (c *Cluster) newServiceClient(servers ...string) (*kgo.Client, error) {
	opts, err := c.serviceOptions(servers...)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(opts...)
}

// serviceOptions are those of every client of our own.
func (c *Cluster) serviceOptions(servers ...string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(servers...),
		kgo.ClientID(c.opts.ClientID),
		kgo.SoftwareNameAndVersion("tiergate", c.opts.Version),
		kgo.Dialer(c.dialService),
		kgo.RequestTimeoutOverhead(min(max(c.opts.RequestTimeout, 100*time.Millisecond), 15*time.Minute)), // kgo takes no others
		kgo.RetryTimeout(2 * c.opts.RequestTimeout),
		// Brokers that are down fail from memory in no time: go on to the next quickly.
		kgo.RetryBackoffFn(func(int) time.Duration { return jitter(50 * time.Millisecond) }),
		kgo.MetadataMaxAge(time.Hour), // keepNodes asks more often
		kgo.DisableClientMetrics(),    // KIP-714: nobody asked for them
		kgo.WithLogger(serviceLogger{c.opts.Logger}),
	}
	if c.opts.SASL != nil {
		mechanism, err := c.opts.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// dialService dials for the service client. kgo goes on to the next broker after a
// net.OpError that has no context error in it (kgo/errors.go, isSkippableBrokerErr),
// but net's own timeouts are context errors to errors.Is: so only the text is kept.
func (c *Cluster) dialService(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, address, targetService)
	if err == nil {
		conn, err = c.secure(ctx, conn, address)
	}
	if err != nil && ctx.Err() == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New(err.Error())}
	}
	return conn, err
}

// serviceLogger passes kgo's log on at debug level: what an operator must know is
// said by this package, once.
type serviceLogger struct{ log *slog.Logger }

func (l serviceLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelDebug
	}
	return kgo.LogLevelNone
}

func (l serviceLogger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug("service client: "+msg, keyvals...)
}

// loadBrokerList is the LoadFunc of Cluster.lists. Success and failure are both
// shared for minRefresh.
func (c *Cluster) loadBrokerList(ctx context.Context, keys []struct{}) map[struct{}]cache.Loaded[refreshed] {
	err := c.takeBrokerList(ctx, c.nodes.Sync)
	return map[struct{}]cache.Loaded[refreshed]{keys[0]: {Value: refreshed{err}, TTL: minRefresh}}
}

// recheckBrokerList is the LoadFunc of Cluster.rechecks. Such lists come so often that a
// broker is not forgotten because some of them do not name it.
func (c *Cluster) recheckBrokerList(ctx context.Context, keys []struct{}) map[struct{}]cache.Loaded[refreshed] {
	err := c.takeBrokerList(ctx, func(live []Node) (changed bool) { return c.nodes.Observe(live...) })
	return map[struct{}]cache.Loaded[refreshed]{keys[0]: {Value: refreshed{err}, TTL: recheckEvery}}
}

// takeBrokerList asks for the broker list, gives it to into, and says in log and metrics
// what came of it.
func (c *Cluster) takeBrokerList(ctx context.Context, into func(live []Node) (changed bool)) error {
	live, err := c.askBrokerList(ctx)
	switch {
	case err == nil:
		c.metrics.refreshes.WithLabelValues("ok").Inc()
		c.reached()
		changed := into(live)
		if last := c.refusedBy.Swap(nil); last != nil || changed {
			c.opts.Logger.Info("brokers of the cluster", "nodes", describe(c.nodes.Snapshot()))
		}
	case c.running.Err() == nil:
		c.metrics.refreshes.WithLabelValues("failed").Inc()
		if last := c.refusedBy.Swap(&refreshed{err}); last == nil {
			c.opts.Logger.Warn("no broker list from the cluster; trying again until there is one", "error", err)
		}
	}
	return err
}

func (c *Cluster) askBrokerList(ctx context.Context) ([]Node, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // empty: no topics; null would be all of them
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("no broker list: %w", c.explain(err))
	}
	if len(resp.Brokers) == 0 {
		return nil, errors.New("no broker list: the answer to a Metadata request names no broker")
	}
	live := make([]Node, len(resp.Brokers))
	for i, b := range resp.Brokers {
		live[i] = Node{NodeID: b.NodeID, Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			live[i].Rack = *b.Rack
		}
	}
	return live, nil
}

// explain says why no broker could be reached, of all of them: the service client
// knows only the one that it tried last, and after a timeout not even that.
func (c *Cluster) explain(err error) error {
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	if tried := c.failed.recent(reasonsShown); len(tried) > 0 && (dial || errors.Is(err, context.DeadlineExceeded)) {
		return listed(tried)
	}
	return c.plain(err)
}

// describe is a node map in a log line: 0=kafka-0:9092 1=kafka-1:9092.
func describe(nodes []Node) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = strconv.Itoa(int(n.NodeID)) + "=" + n.Address()
	}
	return strings.Join(texts, " ")
}

// requester is a kgo.Client or one kgo.Broker of it.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// describeConfigs asks to for configs of resources of one kind. The answers are by
// resource name; what the broker left out is absent.
func describeConfigs(ctx context.Context, to requester, kind kmsg.ConfigResourceType, resources, configs []string) (map[string]kmsg.DescribeConfigsResponseResource, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range resources {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, configs
		req.Resources = append(req.Resources, r)
	}
	resp, err := to.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]kmsg.DescribeConfigsResponseResource, len(resources))
	for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		if r.ResourceType == kind {
			answers[r.ResourceName] = r
		}
	}
	return answers, nil
}

// configValue is the value of a config in an answer. A sensitive value, which a
// broker gives as null, counts as not there.
func configValue(r kmsg.DescribeConfigsResponseResource, name string) (string, bool) {
	for _, config := range r.Configs {
		if config.Name == name && config.Value != nil {
			return *config.Value, true
		}
	}
	return "", false
}
