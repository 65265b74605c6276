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
	"tiergate/codec"
)

const (
	// topicsPerRequest bounds one DescribeConfigs: its answer has two configs of each
	// topic, about 100 KB in all.
	topicsPerRequest = 500
	// requestsAtOnce bounds the DescribeConfigs of one lookup in flight. They share
	// connections, where brokers answer one after the other.
	requestsAtOnce = 4
	// systemPatience is how long statuses wait for the brokers' own setting, which
	// changes them next to never; one hung broker must not hold them.
	systemPatience = time.Second
	// systemTTL is how long the brokers' own setting is remembered. It takes a restart of
	// the brokers to change it.
	systemTTL = time.Minute
	// lastKnownTTL is how long the last known status of a topic is used while lookups
	// fail: as long as a status may be wrong after a change that tiergate does not see.
	lastKnownTTL = 15 * time.Second
	// statusPatience is how long a lookup of a topic with a last known status is waited
	// for: one hung broker must not hold -6.
	statusPatience = time.Second
	// warnEvery is the time between two warnings for one reason.
	warnEvery = 10 * time.Minute
)

// settled returns the status on a topic that needs no asking.
func (c *Cluster) settled(topic string) (enabled, ok bool) {
	if codec.NeverTiered(topic) {
		return false, true
	}
	_, listed := c.tiered[topic]
	return listed, listed
}

// CachedRemoteStorage returns the status of a topic's remote storage if it was looked up
// within StatusTTL. It never blocks: loops call it.
func (c *Cluster) CachedRemoteStorage(topic string) (enabled, known bool) {
	if enabled, ok := c.settled(topic); ok {
		return enabled, true
	}
	status, _ := c.statuses.Get(topic)
	return status == codec.RemoteStorageEnabled, status != codec.RemoteStorageUnknown
}

// ResolveRemoteStorage returns which of topics have remote storage on, and asks the
// cluster for those that it was not asked for within StatusTTL: one DescribeConfigs for
// up to 500 topics, and none for a topic that another call is asking for. It blocks until
// it has all responses or ctx ends. Where a lookup fails or takes more than
// statusPatience, the last known status is used, for lastKnownTTL. Topics that stay unknown
// are absent from the result; that they are is remembered for UnknownTTL.
//
// It keeps the strings of topics: they must not share memory with a read buffer.
func (c *Cluster) ResolveRemoteStorage(ctx context.Context, topics []string) map[string]bool {
	enabled := make(map[string]bool, len(topics))
	ask := make([]string, 0, len(topics))
	for _, topic := range topics {
		if on, ok := c.settled(topic); ok {
			enabled[topic] = on
		} else {
			ask = append(ask, topic)
		}
	}
	got := c.lookUp(ctx, ask)
	for _, topic := range ask {
		status := got[topic]
		if status == codec.RemoteStorageUnknown {
			if status = c.lastKnownStatus(topic); status == codec.RemoteStorageUnknown {
				continue
			}
			c.metrics.fallbacks.Inc()
		}
		enabled[topic] = status == codec.RemoteStorageEnabled
	}
	return enabled
}

// lookUp returns the statuses of topics. It waits for those that have a last known status
// statusPatience long, for the others until ctx ends. What is missing is unknown.
func (c *Cluster) lookUp(ctx context.Context, topics []string) map[string]codec.RemoteStorage {
	brief, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	// The errors are that a context ended, or that the cluster is closed.
	got, err := c.statuses.Load(brief, topics)
	if err == nil {
		return got
	}
	var rest []string
	for _, topic := range topics {
		if _, ok := got[topic]; !ok && c.lastKnownStatus(topic) == codec.RemoteStorageUnknown {
			rest = append(rest, topic)
		}
	}
	more, _ := c.statuses.Load(ctx, rest) // joins the lookups under way
	maps.Copy(got, more)
	return got
}

func (c *Cluster) lastKnownStatus(topic string) codec.RemoteStorage {
	status, _ := c.lastKnown.Get(topic)
	return status
}

// ObserveRemoteStorage takes topics that a response to -5 (LATEST_TIERED) with an offset
// proved tiered. A status is wanted only where a later -5 has no offset, which may
// contradict that proof: so the proof counts as the last known status and never replaces
// a lookup. It never blocks: loops call it. It keeps the strings.
func (c *Cluster) ObserveRemoteStorage(topics []string) {
	for _, topic := range topics {
		if _, ok := c.settled(topic); !ok {
			c.lastKnown.Put(topic, codec.RemoteStorageEnabled, lastKnownTTL)
		}
	}
}

