// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is how long a test waits for what must happen, on a slow machine too.
const deadline = 20 * time.Second

// clock is a clock that stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1_700_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// logged is a logger and the lines it got, without times.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines are those that contain text.
func (l *logged) lines(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// kafka is a kfake cluster whose DescribeConfigs answers are the test's, and which
// keeps what it was asked.
type kafka struct {
	*kfake.Cluster

	mu       sync.Mutex
	topics   map[string]map[string]string // configs by topic; nil: the topic is left out of the answer
	errs     map[string]*kerr.Error       // by topic, or by broker id
	brokers  map[string]string            // remote.log.storage.system.enable by broker id
	asked    [][]string                   // topics of each request, sorted
	versions []int16                      // of those requests
	metadata int                          // Metadata requests
	mute     bool                         // do not answer DescribeConfigs
	hold     chan struct{}                // not nil: answer after it is closed
	arrived  chan struct{}                // gets one element for every request about topics
}

func newKafka(t *testing.T, opts ...kfake.Opt) *kafka {
	t.Helper()
	k := &kafka{
		topics:  make(map[string]map[string]string),
		errs:    make(map[string]*kerr.Error),
		brokers: make(map[string]string),
		arrived: make(chan struct{}, 1000),
	}
	var err error
	if k.Cluster, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		return k.describeConfigs(req.(*kmsg.DescribeConfigsRequest)), nil, true
	})
	k.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.metadata++
		return nil, nil, false
	})
	return k
}

func (k *kafka) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	k.mu.Lock()
	var asked []string
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, r := range req.Resources {
		if r.ResourceType == kmsg.ConfigResourceTypeTopic {
			asked = append(asked, r.ResourceName)
		}
		if answer, ok := k.describe(r); ok {
			resp.Resources = append(resp.Resources, answer)
		}
	}
	mute, hold := k.mute, k.hold
	if asked != nil {
		slices.Sort(asked)
		k.asked = append(k.asked, asked)
		k.versions = append(k.versions, req.Version)
		k.arrived <- struct{}{}
	}
	k.mu.Unlock()
	if hold != nil {
		k.SleepControl(func() { <-hold })
	}
	if mute {
		return nil // kfake sends no answer then
	}
	return resp
}

func (k *kafka) describe(r kmsg.DescribeConfigsRequestResource) (kmsg.DescribeConfigsResponseResource, bool) {
	answer := kmsg.NewDescribeConfigsResponseResource()
	answer.ResourceType, answer.ResourceName = r.ResourceType, r.ResourceName
	if err := k.errs[r.ResourceName]; err != nil {
		answer.ErrorCode = err.Code
		return answer, true
	}
	configs, known := k.topics[r.ResourceName]
	if r.ResourceType == kmsg.ConfigResourceTypeBroker {
		configs, known = map[string]string{remoteStorageSystemEnable: k.brokers[r.ResourceName]}, true
	}
	switch {
	case !known:
		answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
	case configs == nil:
		return answer, false
	}
	for name, value := range configs {
		if !slices.Contains(r.ConfigNames, name) {
			continue
		}
		config := kmsg.NewDescribeConfigsResponseResourceConfig()
		config.Name, config.Value = name, &value
		answer.Configs = append(answer.Configs, config)
	}
	return answer, true
}

// tiered makes topics with remote.storage.enable=true.
func (k *kafka) tiered(topics ...string) {
	k.set("true", topics...)
}

func (k *kafka) set(remote string, topics ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, topic := range topics {
		k.topics[topic] = map[string]string{remoteStorageEnable: remote, cleanupPolicy: "delete"}
	}
}

func (k *kafka) system(values ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, value := range values {
		k.brokers[strconv.Itoa(id)] = value
	}
}

// takeAsked returns what was asked since it was called last.
func (k *kafka) takeAsked() [][]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := k.asked
	k.asked = nil
	return asked
}

func (k *kafka) metadataRequests() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.metadata
}

func (k *kafka) wantAsked(t *testing.T, want ...[]string) {
	t.Helper()
	got := k.takeAsked()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("DescribeConfigs for topics %q, want %q", got, want)
	}
}

// newTestCluster makes a Cluster that is closed with the test.
func newTestCluster(t *testing.T, opts Options, now func() time.Time) *Cluster {
	t.Helper()
	c, err := newCluster(opts, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until is says yes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

// server is a loopback listener that accepts and keeps connections open.
type server struct {
	net.Listener

	mu       sync.Mutex
	accepted []net.Conn
}

func listen(t *testing.T, address string) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("listen on %s: %v (IPv4 and IPv6 loopback are needed)", address, err)
	}
	s := &server{Listener: l}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.accepted = append(s.accepted, conn)
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, conn := range s.accepted {
			_ = conn.Close()
		}
	})
	return s
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.accepted)
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr().String())
	return port
}

// refusing returns a loopback address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func wantText(t *testing.T, got error, want string) {
	t.Helper()
	if fmt.Sprint(got) != want {
		t.Fatalf("error\n%v, want\n%s", got, want)
	}
}

// connect checks that a dial gave a TCP connection and closes it.
func connect(t *testing.T, conn net.Conn, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := conn.(*brokerConn); !ok {
		t.Fatalf("dial returned a %T, want one that embeds a *net.TCPConn", conn)
	}
	_ = conn.Close()
}
