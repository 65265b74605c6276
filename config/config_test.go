// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// issue3 is the file of issue 3, item 6, which must work as it stands.
const issue3 = `upstream:
  bootstrap_servers: ["127.0.0.1:29092"]
listeners:
  - name: clients
    bootstrap: "127.0.0.1:9192"
    nodes: "127.0.0.1:9200-9209"      # node id 0 at 9200 ... node id 9 at 9209 (first_node_id: 0)
    advertised_host: "127.0.0.1"
earliest_pending_upload: auto          # auto | always (synthesise even where the broker is native; for tests) | off
admin:
  address: "127.0.0.1:9644"            # /metrics /healthz /readyz
`

func TestParseIssue3(t *testing.T) {
	got, err := Parse("tiergate.yaml", []byte(issue3))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Cluster: Cluster{
			Upstream: Upstream{
				BootstrapServers: []HostPort{{"127.0.0.1", 29092}},
				MetadataRefresh:  Duration(30 * time.Second), SendProxyProtocol: SendProxyProtocolOff,
			},
			Listeners: []Listener{{
				Name:           "clients",
				Bootstrap:      HostPort{"127.0.0.1", 9192},
				Nodes:          PortRange{"127.0.0.1", 9200, 9209},
				AdvertisedHost: "127.0.0.1", UnmappedNodes: UnmappedReject,
				ProxyProtocol: ProxyProtocolOff,
			}},
			EarliestPendingUpload: PendingUploadAuto,
			Tiering:               Tiering{StatusTTL: Duration(time.Second), UnknownTTL: Duration(5 * time.Second), MaxTopics: 20_000, MaxTieredPartitions: 200_000, MaxInFlightSegments: 100_000},
		},
		Limits: Limits{
			MaxRequestBytes:         256 << 20,
			MaxResponseBytes:        1<<31 - 1,
			MaxHeldBytes:            32 << 20,
			MaxUnauthenticatedBytes: 4 << 20,
			MaxBufferedBytes:        512 << 20,
			MaxInflight:             1024,
			MaxPipes:                128,
			MaxHandshakes:           256,
			MaxPendingConnections:   4096,
			HandshakeTimeout:        Duration(10 * time.Second),
			IdleTimeout:             Duration(15 * time.Minute),
			DialTimeout:             Duration(10 * time.Second),
			RemoteStorageTimeout:    Duration(5 * time.Second),
			FirstRequestTimeout:     Duration(time.Minute),
			ProgressTimeout:         Duration(30 * time.Second),
			LookupTimeout:           Duration(20 * time.Second),
			LingerTimeout:           Duration(30 * time.Second),
			DrainTimeout:            Duration(30 * time.Second),
		},
		EventLoop: EventLoopGnet,
		Log:       Log{Level: LogLevelInfo, Format: LogFormatText},
		Admin:     Admin{Address: HostPort{"127.0.0.1", 9644}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseEveryKey(t *testing.T) {
	got, err := Parse("tiergate.yaml", []byte(`
upstream:
  bootstrap_servers:
    - kafka-0:9092
    - "[2001:db8::7]:9093"
  metadata_refresh: 1m30s
  send_proxy_protocol: v2
listeners:
  - name: outside.v4-1
    proxy_protocol: optional
    bootstrap: 0.0.0.0:9192
    nodes: "0.0.0.0:9200-9202"
    first_node_id: 100
    advertised_host: kafka.example.com
  - {name: outside_v6, bootstrap: "[::1]:9192", nodes: "[::1]:9300-9300", first_node_id: 2147483647, advertised_host: "[2001:db8::1]"}
  - name: sidecar
    proxy_protocol: required
    direct:
      "10.0.0.1:9092": kafka-0:9092
      localhost:9093: "[::1]:19093"
earliest_pending_upload: off
tiering:
  status_ttl: 2m
  unknown_ttl: 500ms
  max_topics: 7
  max_tiered_partitions: 8
  max_in_flight_segments: 9
  tiered_topics: [orders, "42", a.b_c-d]
event_loop: epoll
limits:
  max_request_bytes: 100MiB
  max_response_bytes: 1 GiB
  max_held_bytes: 65536
  max_unauthenticated_bytes: 512KiB
  max_buffered_bytes: 8GiB
  max_inflight: 1
  max_pipes: 0
  max_sessions: 11
  max_sessions_per_client: 12
  accept_rate: 13
  max_handshakes: 14
  max_pending_connections: 20
  handshake_timeout: 15s
  idle_timeout: 0s
  dial_timeout: 1s
  remote_storage_timeout: 2s
  first_request_timeout: 5s
  progress_timeout: 6s
  lookup_timeout: 7s
  linger_timeout: 3s
  drain_timeout: 4s
log: {level: debug, format: json}
admin: {address: "0.0.0.0:9644"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Cluster: Cluster{
			Upstream: Upstream{
				BootstrapServers: []HostPort{{"kafka-0", 9092}, {"2001:db8::7", 9093}},
				MetadataRefresh:  Duration(90 * time.Second), SendProxyProtocol: SendProxyProtocolV2,
			},
			Listeners: []Listener{
				{
					Name: "outside.v4-1", Bootstrap: HostPort{"0.0.0.0", 9192}, Nodes: PortRange{"0.0.0.0", 9200, 9202},
					FirstNodeID: 100, AdvertisedHost: "kafka.example.com", UnmappedNodes: UnmappedReject, ProxyProtocol: ProxyProtocolOptional,
				},
				{
					Name: "outside_v6", Bootstrap: HostPort{"::1", 9192}, Nodes: PortRange{"::1", 9300, 9300},
					FirstNodeID: 2147483647, AdvertisedHost: "2001:db8::1", UnmappedNodes: UnmappedReject, ProxyProtocol: ProxyProtocolOff,
				},
				{Name: "sidecar", UnmappedNodes: UnmappedReject, ProxyProtocol: ProxyProtocolRequired, Direct: Routes{
					{HostPort{"10.0.0.1", 9092}, HostPort{"kafka-0", 9092}, "10.0.0.1:9092"},
					{HostPort{"localhost", 9093}, HostPort{"::1", 19093}, "localhost:9093"},
				}},
			},
			EarliestPendingUpload: PendingUploadOff,
			Tiering: Tiering{
				StatusTTL: Duration(2 * time.Minute), UnknownTTL: Duration(500 * time.Millisecond), MaxTopics: 7, MaxTieredPartitions: 8, MaxInFlightSegments: 9,
				TieredTopics: []TopicName{"orders", "42", "a.b_c-d"},
			},
		},
		Limits: Limits{
			MaxRequestBytes: 100 << 20, MaxResponseBytes: 1 << 30, MaxHeldBytes: 64 << 10, MaxBufferedBytes: 8 << 30, MaxInflight: 1, MaxUnauthenticatedBytes: 512 << 10,
			MaxSessions: 11, MaxSessionsPerClient: 12, AcceptRate: 13, MaxHandshakes: 14, MaxPendingConnections: 20, HandshakeTimeout: Duration(15 * time.Second),
			DialTimeout: Duration(time.Second), RemoteStorageTimeout: Duration(2 * time.Second),
			LingerTimeout: Duration(3 * time.Second), DrainTimeout: Duration(4 * time.Second),
			FirstRequestTimeout: Duration(5 * time.Second), ProgressTimeout: Duration(6 * time.Second), LookupTimeout: Duration(7 * time.Second),
		},
		EventLoop: EventLoopEpoll,
		Log:       Log{Level: LogLevelDebug, Format: LogFormatJSON},
		Admin:     Admin{Address: HostPort{"0.0.0.0", 9644}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// faultsOf returns the faults of a file called f, one line each.
func faultsOf(t *testing.T, yaml string) string {
	t.Helper()
	c, err := Parse("f", []byte(yaml))
	if err == nil {
		return fmt.Sprintf("no fault: %+v", *c)
	}
	if c != nil {
		t.Errorf("a Config beside an error: %+v", *c)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("error of type %T, want *Error", err)
	}
	return err.Error()
}

func wantFaults(t *testing.T, yaml string, want ...string) {
	t.Helper()
	if got := faultsOf(t, yaml); got != strings.Join(want, "\n") {
		t.Errorf("file:\n%s\ngot:\n%s\nwant:\n%s", yaml, got, strings.Join(want, "\n"))
	}
}

func TestFileFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }

	empty := "f: empty file: want at least upstream.bootstrap_servers and listeners; " +
		"start from docs/tiergate.example.yaml"
	f("", empty)
	f("# nothing but words\n", empty)
	f("---\n", empty)

	noUpstream := `upstream.bootstrap_servers: missing: want a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`
	noListeners := `listeners: missing: want at least one listener, with name, bootstrap, nodes and advertised_host, ` +
		`or with name and direct`
	f("{}", "f:1:1: "+noUpstream, "f:1:1: "+noListeners)
	f("log: {level: info}", "f:1:1: "+noUpstream, "f:1:1: "+noListeners)
	f("null", "f:1:1: missing value: want a mapping with the keys upstream, listeners, earliest_pending_upload, "+
		"tiering, clusters, event_loop, limits, log, admin, or remove the key")
	f("- a", "f:1:1: invalid value (a list): want a mapping with the keys upstream, listeners, earliest_pending_upload, "+
		"tiering, clusters, event_loop, limits, log, admin")
	f("just words", `f:1:1: invalid value "just words" (text): want a mapping with the keys upstream, listeners, earliest_pending_upload, `+
		"tiering, clusters, event_loop, limits, log, admin")
	f(issue3+"---\nlog: {level: debug}\n", "f:12:1: a second YAML document begins here: want one document")

	f("a: \"x\n", "f:1:4: invalid YAML: could not find end character of double-quoted text")
	f("a:\n\tb: 1\n", "f:2:1: invalid YAML: found character '\t' that cannot start any token")
	f("admin:\n  address: [::1]:9092\n",
		`f:2:17: invalid YAML: value is not allowed in this context; an IPv6 address needs quotes: "[::1]:9092"`)
}

// with returns the file of issue 3 with old replaced by new, which must be there.
func with(t *testing.T, pairs ...string) string {
	t.Helper()
	yaml := issue3
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(yaml, pairs[i]) != 1 {
			t.Fatalf("%q is not once in the file", pairs[i])
		}
		yaml = strings.Replace(yaml, pairs[i], pairs[i+1], 1)
	}
	return yaml
}

func TestKeyFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }

	// A misspelt key is one fault: it is not missing as well.
	f(with(t, "advertised_host", "advertized_host"),
		`f:7:5: listeners[0].advertized_host: unknown key: did you mean "advertised_host"?`)
	f(with(t, "upstream:", "upstreams:"), `f:1:1: upstreams: unknown key: did you mean "upstream"?`)
	f(with(t, "bootstrap_servers", "Bootstrap_Server"), `f:2:3: upstream.Bootstrap_Server: unknown key: did you mean "bootstrap_servers"?`)
	f(issue3+"limits:\n  verdict_timeout: 2s\n", `f:12:3: limits.verdict_timeout: renamed key: write "remote_storage_timeout" instead`)
	// The right key beside the misspelt one is still checked.
	f(with(t, "    nodes:", "    node: x\n    nodes:", "9200-9209\" ", "9209-9200\" "),
		`f:6:5: listeners[0].node: unknown key: did you mean "nodes"?`,
		`f:7:12: listeners[0].nodes: invalid port range "127.0.0.1:9209-9200": the range is reversed; want 127.0.0.1:9200-9209`)
	f(with(t, "    nodes:", "    max_inflight: 3\n    nodes:"),
		`f:6:5: listeners[0].max_inflight: unknown key here: did you mean "limits.max_inflight"?`)
	f(issue3+"tls: {}\n",
		`f:11:1: tls: unknown key here: did you mean "upstream.tls" or "listeners[].tls"?`)
	f(issue3+"log: {level: info}\nlog: {level: warn}\n", `f:12:1: log: duplicate key, first on line 11: remove one of them`)
	f(with(t, "    nodes:", "    name: other\n    nodes:"), `f:6:5: listeners[0].name: duplicate key, first on line 4: remove one of them`)
	f(issue3+"limits: {max_inflight: 1, max_inflight: 2}\n",
		`f:11:27: limits.max_inflight: duplicate key, first on line 11: remove one of them`)
	// A section may be empty, as when all of its keys are commented out; a value may not.
	f(issue3+"limits:\n  max_inflight:\nlog:\ntiering:\n  # status_ttl: 1m\n",
		"f:12:16: limits.max_inflight: missing value: want a decimal integer, or remove the key")
	f(issue3+"log:\n  level:\n", "f:12:10: log.level: missing value: want debug, info, warn or error, or remove the key")
	f(with(t, "upstream:\n  bootstrap_servers: [\"127.0.0.1:29092\"]", "upstream:"),
		`f:1:10: upstream.bootstrap_servers: missing: want a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`)
	f(with(t, "listeners:\n", "listeners:\n  -\n"),
		`f:4:4: listeners[0].name: missing: want at most 64 letters, digits, ".", "_" and "-" (quote a number)`,
		`f:4:4: listeners[0]: no address to listen on: `+wantKind)
	f(issue3+"limits:\n  max_inflight: &few 3\n",
		"f:12:17: limits.max_inflight: anchors, aliases and tags are not supported: want a decimal integer")
	f(issue3+"limits:\n  <<: 3\n", "f:12:3: limits: invalid key: want plain text")
	f(issue3+"7: 3\n",
		`f:11:1: 7: unknown key: want one of upstream, listeners, earliest_pending_upload, tiering, clusters, event_loop, limits, log, admin`)
}

// Inside braces the library splits plain text at a colon.
func TestHostPortWithinBraces(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }
	const listeners = "listeners: [{name: a, direct: {\"0.0.0.0:9092\": kafka-0:9092}}]\n"

	c, err := Parse("f", []byte("upstream: {bootstrap_servers: [kafka-0:9092, kafka-1:9093]}\n"+listeners))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.Upstream.BootstrapServers, c.Listeners[0].Direct[0].Broker); got != "[kafka-0:9092 kafka-1:9093] kafka-0:9092" {
		t.Errorf("got %s", got)
	}
	f("upstream: {bootstrap_servers: [kafka-0: 9092]}\n"+listeners,
		`f:1:32: upstream.bootstrap_servers[0]: invalid value (a mapping): want host:port, e.g. "kafka-0:9092"`)
	f("upstream: {bootstrap_servers: [kafka-0:x]}\n"+listeners,
		`f:1:32: upstream.bootstrap_servers[0]: invalid address "kafka-0:x": port "x" is not a number; want host:port, e.g. "kafka-0:9092"`)
	f("upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners: [{name: a, direct: {0.0.0.0:9092: kafka-0:9092}}]\n",
		`f:2:32: listeners[0].direct["0.0.0.0"]: invalid address "0.0.0.0": missing port; want host:port, e.g. "kafka-0:9092"; within braces both addresses need quotes`)
}

func TestTypeFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }

	f(with(t, `["127.0.0.1:29092"]`, `kafka-0:9092`),
		`f:2:22: upstream.bootstrap_servers: invalid value "kafka-0:9092" (text): want a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`)
	f(with(t, `["127.0.0.1:29092"]`, `[9092, true, {a: b}]`),
		`f:2:23: upstream.bootstrap_servers[0]: invalid value 9092 (a number): want host:port, e.g. "kafka-0:9092"`,
		`f:2:29: upstream.bootstrap_servers[1]: invalid value true (a boolean): want host:port, e.g. "kafka-0:9092"`,
		`f:2:35: upstream.bootstrap_servers[2]: invalid value (a mapping): want host:port, e.g. "kafka-0:9092"`)
	f(with(t, `["127.0.0.1:29092"]`, `[]`), `f:2:22: upstream.bootstrap_servers: empty list: want at least one broker, better three`)
	f("upstream: [kafka-0:9092]\n"+strings.SplitAfterN(issue3, "\n", 3)[2],
		`f:1:11: upstream: invalid value (a list): want a mapping with the keys bootstrap_servers, metadata_refresh, hosts, tls, sasl, send_proxy_protocol`)
	f(with(t, "earliest_pending_upload: auto", "earliest_pending_upload: on"),
		`f:8:26: earliest_pending_upload: invalid value "on": want auto, metadata_topic, always or off`)
	f(with(t, "earliest_pending_upload: auto", "earliest_pending_upload: false"),
		`f:8:26: earliest_pending_upload: invalid value false (a boolean): want auto, metadata_topic, always or off`)
	f(with(t, `"127.0.0.1:9644"`, `9644`), `f:10:12: admin.address: invalid value 9644 (a number): want host:port, e.g. "kafka-0:9092"`)
	f(with(t, `name: clients`, `name: 9192`),
		`f:4:11: listeners[0].name: invalid value 9192 (a number): want at most 64 letters, digits, ".", "_" and "-" (quote a number)`)
	f(issue3+"limits: {dial_timeout: 10, drain_timeout: 1.5, linger_timeout: 5 s}\n",
		`f:11:24: limits.dial_timeout: invalid value 10 (a number): want a positive value with a unit, e.g. 500ms, 10s or 5m`,
		`f:11:43: limits.drain_timeout: invalid value 1.5 (a number): want a positive value with a unit, e.g. 500ms, 10s or 5m`,
		`f:11:64: limits.linger_timeout: invalid duration "5 s": want a positive value with a unit, e.g. 500ms, 10s or 5m`)
	f(issue3+"limits: {max_inflight: \"3\"}\n", `f:11:24: limits.max_inflight: invalid value "3" (text): want a decimal integer`)
	f(issue3+"limits: {max_inflight: 0x10}\n", `f:11:24: limits.max_inflight: invalid value 0x10 (out of range, or not decimal): want a decimal integer`)
	f(issue3+"limits: {max_inflight: 010}\n", `f:11:24: limits.max_inflight: invalid value 010 (out of range, or not decimal): want a decimal integer`)
	f(with(t, "    nodes:", "    first_node_id: 2147483648\n    nodes:"),
		`f:6:20: listeners[0].first_node_id: invalid value 2147483648 (out of range, or not decimal): want a decimal integer`)
	f(issue3+"tiering: {tiered_topics: [7, a b, .., ok]}\n",
		`f:11:27: tiering.tiered_topics[0]: invalid value 7 (a number): want at most 249 letters, digits, ".", "_" and "-" (quote a number)`,
		`f:11:30: tiering.tiered_topics[1]: invalid topic name "a b": want at most 249 letters, digits, ".", "_" and "-" (quote a number)`,
		`f:11:35: tiering.tiered_topics[2]: invalid topic name "..": want at most 249 letters, digits, ".", "_" and "-" (quote a number)`)
	f(issue3+"tiering: {tiered_topics: [__remote_log_metadata, _orders]}\n",
		`f:11:27: tiering.tiered_topics[0]: invalid topic "__remote_log_metadata": Kafka never tiers its internal topics; remove it`)
	f(issue3+"event_loop: kqueue\n", `f:11:13: event_loop: invalid value "kqueue": want gnet or epoll`)
	f(issue3+"log: {level: trace, format: logfmt}\n",
		`f:11:14: log.level: invalid value "trace": want debug, info, warn or error`,
		`f:11:29: log.format: invalid value "logfmt": want text or json`)
}

func TestAddressFaults(t *testing.T) {
	f := func(address, want string) {
		t.Helper()
		wantFaults(t, with(t, `"127.0.0.1:9192"`, address), "f:5:16: listeners[0].bootstrap: "+want)
	}

	f(`kafka-0`, `invalid address "kafka-0": missing port; want host:port, e.g. "kafka-0:9092"`)
	f(`""`, `invalid address "": missing port; want host:port, e.g. "kafka-0:9092"`)
	f(`":9092"`, `invalid address ":9092": missing host; want host:port, e.g. "kafka-0:9092" (to listen on every interface: "0.0.0.0" or "[::]")`)
	f(`"kafka-0:"`, `invalid address "kafka-0:": port "" is not a number; want host:port, e.g. "kafka-0:9092"`)
	f(`kafka-0:kafka`, `invalid address "kafka-0:kafka": port "kafka" is not a number; want host:port, e.g. "kafka-0:9092"`)
	f(`kafka-0:-1`, `invalid address "kafka-0:-1": port "-1" is not a number; want host:port, e.g. "kafka-0:9092"`)
	f(`kafka-0:0`, `invalid address "kafka-0:0": port 0 would be a different port at every start; want host:port, e.g. "kafka-0:9092"`)
	f(`kafka-0:65536`, `invalid address "kafka-0:65536": port 65536 is above 65535; want host:port, e.g. "kafka-0:9092"`)
	f(`PLAINTEXT://kafka-0:9092`, `invalid address "PLAINTEXT://kafka-0:9092": found the scheme "PLAINTEXT://"; want host:port, e.g. "kafka-0:9092"`)
	f(`"::1:9092"`, `invalid address "::1:9092": IPv6 address without brackets; want "[::1]:9092"`)
	f(`"::1"`, `invalid address "::1": missing port; want host:port, e.g. "kafka-0:9092"`)
	f(`"[::1]"`, `invalid address "[::1]": missing port; want host:port, e.g. "kafka-0:9092"`)
	f(`"[::1:9092"`, `invalid address "[::1:9092": want host:port, e.g. "kafka-0:9092"`)
	f(`"[::g]:9092"`, `invalid address "[::g]:9092": host "::g" is not an IPv6 address; want host:port, e.g. "kafka-0:9092"`)
	f(`"[kafka-0]:9092"`, `invalid address "[kafka-0]:9092": only an IPv6 address can be in brackets; want host:port, e.g. "kafka-0:9092"`)
	f(`a:b:9092`, `invalid address "a:b:9092": too many colons; want host:port, e.g. "kafka-0:9092", with an IPv6 address in brackets, e.g. "[::1]:9092"`)
	f(`kafka 0:9092`, `invalid address "kafka 0:9092": host "kafka 0" is not a DNS name; want host:port, e.g. "kafka-0:9092"`)
	f(`kafka..example:9092`, `invalid address "kafka..example:9092": host "kafka..example" is not a DNS name; want host:port, e.g. "kafka-0:9092"`)
	f(`256.0.0.1:9092`, `invalid address "256.0.0.1:9092": host "256.0.0.1" is not an IPv4 address; want host:port, e.g. "kafka-0:9092"`)
	f(strings.Repeat("a.", 130)+`com:9092`, `invalid address "`+strings.Repeat("a.", 130)+`com:9092": the host is longer than 253 characters, the maximum of DNS; `+
		`want host:port, e.g. "kafka-0:9092"`)
}

func TestPortRangeFaults(t *testing.T) {
	const want = `want one range host:first-last, one port per node, e.g. "127.0.0.1:9200-9209"`
	f := func(nodes, problem string) {
		t.Helper()
		wantFaults(t, with(t, `"127.0.0.1:9200-9209"`, nodes), "f:6:12: listeners[0].nodes: "+problem)
	}

	f(`h:9209-9200`, `invalid port range "h:9209-9200": the range is reversed; want h:9200-9209`)
	f(`"[::1]:9209-9200"`, `invalid port range "[::1]:9209-9200": the range is reversed; want [::1]:9200-9209`)
	f(`h:65530-65536`, `invalid port range "h:65530-65536": port 65536 is above 65535; `+want)
	f(`h:0-9`, `invalid port range "h:0-9": port 0 would be a different port at every start; `+want)
	f(`h:9200`, `invalid port range "h:9200": found one port; `+want+` (for one node: h:9200-9200)`)
	f(`h:9200,9201`, `invalid port range "h:9200,9201": found a list of ports; `+want)
	f(`[h:9200, h:9201]`, `invalid value (a list): `+want)
	f(`9200-9209`, `invalid port range "9200-9209": missing port; `+want)
	f(`h:9200-9209-9300`, `invalid port range "h:9200-9209-9300": port "9209-9300" is not a number; `+want)
	f(`h:9200-`, `invalid port range "h:9200-": port "" is not a number; `+want)
	f(`h:a-b`, `invalid port range "h:a-b": port "a" is not a number; `+want)
	f(`"::1:9200-9209"`, `invalid port range "::1:9200-9209": IPv6 address without brackets; want "[::1]:9200-9209"`)
}

func TestAdvertisedHostFaults(t *testing.T) {
	const reason = "want the host that clients connect to; it is advertised for every node, and clients cannot connect to a wildcard"
	f := func(host, problem string) {
		t.Helper()
		wantFaults(t, with(t, `    advertised_host: "127.0.0.1"`, `    advertised_host: `+host), "f:7:22: listeners[0].advertised_host: "+problem)
	}

	wantFaults(t, with(t, "    advertised_host: \"127.0.0.1\"\n", ""), "f:4:5: listeners[0].advertised_host: missing: "+reason)
	f(`0.0.0.0`, `invalid host "0.0.0.0": `+reason)
	f(`"::"`, `invalid host "::": `+reason)
	f(`"[::]"`, `invalid host "::": `+reason)
	f(`"0:0:0:0:0:0:0:0"`, `invalid host "0:0:0:0:0:0:0:0": `+reason)
	f(`"::ffff:0.0.0.0"`, `invalid host "::ffff:0.0.0.0": `+reason)
	f(`"*"`, `invalid host "*": `+reason)
	f(`""`, `invalid host "": want the host that clients connect to, e.g. kafka.example.com`)
	f(`kafka:9092`, `invalid host "kafka:9092": found a port; want the host that clients connect to, e.g. kafka.example.com (the ports are those of nodes)`)
	f(`"[::1]:9092"`, `invalid host "[::1]:9092": found a port; want the host that clients connect to, e.g. kafka.example.com (the ports are those of nodes)`)
	f(`"fe80::1%eth0"`, `invalid host "fe80::1%eth0": zone "eth0" has no meaning on other machines; `+
		`want the host that clients connect to, e.g. kafka.example.com`)
	f(`https://kafka`, `invalid host "https://kafka": found a scheme; want the host that clients connect to, e.g. kafka.example.com`)
	f(`kafka_0/x`, `invalid host "kafka_0/x": host "kafka_0/x" is not a DNS name; want the host that clients connect to, e.g. kafka.example.com`)
	f(`10.0.0`, `invalid host "10.0.0": host "10.0.0" is not an IPv4 address; want the host that clients connect to, e.g. kafka.example.com`)
}

func TestListenerFaults(t *testing.T) {
	f := func(listeners string, want ...string) {
		t.Helper()
		wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n"+listeners, want...)
	}
	const advertised = "want the host that clients connect to; it is advertised for every node, and clients cannot connect to a wildcard"

	f("  []\n", `f:3:3: listeners: empty list: want at least one listener`)
	f("  - kafka\n", `f:3:5: listeners[0]: invalid value "kafka" (text): want a mapping with the keys name, bootstrap, nodes, first_node_id, advertised_host, node_addresses, sni, unmapped_nodes, direct, tls, proxy_protocol`)
	f("  - {name: a}\n", `f:3:5: listeners[0]: no address to listen on: `+wantKind)
	f("  - {name: a, bootstrap: \"h:1\"}\n",
		`f:3:5: listeners[0].nodes: missing: want one range host:first-last, one port per node, e.g. "127.0.0.1:9200-9209"`,
		`f:3:5: listeners[0].advertised_host: missing: `+advertised)
	f("  - {nodes: \"h:1-2\", advertised_host: h}\n",
		`f:3:5: listeners[0].name: missing: want at most 64 letters, digits, ".", "_" and "-" (quote a number)`,
		`f:3:5: listeners[0].bootstrap: missing: want the host:port that clients connect to first, e.g. "127.0.0.1:9192"`)
	f("  - {name: a, bootstrap: \"h:1\", direct: {\"h:2\": \"k:1\"}}\n",
		`f:3:26: listeners[0].bootstrap: has no effect with direct, which rewrites no address: remove it`)
	f("  - {name: a, nodes: \"h:1-2\", advertised_host: h, direct: {\"h:3\": \"k:1\"}}\n",
		`f:3:59: listeners[0].direct: conflicts with nodes: `+wantKind)
	f("  - {name: a, advertised_host: h, first_node_id: 1, direct: {\"h:3\": \"k:1\"}}\n",
		`f:3:32: listeners[0].advertised_host: has no effect with direct, which rewrites no address: remove it`,
		`f:3:50: listeners[0].first_node_id: has no effect with direct, which rewrites no address: remove it`)
	f("  - {name: a, direct: {}}\n",
		`f:3:23: listeners[0].direct: invalid value (an empty mapping): want a mapping of listen address to broker address, e.g. {"0.0.0.0:9092": "kafka-0:9092"}`)
	f("  - {name: a, direct: [\"h:1\"]}\n",
		`f:3:23: listeners[0].direct: invalid value (a list): want a mapping of listen address to broker address, e.g. {"0.0.0.0:9092": "kafka-0:9092"}`)
	f("  - name: a\n    direct:\n      \"h:1\": kafka-0\n      \"h\": \"k:2\"\n      \"h:3\": \"0.0.0.0:3\"\n      \"h:4\": \"k:4\"\n      \"h:4\": \"k:5\"\n",
		`f:5:14: listeners[0].direct["h:1"]: invalid address "kafka-0": missing port; want host:port, e.g. "kafka-0:9092"`,
		`f:6:7: listeners[0].direct["h"]: invalid address "h": missing port; want host:port, e.g. "kafka-0:9092"`,
		`f:7:7: listeners[0].direct["h:3"]: invalid address "0.0.0.0:3": nobody can connect to a wildcard; want the host:port of the broker`,
		`f:9:7: listeners[0].direct["h:4"]: duplicate key, first on line 8: remove one of them`)
	f("  - {name: a, direct: {\"h:1\": \"k:1\"}}\n  - {name: a, direct: {\"h:2\": \"k:2\"}}\n",
		`f:4:12: listeners[1].name: duplicate name "a", already used by listeners[0] (line 3): want a unique name`)
	f("  - {name: a b, direct: {\"h:1\": \"k:1\"}}\n",
		`f:3:12: listeners[0].name: invalid name "a b": want at most 64 letters, digits, ".", "_" and "-" (quote a number)`)
	f("  - {name: a, bootstrap: \"h:1\", nodes: \"h:2-3\", advertised_host: h, first_node_id: -1}\n",
		`f:3:84: listeners[0].first_node_id: invalid node id -1: want 0 or more, the node id at the first port of nodes`)
	f("  - {name: a, bootstrap: \"h:1\", nodes: \"h:2-3\", advertised_host: h, first_node_id: 2147483647}\n",
		`f:3:84: listeners[0].first_node_id: invalid node id 2147483647: the last port of nodes would have the node id 2147483648, above 2147483647; want a lower one`)
}

func TestOverlapFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }
	const own = "; want other ports"

	f(with(t, "127.0.0.1:9192", "127.0.0.1:9205"),
		`f:6:12: listeners[0].nodes: conflict: "127.0.0.1:9200-9209" overlaps listeners[0].bootstrap, "127.0.0.1:9205" (line 5), at port 9205`+own)
	f(with(t, "127.0.0.1:9644", "0.0.0.0:9209"),
		`f:10:12: admin.address: conflict: "0.0.0.0:9209" overlaps listeners[0].nodes, "127.0.0.1:9200-9209" (line 6), at port 9209`+own)
	f(with(t, "127.0.0.1:9644", "localhost:9192"),
		`f:10:12: admin.address: conflict: "localhost:9192" overlaps listeners[0].bootstrap, "127.0.0.1:9192" (line 5), at port 9192`+own)
	f(with(t, "admin:\n  address: \"127.0.0.1:9644\"", "# no admin", "9200-9209", "9640-9649"),
		`f:6:12: listeners[0].nodes: conflict: "127.0.0.1:9640-9649" overlaps the default of admin.address, "127.0.0.1:9644", at port 9644`+own)

	second := func(bootstrap, nodes, first, host string) string {
		return with(t, "earliest_pending_upload: auto", "  - {name: second, bootstrap: \""+bootstrap+"\", nodes: \""+nodes+"\", first_node_id: "+first+
			", advertised_host: \""+host+"\"}\nearliest_pending_upload: auto")
	}
	f(second("127.0.0.1:9193", "127.0.0.1:9209-9210", "10", "other"),
		`f:8:56: listeners[1].nodes: conflict: "127.0.0.1:9209-9210" overlaps listeners[0].nodes, "127.0.0.1:9200-9209" (line 6), at port 9209`+own)
	f(second("[::]:9192", "127.0.0.1:9210-9210", "10", "127.0.0.1"),
		`f:8:31: listeners[1].bootstrap: conflict: "[::]:9192" overlaps listeners[0].bootstrap, "127.0.0.1:9192" (line 5), at port 9192`+own)
	// The same advertised host and ports, on another interface: well for the same nodes only.
	f(second("127.0.0.2:9192", "127.0.0.2:9205-9210", "100", "127.0.0.1"),
		`f:8:56: listeners[1].nodes: conflict: "127.0.0.2:9205-9210" advertises 127.0.0.1:9205 for node 100, and listeners[0].nodes (line 6) for node 5; `+
			`clients identify nodes by address: want other ports or another advertised host`)
	for _, good := range []string{
		second("127.0.0.2:9192", "127.0.0.2:9205-9210", "5", "127.0.0.1"),
		second("127.0.0.2:9192", "127.0.0.2:9200-9209", "100", "other"),
		second("[::1]:9192", "[::1]:9200-9209", "0", "127.0.0.1"),
		with(t, "127.0.0.1:9644", "127.0.0.2:9192"),
	} {
		if got := faultsOf(t, good); !strings.HasPrefix(got, "no fault:") {
			t.Errorf("file:\n%s\ngot:\n%s\nwant no fault", good, got)
		}
	}
}

func TestHostsOverlap(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		if hostsOverlap(a, b) != want || hostsOverlap(b, a) != want {
			t.Errorf("hostsOverlap(%q, %q): got %t, and %t the other way, want %t", a, b, hostsOverlap(a, b), hostsOverlap(b, a), want)
		}
	}

	f("127.0.0.1", "127.0.0.1", true)
	f("127.0.0.1", "127.0.0.2", false)
	f("127.0.0.1", "::ffff:127.0.0.1", true)
	f("kafka", "KAFKA.", true)
	f("kafka", "other", false)
	f("localhost", "127.0.0.1", true)
	f("localhost", "::1", true)
	f("127.0.0.1", "::1", false)
	f("0.0.0.0", "10.0.0.1", true)
	f("0.0.0.0", "kafka", true)
	f("0.0.0.0", "::1", false)
	f("0.0.0.0", "::", true)
	f("::", "10.0.0.1", true)
	f("::", "::1", true)
	f("::", "::", true)
}

func TestUpstreamFaults(t *testing.T) {
	f := func(servers string, want ...string) {
		t.Helper()
		wantFaults(t, with(t, `["127.0.0.1:29092"]`, servers), want...)
	}

	f(`[kafka-0:9092, KAFKA-0.:9092]`, `f:2:37: upstream.bootstrap_servers[1]: duplicate address "KAFKA-0.:9092", already given as upstream.bootstrap_servers[0]: remove one of them`)
	f(`["[::]:9092"]`, `f:2:23: upstream.bootstrap_servers[0]: invalid address "[::]:9092": nobody can connect to a wildcard; want the host:port of the broker`)
	f(`["localhost:9192"]`, `f:2:23: upstream.bootstrap_servers[0]: invalid broker address "localhost:9192": tiergate itself listens there (listeners[0].bootstrap, line 5); want the address of a broker`)
	f(`["127.0.0.1:9203"]`, `f:2:23: upstream.bootstrap_servers[0]: invalid broker address "127.0.0.1:9203": tiergate itself listens there (listeners[0].nodes, line 6); want the address of a broker`)
	wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- {name: a, direct: {\"0.0.0.0:9092\": \"127.0.0.1:9092\"}}\n",
		`f:3:22: listeners[0].direct["0.0.0.0:9092"]: invalid broker address "127.0.0.1:9092": tiergate itself listens there (listeners[0].direct["0.0.0.0:9092"], line 3); want the address of a broker`)
}

func TestNumberFaults(t *testing.T) {
	f := func(key, value, problem string) {
		t.Helper()
		section, name, _ := strings.Cut(key, ".")
		yaml := issue3 + section + ":\n  " + name + ": " + value + "\n"
		at := fmt.Sprintf("f:12:%d: %s: ", 5+len(name), key)
		if section == "upstream" {
			yaml = with(t, "upstream:\n", "upstream:\n  "+name+": "+value+"\n")
			at = fmt.Sprintf("f:2:%d: %s: ", 5+len(name), key)
		}
		wantFaults(t, yaml, at+problem)
	}
	const duration = "a positive value with a unit, e.g. 500ms, 10s or 5m"
	const positiveSize = "a positive number of bytes, plain or with KiB, MiB or GiB, e.g. 33554432 or 32MiB"
	const size = "a number of bytes, plain or with KiB, MiB or GiB, e.g. 33554432 or 32MiB"

	f("upstream.metadata_refresh", "0s", `invalid value "0s": want `+duration+`; otherwise brokers are queried without a pause`)
	f("tiering.status_ttl", "-1s", `invalid value "-1s": want `+duration+`; otherwise brokers are queried for every -6 request`)
	f("tiering.unknown_ttl", "0ms", `invalid value "0ms": want `+duration+`; otherwise a lookup that failed is repeated for every -6 request`)
	f("tiering.max_topics", "0", `invalid value "0": want a positive number of topics; otherwise no status is cached`)
	f("tiering.max_tiered_partitions", "0", `invalid value "0": want a positive number of partitions; otherwise no tiered offset is known`)
	f("tiering.max_in_flight_segments", "-1", `invalid value "-1": want a positive number of segments; otherwise no upload is recorded`)
	f("limits.max_inflight", "-5", `invalid value "-5": want a positive number of requests; otherwise no request is read`)
	f("limits.dial_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every dial times out`)
	f("limits.remote_storage_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every lookup times out`)
	f("limits.max_unauthenticated_bytes", "0", `invalid value "0": want `+positiveSize+`; otherwise no client can send ListOffsets first`)
	f("limits.first_request_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every client times out`)
	f("limits.progress_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every frame times out`)
	f("limits.lookup_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every lookup request times out`)
	f("limits.linger_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise connections are closed before their last response`)
	f("limits.drain_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise open exchanges are cut off at the stop (a second signal stops at once too)`)
	f("limits.max_request_bytes", "0", `invalid value "0": want `+positiveSize+`; otherwise every request is rejected`)
	f("limits.max_response_bytes", "-1MiB", `invalid value "-1MiB": want `+positiveSize+`; otherwise every response is rejected`)
	f("limits.max_held_bytes", "0GiB", `invalid value "0GiB": want `+positiveSize+`; otherwise no response can be changed`)
	f("limits.max_buffered_bytes", "0", `invalid value "0": want `+positiveSize+`; otherwise no response can be changed`)
	f("limits.max_buffered_bytes", "16MiB", `invalid value "16MiB": max_buffered_bytes (16MiB) is less than max_held_bytes (32MiB), which bounds a single frame; want several times max_held_bytes`)
	f("limits.max_held_bytes", "1GiB", `invalid value "1GiB": max_buffered_bytes (512MiB) is less than max_held_bytes (1GiB), which bounds a single frame; want several times max_held_bytes`)
	f("limits.max_pending_connections", "0", `invalid value "0": want a positive number of connections; otherwise no client can use TLS`)
	f("limits.max_handshakes", "0", `invalid value "0": want a positive number of handshakes; otherwise no client can use TLS`)
	f("limits.handshake_timeout", "0s", `invalid value "0s": want `+duration+`; otherwise every handshake times out`)
	f("limits.max_pipes", "-1", `invalid value "-1": want 0 (no pipes, bytes are copied) or more`)
	f("limits.max_sessions", "-1", `invalid value "-1": want 0 (unlimited) or more`)
	f("limits.max_sessions_per_client", "-1", `invalid value "-1": want 0 (unlimited) or more`)
	f("limits.accept_rate", "-1", `invalid value "-1": want 0 (unlimited) or more`)
	f("limits.idle_timeout", "-1s", `invalid value "-1s": want 0 (never) or more`)
	f("limits.max_held_bytes", "32", `invalid size "32": too small for the Metadata response of a small cluster; want 64KiB or more: `+size)
	f("limits.max_held_bytes", "32MB", `invalid size "32MB": want `+size)
	f("limits.max_held_bytes", "1.5GiB", `invalid size "1.5GiB": want `+size)
	f("limits.max_held_bytes", "9999999999GiB", `invalid size "9999999999GiB": too large; want `+size)
	f("limits.max_held_bytes", "99999999999999999999", `invalid size "99999999999999999999": too large; want `+size)
	f("limits.max_response_bytes", "2GiB", `invalid size "2GiB": want at most 2147483647, the limit of the size field of a Kafka frame`)
}

// All faults of a file at once, in the order of the file, each on one line.
func TestEveryFaultAtOnce(t *testing.T) {
	wantFaults(t, `upstream:
  bootstrap_server: ["127.0.0.1:29092"]
listeners:
  - name: clients
    bootstrap: 9192
    nodes: "127.0.0.1:9209-9200"
    advertised_host: "0.0.0.0"
  - name: clients
    direct: {"0.0.0.0:9092": "kafka-0"}
earliest_pending_upload: sometimes
limits: {max_held_bytes: 32, dial_timeout: 10}
tls: {}
`,
		`f:2:3: upstream.bootstrap_server: unknown key: did you mean "bootstrap_servers"?`,
		`f:5:16: listeners[0].bootstrap: invalid value 9192 (a number): want host:port, e.g. "kafka-0:9092"`,
		`f:6:12: listeners[0].nodes: invalid port range "127.0.0.1:9209-9200": the range is reversed; want 127.0.0.1:9200-9209`,
		`f:7:22: listeners[0].advertised_host: invalid host "0.0.0.0": want the host that clients connect to; it is advertised for every node, and clients cannot connect to a wildcard`,
		`f:8:11: listeners[1].name: duplicate name "clients", already used by listeners[0] (line 4): want a unique name`,
		`f:9:30: listeners[1].direct["0.0.0.0:9092"]: invalid address "kafka-0": missing port; want host:port, e.g. "kafka-0:9092"`,
		`f:10:26: earliest_pending_upload: invalid value "sometimes": want auto, metadata_topic, always or off`,
		`f:11:26: limits.max_held_bytes: invalid size "32": too small for the Metadata response of a small cluster; want 64KiB or more: `+
			`a number of bytes, plain or with KiB, MiB or GiB, e.g. 33554432 or 32MiB`,
		`f:11:44: limits.dial_timeout: invalid value 10 (a number): want a positive value with a unit, e.g. 500ms, 10s or 5m`,
		`f:12:1: tls: unknown key here: did you mean "upstream.tls" or "listeners[].tls"?`,
	)
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiergate.yaml")
	if _, err := Load(path); err == nil || err.Error() != "cannot read the configuration: open "+path+": no such file or directory" {
		t.Errorf("no file: got %v", err)
	}
	if err := os.WriteFile(path, []byte(issue3), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || c.Listeners[0].Nodes.String() != "127.0.0.1:9200-9209" {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := os.WriteFile(path, []byte("log: {level: loud}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":1:1: ") {
		t.Errorf("got %v", err)
	}
}

func TestValueStrings(t *testing.T) {
	f := func(v fmt.Stringer, want string) {
		t.Helper()
		if got := v.String(); got != want {
			t.Errorf("%#v: got %s, want %s", v, got, want)
		}
	}

	f(HostPort{"::1", 9092}, "[::1]:9092")
	f(HostPort{"kafka-0", 1}, "kafka-0:1")
	f(PortRange{"::", 9200, 9209}, "[::]:9200-9209")
	f(Size(0), "0")
	f(Size(1<<31-1), "2147483647")
	f(Size(1<<31), "2GiB")
	f(Size(100<<20), "100MiB")
	f(Size(1536), "1536")
	f(Size(3<<10), "3KiB")
	f(Duration(90*time.Second), "1m30s")
	if got := (PortRange{"h", 1, 65535}).Count(); got != 65535 {
		t.Errorf("Count of all ports: got %d", got)
	}
}

// Whatever stands in a file: no panic, and either a Config or faults, never both.
func FuzzParse(f *testing.F) {
	f.Add(issue3)
	f.Add("a: &x [1]\nb: *x\n<<: *x\n")
	f.Add("c: >-\n  x\nd: |\n  y\n? [a]\n: b\n")
	f.Add("listeners:\n- {name: a, direct: {\"h:1\": \"k:1\", ? : }}\n- !!str 5\n- ~\n")
	f.Fuzz(func(t *testing.T, yaml string) {
		c, err := Parse("f", []byte(yaml))
		if (c == nil) == (err == nil) {
			t.Fatalf("got %+v and %v", c, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || len(e.Faults) == 0) {
			t.Fatalf("got %#v", err)
		}
	})
}

// UTF-8 may begin with a byte order mark, and columns are counted without it. Other encodings
// are named.
func TestEncodings(t *testing.T) {
	if _, err := Parse("f", []byte("\xef\xbb\xbf"+issue3)); err != nil {
		t.Error(err)
	}
	f := func(text, want string) {
		t.Helper()
		if _, err := Parse("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot:  %v\nwant: %s", text, err, want)
		}
	}
	f("\xef\xbb\xbfupstreem: {}\n"+strings.TrimPrefix(issue3, "upstream:\n  bootstrap_servers: [\"127.0.0.1:29092\"]\n"),
		`f:1:1: upstreem: unknown key: did you mean "upstream"?`)
	const utf16 = "f: invalid encoding UTF-16 or UTF-32: want UTF-8; save the file in that encoding"
	f("\xff\xfeu\x00p\x00", utf16)
	f("\xfe\xff\x00u\x00p", utf16)
	f("u\x00p\x00", utf16)
	f("\x00u\x00p", utf16)
	f("\x00\x00\xfe\xff\x00\x00\x00u", utf16)
}
