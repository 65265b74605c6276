// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/rewrite"
	"tiergate/upstream"
)

// parsed returns a checked configuration.
func parsed(t *testing.T, yaml string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const twoListeners = `
upstream: {bootstrap_servers: ["kafka-0:9092", "[2001:db8::1]:9092"], metadata_refresh: 7s}
listeners:
  - {name: clients, bootstrap: "0.0.0.0:9192", nodes: "[::1]:9200-9202", first_node_id: 100, advertised_host: "2001:db8::7"}
  - {name: sidecar, direct: {"10.0.0.1:9092": "kafka-0:19092", "10.0.0.2:9092": "kafka-1:19092"}}
earliest_pending_upload: always
tiering: {status_ttl: 8s, unknown_ttl: 9s, max_topics: 10, max_tiered_partitions: 11, max_in_flight_segments: 12, tiered_topics: [orders, payments]}
limits:
  max_request_bytes: 1MiB
  max_response_bytes: 2MiB
  max_held_bytes: 3MiB
  max_buffered_bytes: 4MiB
  max_inflight: 4
  max_pipes: 13
  max_sessions: 14
  max_sessions_per_client: 15
  accept_rate: 16
  max_handshakes: 17
  max_pending_connections: 20
  handshake_timeout: 18s
  idle_timeout: 19s
  dial_timeout: 5s
  remote_storage_timeout: 6s
  linger_timeout: 11s
  max_unauthenticated_bytes: 5MiB
  first_request_timeout: 20s
  progress_timeout: 21s
  lookup_timeout: 22s
  drain_timeout: 12s
admin: {address: "127.0.0.1:9203"}
`

// noTLS is the store of a configuration without tls blocks.
func noTLS(t *testing.T, c *config.Config) *certs.Store {
	t.Helper()
	tls, err := certs.New(c, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tls
}

// dialed notes what endpoints dial.
type dialed struct {
	tieredOffsets // no test here asks for them
	last          string
}

var errDialed = errors.New("dialed")

func (d *dialed) DialBootstrap(context.Context) (net.Conn, error) {
	d.last = "bootstrap"
	return nil, errDialed
}

func (d *dialed) DialNode(_ context.Context, nodeID int32) (net.Conn, error) {
	d.last = fmt.Sprint("node ", nodeID)
	return nil, errDialed
}

func (d *dialed) DialAddress(_ context.Context, address string) (net.Conn, error) {
	d.last = address
	return nil, errDialed
}

func (d *dialed) ObserveNodes(...upstream.Node) {}

func (d *dialed) CachedRemoteStorage(string) (enabled, known bool)               { return false, false }
func (d *dialed) ResolveRemoteStorage(context.Context, []string) map[string]bool { return nil }
func (d *dialed) ObserveRemoteStorage([]string)                                  {}

func TestEndpoints(t *testing.T) {
	to := &dialed{}
	rewriting := rewrite.Rules{
		PendingUpload: rewrite.PendingUploadAlways,
		Addresses: rewrite.PortRange{
			Host: "2001:db8::7", FirstNodeID: 100, FirstPort: 9200, Count: 3, Taken: []int32{9092, 9192, 9203},
		},
		Nodes: namedNodes{to},
	}
	direct := rewrite.Rules{PendingUpload: rewrite.PendingUploadAlways}
	want := []struct {
		listener, address, broker, dials string
		rules                            rewrite.Rules
	}{
		{"clients", "0.0.0.0:9192", "bootstrap", "bootstrap", rewriting},
		{"clients", "[::1]:9200", "node 100", "node 100", rewriting},
		{"clients", "[::1]:9201", "node 101", "node 101", rewriting},
		{"clients", "[::1]:9202", "node 102", "node 102", rewriting},
		{"sidecar", "10.0.0.1:9092", "kafka-0:19092", "kafka-0:19092", direct},
		{"sidecar", "10.0.0.2:9092", "kafka-1:19092", "kafka-1:19092", direct},
	}
	c := parsed(t, twoListeners)
	got := endpoints(c, c.All()[0], to, noTLS(t, c), nil)
	if len(got) != len(want) {
		t.Fatalf("%d endpoints, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if _, err := got[i].Dial(t.Context()); !errors.Is(err, errDialed) {
			t.Errorf("endpoint %d: %v", i, err)
		}
		g := got[i]
		if g.Listener != w.listener || g.Address != w.address || g.Broker != w.broker || to.last != w.dials || !reflect.DeepEqual(g.Rules, w.rules) {
			t.Errorf("endpoint %d: got %q %q %q, dials %q, %+v; want %+v", i, g.Listener, g.Address, g.Broker, to.last, g.Rules, w)
		}
	}
}

func TestPendingUploadModes(t *testing.T) {
	for in, want := range map[config.PendingUpload]rewrite.PendingUpload{
		config.PendingUploadAuto: rewrite.PendingUploadAuto, config.PendingUploadAlways: rewrite.PendingUploadAlways,
		config.PendingUploadOff: rewrite.PendingUploadOff,
	} {
		if got := pendingUpload(in); got != want {
			t.Errorf("%s: got %d, want %d", in, got, want)
		}
	}
}

func TestProxyOptions(t *testing.T) {
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	c := parsed(t, twoListeners)
	got := proxyOptions(c, log, metrics)
	want := proxy.Options{
		MaxRequestBytes: 1 << 20, MaxResponseBytes: 2 << 20, MaxHeldBytes: 3 << 20, MaxBufferedBytes: 4 << 20, MaxInflight: 4,
		MaxPipes: 13, MaxSessions: 14, MaxSessionsPerClient: 15, AcceptRate: 16, MaxHandshakes: 17, MaxPendingConnections: 20,
		HandshakeTimeout: 18 * time.Second, IdleTimeout: 19 * time.Second,
		DialTimeout: 5 * time.Second, RemoteStorageTimeout: 6 * time.Second, LingerTimeout: 11 * time.Second,
		MaxUnauthenticatedBytes: 5 << 20, FirstRequestTimeout: 20 * time.Second, ProgressTimeout: 21 * time.Second, LookupTimeout: 22 * time.Second,
		MaxDescriptors: descriptors(t),
		Logger:         log, Registerer: metrics,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	c.Limits.MaxPipes = 0
	if got := proxyOptions(c, log, metrics).MaxPipes; got != -1 {
		t.Errorf("no pipes: got %d, want -1, which is none", got)
	}
}

// descriptors is what ulimit -n says of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -n").Output()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUpstreamOptions(t *testing.T) {
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	c := parsed(t, twoListeners)
	want := upstream.Options{
		BootstrapServers: []string{"kafka-0:9092", "[2001:db8::1]:9092"},
		DialTimeout:      2500 * time.Millisecond, RequestTimeout: 6 * time.Second, MetadataRefresh: 7 * time.Second,
		StatusTTL: 8 * time.Second, UnknownTTL: 9 * time.Second, MaxTopics: 10, MaxTieredPartitions: 11, MaxInFlightSegments: 12,
		TieredTopics: []string{"orders", "payments"},
		Version:      readBuild().software(),
		Logger:       log, Registerer: metrics,
	}
	if got := upstreamOptions(c, c.All()[0], log, metrics); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	c.Limits.DialTimeout = config.Duration(10 * time.Second)
	if got := upstreamOptions(c, c.All()[0], log, metrics).DialTimeout; got != 3*time.Second {
		t.Errorf("dial timeout of one address: got %v, want 3s", got)
	}
}

// Every room takes the defaults of the file.
func TestDefaultsAreAccepted(t *testing.T) {
	c := config.Defaults()
	c.Upstream.BootstrapServers = []config.HostPort{{Host: "127.0.0.1", Port: 1}}
	tls := noTLS(t, &c)
	to, err := newClusters(&c, tls, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	server, err := newServer(&c, 0, to, tls, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNodeMap(t *testing.T) {
	c := parsed(t, `
upstream: {bootstrap_servers: ["kafka-0:9092"]}
listeners:
  - {name: clients, bootstrap: "0.0.0.0:9192", nodes: "0.0.0.0:9200-9219", advertised_host: kafka.example.com}
  - {name: sidecar, direct: {"10.0.0.1:9092": "kafka-0:19092"}}
`)
	var out bytes.Buffer
	nodes := []upstream.Node{{NodeID: 3, Host: "kafka-3", Port: 9092}, {NodeID: 7, Host: "::1", Port: 9092}, {NodeID: 99, Host: "far", Port: 1}}
	if err := printMap(&out, nodeMap(c.All()[0], nodes)); err != nil {
		t.Fatal(err)
	}
	want := `LISTENER  SERVES      CLIENTS ARE TOLD             LISTENS ON         BROKER
clients   bootstrap   -                            0.0.0.0:9192       any of kafka-0:9092
clients   node 0      kafka.example.com:9200       0.0.0.0:9200       not known yet
clients   node 1      kafka.example.com:9201       0.0.0.0:9201       not known yet
clients   node 2      kafka.example.com:9202       0.0.0.0:9202       not known yet
clients   node 3      kafka.example.com:9203       0.0.0.0:9203       kafka-3:9092
clients   node 4      kafka.example.com:9204       0.0.0.0:9204       not known yet
clients   node 5      kafka.example.com:9205       0.0.0.0:9205       not known yet
clients   node 6      kafka.example.com:9206       0.0.0.0:9206       not known yet
clients   node 7      kafka.example.com:9207       0.0.0.0:9207       [::1]:9092
clients   nodes 8-19  kafka.example.com:9208-9219  0.0.0.0:9208-9219  not known yet
sidecar   direct      -                            10.0.0.1:9092      kafka-0:19092
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestLogger(t *testing.T) {
	f := func(c config.Log, want string) {
		t.Helper()
		var out bytes.Buffer
		log := newLogger(c, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), "Z") // the time before it
			lines = append(lines, strings.TrimLeft(rest, `", `))
		}
		if got := strings.Join(lines, "; "); got != want {
			t.Errorf("%+v: got %s, want %s", c, got, want)
		}
	}
	t.Setenv("TZ", "UTC")

	f(config.Log{Level: "debug", Format: "text"}, "level=DEBUG msg=d; level=INFO msg=i; level=WARN msg=w; level=ERROR msg=e")
	f(config.Log{Level: "info", Format: "text"}, "level=INFO msg=i; level=WARN msg=w; level=ERROR msg=e")
	f(config.Log{Level: "warn", Format: "json"}, `level":"WARN","msg":"w"}; level":"ERROR","msg":"e"}`)
	f(config.Log{Level: "error", Format: "json"}, `level":"ERROR","msg":"e"}`)
}

func TestExplainListen(t *testing.T) {
	f := func(errno syscall.Errno, want string) {
		t.Helper()
		failed := &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 92}, Err: os.NewSyscallError("bind", errno)}
		if got := explainListen(fmt.Errorf("listener %q: %w", "a", failed)).Error(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}

	f(syscall.EADDRINUSE, "listener \"a\": listen tcp 10.0.0.1:92: bind: address already in use\n"+
		"10.0.0.1:92 is taken: by a tiergate that runs already, by another program, or by an outgoing connection "+
		"if the port is in net.ipv4.ip_local_port_range. \"ss -tanp 'sport = :92'\" shows which; stop it, or give another port in the configuration")
	f(syscall.EACCES, "listener \"a\": listen tcp 10.0.0.1:92: bind: permission denied\n"+
		"Ports below 1024 are for root: give another port, or the binary the capability CAP_NET_BIND_SERVICE")
	f(syscall.EADDRNOTAVAIL, "listener \"a\": listen tcp 10.0.0.1:92: bind: cannot assign requested address\n"+
		"No interface of this machine has the address 10.0.0.1:92: listen on one that it has, or on all with 0.0.0.0 or [::]; "+
		"what clients are told is advertised_host")
	f(syscall.EMFILE, "listener \"a\": listen tcp 10.0.0.1:92: bind: too many open files")
}

func TestAdminReady(t *testing.T) {
	var reachable error
	a := &admin{upstreamReady: func() error { return reachable }}
	f := func(p phase, upstream error, want string) {
		t.Helper()
		a.enter(p)
		reachable = upstream
		if got := fmt.Sprint(a.ready()); got != want {
			t.Errorf("phase %d, upstream %v: got %s, want %s", p, upstream, got, want)
		}
	}
	down := errors.New("no broker was reached yet")

	f(phaseStarting, nil, "the listeners are not bound yet")
	f(phaseServing, nil, "<nil>")
	f(phaseServing, down, "no broker was reached yet")
	f(phaseStopping, nil, "tiergate is stopping")
	f(phaseStopping, down, "tiergate is stopping")
}
