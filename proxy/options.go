// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/rewrite"
	"tiergate/rewrite/pendingupload"
)

// Dial opens the broker side of a session. It is called off the loops, may block
// until ctx ends, and is called concurrently. The connection must be a *net.TCPConn, or
// embed one: the proxy takes its descriptor over. It may have a method ServerName()
// string that says which name a TLS certificate is to be verified for. An error may have,
// in its tree, a method LocalShortage() bool, which reports whether this machine and not
// the broker is the cause, and a method Reported() bool: then it is in the log already, and
// sessions that end by it are logged at level debug.
type Dial func(ctx context.Context) (net.Conn, error)

// RemoteStorage tells whether topics have remote storage on. The proxy asks only where
// rule 2 of the -6 answer needs it.
type RemoteStorage interface {
	// CachedRemoteStorage returns what is known now. It never blocks: loops call it.
	CachedRemoteStorage(topic string) (enabled, known bool)
	// ResolveRemoteStorage asks for what is not known and blocks until it has answers
	// or ctx ends. Topics that stay unknown are absent from the result. It is called
	// off the loops, concurrently.
	ResolveRemoteStorage(ctx context.Context, topics []string) map[string]bool
	// ObserveRemoteStorage is told of topics that a broker's -5 answer proved tiered.
	// It never blocks: loops call it.
	ObserveRemoteStorage(topics []string)
}

// Uploads tells what is uploaded of partitions, where brokers have no -5. Both methods
// return one element for each partition, block until ctx ends at the most, and are called
// off the loops, concurrently.
type Uploads interface {
	rewrite.Uploads
	// ResolveUploads returns what is known. It may be some seconds old.
	ResolveUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded
	// ResolveCurrentUploads returns what was known to the brokers at the time of the call.
	ResolveCurrentUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded
}

// Endpoint is one address that the proxy listens on.
type Endpoint struct {
	// Listener is the name of the configured listener that the endpoint belongs to: a
	// metric label and a log attribute.
	Listener string
	// Address is host:port to listen on.
	Address string
	// Broker says in words which broker is behind: "bootstrap", "node 3",
	// "kafka-0:9092". For logs only.
	Broker string
	// Dial opens the broker side of this endpoint's sessions.
	Dial Dial
	// DialName, where it is set, is called instead of Dial, in the same way. serverName is
	// the name that the client's TLS handshake asked for (SNI); empty when it named none.
	// It needs TLS.
	DialName func(ctx context.Context, serverName string) (net.Conn, error)
	// ProxyProtocol says whether clients' connections begin with a header of the PROXY
	// protocol. Default off.
	ProxyProtocol ProxyProtocol
	// SendProxy is the version of such a header that brokers are sent. Default off.
	SendProxy SendProxy
	// TLS gives the configuration for the next client's handshake; nil means plaintext.
	// Called concurrently, off the loops: it may give a new one after a reload.
	// With DynamicRecordSizingDisabled it is used as it is; else each handshake gets a copy
	// that has it, with ticket keys of its own, so that no session is ever resumed.
	TLS func() *tls.Config
	// BrokerTLS gives the configuration for the next handshake with a broker; nil means
	// plaintext. serverName is what the dialed connection's ServerName method says, or
	// empty when it has none.
	BrokerTLS func(serverName string) *tls.Config
	// Rules say how the endpoint's sessions treat requests and responses.
	Rules rewrite.Rules
	// RemoteStorage are those of the endpoint's cluster. Required unless Rules have -6 off.
	RemoteStorage RemoteStorage
	// Uploads are those of the endpoint's cluster; nil leaves brokers without -5 alone.
	Uploads Uploads
}

