// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"tiergate/codec"
)

func wantStatuses(t *testing.T, got, want map[string]bool) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Fatalf("statuses %v, want %v", got, want)
	}
}

func wantCached(t *testing.T, c *Cluster, topic string, enabled, known bool) {
	t.Helper()
	if e, k := c.CachedRemoteStorage(topic); e != enabled || k != known {
		t.Fatalf("CachedRemoteStorage(%q) = %v, %v; want %v, %v", topic, e, k, enabled, known)
	}
}

// counted are the non-zero series of a metric, as label values to value.
func counted(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]float64)
	registered := false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		registered = true
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				found[strings.Join(labels, ",")] = v
			}
		}
	}
	if !registered {
		t.Fatalf("no metric %s", name)
	}
	return found
}

func wantCounted(t *testing.T, registry *prometheus.Registry, name string, want map[string]float64) {
	t.Helper()
	if got := counted(t, registry, name); !maps.Equal(got, want) {
		t.Fatalf("%s is %v, want %v", name, got, want)
	}
}

func TestStatusesOfEveryKind(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("tiered")
	k.set("false", "local")
	k.set("maybe", "odd")
	k.topics["compacted"] = map[string]string{remoteStorageEnable: "true", cleanupPolicy: "compact"}
	k.topics["compacted-too"] = map[string]string{remoteStorageEnable: "true", cleanupPolicy: "delete, Compact"}
	k.topics["no-policy"] = map[string]string{remoteStorageEnable: "true"}
	k.topics["no-config"] = map[string]string{cleanupPolicy: "delete"}
	k.topics["left-out"] = nil
	k.errs["denied"] = kerr.TopicAuthorizationFailed
	k.errs["denied-too"] = kerr.TopicAuthorizationFailed
	k.errs["bad name"] = kerr.InvalidTopicException
	k.errs["broken"] = kerr.UnknownServerError
	internal := []string{"__cluster_metadata", "__consumer_offsets", "__remote_log_metadata", "__share_group_state", "__transaction_state"}

	registry, log := prometheus.NewRegistry(), &logged{}
	c := newTestCluster(t, Options{
		BootstrapServers: k.ListenAddrs(), TieredTopics: []string{"listed"}, Registerer: registry, Logger: log.logger(), ClientID: "gate",
	}, newClock().now)
	ask := append([]string{"listed", "missing", "tiered"}, slices.Collect(maps.Keys(k.topics))...)
	ask = append(append(ask, slices.Collect(maps.Keys(k.errs))...), internal...)
	want := map[string]bool{
		"listed": true, "tiered": true, "no-policy": true,
		"local": false, "compacted": false, "compacted-too": false,
	}
	for _, topic := range internal {
		want[topic] = false
	}
	wantStatuses(t, c.ResolveRemoteStorage(testContext(t), ask), want)
	asked := []string{"bad name", "broken", "compacted", "compacted-too", "denied", "denied-too", "left-out", "local", "missing", "no-config", "no-policy", "odd", "tiered"}
	k.wantAsked(t, asked)
	for _, topic := range ask {
		enabled, known := want[topic]
		wantCached(t, c, topic, enabled, known)
	}

	wantCounted(t, registry, "tiergate_upstream_remote_storage_lookups_total", map[string]float64{"enabled": 2, "disabled": 3, "unknown": 8})
	wantCounted(t, registry, "tiergate_upstream_remote_storage_failures_total", map[string]float64{
		"absent": 1, "broker_error": 1, "denied": 2, "no_config": 2, "unknown_topic": 2,
	})
	wantCounted(t, registry, "tiergate_upstream_remote_storage_requests_total", map[string]float64{"": 1})
	wantCounted(t, registry, "tiergate_upstream_remote_storage_cache_entries", map[string]float64{"": 13})

	denied := log.lines("reason=denied")
	if len(denied) != 1 || !strings.Contains(denied[0], `topics=2 first=denied`) ||
		!strings.Contains(denied[0], `remedy="grant DESCRIBE_CONFIGS on the topics to the service client (client id gate), or list the tiered ones under tiering.tiered_topics"`) {
		t.Fatalf("warnings about denied topics %q, want one that says what to do", denied)
	}
	if n := len(log.lines("level=WARN")); n != 4 {
		t.Fatalf("%d warnings, want 4: absent, broker_error, denied, no_config\n%s", n, log.buf.String())
	}
}

