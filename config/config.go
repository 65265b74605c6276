// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads the YAML file of tiergate into one checked Config.
//
// It is strict: an unknown key, a duplicate key, a wrong type and an unusable value are
// faults. All faults of a file are reported at once, each with its position, field, value and
// the accepted form. One error causes one line: its consequences are not reported.
//
// docs/configuration.md lists every key with unit, default and reason. A test compares it
// with the types here.
package config

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config is a whole configuration. Parse and Load check it, and nothing changes it
// afterwards, so any goroutine can read it.
type Config struct {
	// Cluster is the cluster of a file that has its keys at the top level.
	Cluster
	// Clusters are those of a file that lists several. Cluster is unused then.
	Clusters []NamedCluster `yaml:"clusters"`
	// EventLoop is how event loops wait for sockets.
	EventLoop EventLoop `yaml:"event_loop"`
	Limits    Limits    `yaml:"limits"`
	Log       Log       `yaml:"log"`
	Admin     Admin     `yaml:"admin"`
}

// All returns every cluster, in the order of the file. A file with one cluster at the top
// level has one cluster without a name.
func (c *Config) All() []NamedCluster {
	if c.Clusters != nil {
		return c.Clusters
	}
	return []NamedCluster{{Cluster: c.Cluster}}
}

// Cluster is one Kafka cluster and its listeners.
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

// Upstream is how tiergate connects to the Kafka cluster.
type Upstream struct {
	// BootstrapServers are the brokers that the others are discovered from: at least one.
	BootstrapServers []HostPort `yaml:"bootstrap_servers"`
	// MetadataRefresh is the interval of broker discovery.
	MetadataRefresh Duration `yaml:"metadata_refresh"`
	// Hosts are names of brokers that are resolved without DNS, in the order of the file.
	Hosts Hosts `yaml:"hosts"`
	// TLS applies to the connections of sessions and of the service client; nil is
	// plaintext.
	TLS *UpstreamTLS `yaml:"tls"`
	// SASL is how the service client authenticates; nil: not at all. The authentication
	// of clients passes through.
	SASL *SASL `yaml:"sasl"`
	// SendProxyProtocol is the version of the PROXY protocol header that every
	// connection to a broker begins with.
	SendProxyProtocol SendProxyProtocol `yaml:"send_proxy_protocol"`
}

// Tiering bounds the cache of the topics' remote storage status.
type Tiering struct {
	// StatusTTL is how long a remote storage status is used after its lookup.
	StatusTTL Duration `yaml:"status_ttl"`
	// UnknownTTL is the time after which a failed lookup is repeated.
	UnknownTTL Duration `yaml:"unknown_ttl"`
	// MaxTopics bounds the number of topics in the cache.
	MaxTopics int `yaml:"max_topics"`
	// MaxTieredPartitions bounds the partitions that are remembered of the topic
	// __remote_log_metadata.
	MaxTieredPartitions int `yaml:"max_tiered_partitions"`
	// MaxInFlightSegments bounds the segments of that topic whose upload has not ended.
	MaxInFlightSegments int `yaml:"max_in_flight_segments"`
	// TieredTopics have remote storage enabled. No lookup is made for them.
	TieredTopics []TopicName `yaml:"tiered_topics"`
}

