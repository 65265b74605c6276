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

	empty := "f: is empty; wanted upstream.bootstrap_servers and listeners at the least: " +
		"docs/tiergate.example.yaml is a file to start from"
	f("", empty)
	f("# nothing but words\n", empty)
	f("---\n", empty)

	noUpstream := `upstream.bootstrap_servers: is missing; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`
	noListeners := `listeners: is missing; wanted one listener at the least, with name, bootstrap, nodes and advertised_host, ` +
		`or with name and direct`
	f("{}", "f:1:1: "+noUpstream, "f:1:1: "+noListeners)
	f("log: {level: info}", "f:1:1: "+noUpstream, "f:1:1: "+noListeners)
	f("null", "f:1:1: has no value; wanted a mapping with the keys upstream, listeners, earliest_pending_upload, "+
		"tiering, clusters, event_loop, limits, log, admin, or leave the key out")
	f("- a", "f:1:1: is a list; wanted a mapping with the keys upstream, listeners, earliest_pending_upload, "+
		"tiering, clusters, event_loop, limits, log, admin")
	f("just words", `f:1:1: "just words" is text; wanted a mapping with the keys upstream, listeners, earliest_pending_upload, `+
		"tiering, clusters, event_loop, limits, log, admin")
	f(issue3+"---\nlog: {level: debug}\n", "f:12:1: a second YAML document begins here; wanted one")

	f("a: \"x\n", "f:1:4: is no YAML: could not find end character of double-quoted text")
	f("a:\n\tb: 1\n", "f:2:1: is no YAML: found character '\t' that cannot start any token")
	f("admin:\n  address: [::1]:9092\n",
		`f:2:17: is no YAML: value is not allowed in this context; an IPv6 address needs quotes: "[::1]:9092"`)
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
		`f:7:5: listeners[0].advertized_host: is not known; did you mean "advertised_host"?`)
	f(with(t, "upstream:", "upstreams:"), `f:1:1: upstreams: is not known; did you mean "upstream"?`)
	f(with(t, "bootstrap_servers", "Bootstrap_Server"), `f:2:3: upstream.Bootstrap_Server: is not known; did you mean "bootstrap_servers"?`)
	f(issue3+"limits:\n  verdict_timeout: 2s\n", `f:12:3: limits.verdict_timeout: is called "remote_storage_timeout" now: rename the key`)
	// The right key beside the misspelt one is still checked.
	f(with(t, "    nodes:", "    node: x\n    nodes:", "9200-9209\" ", "9209-9200\" "),
		`f:6:5: listeners[0].node: is not known; did you mean "nodes"?`,
		`f:7:12: listeners[0].nodes: "127.0.0.1:9209-9200" is reversed; wanted 127.0.0.1:9200-9209`)
	f(with(t, "    nodes:", "    max_inflight: 3\n    nodes:"),
		`f:6:5: listeners[0].max_inflight: is not known here; did you mean "limits.max_inflight"?`)
	f(issue3+"tls: {}\n",
		`f:11:1: tls: is not known here; did you mean "upstream.tls" or "listeners[].tls"?`)
	f(issue3+"log: {level: info}\nlog: {level: warn}\n", `f:12:1: log: is given twice, first on line 11; keep one of them`)
	f(with(t, "    nodes:", "    name: other\n    nodes:"), `f:6:5: listeners[0].name: is given twice, first on line 4; keep one of them`)
	f(issue3+"limits: {max_inflight: 1, max_inflight: 2}\n",
		`f:11:27: limits.max_inflight: is given twice, first on line 11; keep one of them`)
	// A section may be empty, as when all of its keys are commented out; a value may not.
	f(issue3+"limits:\n  max_inflight:\nlog:\ntiering:\n  # status_ttl: 1m\n",
		"f:12:16: limits.max_inflight: has no value; wanted a whole number in decimal, or leave the key out")
	f(issue3+"log:\n  level:\n", "f:12:10: log.level: has no value; wanted debug, info, warn or error, or leave the key out")
	f(with(t, "upstream:\n  bootstrap_servers: [\"127.0.0.1:29092\"]", "upstream:"),
		`f:1:10: upstream.bootstrap_servers: is missing; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`)
	f(with(t, "listeners:\n", "listeners:\n  -\n"),
		`f:4:4: listeners[0].name: is missing; wanted letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`,
		`f:4:4: listeners[0]: has no addresses to listen on; `+wantKind)
	f(issue3+"limits:\n  max_inflight: &few 3\n",
		"f:12:17: limits.max_inflight: anchors, aliases and tags are not read; wanted a whole number in decimal written out")
	f(issue3+"limits:\n  <<: 3\n", "f:12:3: limits: has a key that is no plain text")
	f(issue3+"7: 3\n",
		`f:11:1: 7: is not known; wanted one of upstream, listeners, earliest_pending_upload, tiering, clusters, event_loop, limits, log, admin`)
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
		`f:1:32: upstream.bootstrap_servers[0]: is a mapping; wanted host:port, such as "kafka-0:9092"`)
	f("upstream: {bootstrap_servers: [kafka-0:x]}\n"+listeners,
		`f:1:32: upstream.bootstrap_servers[0]: "kafka-0:x" has the port "x", which is no number; wanted host:port, such as "kafka-0:9092"`)
	f("upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners: [{name: a, direct: {0.0.0.0:9092: kafka-0:9092}}]\n",
		`f:2:32: listeners[0].direct["0.0.0.0"]: "0.0.0.0" has no port; wanted host:port, such as "kafka-0:9092"; within braces both addresses need quotes`)
}

func TestTypeFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }

	f(with(t, `["127.0.0.1:29092"]`, `kafka-0:9092`),
		`f:2:22: upstream.bootstrap_servers: "kafka-0:9092" is text; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`)
	f(with(t, `["127.0.0.1:29092"]`, `[9092, true, {a: b}]`),
		`f:2:23: upstream.bootstrap_servers[0]: 9092 is a number; wanted host:port, such as "kafka-0:9092"`,
		`f:2:29: upstream.bootstrap_servers[1]: true is a truth value; wanted host:port, such as "kafka-0:9092"`,
		`f:2:35: upstream.bootstrap_servers[2]: is a mapping; wanted host:port, such as "kafka-0:9092"`)
	f(with(t, `["127.0.0.1:29092"]`, `[]`), `f:2:22: upstream.bootstrap_servers: is empty; wanted one broker at the least, better three`)
	f("upstream: [kafka-0:9092]\n"+strings.SplitAfterN(issue3, "\n", 3)[2],
		`f:1:11: upstream: is a list; wanted a mapping with the keys bootstrap_servers, metadata_refresh, hosts, tls, sasl, send_proxy_protocol`)
	f(with(t, "earliest_pending_upload: auto", "earliest_pending_upload: on"),
		`f:8:26: earliest_pending_upload: "on" is not known; wanted auto, metadata_topic, always or off`)
	f(with(t, "earliest_pending_upload: auto", "earliest_pending_upload: false"),
		`f:8:26: earliest_pending_upload: false is a truth value; wanted auto, metadata_topic, always or off`)
	f(with(t, `"127.0.0.1:9644"`, `9644`), `f:10:12: admin.address: 9644 is a number; wanted host:port, such as "kafka-0:9092"`)
	f(with(t, `name: clients`, `name: 9192`),
		`f:4:11: listeners[0].name: 9192 is a number; wanted letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`)
	f(issue3+"limits: {dial_timeout: 10, drain_timeout: 1.5, linger_timeout: 5 s}\n",
		`f:11:24: limits.dial_timeout: 10 is a number; wanted a time above zero with its unit, such as 500ms, 10s or 5m`,
		`f:11:43: limits.drain_timeout: 1.5 is a number; wanted a time above zero with its unit, such as 500ms, 10s or 5m`,
		`f:11:64: limits.linger_timeout: "5 s" is no time; wanted a time above zero with its unit, such as 500ms, 10s or 5m`)
	f(issue3+"limits: {max_inflight: \"3\"}\n", `f:11:24: limits.max_inflight: "3" is text; wanted a whole number in decimal`)
	f(issue3+"limits: {max_inflight: 0x10}\n", `f:11:24: limits.max_inflight: 0x10 is out of range or not in decimal; wanted a whole number in decimal`)
	f(issue3+"limits: {max_inflight: 010}\n", `f:11:24: limits.max_inflight: 010 is out of range or not in decimal; wanted a whole number in decimal`)
	f(with(t, "    nodes:", "    first_node_id: 2147483648\n    nodes:"),
		`f:6:20: listeners[0].first_node_id: 2147483648 is out of range or not in decimal; wanted a whole number in decimal`)
	f(issue3+"tiering: {tiered_topics: [7, a b, .., ok]}\n",
		`f:11:27: tiering.tiered_topics[0]: 7 is a number; wanted a topic name: letters, digits, ".", "_" and "-", 249 at the most; a number needs quotes`,
		`f:11:30: tiering.tiered_topics[1]: "a b" is no topic name; wanted a topic name: letters, digits, ".", "_" and "-", 249 at the most; a number needs quotes`,
		`f:11:35: tiering.tiered_topics[2]: ".." is no topic name; wanted a topic name: letters, digits, ".", "_" and "-", 249 at the most; a number needs quotes`)
	f(issue3+"tiering: {tiered_topics: [__remote_log_metadata, _orders]}\n",
		`f:11:27: tiering.tiered_topics[0]: "__remote_log_metadata" is an internal topic, which Kafka never tiers; wanted topics of your own`)
	f(issue3+"event_loop: kqueue\n", `f:11:13: event_loop: "kqueue" is not known; wanted gnet or epoll`)
	f(issue3+"log: {level: trace, format: logfmt}\n",
		`f:11:14: log.level: "trace" is not known; wanted debug, info, warn or error`,
		`f:11:29: log.format: "logfmt" is not known; wanted text or json`)
}

