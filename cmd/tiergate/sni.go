// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/config"
	"tiergate/rewrite"
)

// byName dials for a listener that tells nodes apart by the name of the TLS handshake.
type byName struct {
	to        dialer
	listener  config.Listener
	names     rewrite.NodeNames
	strangers *strangers
}

// dial is a proxy.Endpoint's DialName.
func (b *byName) dial(ctx context.Context, serverName string) (net.Conn, error) {
	if nodeID, ok := b.names.Node(serverName); ok {
		return b.to.DialNode(ctx, nodeID)
	}
	if !strings.EqualFold(serverName, strings.TrimSuffix(string(b.listener.SNI.BootstrapHost), ".")) {
		b.strangers.met(b.listener, serverName)
	}
	return b.to.DialBootstrap(ctx)
}

// strangers are clients that name no server in their TLS handshake, or one that nothing
// stands for. They get a bootstrap connection.
type strangers struct {
	log    *slog.Logger
	warned sync.Map // listener names
	count  *prometheus.CounterVec
}

func newStrangers(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) (*strangers, error) {
	s := &strangers{log: log, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tiergate", Name: "sni_fallbacks_total",
		Help: "Connections to a listener with sni whose TLS handshake named no server, or an unknown one: they got a bootstrap connection.",
	}, []string{"listener"})}
	byName := false
	for _, of := range c.All() {
		for _, l := range of.Listeners {
			if l.Kind() == config.KindSNI {
				byName = true
				s.count.WithLabelValues(string(l.Name))
			}
		}
	}
	if !byName || metrics == nil {
		return s, nil
	}
	return s, metrics.Register(s.count)
}

// met counts a stranger, and warns of the first one at each listener.
func (s *strangers) met(l config.Listener, serverName string) {
	s.count.WithLabelValues(string(l.Name)).Inc()
	if _, before := s.warned.LoadOrStore(l.Name, struct{}{}); before {
		return
	}
	s.log.Warn("a client's TLS handshake names no server of this listener (SNI): it gets a bootstrap connection, and cannot reach single nodes; "+
		"the metric sni_fallbacks_total counts the others; clients without SNI need a listener with a port for each node",
		"listener", l.Name, "server_name", serverName, "wanted", l.SNI.NodeHost.String()+" or "+string(l.SNI.BootstrapHost))
}