// Limits bound memory and time.
type Limits struct {
	// MaxRequestBytes bounds the size field of a request.
	MaxRequestBytes Size `yaml:"max_request_bytes"`
	// MaxResponseBytes bounds the size field of a response.
	MaxResponseBytes Size `yaml:"max_response_bytes"`
	// MaxHeldBytes bounds the buffered bytes of a frame that is changed.
	MaxHeldBytes Size `yaml:"max_held_bytes"`
	// MaxUnauthenticatedBytes bounds such a frame as long as the broker has responded only to
	// ApiVersions and SASL requests of the client.
	MaxUnauthenticatedBytes Size `yaml:"max_unauthenticated_bytes"`
	// MaxBufferedBytes bounds the memory of all connections together.
	MaxBufferedBytes Size `yaml:"max_buffered_bytes"`
	// MaxInflight is the number of in-flight requests at which a connection is not read.
	MaxInflight int `yaml:"max_inflight"`
	// MaxPipes bounds the kernel pipes for large frames; 0: none.
	MaxPipes int `yaml:"max_pipes"`
	// MaxSessions bounds the connections of all clients; 0: as many as descriptors allow.
	MaxSessions int `yaml:"max_sessions"`
	// MaxSessionsPerClient bounds the connections of one client address; 0: no bound.
	MaxSessionsPerClient int `yaml:"max_sessions_per_client"`
	// AcceptRate bounds the connections accepted in a second; 0: no bound.
	AcceptRate int `yaml:"accept_rate"`
	// MaxHandshakes bounds the concurrent TLS handshakes with clients.
	MaxHandshakes int `yaml:"max_handshakes"`
	// MaxPendingConnections bounds the connections whose handshake is not complete.
	MaxPendingConnections int `yaml:"max_pending_connections"`
	// HandshakeTimeout bounds one TLS handshake, with the PROXY protocol header.
	HandshakeTimeout Duration `yaml:"handshake_timeout"`
	// IdleTimeout closes a connection without traffic; 0: never.
	IdleTimeout Duration `yaml:"idle_timeout"`
	// DialTimeout bounds opening a broker connection, all its addresses together.
	DialTimeout Duration `yaml:"dial_timeout"`
	// RemoteStorageTimeout bounds one lookup of remote.storage.enable.
	RemoteStorageTimeout Duration `yaml:"remote_storage_timeout"`
	// FirstRequestTimeout bounds the time until a client's first request.
	FirstRequestTimeout Duration `yaml:"first_request_timeout"`
	// ProgressTimeout bounds how long a peer occupies memory without moving bytes.
	ProgressTimeout Duration `yaml:"progress_timeout"`
	// LookupTimeout bounds the time without bytes from a broker during a lookup request.
	LookupTimeout Duration `yaml:"lookup_timeout"`
	// LingerTimeout bounds how long a connection stays open after one side has closed it.
	LingerTimeout Duration `yaml:"linger_timeout"`
	// DrainTimeout bounds the time for open exchanges at a stop.
	DrainTimeout Duration `yaml:"drain_timeout"`
}

// Log is the level and the format of the log.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}

// Admin is the HTTP server for /metrics, /healthz and /readyz.
type Admin struct {
	Address HostPort `yaml:"address"`
}

// Defaults returns the default of every key. Upstream.BootstrapServers and Listeners have
// none.
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
	// Host has no brackets, even if it is an IPv6 literal.
	Host string
	Port uint16
}

// String returns host:port, an IPv6 literal in brackets.
func (a HostPort) String() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// PortRange is the ports First to Last of one host, both included.
type PortRange struct {
	// Host has no brackets, even if it is an IPv6 literal.
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

// Duration is written with its unit: 500ms, 10s, 5m.
type Duration time.Duration

// String returns the duration as a file can give it.
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

// PendingUpload is on which connections tiergate itself serves -6.
type PendingUpload string

const (
	// PendingUploadAuto serves -6 in front of brokers that do not support it but have the
	// lookups that it needs: their highest ListOffsets version is 9 or 10.
	PendingUploadAuto PendingUpload = "auto"
	// PendingUploadAlways serves -6 in front of native brokers too; for tests.
	PendingUploadAlways PendingUpload = "always"
	// PendingUploadMetadataTopic is auto, and serves -5 and -6 from the topic
	// __remote_log_metadata in front of brokers that have neither (Kafka 3.6 to 3.8).
	PendingUploadMetadataTopic PendingUpload = "metadata_topic"
	// PendingUploadOff leaves ListOffsets unchanged.
	PendingUploadOff PendingUpload = "off"
)

// LogLevel is the lowest level that is logged.
type LogLevel string

// The levels of log/slog.
const (
	LogLevelDebug LogLevel = "debug"
	LogLevelInfo  LogLevel = "info"
	LogLevelWarn  LogLevel = "warn"
	LogLevelError LogLevel = "error"
)

// EventLoop is how event loops wait for sockets.
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