// unknownReason says why a status could not be had. A metric label: the set is closed.
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

// failedStatus is a status that could not be had.
type failedStatus struct {
	topic  string
	reason unknownReason
	err    error
}

// loadStatuses is the LoadFunc of Cluster.statuses.
func (c *Cluster) loadStatuses(ctx context.Context, topics []string) map[string]cache.Loaded[codec.RemoteStorage] {
	var (
		mu       sync.Mutex
		statuses = make(map[string]codec.RemoteStorage, len(topics))
		failures []failedStatus
		asking   errgroup.Group
		asked    = c.now()
	)
	asking.SetLimit(requestsAtOnce)
	for chunk := range slices.Chunk(topics, topicsPerRequest) {
		asking.Go(func() error {
			got, failed := c.askTopics(ctx, chunk)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(statuses, got)
			failures = append(failures, failed...)
			return nil
		})
	}
	_ = asking.Wait() // no member returns an error
	c.heedSystem(ctx, statuses)
	c.countStatuses(statuses, failures)
	return c.remember(asked, statuses, failures)
}

// remember decides how long the results of a lookup are used. The age of a status counts
// from when the lookup began: a lookup that begins before a change of the topic and ends
// after it must not be used for longer than StatusTTL after the change. A failure counts
// from now, since the next lookup may take as long.
func (c *Cluster) remember(asked time.Time, statuses map[string]codec.RemoteStorage, failures []failedStatus) map[string]cache.Loaded[codec.RemoteStorage] {
	age := c.now().Sub(asked)
	loaded := make(map[string]cache.Loaded[codec.RemoteStorage], len(statuses))
	for topic, status := range statuses {
		if status == codec.RemoteStorageUnknown {
			continue
		}
		loaded[topic] = cache.Loaded[codec.RemoteStorage]{Value: status, TTL: c.opts.StatusTTL - age}
		c.lastKnown.Put(topic, status, lastKnownTTL-age)
	}
	for _, f := range failures {
		ttl := c.opts.UnknownTTL
		if f.reason == reasonUnknownTopic {
			// The topic is gone, or so new that this broker does not know it yet.
			ttl = c.opts.StatusTTL - age
			c.lastKnown.Put(f.topic, codec.RemoteStorageUnknown, 0)
		}
		loaded[f.topic] = cache.Loaded[codec.RemoteStorage]{Value: codec.RemoteStorageUnknown, TTL: ttl}
	}
	return loaded
}

// askTopics asks any broker for the configs of at most topicsPerRequest topics.
// Every topic has a status in the answer, if only that it is unknown.
func (c *Cluster) askTopics(ctx context.Context, topics []string) (map[string]codec.RemoteStorage, []failedStatus) {
	c.metrics.requests.Inc()
	answers, err := describeConfigs(ctx, c.client, kmsg.ConfigResourceTypeTopic, topics, []string{remoteStorageEnable, cleanupPolicy})
	statuses := make(map[string]codec.RemoteStorage, len(topics))
	var failures []failedStatus
	for _, topic := range topics {
		status, why := codec.RemoteStorageUnknown, failedStatus{topic: topic, err: err}
		if err != nil {
			why.reason = requestFailure(err)
		} else if answer, ok := answers[topic]; ok {
			status, why.reason, why.err = topicStatus(answer)
		} else {
			why.reason, why.err = reasonAbsent, errors.New("the DescribeConfigs answer leaves the topic out")
		}
		statuses[topic] = status
		if status == codec.RemoteStorageUnknown {
			failures = append(failures, why)
		}
	}
	return statuses, failures
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

// topicStatus reads the answer of one topic. UnifiedLog.isRemoteLogEnabled decides
// in the broker: remote.storage.enable, not on a compacted topic.
func topicStatus(answer kmsg.DescribeConfigsResponseResource) (codec.RemoteStorage, unknownReason, error) {
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return codec.RemoteStorageUnknown, errorReason(err), err
	}
	policies, _ := configValue(answer, cleanupPolicy)
	for policy := range strings.SplitSeq(policies, ",") {
		if strings.EqualFold(strings.TrimSpace(policy), "compact") {
			return codec.RemoteStorageDisabled, reasonNone, nil
		}
	}
	return booleanConfig(answer, remoteStorageEnable)
}

