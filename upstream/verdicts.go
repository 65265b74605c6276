// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"tiergate/cache"
)

const (
	// topicsPerRequest bounds one DescribeConfigs: its answer has two configs of each
	// topic, about 100 KB in all.
	topicsPerRequest = 500
	// requestsAtOnce bounds the DescribeConfigs of one look-up in flight. They share
	// connections, where brokers answer one after the other.
	requestsAtOnce = 4
	// systemPatience is how long verdicts wait for the brokers' own setting, which
	// changes them next to never; one hung broker must not hold them.
	systemPatience = time.Second
	// warnEvery is the time between two warnings for one reason.
	warnEvery = 10 * time.Minute
)

// RemoteStorage says whether remote storage is on, for a topic or a broker.
type RemoteStorage uint8

const (
	// RemoteStorageUnknown is the verdict when nobody could tell.
	RemoteStorageUnknown RemoteStorage = iota
	// RemoteStorageDisabled means that it is off.
	RemoteStorageDisabled
	// RemoteStorageEnabled means that it is on.
	RemoteStorageEnabled
)

// String is "unknown", "disabled" or "enabled", as in metric labels.
func (r RemoteStorage) String() string {
	switch r {
	case RemoteStorageDisabled:
		return "disabled"
	case RemoteStorageEnabled:
		return "enabled"
	case RemoteStorageUnknown:
	}
	return "unknown"
}

// neverTiered is true for the topics that Kafka keeps local whatever their configs
// say: Topic.isInternal, TopicBasedRemoteLogMetadataManagerConfig's
// REMOTE_LOG_METADATA_TOPIC_NAME and Topic.CLUSTER_METADATA_TOPIC_NAME, as in
// UnifiedLog.isRemoteLogEnabled.
func neverTiered(topic string) bool {
	switch topic {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata", "__cluster_metadata":
		return true
	}
	return false
}

// settled returns the verdict on a topic that needs no asking.
func (c *Cluster) settled(topic string) (enabled, ok bool) {
	if neverTiered(topic) {
		return false, true
	}
	_, listed := c.tiered[topic]
	return listed, listed
}

// CachedRemoteStorage returns what is known now of a topic's remote storage. It
// never blocks: loops call it.
func (c *Cluster) CachedRemoteStorage(topic string) (enabled, known bool) {
	if enabled, ok := c.settled(topic); ok {
		return enabled, true
	}
	verdict, _ := c.verdicts.Get(topic)
	return verdict == RemoteStorageEnabled, verdict != RemoteStorageUnknown
}

// ResolveRemoteStorage returns which of topics have remote storage on, and asks the
// cluster for those that are not in memory: one DescribeConfigs for up to 500 topics,
// and none for a topic that another call is asking for. It blocks until it has all
// answers or ctx ends. Topics that stay unknown are absent from the result; that they
// are is remembered for UnknownTTL.
//
// It keeps the strings of topics: they must not share memory with a read buffer.
func (c *Cluster) ResolveRemoteStorage(ctx context.Context, topics []string) map[string]bool {
	verdicts := make(map[string]bool, len(topics))
	ask := make([]string, 0, len(topics))
	for _, topic := range topics {
		if enabled, ok := c.settled(topic); ok {
			verdicts[topic] = enabled
		} else {
			ask = append(ask, topic)
		}
	}
	// The error is that of ctx, or that the cluster is closed: what is missing then is unknown.
	got, _ := c.verdicts.Load(ctx, ask)
	for topic, verdict := range got {
		if verdict != RemoteStorageUnknown {
			verdicts[topic] = verdict == RemoteStorageEnabled
		}
	}
	return verdicts
}

// ObserveRemoteStorage tells of topics that a -5 (LATEST_TIERED) answer with an
// offset proved tiered: they are remembered as enabled, whatever was known before or
// is being asked. It never blocks: loops call it. It keeps the strings.
func (c *Cluster) ObserveRemoteStorage(topics []string) {
	for _, topic := range topics {
		if _, ok := c.settled(topic); !ok {
			c.verdicts.Put(topic, RemoteStorageEnabled, c.opts.VerdictTTL)
		}
	}
}

// unknownReason says why a verdict could not be had. A metric label: the set is closed.
type unknownReason string

const (
	reasonNone         unknownReason = ""
	reasonDenied       unknownReason = "denied"        // DESCRIBE_CONFIGS is not granted
	reasonUnknownTopic unknownReason = "unknown_topic" // the broker knows no such topic
	reasonBrokerError  unknownReason = "broker_error"  // any other error code
	reasonTimeout      unknownReason = "timeout"       // no answer in time
	reasonUnreachable  unknownReason = "unreachable"   // no broker to ask, or the connection broke
	reasonAbsent       unknownReason = "absent"        // an answer without the topic
	reasonNoConfig     unknownReason = "no_config"     // an answer without a usable remote.storage.enable
)

