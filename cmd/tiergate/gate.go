// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/rewrite"
	"tiergate/upstream"
)

// cluster is what endpoints need of upstream.Cluster.
type cluster interface {
	DialBootstrap(ctx context.Context) (net.Conn, error)
	DialNode(ctx context.Context, nodeID int32) (net.Conn, error)
	DialAddress(ctx context.Context, address string) (net.Conn, error)
	rewrite.Nodes
}

// newCluster makes the cluster of a configuration. It connects to nothing. The caller
// closes it.
func newCluster(c *config.Config, tls *certs.Store, log *slog.Logger, metrics prometheus.Registerer) (*upstream.Cluster, error) {
	opts := upstreamOptions(c, log, metrics)
	opts.Security = security(c, tls)
	return upstream.New(opts)
}

// security says how the service client speaks to brokers.
func security(c *config.Config, tls *certs.Store) upstream.Security {
	s := upstream.Security{
		TLS:              tls.Broker(),
		Explain:          func(err error) error { return proxy.ExplainTLS(proxy.PeerBroker, err) },
		HandshakeTimeout: time.Duration(c.Limits.HandshakeTimeout),
		Preamble:         nobodysHeader(c.Upstream.SendProxyProtocol),
	}
	if sasl := c.Upstream.SASL; sasl != nil {
		s.SASL = &upstream.SASL{
			Mechanism: upstream.Mechanism(sasl.Mechanism), Username: string(sasl.Username), Password: sasl.Password,
		}
	}
	return s
}

// nobodysHeader is the PROXY protocol header of a connection that is nobody's but
// tiergate's own: UNKNOWN in version 1, and the command LOCAL in version 2 (sections 2.1
// and 2.2 of HAProxy's proxy-protocol.txt).
func nobodysHeader(version config.SendProxyProtocol) []byte {
	switch version {
	case config.SendProxyProtocolV1:
		return []byte("PROXY UNKNOWN\r\n")
	case config.SendProxyProtocolV2:
		return []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")
	case config.SendProxyProtocolOff:
	}
	return nil
}

func upstreamOptions(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) upstream.Options {
	opts := upstream.Options{
		BootstrapServers: texts(c.Upstream.BootstrapServers),
		// One address of a name gets half of the time that all of them have, so that
		// one that answers nothing leaves room for another; never more than the 3 s
		// that a lost SYN and its repetition take.
		DialTimeout:     min(time.Duration(c.Limits.DialTimeout)/2, 3*time.Second),
		RequestTimeout:  time.Duration(c.Limits.VerdictTimeout),
		MetadataRefresh: time.Duration(c.Upstream.MetadataRefresh),
		VerdictTTL:      time.Duration(c.Tiering.VerdictTTL),
		UnknownTTL:      time.Duration(c.Tiering.UnknownTTL),
		MaxTopics:       c.Tiering.MaxTopics,
		Version:         readBuild().software(),
		Logger:          log,
		Registerer:      metrics,
	}
	for _, topic := range c.Tiering.TieredTopics {
		opts.TieredTopics = append(opts.TieredTopics, string(topic))
	}
	return opts
}

// newServer makes the proxy of a configuration. Nothing is opened yet.
func newServer(c *config.Config, to *upstream.Cluster, tls *certs.Store, log *slog.Logger, metrics prometheus.Registerer) (*proxy.Server, error) {
	opts := proxyOptions(c, log, metrics)
	opts.Endpoints = endpoints(c, to, tls)
	for i := range opts.Endpoints {
		opts.Endpoints[i].Verdicts = to
	}
	return proxy.New(opts)
}

// proxyOptions are all but the endpoints and what they need.
func proxyOptions(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) proxy.Options {
	pipes := c.Limits.MaxPipes
	if pipes == 0 {
		pipes = -1 // none; 0 would be the default
	}
	return proxy.Options{
		MaxRequestBytes:      int32(c.Limits.MaxRequestBytes),  //nolint:gosec // config bounds it by MaxInt32
		MaxResponseBytes:     int32(c.Limits.MaxResponseBytes), //nolint:gosec // config bounds it by MaxInt32
		MaxHeldBytes:         int(c.Limits.MaxHeldBytes),
		MaxBufferedBytes:     int64(c.Limits.MaxBufferedBytes),
		MaxSessions:          c.Limits.MaxSessions,
		MaxSessionsPerClient: c.Limits.MaxSessionsPerClient,
		AcceptRate:           c.Limits.AcceptRate,
		IdleTimeout:          time.Duration(c.Limits.IdleTimeout),
		MaxInflight:          c.Limits.MaxInflight,
		MaxPipes:             pipes,
		DialTimeout:          time.Duration(c.Limits.DialTimeout),
		HandshakeTimeout:     time.Duration(c.Limits.HandshakeTimeout),
		MaxHandshakes:        c.Limits.MaxHandshakes,
		VerdictTimeout:       time.Duration(c.Limits.VerdictTimeout),
		LingerTimeout:        time.Duration(c.Limits.LingerTimeout),
		Logger:               log,
		Registerer:           metrics,
	}
}