func TestStatusesAreRemembered(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("tiered")
	k.set("false", "local")
	k.errs["denied"] = kerr.TopicAuthorizationFailed
	clock, log := newClock(), &logged{}
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), Logger: log.logger()}, clock.now)
	topics := []string{"denied", "local", "tiered"}
	want := map[string]bool{"local": false, "tiered": true}

	steps := []struct {
		pass  time.Duration
		asked []string
	}{
		{0, topics},
		{time.Second - 1, nil},
		{1, []string{"local", "tiered"}}, // StatusTTL
		{4*time.Second - 1, []string{"local", "tiered"}},
		{1, []string{"denied"}}, // UnknownTTL
		{10 * time.Minute, topics},
	}
	for i, step := range steps {
		clock.pass(step.pass)
		wantStatuses(t, c.ResolveRemoteStorage(testContext(t), topics), want)
		got := k.takeAsked()
		if fmt.Sprint(got) != fmt.Sprint(append([][]string(nil), slices.DeleteFunc([][]string{step.asked}, func(s []string) bool { return s == nil })...)) {
			t.Fatalf("step %d: asked for %q, want %q", i, got, step.asked)
		}
	}
	if n := len(log.lines("reason=denied")); n != 2 {
		t.Fatalf("%d warnings in ten minutes and a bit, want 2", n)
	}
}

func TestManyTopicsInFewRequests(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	var topics []string
	want := make(map[string]bool)
	for i := range 1201 {
		topic := fmt.Sprintf("topic-%04d", i)
		topics = append(topics, topic)
		want[topic] = i%2 == 0
		k.set(fmt.Sprint(i%2 == 0), topic)
	}
	// Fewer entries than topics: the answer is whole all the same.
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), MaxTopics: 100}, newClock().now)
	wantStatuses(t, c.ResolveRemoteStorage(testContext(t), topics), want)
	var sizes []int
	for _, asked := range k.takeAsked() {
		sizes = append(sizes, len(asked))
	}
	slices.Sort(sizes)
	if !slices.Equal(sizes, []int{201, 500, 500}) {
		t.Fatalf("requests of %v topics, want 500, 500 and 201", sizes)
	}
	if n := c.statuses.Len(); n != 100 {
		t.Fatalf("%d statuses in memory, want 100", n)
	}
}

// wantResolved resolves one topic: "enabled", "disabled" or "unknown".
func wantResolved(t *testing.T, c *Cluster, topic string, want codec.RemoteStorage) {
	t.Helper()
	got := codec.RemoteStorageUnknown
	if enabled, known := c.ResolveRemoteStorage(testContext(t), []string{topic})[topic]; known && enabled {
		got = codec.RemoteStorageEnabled
	} else if known {
		got = codec.RemoteStorageDisabled
	}
	if got != want {
		t.Fatalf("%s is %v, want %v", topic, got, want)
	}
}

// Whatever happens to a topic, its status is right within StatusTTL, as far as the broker
// that is asked knows.
func TestStatusFollowsTheTopic(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, clock.now)
	enabled, disabled, unknown := codec.RemoteStorageEnabled, codec.RemoteStorageDisabled, codec.RemoteStorageUnknown
	deleted := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.topics, "t")
	}
	was := unknown
	for i, step := range []struct {
		change func()
		want   codec.RemoteStorage
	}{
		{deleted, unknown}, // a broker that does not know the topic yet
		{func() { k.tiered("t") }, enabled},
		{func() { k.set("false", "t") }, disabled}, // created anew, or switched off
		{func() { k.tiered("t") }, enabled},
		{deleted, unknown},
		{func() { k.set("false", "t") }, disabled},
		{deleted, unknown},
	} {
		step.change()
		if i > 0 {
			clock.pass(time.Second - 1)
			wantResolved(t, c, "t", was)
			clock.pass(1)
		}
		wantResolved(t, c, "t", step.want)
		was = step.want
	}
}

// A lookup that began before a change and ends after it is not kept longer than one that
// ended at once.
func TestStatusAgesFromWhenItWasAskedFor(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("t")
	k.hold = make(chan struct{})
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, clock.now)
	got := make(chan map[string]bool, 1)
	ctx := testContext(t)
	go func() { got <- c.ResolveRemoteStorage(ctx, []string{"t"}) }()
	<-k.arrived // and its answer is made
	k.set("false", "t")
	clock.pass(time.Second - 1)
	close(k.hold)
	wantStatuses(t, <-got, map[string]bool{"t": true})
	wantCached(t, c, "t", true, true)
	clock.pass(1)
	wantCached(t, c, "t", false, false)
	wantResolved(t, c, "t", codec.RemoteStorageDisabled)
}

