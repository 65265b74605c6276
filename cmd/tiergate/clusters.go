// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/upstream"
)

// cluster is a cluster of the configuration, and the client that reaches its brokers.
type cluster struct {
	config.NamedCluster
	brokers *upstream.Cluster
}

// clusters are all of a configuration, in its order.
type clusters []cluster

// newClusters makes the clusters of a configuration. They connect to nothing. The caller
// closes them.
func newClusters(c *config.Config, tls *certs.Store, log *slog.Logger, metrics prometheus.Registerer) (clusters, error) {
	var all clusters
	own := newOwn(c)
	for _, of := range c.All() {
		to, err := newCluster(c, of, own, tls, log, metrics)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, cluster{of, to})
	}
	return all, nil
}

// newCluster makes one of them. Where there are several, its name labels metrics and log.
func newCluster(c *config.Config, of config.NamedCluster, own *own, tls *certs.Store, log *slog.Logger, metrics prometheus.Registerer) (*upstream.Cluster, error) {
	if of.Name != "" {
		log = log.With("cluster", string(of.Name))
		if metrics != nil {
			metrics = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": string(of.Name)}, metrics)
		}
	}
	opts := upstreamOptions(c, of, log, metrics)
	opts.Security, opts.Own = security(c, of, tls), own.of(of.Name)
	return upstream.New(opts)
}

func (all clusters) start(ctx context.Context) {
	for _, one := range all {
		one.brokers.Start(ctx)
	}
}

func (all clusters) close() {
	for _, one := range all {
		one.brokers.Close()
	}
}

// ready returns nil when a broker of every cluster can be reached, else which cannot.
func (all clusters) ready() error {
	var faults []error
	for _, one := range all {
		err := one.brokers.Ready()
		if err != nil && one.Name != "" {
			err = fmt.Errorf("cluster %q: %w", one.Name, err)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// known reports whether every cluster has told of its brokers.
func (all clusters) known() bool {
	for _, one := range all {
		if len(one.brokers.Nodes()) == 0 {
			return false
		}
	}
	return true
}

// rows is the map of addresses of all.
func (all clusters) rows() []mapRow {
	var rows []mapRow
	for _, one := range all {
		rows = append(rows, nodeMap(one.NamedCluster, one.brokers.Nodes())...)
	}
	return rows
}

// security says how the service client speaks to brokers.
func security(c *config.Config, of config.NamedCluster, tls *certs.Store) upstream.Security {
	s := upstream.Security{
		TLS:              tls.Broker(of.Name),
		Explain:          func(err error) error { return proxy.ExplainTLS(proxy.PeerBroker, err) },
		HandshakeTimeout: time.Duration(c.Limits.HandshakeTimeout),
		Preamble:         nobodysHeader(of.Upstream.SendProxyProtocol),
	}
	if sasl := of.Upstream.SASL; sasl != nil {
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

func upstreamOptions(c *config.Config, of config.NamedCluster, log *slog.Logger, metrics prometheus.Registerer) upstream.Options {
	opts := upstream.Options{
		BootstrapServers: texts(of.Upstream.BootstrapServers),
		// One address of a name gets half of the time that all of them have, so that
		// one that answers nothing leaves room for another; never more than the 3 s
		// that a lost SYN and its repetition take.
		DialTimeout:         min(time.Duration(c.Limits.DialTimeout)/2, 3*time.Second),
		RequestTimeout:      time.Duration(c.Limits.RemoteStorageTimeout),
		MetadataRefresh:     time.Duration(of.Upstream.MetadataRefresh),
		StatusTTL:           time.Duration(of.Tiering.StatusTTL),
		UnknownTTL:          time.Duration(of.Tiering.UnknownTTL),
		MaxTopics:           of.Tiering.MaxTopics,
		MaxTieredPartitions: of.Tiering.MaxTieredPartitions,
		MaxInFlightSegments: of.Tiering.MaxInFlightSegments,
		LookupHost:          lookupHost(of.Upstream.Hosts),
		Version:             readBuild().software(),
		Logger:              log,
		Registerer:          metrics,
	}
	if of.EarliestPendingUpload == config.PendingUploadMetadataTopic {
		opts.TieredOffsets = upstream.TieredOffsetsFromMetadataTopic
	}
	for _, topic := range of.Tiering.TieredTopics {
		opts.TieredTopics = append(opts.TieredTopics, string(topic))
	}
	return opts
}

// lookupHost finds names in hosts first, and asks the system's resolver for others. It
// is nil, upstream's default, where there are none.
func lookupHost(hosts config.Hosts) func(context.Context, string) ([]netip.Addr, error) {
	if len(hosts) == 0 {
		return nil
	}
	return func(ctx context.Context, name string) ([]netip.Addr, error) {
		if addrs := hosts.Lookup(name); addrs != nil {
			return addrs, nil
		}
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}
}