func TestAddressFaults(t *testing.T) {
	f := func(address, want string) {
		t.Helper()
		wantFaults(t, with(t, `"127.0.0.1:9192"`, address), "f:5:16: listeners[0].bootstrap: "+want)
	}

	f(`kafka-0`, `"kafka-0" has no port; wanted host:port, such as "kafka-0:9092"`)
	f(`""`, `"" has no port; wanted host:port, such as "kafka-0:9092"`)
	f(`":9092"`, `":9092" has no host; wanted host:port, such as "kafka-0:9092" (to listen on every interface: "0.0.0.0" or "[::]")`)
	f(`"kafka-0:"`, `"kafka-0:" has the port "", which is no number; wanted host:port, such as "kafka-0:9092"`)
	f(`kafka-0:kafka`, `"kafka-0:kafka" has the port "kafka", which is no number; wanted host:port, such as "kafka-0:9092"`)
	f(`kafka-0:-1`, `"kafka-0:-1" has the port "-1", which is no number; wanted host:port, such as "kafka-0:9092"`)
	f(`kafka-0:0`, `"kafka-0:0" has the port 0, which would be another one at every start; wanted host:port, such as "kafka-0:9092"`)
	f(`kafka-0:65536`, `"kafka-0:65536" has the port 65536, above 65535; wanted host:port, such as "kafka-0:9092"`)
	f(`PLAINTEXT://kafka-0:9092`, `"PLAINTEXT://kafka-0:9092" begins with the scheme "PLAINTEXT://"; wanted host:port, such as "kafka-0:9092"`)
	f(`"::1:9092"`, `"::1:9092" has an IPv6 literal without brackets; wanted "[::1]:9092"`)
	f(`"::1"`, `"::1" has no port; wanted host:port, such as "kafka-0:9092"`)
	f(`"[::1]"`, `"[::1]" has no port; wanted host:port, such as "kafka-0:9092"`)
	f(`"[::1:9092"`, `"[::1:9092" is no address; wanted host:port, such as "kafka-0:9092"`)
	f(`"[::g]:9092"`, `"[::g]:9092" has the host "::g", which is no IPv6 literal; wanted host:port, such as "kafka-0:9092"`)
	f(`"[kafka-0]:9092"`, `"[kafka-0]:9092" has brackets around what is no IPv6 literal; wanted host:port, such as "kafka-0:9092"`)
	f(`a:b:9092`, `"a:b:9092" has too many colons; wanted host:port, such as "kafka-0:9092", an IPv6 literal in brackets: "[::1]:9092"`)
	f(`kafka 0:9092`, `"kafka 0:9092" has the host "kafka 0", which is no DNS name; wanted host:port, such as "kafka-0:9092"`)
	f(`kafka..example:9092`, `"kafka..example:9092" has the host "kafka..example", which is no DNS name; wanted host:port, such as "kafka-0:9092"`)
	f(`256.0.0.1:9092`, `"256.0.0.1:9092" has the host "256.0.0.1", which is no IPv4 address; wanted host:port, such as "kafka-0:9092"`)
	f(strings.Repeat("a.", 130)+`com:9092`, `"`+strings.Repeat("a.", 130)+`com:9092" has a host longer than 253 characters, more than DNS allows; `+
		`wanted host:port, such as "kafka-0:9092"`)
}