var unknownReasons = []unknownReason{
	reasonDenied, reasonUnknownTopic, reasonBrokerError, reasonTimeout, reasonUnreachable, reasonAbsent, reasonNoConfig,
}

// failedVerdict is a verdict that could not be had.
type failedVerdict struct {
	topic  string
	reason unknownReason
	err    error
}

// loadVerdicts is the LoadFunc of Cluster.verdicts.
func (c *Cluster) loadVerdicts(ctx context.Context, topics []string) map[string]cache.Loaded[RemoteStorage] {
	var (
		mu       sync.Mutex
		verdicts = make(map[string]RemoteStorage, len(topics))
		failures []failedVerdict
		asking   errgroup.Group
	)
	asking.SetLimit(requestsAtOnce)
	for chunk := range slices.Chunk(topics, topicsPerRequest) {
		asking.Go(func() error {
			got, failed := c.askTopics(ctx, chunk)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(verdicts, got)
			failures = append(failures, failed...)
			return nil
		})
	}
	_ = asking.Wait() // no member returns an error
	c.heedSystem(ctx, verdicts)
	c.countVerdicts(verdicts, failures)
	loaded := make(map[string]cache.Loaded[RemoteStorage], len(verdicts))
	for topic, verdict := range verdicts {
		loaded[topic] = cache.Loaded[RemoteStorage]{Value: verdict, TTL: c.ttl(verdict)}
	}
	return loaded
}

func (c *Cluster) ttl(verdict RemoteStorage) time.Duration {
	if verdict == RemoteStorageEnabled {
		return c.opts.VerdictTTL
	}
	return c.opts.UnknownTTL
}

// askTopics asks any broker for the configs of at most topicsPerRequest topics.
// Every topic has a verdict in the answer, if only that it is unknown.
func (c *Cluster) askTopics(ctx context.Context, topics []string) (map[string]RemoteStorage, []failedVerdict) {
	c.metrics.requests.Inc()
	answers, err := describeConfigs(ctx, c.client, kmsg.ConfigResourceTypeTopic, topics, []string{remoteStorageEnable, cleanupPolicy})
	verdicts := make(map[string]RemoteStorage, len(topics))
	var failures []failedVerdict
	for _, topic := range topics {
		verdict, why := RemoteStorageUnknown, failedVerdict{topic: topic, err: err}
		if err != nil {
			why.reason = requestFailure(err)
		} else if answer, ok := answers[topic]; ok {
			verdict, why.reason, why.err = topicVerdict(answer)
		} else {
			why.reason, why.err = reasonAbsent, errors.New("the DescribeConfigs answer leaves the topic out")
		}
		verdicts[topic] = verdict
		if verdict == RemoteStorageUnknown {
			failures = append(failures, why)
		}
	}
	return verdicts, failures
}

// requestFailure classifies the error of a request that has no answer.
func requestFailure(err error) unknownReason {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	default:
		return reasonUnreachable
	}
}

// topicVerdict reads the answer of one topic. UnifiedLog.isRemoteLogEnabled decides
// in the broker: remote.storage.enable, not on a compacted topic.
func topicVerdict(answer kmsg.DescribeConfigsResponseResource) (RemoteStorage, unknownReason, error) {
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return RemoteStorageUnknown, errorReason(err), err
	}
	policies, _ := configValue(answer, cleanupPolicy)
	for policy := range strings.SplitSeq(policies, ",") {
		if strings.EqualFold(strings.TrimSpace(policy), "compact") {
			return RemoteStorageDisabled, reasonNone, nil
		}
	}
	return booleanConfig(answer, remoteStorageEnable)
}

func booleanConfig(answer kmsg.DescribeConfigsResponseResource, name string) (RemoteStorage, unknownReason, error) {
	// Brokers give booleans in lower case (ConfigDef.convertToString).
	switch value, ok := configValue(answer, name); {
	case !ok:
		return RemoteStorageUnknown, reasonNoConfig, fmt.Errorf("the broker gives no %s", name)
	case value == "true":
		return RemoteStorageEnabled, reasonNone, nil
	case value == "false":
		return RemoteStorageDisabled, reasonNone, nil
	default:
		return RemoteStorageUnknown, reasonNoConfig, fmt.Errorf("%s is %q, want true or false", name, value)
	}
}

func errorReason(err error) unknownReason {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return reasonDenied
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException):
		return reasonUnknownTopic
	default:
		return reasonBrokerError
	}
}