// What a -5 with an offset proved answers nothing where a lookup tells the status, since
// -6 wants one only when there is no such offset any more.
func TestProofsYieldToLookups(t *testing.T) {
	k := newKafka(t)
	k.set("false", "a")
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, newClock().now)
	c.ObserveRemoteStorage([]string{"a"})
	wantCached(t, c, "a", false, false)
	wantResolved(t, c, "a", codec.RemoteStorageDisabled)
	c.ObserveRemoteStorage([]string{"a"})
	wantResolved(t, c, "a", codec.RemoteStorageDisabled)
}

// Where no lookup tells a status the last known one is used, for 15 seconds, whether a
// lookup or a proof made it known.
func TestLastKnownStatus(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("looked-up")
	clock, registry := newClock(), prometheus.NewRegistry()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), TieredTopics: []string{"listed"}, Registerer: registry}, clock.now)
	wantResolved(t, c, "looked-up", codec.RemoteStorageEnabled)
	c.ObserveRemoteStorage([]string{"proved", "listed", "__consumer_offsets"})
	if n := c.lastKnown.Len(); n != 2 {
		t.Fatalf("%d topics remembered, want 2: what is settled without asking is not kept", n)
	}
	k.mu.Lock()
	k.errs["looked-up"], k.errs["proved"] = kerr.UnknownServerError, kerr.TopicAuthorizationFailed
	k.mu.Unlock()
	for _, step := range []struct {
		pass   time.Duration
		proved codec.RemoteStorage
		lookup codec.RemoteStorage
	}{
		{time.Second, codec.RemoteStorageEnabled, codec.RemoteStorageEnabled},
		{14*time.Second - 1, codec.RemoteStorageEnabled, codec.RemoteStorageEnabled},
		{1, codec.RemoteStorageUnknown, codec.RemoteStorageUnknown},
	} {
		clock.pass(step.pass)
		wantResolved(t, c, "proved", step.proved)
		wantResolved(t, c, "looked-up", step.lookup)
	}
	wantCounted(t, registry, "tiergate_upstream_remote_storage_fallbacks_total", map[string]float64{"": 4})

	// A topic that is gone has no last known status, also when nobody can tell any more.
	k.mu.Lock()
	k.errs["looked-up"] = nil
	k.mu.Unlock()
	clock.pass(5 * time.Second) // UnknownTTL
	wantResolved(t, c, "looked-up", codec.RemoteStorageEnabled)
	k.mu.Lock()
	delete(k.topics, "looked-up")
	k.mu.Unlock()
	clock.pass(time.Second)
	wantResolved(t, c, "looked-up", codec.RemoteStorageUnknown)
	k.mu.Lock()
	k.errs["looked-up"] = kerr.UnknownServerError
	k.mu.Unlock()
	clock.pass(time.Second)
	wantResolved(t, c, "looked-up", codec.RemoteStorageUnknown)
}

// A broker that hangs does not hold -6 for topics with a last known status; others wait
// for it.
func TestHungBrokerDoesNotHoldKnownTopics(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("known", "new")
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, clock.now)
	wantResolved(t, c, "known", codec.RemoteStorageEnabled)
	<-k.arrived
	clock.pass(time.Second)
	hold := make(chan struct{})
	k.mu.Lock()
	k.hold = hold
	k.mu.Unlock()
	wantResolved(t, c, "known", codec.RemoteStorageEnabled)
	<-k.arrived // it was asked for, and is not answered yet
	got := make(chan map[string]bool, 1)
	ctx := testContext(t)
	go func() { got <- c.ResolveRemoteStorage(ctx, []string{"known", "new"}) }()
	eventually(t, "what is left of the wait", func() bool { return c.statuses.Counts().Joined == 2 })
	close(hold)
	wantStatuses(t, <-got, map[string]bool{"known": true, "new": true})
}

func TestConcurrentCallersShareOneRequest(t *testing.T) {
	k := newKafka(t)
	k.system("true", "true", "true")
	k.tiered("a", "b")
	k.hold = make(chan struct{})
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, newClock().now)

	impatient, giveUp := context.WithCancel(testContext(t))
	first := make(chan map[string]bool, 1)
	go func() { first <- c.ResolveRemoteStorage(impatient, []string{"a"}) }()
	<-k.arrived
	results := make(chan map[string]bool, 20)
	ctx := testContext(t)
	for range 20 {
		go func() { results <- c.ResolveRemoteStorage(ctx, []string{"a"}) }()
	}
	eventually(t, "20 callers wait for the same topic", func() bool { return c.statuses.Counts().Joined == 20 })
	giveUp()
	wantStatuses(t, <-first, map[string]bool{})
	close(k.hold)
	for range 20 {
		wantStatuses(t, <-results, map[string]bool{"a": true})
	}
	k.wantAsked(t, []string{"a"})
}