func booleanConfig(answer kmsg.DescribeConfigsResponseResource, name string) (codec.RemoteStorage, unknownReason, error) {
	// Brokers give booleans in lower case (ConfigDef.convertToString).
	switch value, ok := configValue(answer, name); {
	case !ok:
		return codec.RemoteStorageUnknown, reasonNoConfig, fmt.Errorf("the broker gives no %s", name)
	case value == "true":
		return codec.RemoteStorageEnabled, reasonNone, nil
	case value == "false":
		return codec.RemoteStorageDisabled, reasonNone, nil
	default:
		return codec.RemoteStorageUnknown, reasonNoConfig, fmt.Errorf("%s is %q, want true or false", name, value)
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

// heedSystem changes enabled statuses to disabled where tiered storage is off in the
// brokers. Kafka keeps the two from meeting: a broker with
// remote.log.storage.system.enable=false refuses the topic config, and does not start
// while a topic has it (LogConfig.validateRemoteStorageOnlyIfSystemEnabled). What is
// left are brokers in the middle of a change; so only when all brokers say false does
// that overrule the topic's own config, and nothing is asked unless a topic is
// enabled.
func (c *Cluster) heedSystem(ctx context.Context, statuses map[string]codec.RemoteStorage) {
	enabled := false
	for _, status := range statuses {
		enabled = enabled || status == codec.RemoteStorageEnabled
	}
	if !enabled {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, systemPatience)
	defer cancel()
	got, _ := c.system.Load(ctx, []struct{}{{}}) // goes on, for the next time, when it is not there yet
	if got[struct{}{}] != codec.RemoteStorageDisabled {
		return
	}
	for topic, status := range statuses {
		if status == codec.RemoteStorageEnabled {
			statuses[topic] = codec.RemoteStorageDisabled
		}
	}
}

// loadRemoteStorageSystem is the LoadFunc of Cluster.system: it asks one broker
// after the other until one has tiered storage on, nearly always the first. It is
// disabled only when all brokers have said so.
func (c *Cluster) loadRemoteStorageSystem(ctx context.Context, keys []struct{}) map[struct{}]cache.Loaded[codec.RemoteStorage] {
	_ = c.refresh(ctx) // without a list there is nobody to ask: unknown
	nodes := c.nodes.Snapshot()
	status, ttl := codec.RemoteStorageUnknown, c.opts.UnknownTTL
	said := 0 // nodes that have it off
	for _, node := range nodes {
		got, why, err := brokerRemoteStorage(ctx, c.client.Broker(int(node.NodeID)), node.NodeID)
		if why == reasonDenied {
			ttl = systemTTL // all would say so, and will again
			break
		}
		if got == codec.RemoteStorageEnabled {
			status, ttl = got, systemTTL
			break
		}
		if got == codec.RemoteStorageDisabled {
			said++
		}
		c.opts.Logger.Debug("broker's tiered storage", "node", node.NodeID, remoteStorageSystemEnable, got, "error", err)
	}
	if said > 0 && said == len(nodes) {
		status, ttl = codec.RemoteStorageDisabled, systemTTL
	}
	return map[struct{}]cache.Loaded[codec.RemoteStorage]{keys[0]: {Value: status, TTL: ttl}}
}

// brokerRemoteStorage asks a broker for its own remote.log.storage.system.enable,
// which needs DESCRIBE_CONFIGS on the cluster.
func brokerRemoteStorage(ctx context.Context, broker requester, nodeID int32) (codec.RemoteStorage, unknownReason, error) {
	name := strconv.Itoa(int(nodeID))
	answers, err := describeConfigs(ctx, broker, kmsg.ConfigResourceTypeBroker, []string{name}, []string{remoteStorageSystemEnable})
	if err != nil {
		return codec.RemoteStorageUnknown, requestFailure(err), err
	}
	answer, ok := answers[name]
	if !ok {
		return codec.RemoteStorageUnknown, reasonAbsent, errors.New("the DescribeConfigs answer leaves the broker out")
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return codec.RemoteStorageUnknown, errorReason(err), err
	}
	return booleanConfig(answer, remoteStorageSystemEnable)
}

// countStatuses counts a lookup and says once in a while what stands in its way.
func (c *Cluster) countStatuses(statuses map[string]codec.RemoteStorage, failures []failedStatus) {
	for _, status := range statuses {
		c.metrics.statuses.WithLabelValues(status.String()).Inc()
	}
	if c.running.Err() != nil {
		return // closing: what failed says nothing
	}
	byReason := make(map[unknownReason][]failedStatus)
	for _, f := range failures {
		c.metrics.unknown.WithLabelValues(string(f.reason)).Inc()
		byReason[f.reason] = append(byReason[f.reason], f)
	}
	for why, failed := range byReason {
		c.warnUnknown(why, failed)
	}
}

func (c *Cluster) warnUnknown(why unknownReason, failed []failedStatus) {
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
