// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads the YAML file of tiergate into one checked Config.
//
// It is strict: an unknown key, a key given twice, a wrong type or a value that could
// not work is a fault, and every fault of a file is reported at once, each with its line,
// the field, the value and the wanted form. One wrong thing costs one line: what merely
// follows from it is not reported as well.
//
// docs/configuration.md holds every key with unit, default and reason; a test
// compares it with the types here.
package config

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config is a whole configuration. What Parse and Load return is checked; nothing in it
// is changed afterwards, so any goroutine may read it.
type Config struct {
	// Cluster is the only one of a file that has its keys at the top.
	Cluster
	// Clusters are those of a file that lists several; Cluster is then of no use.
	Clusters []NamedCluster `yaml:"clusters"`
	// EventLoop is how loops wait for sockets.
	EventLoop EventLoop `yaml:"event_loop"`
	Limits    Limits    `yaml:"limits"`
	Log       Log       `yaml:"log"`
	Admin     Admin     `yaml:"admin"`
}

// All returns every cluster, in the order of the file; one without a name when the file
// has the keys of a single one at the top.
func (c *Config) All() []NamedCluster {
	if c.Clusters != nil {
		return c.Clusters
	}
	return []NamedCluster{{Cluster: c.Cluster}}
}

// Cluster is one Kafka cluster and the ways into it.
type Cluster struct {
	Upstream              Upstream      `yaml:"upstream"`
	Listeners             []Listener    `yaml:"listeners"`
	EarliestPendingUpload PendingUpload `yaml:"earliest_pending_upload"`
	Tiering               Tiering       `yaml:"tiering"`
}

func (c *Cluster) setDefaults() {
	c.Upstream = Upstream{MetadataRefresh: Duration(30 * time.Second), SendProxyProtocol: SendProxyProtocolOff}
	c.EarliestPendingUpload = PendingUploadAuto
	c.Tiering = Tiering{StatusTTL: Duration(time.Second), UnknownTTL: Duration(5 * time.Second), MaxTopics: 20_000, MaxTieredPartitions: 200_000, MaxInFlightSegments: 100_000}
}

// NamedCluster is one of several clusters.
type NamedCluster struct {
	// Name is unique; it labels metrics and log lines.
	Name Name `yaml:"name"`
	Cluster
}

// Upstream says how the Kafka cluster is reached.
type Upstream struct {
	// BootstrapServers are brokers to learn the others from: at least one.
	BootstrapServers []HostPort `yaml:"bootstrap_servers"`
	// MetadataRefresh is the interval at which the brokers are asked for anew.
	MetadataRefresh Duration `yaml:"metadata_refresh"`
	// Hosts are names of brokers that are not asked of DNS, in the order of the file.
	Hosts Hosts `yaml:"hosts"`
	// TLS is how brokers are spoken to, by sessions and by the service client; nil is
	// plaintext.
	TLS *UpstreamTLS `yaml:"tls"`
	// SASL is how the service client authenticates; nil: not at all. What clients do
	// passes through.
	SASL *SASL `yaml:"sasl"`
	// SendProxyProtocol is the version of the PROXY protocol header that every
	// connection to a broker begins with.
	SendProxyProtocol SendProxyProtocol `yaml:"send_proxy_protocol"`
}

// Tiering says how long it is remembered whether a topic has remote storage on.
type Tiering struct {
	// StatusTTL is how long a topic's remote storage status is used after it was asked for.
	StatusTTL Duration `yaml:"status_ttl"`
	// UnknownTTL is the time for which a topic is not asked for again after a lookup
	// of its status that failed.
	UnknownTTL Duration `yaml:"unknown_ttl"`
	// MaxTopics bounds the number of remembered topics.
	MaxTopics int `yaml:"max_topics"`
	// MaxTieredPartitions bounds the partitions that are remembered of the topic
	// __remote_log_metadata.
	MaxTieredPartitions int `yaml:"max_tiered_partitions"`
	// MaxInFlightSegments bounds the segments of that topic whose upload has not ended.
	MaxInFlightSegments int `yaml:"max_in_flight_segments"`
	// TieredTopics are known to have remote storage on; no broker is asked for them.
	TieredTopics []TopicName `yaml:"tiered_topics"`
}