func TestBrokersWithoutTieredStorage(t *testing.T) {
	tests := []struct {
		name    string
		brokers []string
		denied  bool
		want    map[string]bool
	}{
		{"on everywhere", []string{"true", "true", "true"}, false, map[string]bool{"a": true, "b": false}},
		{"on in one", []string{"false", "false", "true"}, false, map[string]bool{"a": true, "b": false}},
		{"off everywhere", []string{"false", "false", "false"}, false, map[string]bool{"a": false, "b": false}},
		{"one does not say", []string{"false", "", "false"}, false, map[string]bool{"a": true, "b": false}},
		{"denied", []string{"false", "false", "false"}, true, map[string]bool{"a": true, "b": false}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := newKafka(t)
			k.system(test.brokers...)
			k.tiered("a")
			k.set("false", "b")
			if test.denied {
				for id := range test.brokers {
					k.errs[fmt.Sprint(id)] = kerr.ClusterAuthorizationFailed
				}
			}
			c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, newClock().now)
			wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a", "b"}), test.want)
		})
	}
}

func TestStatusesOfACluster(t *testing.T) {
	t.Run("that is down", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t)}, Registerer: registry}, time.Now)
		wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a", "__consumer_offsets"}), map[string]bool{"__consumer_offsets": false})
		wantCounted(t, registry, "tiergate_upstream_remote_storage_failures_total", map[string]float64{"unreachable": 1})
	})
	t.Run("that does not answer", func(t *testing.T) {
		k := newKafka(t)
		k.tiered("a")
		k.mute = true
		registry := prometheus.NewRegistry()
		c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), RequestTimeout: 100 * time.Millisecond, Registerer: registry}, time.Now)
		wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a"}), map[string]bool{})
		wantCounted(t, registry, "tiergate_upstream_remote_storage_failures_total", map[string]float64{"timeout": 1})
	})
	t.Run("whose first server is down", func(t *testing.T) {
		k := newKafka(t)
		k.system("true", "true", "true")
		k.tiered("a")
		for range 4 { // kgo begins at a random one
			c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t), refusing(t), k.ListenAddrs()[0]}}, time.Now)
			wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a"}), map[string]bool{"a": true})
		}
	})
	t.Run("that is closed", func(t *testing.T) {
		k := newKafka(t)
		c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), TieredTopics: []string{"listed"}}, time.Now)
		c.Close()
		wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a", "listed"}), map[string]bool{"listed": true})
		k.wantAsked(t)
	})
}

func TestCloseEndsALookUp(t *testing.T) {
	k := newKafka(t)
	k.mute = true
	log := &logged{}
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), Logger: log.logger()}, time.Now)
	got := make(chan map[string]bool, 1)
	ctx := testContext(t)
	go func() { got <- c.ResolveRemoteStorage(ctx, []string{"a"}) }()
	<-k.arrived
	c.Close()
	wantStatuses(t, <-got, map[string]bool{})
	if warned := log.lines("level=WARN"); len(warned) != 0 {
		t.Fatalf("warnings while closing: %q", warned)
	}
}

// Requests of our own have the version that the broker has: KIP-896 took the old
// ones away, and an old broker lacks the new ones.
func TestRequestVersionIsTheBrokers(t *testing.T) {
	versions := kversion.V4_1_0()
	versions.SetMaxKeyVersion(32, 1)
	k := newKafka(t, kfake.MaxVersions(versions))
	k.system("true", "true", "true")
	k.tiered("a")
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, newClock().now)
	wantStatuses(t, c.ResolveRemoteStorage(testContext(t), []string{"a"}), map[string]bool{"a": true})
	if !slices.Equal(k.versions, []int16{1}) {
		t.Fatalf("DescribeConfigs versions %v, want 1", k.versions)
	}
}

func TestRequestFailure(t *testing.T) {
	for _, test := range []struct {
		err  error
		want unknownReason
	}{
		{context.DeadlineExceeded, reasonTimeout},
		{fmt.Errorf("read: %w", &net.OpError{Op: "read", Err: context.DeadlineExceeded}), reasonTimeout},
		{&net.OpError{Op: "dial", Err: errDown}, reasonUnreachable},
		{context.Canceled, reasonUnreachable},
	} {
		if got := requestFailure(test.err); got != test.want {
			t.Errorf("requestFailure(%v) = %s, want %s", test.err, got, test.want)
		}
	}
}