// Options configure a Server. Zero values mean the defaults that New fills in.
type Options struct {
	// Endpoints are bound by Start, all or none.
	Endpoints []Endpoint
	// Loops is the number of event loops. Default: GOMAXPROCS.
	Loops int
	// EventLoop is the poller of the loops. Default gnet's.
	EventLoop EventLoop
	// SpareProcessors is of use to EventLoopEpoll only. It is how many processors (GOMAXPROCS) this proxy's loops leave to all
	// else in the process. Above zero, loops wait without the Go scheduler and keep theirs
	// meanwhile (see poller), which is cheapest. Default 0: they do not.
	SpareProcessors int
	// MaxRequestBytes bounds the size field of a request. Default 256 MiB: above every
	// sane socket.request.max.bytes (Kafka's default is 100 MiB) and below what TLS or
	// HTTP bytes read as.
	MaxRequestBytes int32
	// MaxResponseBytes bounds the size field of a response. Default 2 GiB - 1, the most
	// that the field can say, since fetch.max.bytes may be as large.
	MaxResponseBytes int32
	// MaxHeldBytes bounds what is collected of a single frame to be changed.
	// Default 32 MiB; a Metadata answer of 200,000 partitions takes about 10 MiB.
	MaxHeldBytes int
	// MaxUnauthenticatedBytes bounds a request that must be in memory whole while the broker
	// has not yet answered any request of the session but ApiVersions and SASL's. Default
	// 4 MiB: -6 of 200,000 partitions.
	MaxUnauthenticatedBytes int
	// MaxBufferedBytes bounds what all sessions together keep in memory: see account. At
	// the limit, frames that must be whole are not read on; where that does not help, the
	// sessions that keep most are closed. Default 512 MiB.
	MaxBufferedBytes int64
	// MaxSessions bounds the sessions of all endpoints. For one more, a session of the client
	// address that has most of them is ended, or the connection is closed at once where it is
	// of that address: see admission. Default 0: no limit but MaxDescriptors.
	MaxSessions int
	// MaxDescriptors is how many descriptors the process may have (RLIMIT_NOFILE). It bounds
	// sessions, which have two each, pipes and pending connections, so that some are left for
	// all else. Default 0: not looked at.
	MaxDescriptors int
	// MaxSessionsPerClient bounds the sessions of one client address. Default 0: none.
	MaxSessionsPerClient int
	// AcceptRate bounds accepted connections a second over all endpoints; the rest wait in
	// the kernel's accept queue. Default 0: none.
	AcceptRate int
	// IdleTimeout ends a session in which no byte has moved for so long and no response is
	// outstanding.
	// Default 0: never; brokers have a limit of their own (connections.max.idle.ms).
	IdleTimeout time.Duration
	// MaxInflight is the number of exchanges of one session after which its client is
	// not read any more until the broker has answered. Default 1024.
	MaxInflight int
	// MaxPipes bounds the pipes of 512 KiB that large frames are spliced through, over
	// all loops (Linux only). When none is to be had, bytes are copied. Default 128: the
	// 64 MiB that an unprivileged user may have in pipes. Negative means none.
	MaxPipes int
	// DialTimeout bounds opening the broker side, all addresses together. Default 10 s.
	DialTimeout time.Duration
	// HandshakeTimeout bounds one TLS handshake, on either side; for a client its silence
	// before, the PROXY protocol header and the wait for other handshakes are in it.
	// Default 10 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the TLS handshakes with clients that are worked on at once: they
	// are what a connection storm costs most. Further ones wait for their turn, client
	// address by client address; those that wait for their client do not count. Default 256.
	MaxHandshakes int
	// MaxPendingConnections bounds the client connections whose PROXY protocol header or TLS
	// handshake is under way. For one more, one that waits for its client is reset, see
	// pending. Default 4096: at most about 160 MiB.
	MaxPendingConnections int
	// RemoteStorageTimeout bounds one look-up of remote.storage.enable; after it the status
	// counts as unknown. Default 5 s.
	RemoteStorageTimeout time.Duration
	// FirstRequestTimeout bounds how long a client may take to begin its first request.
	// Default 1 min.
	FirstRequestTimeout time.Duration
	// ProgressTimeout bounds how long a frame that is collected may come, and a response
	// that was collected may wait for its reader, with less than 64 KiB moved. A response
	// that streams has no such limit. Default 30 s.
	ProgressTimeout time.Duration
	// LookupTimeout bounds the silence of a broker that works on a lookup request. Default
	// 20 s: below the 30 s that clients have for a request (request.timeout.ms).
	LookupTimeout time.Duration
	// LingerTimeout bounds how long a session lives on in which one side has ended its
	// direction and no byte moves. Default 30 s.
	LingerTimeout time.Duration
	// Logger gets one line per fault. Default: discard.
	Logger *slog.Logger
	// Registerer gets the proxy's metrics. Default: none are registered.
	Registerer prometheus.Registerer
}