// Limits bound memory and waiting.
type Limits struct {
	// MaxRequestBytes bounds the size field of a request.
	MaxRequestBytes Size `yaml:"max_request_bytes"`
	// MaxResponseBytes bounds the size field of a response.
	MaxResponseBytes Size `yaml:"max_response_bytes"`
	// MaxHeldBytes bounds what is collected of a frame to be changed.
	MaxHeldBytes Size `yaml:"max_held_bytes"`
	// MaxUnauthenticatedBytes bounds such a frame of a client to which the broker has not
	// yet responded but to ApiVersions and SASL's requests.
	MaxUnauthenticatedBytes Size `yaml:"max_unauthenticated_bytes"`
	// MaxBufferedBytes bounds the memory that all connections together keep.
	MaxBufferedBytes Size `yaml:"max_buffered_bytes"`
	// MaxInflight is the number of unanswered requests of one connection after which
	// it is not read any more.
	MaxInflight int `yaml:"max_inflight"`
	// MaxPipes bounds the kernel pipes that large frames pass through; 0: none.
	MaxPipes int `yaml:"max_pipes"`
	// MaxSessions bounds the connections of all clients; 0: as many as descriptors allow.
	MaxSessions int `yaml:"max_sessions"`
	// MaxSessionsPerClient bounds the connections of one client address; 0: no bound.
	MaxSessionsPerClient int `yaml:"max_sessions_per_client"`
	// AcceptRate bounds the connections accepted in a second; 0: no bound.
	AcceptRate int `yaml:"accept_rate"`
	// MaxHandshakes bounds the TLS handshakes with clients that are worked on at once.
	MaxHandshakes int `yaml:"max_handshakes"`
	// MaxPendingConnections bounds the connections whose handshake is under way.
	MaxPendingConnections int `yaml:"max_pending_connections"`
	// HandshakeTimeout bounds one TLS handshake, and what comes before it.
	HandshakeTimeout Duration `yaml:"handshake_timeout"`
	// IdleTimeout ends a connection that nothing was sent on for so long; 0: never.
	IdleTimeout Duration `yaml:"idle_timeout"`
	// DialTimeout bounds opening a broker connection, all its addresses together.
	DialTimeout Duration `yaml:"dial_timeout"`
	// RemoteStorageTimeout bounds one look-up of remote.storage.enable.
	RemoteStorageTimeout Duration `yaml:"remote_storage_timeout"`
	// FirstRequestTimeout bounds how long a client takes to send its first request.
	FirstRequestTimeout Duration `yaml:"first_request_timeout"`
	// ProgressTimeout bounds how long a peer keeps memory occupied without moving bytes.
	ProgressTimeout Duration `yaml:"progress_timeout"`
	// LookupTimeout bounds a broker's silence while it works on a lookup request.
	LookupTimeout Duration `yaml:"lookup_timeout"`
	// LingerTimeout bounds the life of a connection that one side has closed.
	LingerTimeout Duration `yaml:"linger_timeout"`
	// DrainTimeout bounds the time for which a stopping proxy finishes exchanges.
	DrainTimeout Duration `yaml:"drain_timeout"`
}

// Log says what is logged and how.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}

// Admin is the HTTP server for /metrics, /healthz and /readyz.
type Admin struct {
	Address HostPort `yaml:"address"`
}

// Defaults returns what stands where a file says nothing. Upstream.BootstrapServers and
// Listeners have no default.
func Defaults() Config {
	c := Config{
		Limits: Limits{
			MaxRequestBytes:         256 << 20,
			MaxResponseBytes:        maxFrameSize,
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
		Admin:     Admin{Address: HostPort{Host: "127.0.0.1", Port: 9644}},
	}
	c.setDefaults()
	return c
}

// HostPort is one address: a DNS name or an IP literal, and a port from 1 to 65535.
type HostPort struct {
	// Host has no brackets, also if it is an IPv6 literal.
	Host string
	Port uint16
}

// String returns host:port, an IPv6 literal in brackets.
func (a HostPort) String() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// PortRange is a run of ports of one host, First to Last, both included.
type PortRange struct {
	// Host has no brackets, also if it is an IPv6 literal.
	Host        string
	First, Last uint16
}

// Count is the number of ports.
func (r PortRange) Count() int32 { return int32(r.Last) - int32(r.First) + 1 }

// String returns host:first-last, an IPv6 literal in brackets.
func (r PortRange) String() string {
	return net.JoinHostPort(r.Host, fmt.Sprintf("%d-%d", r.First, r.Last))
}

// Host is a DNS name or an IP literal without brackets.
type Host string

// Name is the name of a cluster or of a listener.
type Name string

// TopicName is the name of a Kafka topic.
type TopicName string

// Duration is a time above zero, written with its unit: 500ms, 10s, 5m.
type Duration time.Duration

// String returns the duration as it may stand in a file.
func (d Duration) String() string { return time.Duration(d).String() }

// Size is a number of bytes, written plain or with KiB, MiB or GiB.
type Size int64

// String returns the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// PendingUpload says on which connections -6 is answered by the proxy.
type PendingUpload string

const (
	// PendingUploadAuto answers -6 where the broker cannot and can be asked for the
	// parts: its ListOffsets ends at version 9 or 10.
	PendingUploadAuto PendingUpload = "auto"
	// PendingUploadAlways answers -6 before native brokers too; for tests.
	PendingUploadAlways PendingUpload = "always"
	// PendingUploadMetadataTopic is auto, and makes -5 and -6 from the topic
	// __remote_log_metadata in front of brokers that have neither (Kafka 3.6 to 3.8).
	PendingUploadMetadataTopic PendingUpload = "metadata_topic"
	// PendingUploadOff leaves ListOffsets alone.
	PendingUploadOff PendingUpload = "off"
)

// LogLevel is the least level that is logged.
type LogLevel string

// The levels of log/slog.
const (
	LogLevelDebug LogLevel = "debug"
	LogLevelInfo  LogLevel = "info"
	LogLevelWarn  LogLevel = "warn"
	LogLevelError LogLevel = "error"
)

// EventLoop is how loops wait for sockets.
type EventLoop string

const (
	// EventLoopGnet is gnet's event loop, on every platform.
	EventLoopGnet EventLoop = "gnet"
	// EventLoopEpoll is an event loop of tiergate's own, on Linux.
	EventLoopEpoll EventLoop = "epoll"
)

// LogFormat is the form of a log line.
type LogFormat string

const (
	// LogFormatText is key=value, for people.
	LogFormatText LogFormat = "text"
	// LogFormatJSON is one JSON object per line, for machines.
	LogFormatJSON LogFormat = "json"
)
