// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strconv"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/rewrite"
	"tiergate/upstream"
)

// dialer is what endpoints need of upstream.Cluster.
type dialer interface {
	DialBootstrap(ctx context.Context) (net.Conn, error)
	DialNode(ctx context.Context, nodeID int32) (net.Conn, error)
	DialAddress(ctx context.Context, address string) (net.Conn, error)
	ObserveNodes(named ...upstream.Node)
	proxy.RemoteStorage
	tieredOffsets
}

// namedNodes gives the nodes that responses name to the node map of upstream.
type namedNodes struct{ dialer }

// ObserveNodes implements rewrite.Nodes.
func (m namedNodes) ObserveNodes(named []rewrite.Node) {
	nodes := make([]upstream.Node, len(named))
	for i, n := range named {
		nodes[i] = upstream.Node{NodeID: n.NodeID, Host: n.Host, Port: n.Port}
	}
	m.dialer.ObserveNodes(nodes...)
}

// endpoints returns every address of a cluster to listen on, in the order of the
// configuration.
func endpoints(c *config.Config, of config.NamedCluster, to dialer, tls *certs.Store, strangers *strangers) []proxy.Endpoint {
	var all []proxy.Endpoint
	uploads := uploadsOf(of, to)
	for _, l := range of.Listeners {
		rules := rewrite.Rules{PendingUpload: pendingUpload(of.EarliestPendingUpload), Uploads: uploads}
		if !l.IsDirect() {
			rules.Addresses, rules.Unmapped, rules.Nodes = addresses(c, l), unmapped(l.UnmappedNodes), namedNodes{to}
		}
		for _, e := range dials(l, to, strangers) {
			e.Listener = string(l.Name)
			e.TLS, e.BrokerTLS = tls.Listener(l.Name), tls.Broker(of.Name)
			e.ProxyProtocol, e.SendProxy = proxyProtocol(l.ProxyProtocol), sendProxy(of.Upstream.SendProxyProtocol)
			e.Rules, e.RemoteStorage, e.Uploads = rules, to, uploads
			all = append(all, e)
		}
	}
	return all
}

// dials returns the addresses of a listener and what is dialed for each: for its
// bootstrap address and for each node, for its one port, or for its direct routes.
func dials(l config.Listener, to dialer, strangers *strangers) []proxy.Endpoint {
	node := func(address string, nodeID int32) proxy.Endpoint {
		return proxy.Endpoint{
			Address: address, Broker: nodeName(nodeID),
			Dial: func(ctx context.Context) (net.Conn, error) { return to.DialNode(ctx, nodeID) },
		}
	}
	all := []proxy.Endpoint{{Address: l.Bootstrap.String(), Broker: "bootstrap", Dial: to.DialBootstrap}}
	switch l.Kind() {
	case config.KindRange:
		for i := range l.Nodes.Count() {
			port := strconv.Itoa(int(l.Nodes.First) + int(i))
			all = append(all, node(net.JoinHostPort(l.Nodes.Host, port), l.FirstNodeID+i))
		}
	case config.KindAddresses:
		for _, a := range l.NodeAddresses {
			all = append(all, node(a.Bind.String(), a.NodeID))
		}
	case config.KindSNI:
		names := &byName{to: to, listener: l, names: nodeNames(l), strangers: strangers}
		all = []proxy.Endpoint{{Address: l.SNI.Bind.String(), Broker: "by SNI", DialName: names.dial}}
	case config.KindDirect:
		all = all[:0]
		for _, r := range l.Direct {
			broker := r.Broker.String()
			all = append(all, proxy.Endpoint{
				Address: r.Listen.String(), Broker: broker,
				Dial: func(ctx context.Context) (net.Conn, error) { return to.DialAddress(ctx, broker) },
			})
		}
	}
	return all
}

// addresses is the map of a listener that rewrites addresses.
func addresses(c *config.Config, l config.Listener) rewrite.Addresses {
	switch l.Kind() {
	case config.KindAddresses:
		nodes := make(map[int32]rewrite.Address, len(l.NodeAddresses))
		for _, a := range l.NodeAddresses {
			nodes[a.NodeID] = rewrite.Address{Host: a.Advertised.Host, Port: int32(a.Advertised.Port)}
		}
		return rewrite.NewNodeTable(nodes)
	case config.KindSNI:
		return nodeNames(l)
	case config.KindRange, config.KindDirect:
	}
	return portRange(c, l)
}

func nodeNames(l config.Listener) rewrite.NodeNames {
	return rewrite.NodeNames{Before: l.SNI.NodeHost.Before, After: l.SNI.NodeHost.After, Port: l.SNI.AdvertisedPort}
}

// portRange is the map of a listener with a port for each node. A node beyond its range
// is not told a port that something else of the configuration listens on.
func portRange(c *config.Config, l config.Listener) rewrite.PortRange {
	r := rewrite.PortRange{
		Host: string(l.AdvertisedHost), FirstNodeID: l.FirstNodeID, FirstPort: int32(l.Nodes.First), Count: l.Nodes.Count(),
	}
	for _, p := range ports(c) {
		if p < int32(l.Nodes.First) || p > int32(l.Nodes.Last) {
			r.Taken = append(r.Taken, p)
		}
	}
	return r
}

func unmapped(mode config.UnmappedNodes) rewrite.Unmapped {
	switch mode {
	case config.UnmappedHide:
		return rewrite.UnmappedHide
	case config.UnmappedPassthrough:
		return rewrite.UnmappedPassthrough
	case config.UnmappedReject:
	}
	return rewrite.UnmappedReject
}