// heedSystem changes enabled verdicts to disabled where tiered storage is off in the
// brokers. Kafka keeps the two from meeting: a broker with
// remote.log.storage.system.enable=false refuses the topic config, and does not start
// while a topic has it (LogConfig.validateRemoteStorageOnlyIfSystemEnabled). What is
// left are brokers in the middle of a change; so only when all brokers say false does
// that overrule the topic's own config, and nothing is asked unless a topic is
// enabled.
func (c *Cluster) heedSystem(ctx context.Context, verdicts map[string]RemoteStorage) {
	enabled := false
	for _, verdict := range verdicts {
		enabled = enabled || verdict == RemoteStorageEnabled
	}
	if !enabled {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, systemPatience)
	defer cancel()
	got, _ := c.system.Load(ctx, []struct{}{{}}) // goes on, for the next time, when it is not there yet
	if got[struct{}{}] != RemoteStorageDisabled {
		return
	}
	for topic, verdict := range verdicts {
		if verdict == RemoteStorageEnabled {
			verdicts[topic] = RemoteStorageDisabled
		}
	}
}

// loadRemoteStorageSystem is the LoadFunc of Cluster.system: it asks one broker
// after the other until one has tiered storage on, nearly always the first. It is
// disabled only when all brokers have said so.
func (c *Cluster) loadRemoteStorageSystem(ctx context.Context, keys []struct{}) map[struct{}]cache.Loaded[RemoteStorage] {
	_ = c.refresh(ctx) // without a list there is nobody to ask: unknown
	nodes := c.nodes.Snapshot()
	verdict, ttl := RemoteStorageUnknown, c.opts.UnknownTTL
	said := 0 // nodes that have it off
	for _, node := range nodes {
		got, why, err := brokerRemoteStorage(ctx, c.client.Broker(int(node.NodeID)), node.NodeID)
		if why == reasonDenied {
			ttl = c.opts.VerdictTTL // all would say so, and will again
			break
		}
		if got == RemoteStorageEnabled {
			verdict, ttl = got, c.opts.VerdictTTL
			break
		}
		if got == RemoteStorageDisabled {
			said++
		}
		c.opts.Logger.Debug("broker's tiered storage", "node", node.NodeID, remoteStorageSystemEnable, got, "error", err)
	}
	if said > 0 && said == len(nodes) {
		verdict, ttl = RemoteStorageDisabled, c.opts.VerdictTTL
	}
	return map[struct{}]cache.Loaded[RemoteStorage]{keys[0]: {Value: verdict, TTL: ttl}}
}

// brokerRemoteStorage asks a broker for its own remote.log.storage.system.enable,
// which needs DESCRIBE_CONFIGS on the cluster.
func brokerRemoteStorage(ctx context.Context, broker requester, nodeID int32) (RemoteStorage, unknownReason, error) {
	name := strconv.Itoa(int(nodeID))
	answers, err := describeConfigs(ctx, broker, kmsg.ConfigResourceTypeBroker, []string{name}, []string{remoteStorageSystemEnable})
	if err != nil {
		return RemoteStorageUnknown, requestFailure(err), err
	}
	answer, ok := answers[name]
	if !ok {
		return RemoteStorageUnknown, reasonAbsent, errors.New("the DescribeConfigs answer leaves the broker out")
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return RemoteStorageUnknown, errorReason(err), err
	}
	return booleanConfig(answer, remoteStorageSystemEnable)
}

// countVerdicts counts a look-up and says once in a while what stands in its way.
func (c *Cluster) countVerdicts(verdicts map[string]RemoteStorage, failures []failedVerdict) {
	for _, verdict := range verdicts {
		c.metrics.verdicts.WithLabelValues(verdict.String()).Inc()
	}
	if c.running.Err() != nil {
		return // closing: what failed says nothing
	}
	byReason := make(map[unknownReason][]failedVerdict)
	for _, f := range failures {
		c.metrics.unknown.WithLabelValues(string(f.reason)).Inc()
		byReason[f.reason] = append(byReason[f.reason], f)
	}
	for why, failed := range byReason {
		c.warnUnknown(why, failed)
	}
}

func (c *Cluster) warnUnknown(why unknownReason, failed []failedVerdict) {
	if why == reasonUnknownTopic {
		return // a client asked for a topic that is not there, which happens every day
	}
	if !c.warned.due(why) {
		return
	}
	about := []any{"reason", string(why), "topics", len(failed), "first", failed[0].topic, "error", failed[0].err}
	if why == reasonDenied {
		about = append(about, "remedy", "grant DESCRIBE_CONFIGS on the topics to the service client (client id "+
			c.opts.ClientID+"), or list the tiered ones under tiering.tiered_topics")
	}
	c.opts.Logger.Warn("not known whether topics are tiered; -6 is answered with -1 where that decides", about...)
}

// warnings lets one warning per reason through in warnEvery.
type warnings struct {
	now  func() time.Time
	mu   sync.Mutex
	last map[unknownReason]time.Time
}

func (w *warnings) due(why unknownReason) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if last, ok := w.last[why]; ok && now.Sub(last) < warnEvery {
		return false
	}
	if w.last == nil {
		w.last = make(map[unknownReason]time.Time, len(unknownReasons))
	}
	w.last[why] = now
	return true
}