func TestPortRangeFaults(t *testing.T) {
	const want = `wanted one range host:first-last, such as "127.0.0.1:9200-9209", one port per node`
	f := func(nodes, problem string) {
		t.Helper()
		wantFaults(t, with(t, `"127.0.0.1:9200-9209"`, nodes), "f:6:12: listeners[0].nodes: "+problem)
	}

	f(`h:9209-9200`, `"h:9209-9200" is reversed; wanted h:9200-9209`)
	f(`"[::1]:9209-9200"`, `"[::1]:9209-9200" is reversed; wanted [::1]:9200-9209`)
	f(`h:65530-65536`, `"h:65530-65536" has the port 65536, above 65535; `+want)
	f(`h:0-9`, `"h:0-9" has the port 0, which would be another one at every start; `+want)
	f(`h:9200`, `"h:9200" names one port; `+want+` (for one node: h:9200-9200)`)
	f(`h:9200,9201`, `"h:9200,9201" lists ports; `+want)
	f(`[h:9200, h:9201]`, `is a list; `+want)
	f(`9200-9209`, `"9200-9209" has no port; `+want)
	f(`h:9200-9209-9300`, `"h:9200-9209-9300" has the port "9209-9300", which is no number; `+want)
	f(`h:9200-`, `"h:9200-" has the port "", which is no number; `+want)
	f(`h:a-b`, `"h:a-b" has the port "a", which is no number; `+want)
	f(`"::1:9200-9209"`, `"::1:9200-9209" has an IPv6 literal without brackets; wanted "[::1]:9200-9209"`)
}