// endpoints returns every address to listen on, in the order of the configuration: for
// a listener its bootstrap address and one for each node, or its direct routes.
func endpoints(c *config.Config, to cluster, tls *certs.Store) []proxy.Endpoint {
	mode := pendingUpload(c.EarliestPendingUpload)
	var all []proxy.Endpoint
	for _, l := range c.Listeners {
		list := rewritingEndpoints
		if l.IsDirect() {
			list = directEndpoints
		}
		for _, e := range list(c, l, to, mode) {
			e.Listener = string(l.Name)
			e.TLS, e.BrokerTLS = tls.Listener(l.Name), tls.Broker()
			e.ProxyProtocol, e.SendProxy = proxyProtocol(l.ProxyProtocol), sendProxy(c.Upstream.SendProxyProtocol)
			all = append(all, e)
		}
	}
	return all
}

func rewritingEndpoints(c *config.Config, l config.Listener, to cluster, mode rewrite.PendingUpload) []proxy.Endpoint {
	rules := rewrite.Rules{PendingUpload: mode, Addresses: addresses(c, l), Nodes: to}
	all := []proxy.Endpoint{{Address: l.Bootstrap.String(), Broker: "bootstrap", Dial: to.DialBootstrap, Rules: rules}}
	for i := range l.Nodes.Count() {
		nodeID := l.FirstNodeID + i
		all = append(all, proxy.Endpoint{
			Address: net.JoinHostPort(l.Nodes.Host, strconv.Itoa(int(l.Nodes.First)+int(i))),
			Broker:  nodeName(nodeID),
			Dial:    func(ctx context.Context) (net.Conn, error) { return to.DialNode(ctx, nodeID) },
			Rules:   rules,
		})
	}
	return all
}

func directEndpoints(_ *config.Config, l config.Listener, to cluster, mode rewrite.PendingUpload) []proxy.Endpoint {
	all := make([]proxy.Endpoint, len(l.Direct))
	for i, r := range l.Direct {
		broker := r.Broker.String()
		all[i] = proxy.Endpoint{
			Address: r.Listen.String(), Broker: broker,
			Dial:  func(ctx context.Context) (net.Conn, error) { return to.DialAddress(ctx, broker) },
			Rules: rewrite.Rules{PendingUpload: mode},
		}
	}
	return all
}

func proxyProtocol(p config.ProxyProtocol) proxy.ProxyProtocol {
	switch p {
	case config.ProxyProtocolOptional:
		return proxy.ProxyProtocolOptional
	case config.ProxyProtocolRequired:
		return proxy.ProxyProtocolRequired
	case config.ProxyProtocolOff:
	}
	return proxy.ProxyProtocolOff
}

func sendProxy(p config.SendProxyProtocol) proxy.SendProxy {
	switch p {
	case config.SendProxyProtocolV1:
		return proxy.SendProxyV1
	case config.SendProxyProtocolV2:
		return proxy.SendProxyV2
	case config.SendProxyProtocolOff:
	}
	return proxy.SendProxyOff
}

// addresses is the map of a listener that rewrites addresses. A node beyond its range
// is not told a port that something else of the configuration listens on.
func addresses(c *config.Config, l config.Listener) rewrite.PortRange {
	r := rewrite.PortRange{
		Host: string(l.AdvertisedHost), FirstNodeID: l.FirstNodeID, FirstPort: int32(l.Nodes.First), Count: l.Nodes.Count(),
	}
	take := func(first, last uint16) {
		for p := int32(first); p <= int32(last); p++ {
			if p < int32(l.Nodes.First) || p > int32(l.Nodes.Last) {
				r.Taken = append(r.Taken, p)
			}
		}
	}
	take(c.Admin.Address.Port, c.Admin.Address.Port)
	for _, other := range c.Listeners {
		if !other.IsDirect() {
			take(other.Bootstrap.Port, other.Bootstrap.Port)
			take(other.Nodes.First, other.Nodes.Last)
		}
		for _, route := range other.Direct {
			take(route.Listen.Port, route.Listen.Port)
		}
	}
	slices.Sort(r.Taken)
	r.Taken = slices.Compact(r.Taken)
	return r
}

func pendingUpload(mode config.PendingUpload) rewrite.PendingUpload {
	switch mode {
	case config.PendingUploadAlways:
		return rewrite.PendingUploadAlways
	case config.PendingUploadOff:
		return rewrite.PendingUploadOff
	case config.PendingUploadAuto:
	}
	return rewrite.PendingUploadAuto
}

func nodeName(nodeID int32) string { return fmt.Sprintf("node %d", nodeID) }

func texts(addresses []config.HostPort) []string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = a.String()
	}
	return list
}

// newLogger logs to w as the configuration says.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: logLevel(c.Level)}
	if c.Format == config.LogFormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func logLevel(l config.LogLevel) slog.Level {
	switch l {
	case config.LogLevelDebug:
		return slog.LevelDebug
	case config.LogLevelWarn:
		return slog.LevelWarn
	case config.LogLevelError:
		return slog.LevelError
	case config.LogLevelInfo:
	}
	return slog.LevelInfo
}

// explainListen adds to a failed listen what to do about it.
func explainListen(err error) error {
	address := "the address"
	port := "PORT"
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		address = op.Addr.String()
		if _, p, splitErr := net.SplitHostPort(address); splitErr == nil {
			port = p
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\n%s is taken: by a tiergate that runs already, or by another program. "+
			"\"ss -ltnp 'sport = :%s'\" shows which; stop it, or give another port in the configuration", err, address, port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w\nPorts below 1024 are for root: give another port, or the binary the capability CAP_NET_BIND_SERVICE", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w\nNo interface of this machine has the address %s: listen on one that it has, or on all with 0.0.0.0 or [::]; "+
			"what clients are told is advertised_host", err, address)
	}
	return err
}