func TestAdvertisedHostFaults(t *testing.T) {
	const reason = "wanted the host that clients connect to: they are told host:port of every node, and cannot connect to a wildcard"
	f := func(host, problem string) {
		t.Helper()
		wantFaults(t, with(t, `    advertised_host: "127.0.0.1"`, `    advertised_host: `+host), "f:7:22: listeners[0].advertised_host: "+problem)
	}

	wantFaults(t, with(t, "    advertised_host: \"127.0.0.1\"\n", ""), "f:4:5: listeners[0].advertised_host: is missing; "+reason)
	f(`0.0.0.0`, `"0.0.0.0" is a wildcard; `+reason)
	f(`"::"`, `"::" is a wildcard; `+reason)
	f(`"[::]"`, `"::" is a wildcard; `+reason)
	f(`"0:0:0:0:0:0:0:0"`, `"0:0:0:0:0:0:0:0" is a wildcard; `+reason)
	f(`"::ffff:0.0.0.0"`, `"::ffff:0.0.0.0" is a wildcard; `+reason)
	f(`"*"`, `"*" is a wildcard; `+reason)
	f(`""`, `"" is empty; wanted the host that clients connect to, such as kafka.example.com`)
	f(`kafka:9092`, `"kafka:9092" has a port; wanted the host that clients connect to, such as kafka.example.com: the ports are those of nodes`)
	f(`"[::1]:9092"`, `"[::1]:9092" has a port; wanted the host that clients connect to, such as kafka.example.com: the ports are those of nodes`)
	f(`"fe80::1%eth0"`, `"fe80::1%eth0" has the zone "eth0", which means nothing on another machine; `+
		`wanted the host that clients connect to, such as kafka.example.com`)
	f(`https://kafka`, `"https://kafka" begins with a scheme; wanted the host that clients connect to, such as kafka.example.com`)
	f(`kafka_0/x`, `"kafka_0/x" has the host "kafka_0/x", which is no DNS name; wanted the host that clients connect to, such as kafka.example.com`)
	f(`10.0.0`, `"10.0.0" has the host "10.0.0", which is no IPv4 address; wanted the host that clients connect to, such as kafka.example.com`)
}

func TestListenerFaults(t *testing.T) {
	f := func(listeners string, want ...string) {
		t.Helper()
		wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n"+listeners, want...)
	}
	const advertised = "wanted the host that clients connect to: they are told host:port of every node, and cannot connect to a wildcard"

	f("  []\n", `f:3:3: listeners: is empty; wanted one listener at the least`)
	f("  - kafka\n", `f:3:5: listeners[0]: "kafka" is text; wanted a mapping with the keys name, bootstrap, nodes, first_node_id, advertised_host, node_addresses, sni, unmapped_nodes, direct, tls, proxy_protocol`)
	f("  - {name: a}\n", `f:3:5: listeners[0]: has no addresses to listen on; `+wantKind)
	f("  - {name: a, bootstrap: \"h:1\"}\n",
		`f:3:5: listeners[0].nodes: is missing; wanted one range host:first-last, such as "127.0.0.1:9200-9209", one port per node`,
		`f:3:5: listeners[0].advertised_host: is missing; `+advertised)
	f("  - {nodes: \"h:1-2\", advertised_host: h}\n",
		`f:3:5: listeners[0].name: is missing; wanted letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`,
		`f:3:5: listeners[0].bootstrap: is missing; wanted the host:port where clients connect first, such as "127.0.0.1:9192"`)
	f("  - {name: a, bootstrap: \"h:1\", direct: {\"h:2\": \"k:1\"}}\n",
		`f:3:26: listeners[0].bootstrap: is of no use beside direct, where no address is rewritten; remove it`)
	f("  - {name: a, nodes: \"h:1-2\", advertised_host: h, direct: {\"h:3\": \"k:1\"}}\n",
		`f:3:59: listeners[0].direct: stands beside nodes; `+wantKind)
	f("  - {name: a, advertised_host: h, first_node_id: 1, direct: {\"h:3\": \"k:1\"}}\n",
		`f:3:32: listeners[0].advertised_host: is of no use beside direct, where no address is rewritten; remove it`,
		`f:3:50: listeners[0].first_node_id: is of no use beside direct, where no address is rewritten; remove it`)
	f("  - {name: a, direct: {}}\n",
		`f:3:23: listeners[0].direct: is an empty mapping; wanted a mapping of listen address to broker address, such as {"0.0.0.0:9092": "kafka-0:9092"}`)
	f("  - {name: a, direct: [\"h:1\"]}\n",
		`f:3:23: listeners[0].direct: is a list; wanted a mapping of listen address to broker address, such as {"0.0.0.0:9092": "kafka-0:9092"}`)
	f("  - name: a\n    direct:\n      \"h:1\": kafka-0\n      \"h\": \"k:2\"\n      \"h:3\": \"0.0.0.0:3\"\n      \"h:4\": \"k:4\"\n      \"h:4\": \"k:5\"\n",
		`f:5:14: listeners[0].direct["h:1"]: "kafka-0" has no port; wanted host:port, such as "kafka-0:9092"`,
		`f:6:7: listeners[0].direct["h"]: "h" has no port; wanted host:port, such as "kafka-0:9092"`,
		`f:7:7: listeners[0].direct["h:3"]: "0.0.0.0:3" is a wildcard, which nobody can connect to; wanted the broker's own host:port`,
		`f:9:7: listeners[0].direct["h:4"]: is given twice, first on line 8; keep one of them`)
	f("  - {name: a, direct: {\"h:1\": \"k:1\"}}\n  - {name: a, direct: {\"h:2\": \"k:2\"}}\n",
		`f:4:12: listeners[1].name: "a" is the name of listeners[0] already (line 3); wanted a name of its own`)
	f("  - {name: a b, direct: {\"h:1\": \"k:1\"}}\n",
		`f:3:12: listeners[0].name: "a b" is no name; wanted letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`)
	f("  - {name: a, bootstrap: \"h:1\", nodes: \"h:2-3\", advertised_host: h, first_node_id: -1}\n",
		`f:3:84: listeners[0].first_node_id: -1 is below zero; wanted the node id behind the first port of nodes`)
	f("  - {name: a, bootstrap: \"h:1\", nodes: \"h:2-3\", advertised_host: h, first_node_id: 2147483647}\n",
		`f:3:84: listeners[0].first_node_id: 2147483647 gives the last port of nodes the node id 2147483648, above 2147483647; wanted a lower one`)
}

func TestOverlapFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }
	const own = "; wanted ports of its own"

	f(with(t, "127.0.0.1:9192", "127.0.0.1:9205"),
		`f:6:12: listeners[0].nodes: "127.0.0.1:9200-9209" overlaps listeners[0].bootstrap, "127.0.0.1:9205" (line 5): both would listen on port 9205`+own)
	f(with(t, "127.0.0.1:9644", "0.0.0.0:9209"),
		`f:10:12: admin.address: "0.0.0.0:9209" overlaps listeners[0].nodes, "127.0.0.1:9200-9209" (line 6): both would listen on port 9209`+own)
	f(with(t, "127.0.0.1:9644", "localhost:9192"),
		`f:10:12: admin.address: "localhost:9192" overlaps listeners[0].bootstrap, "127.0.0.1:9192" (line 5): both would listen on port 9192`+own)
	f(with(t, "admin:\n  address: \"127.0.0.1:9644\"", "# no admin", "9200-9209", "9640-9649"),
		`f:6:12: listeners[0].nodes: "127.0.0.1:9640-9649" overlaps the default of admin.address, "127.0.0.1:9644": both would listen on port 9644`+own)

	second := func(bootstrap, nodes, first, host string) string {
		return with(t, "earliest_pending_upload: auto", "  - {name: second, bootstrap: \""+bootstrap+"\", nodes: \""+nodes+"\", first_node_id: "+first+
			", advertised_host: \""+host+"\"}\nearliest_pending_upload: auto")
	}
	f(second("127.0.0.1:9193", "127.0.0.1:9209-9210", "10", "other"),
		`f:8:56: listeners[1].nodes: "127.0.0.1:9209-9210" overlaps listeners[0].nodes, "127.0.0.1:9200-9209" (line 6): both would listen on port 9209`+own)
	f(second("[::]:9192", "127.0.0.1:9210-9210", "10", "127.0.0.1"),
		`f:8:31: listeners[1].bootstrap: "[::]:9192" overlaps listeners[0].bootstrap, "127.0.0.1:9192" (line 5): both would listen on port 9192`+own)
	// The same advertised host and ports, on another interface: well for the same nodes only.
	f(second("127.0.0.2:9192", "127.0.0.2:9205-9210", "100", "127.0.0.1"),
		`f:8:56: listeners[1].nodes: "127.0.0.2:9205-9210" gives 127.0.0.1:9205 to node 100, and listeners[0].nodes (line 6) gives it to node 5: `+
			`clients tell nodes apart by address; wanted other ports or another advertised host`)
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

	f(`[kafka-0:9092, KAFKA-0.:9092]`, `f:2:37: upstream.bootstrap_servers[1]: "KAFKA-0.:9092" is the same as upstream.bootstrap_servers[0]; keep one of them`)
	f(`["[::]:9092"]`, `f:2:23: upstream.bootstrap_servers[0]: "[::]:9092" is a wildcard, which nobody can connect to; wanted the broker's own host:port`)
	f(`["localhost:9192"]`, `f:2:23: upstream.bootstrap_servers[0]: "localhost:9192" is where listeners[0].bootstrap listens (line 5): `+
		`tiergate would connect to itself; wanted the address of a broker`)
	f(`["127.0.0.1:9203"]`, `f:2:23: upstream.bootstrap_servers[0]: "127.0.0.1:9203" is where listeners[0].nodes listens (line 6): `+
		`tiergate would connect to itself; wanted the address of a broker`)
	wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- {name: a, direct: {\"0.0.0.0:9092\": \"127.0.0.1:9092\"}}\n",
		`f:3:22: listeners[0].direct["0.0.0.0:9092"]: "127.0.0.1:9092" is where listeners[0].direct["0.0.0.0:9092"] listens (line 3): `+
			`tiergate would connect to itself; wanted the address of a broker`)
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
	const duration = "; wanted a time above zero with its unit, such as 500ms, 10s or 5m"
	const size = "; wanted a number of bytes, such as 33554432 or 32MiB (KiB, MiB and GiB are known)"

	f("upstream.metadata_refresh", "0s", `"0s" is not above zero: brokers would be asked without a pause`+duration)
	f("tiering.status_ttl", "-1s", `"-1s" is not above zero: brokers would be asked again for every -6`+duration)
	f("tiering.unknown_ttl", "0ms", `"0ms" is not above zero: a lookup that is denied would be repeated for every -6`+duration)
	f("tiering.max_topics", "0", `"0" is not above zero: no topic could be remembered; wanted a number of topics above zero`)
	f("tiering.max_tiered_partitions", "0", `"0" is not above zero: no tiered offset could be known; wanted a number of partitions above zero`)
	f("tiering.max_in_flight_segments", "-1", `"-1" is not above zero: no upload could be followed to its end; wanted a number of segments above zero`)
	f("limits.max_inflight", "-5", `"-5" is not above zero: no request would be read; wanted a number of requests above zero`)
	f("limits.dial_timeout", "0s", `"0s" is not above zero: no broker could be reached in time`+duration)
	f("limits.remote_storage_timeout", "0s", `"0s" is not above zero: every look-up would end as unknown`+duration)
	f("limits.max_unauthenticated_bytes", "0", `"0" is not above zero: no client could begin with ListOffsets`+size)
	f("limits.first_request_timeout", "0s", `"0s" is not above zero: no client could send its first request in time`+duration)
	f("limits.progress_timeout", "0s", `"0s" is not above zero: no frame could be complete in time`+duration)
	f("limits.lookup_timeout", "0s", `"0s" is not above zero: no broker could respond in time`+duration)
	f("limits.linger_timeout", "0s", `"0s" is not above zero: a connection would be cut before its last answer`+duration)
	f("limits.drain_timeout", "0s", `"0s" is not above zero: no exchange could end before the proxy stops (a second signal stops it at once)`+duration)
	f("limits.max_request_bytes", "0", `"0" is not above zero: no request would be let through`+size)
	f("limits.max_response_bytes", "-1MiB", `"-1MiB" is not above zero: no response would be let through`+size)
	f("limits.max_held_bytes", "0GiB", `"0GiB" is not above zero: no answer could be changed`+size)
	f("limits.max_buffered_bytes", "0", `"0" is not above zero: no answer could be changed`+size)
	f("limits.max_buffered_bytes", "16MiB", `"16MiB": max_buffered_bytes (16MiB) is less than max_held_bytes (32MiB), so that a frame could never be as large as allowed; wanted several times as much`)
	f("limits.max_held_bytes", "1GiB", `"1GiB": max_buffered_bytes (512MiB) is less than max_held_bytes (1GiB), so that a frame could never be as large as allowed; wanted several times as much`)
	f("limits.max_pending_connections", "0", `"0" is not above zero: no client could speak TLS; wanted a number of connections above zero`)
	f("limits.max_handshakes", "0", `"0" is not above zero: no client could speak TLS; wanted a number of handshakes above zero`)
	f("limits.handshake_timeout", "0s", `"0s" is not above zero: no handshake could end in time`+duration)
	f("limits.max_pipes", "-1", `"-1" is below zero; wanted a number above it, or 0 for none, so that bytes are copied`)
	f("limits.max_sessions", "-1", `"-1" is below zero; wanted a number above it, or 0 for no bound`)
	f("limits.max_sessions_per_client", "-1", `"-1" is below zero; wanted a number above it, or 0 for no bound`)
	f("limits.accept_rate", "-1", `"-1" is below zero; wanted a number above it, or 0 for no bound`)
	f("limits.idle_timeout", "-1s", `"-1s" is below zero; wanted a number above it, or 0 for never`)
	f("limits.max_held_bytes", "32", `"32" is less than 64KiB, which not even Metadata of a small cluster fits in`+size)
	f("limits.max_held_bytes", "32MB", `"32MB" is no size`+size)
	f("limits.max_held_bytes", "1.5GiB", `"1.5GiB" is no size`+size)
	f("limits.max_held_bytes", "9999999999GiB", `"9999999999GiB" is more than any machine has`+size)
	f("limits.max_held_bytes", "99999999999999999999", `"99999999999999999999" is more than any machine has`+size)
	f("limits.max_response_bytes", "2GiB", `"2GiB" is more than 2147483647, the most that the size field of a Kafka frame can say; wanted that at the most`)
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
		`f:2:3: upstream.bootstrap_server: is not known; did you mean "bootstrap_servers"?`,
		`f:5:16: listeners[0].bootstrap: 9192 is a number; wanted host:port, such as "kafka-0:9092"`,
		`f:6:12: listeners[0].nodes: "127.0.0.1:9209-9200" is reversed; wanted 127.0.0.1:9200-9209`,
		`f:7:22: listeners[0].advertised_host: "0.0.0.0" is a wildcard; wanted the host that clients connect to: they are told `+
			`host:port of every node, and cannot connect to a wildcard`,
		`f:8:11: listeners[1].name: "clients" is the name of listeners[0] already (line 4); wanted a name of its own`,
		`f:9:30: listeners[1].direct["0.0.0.0:9092"]: "kafka-0" has no port; wanted host:port, such as "kafka-0:9092"`,
		`f:10:26: earliest_pending_upload: "sometimes" is not known; wanted auto, metadata_topic, always or off`,
		`f:11:26: limits.max_held_bytes: "32" is less than 64KiB, which not even Metadata of a small cluster fits in; `+
			`wanted a number of bytes, such as 33554432 or 32MiB (KiB, MiB and GiB are known)`,
		`f:11:44: limits.dial_timeout: 10 is a number; wanted a time above zero with its unit, such as 500ms, 10s or 5m`,
		`f:12:1: tls: is not known here; did you mean "upstream.tls" or "listeners[].tls"?`,
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
		`f:1:1: upstreem: is not known; did you mean "upstream"?`)
	const utf16 = "f: is UTF-16 or UTF-32; wanted UTF-8: save it in that encoding"
	f("\xff\xfeu\x00p\x00", utf16)
	f("\xfe\xff\x00u\x00p", utf16)
	f("u\x00p\x00", utf16)
	f("\x00u\x00p", utf16)
	f("\x00\x00\xfe\xff\x00\x00\x00u", utf16)
}
