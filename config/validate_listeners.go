// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"tiergate/internal/strictyaml"
)

func (d *decoder) listeners(path string, listeners []Listener, names map[Name]string) {
	if d.Missing(path) {
		d.Fault(path, "missing: want at least one listener, with name, bootstrap, nodes and advertised_host, "+
			"or with name and direct")
	}
	if d.Given(path) && len(listeners) == 0 {
		d.Fault(path, "empty list: want at least one listener")
	}
	for i := range listeners {
		item := fmt.Sprintf("%s[%d]", path, i)
		if !d.Given(item) {
			continue
		}
		d.listenerName(item+".name", listeners[i].Name, names)
		d.listener(item, &listeners[i])
	}
}

func (d *decoder) listenerName(path string, name Name, names map[Name]string) {
	if d.Missing(path) {
		d.Fault(path, "missing: want %s", wantName)
	}
	if !d.Given(path) {
		return
	}
	if first, ok := names[name]; ok {
		d.Fault(path, "duplicate name %q, already used by %s (line %d): want a unique name", name, strings.TrimSuffix(first, ".name"), d.Places[first].Line)
		return
	}
	names[name] = path
}

// deciding are the keys that decide the kind of a listener, which has one of them. takes are
// the keys that can be given with it.
var deciding = []struct {
	key   string
	takes []string
	why   string
}{
	{"nodes", []string{"bootstrap", "first_node_id", "advertised_host", "unmapped_nodes"}, ""},
	{"node_addresses", []string{"bootstrap", "unmapped_nodes"}, "which gives every node its own address"},
	{"sni", nil, "which has one address for all nodes, and a name for each"},
	{"direct", nil, "which rewrites no address"},
}

const wantKind = "want bootstrap, nodes and advertised_host (a port for each node), bootstrap and node_addresses (an address for each), " +
	"sni (a name for each), or direct (no address is rewritten)"

func (d *decoder) listener(item string, l *Listener) {
	decided := -1
	for i, k := range deciding {
		switch {
		case !d.present(item + "." + k.key):
		case decided >= 0:
			d.Fault(item+"."+k.key, "conflicts with %s: %s", deciding[decided].key, wantKind)
			return
		default:
			decided = i
		}
	}
	if decided < 0 && d.present(item+".bootstrap") {
		decided = 0
	}
	if decided < 0 {
		d.Fault(item, "no address to listen on: %s", wantKind)
		return
	}
	kind := deciding[decided]
	for _, key := range deciding[0].takes {
		if d.Given(item+"."+key) && !slices.Contains(kind.takes, key) {
			d.Fault(item+"."+key, "has no effect with %s, %s: remove it", kind.key, kind.why)
		}
	}
	switch kind.key {
	case "direct":
		d.direct(item, l)
	case "sni":
		d.sni(item, l)
	case "node_addresses":
		d.bootstrap(item)
		d.nodesWithAddresses(item+".node_addresses", l.NodeAddresses)
	default:
		d.bootstrap(item)
		d.nodesInRange(item, l)
	}
}

func (d *decoder) direct(item string, l *Listener) {
	for _, r := range l.Direct {
		if path := routePath(item+".direct", r.key); d.Given(path) {
			d.brokerAddress(path, r.Broker)
		}
	}
}

func (d *decoder) bootstrap(item string) {
	if d.Missing(item + ".bootstrap") {
		d.Fault(item+".bootstrap", `missing: want the host:port that clients connect to first, e.g. "127.0.0.1:9192"`)
	}
}

func (d *decoder) nodesInRange(item string, l *Listener) {
	if d.Missing(item + ".nodes") {
		d.Fault(item+".nodes", "missing: want %s", wantPortRange)
	}
	d.advertisedHost(item+".advertised_host", l.AdvertisedHost)
	path := item + ".first_node_id"
	switch last := int64(l.FirstNodeID) + int64(l.Nodes.Count()) - 1; {
	case d.Faulty[path]:
	case l.FirstNodeID < 0:
		d.Fault(path, "invalid node id %d: want 0 or more, the node id at the first port of nodes", l.FirstNodeID)
	case d.Given(item+".nodes") && last > math.MaxInt32:
		d.Fault(path, "invalid node id %d: the last port of nodes would have the node id %d, above %d; want a lower one", l.FirstNodeID, last, math.MaxInt32)
	}
}

func (d *decoder) advertisedHost(path string, host Host) {
	const want = "want the host that clients connect to; it is advertised for every node, and clients cannot connect to a wildcard"
	switch {
	case d.Missing(path):
		d.Fault(path, "missing: %s", want)
	case d.Given(path) && isWildcard(string(host)):
		d.Fault(path, "invalid host %q: %s", host, want)
	}
}

// nodesWithAddresses checks the entries of node_addresses, and fills in the advertised address
// of an entry that has only one address.
func (d *decoder) nodesWithAddresses(path string, nodes NodeAddresses) {
	for i := range nodes {
		a := &nodes[i]
		key := nodePath(path, a.key)
		if d.Faulty[key] {
			continue
		}
		if d.Missing(key + ".bind") {
			d.Fault(key+".bind", `missing: want the host:port to listen on for this node, e.g. "0.0.0.0:9200"`)
			continue
		}
		advertised := key + ".advertised"
		if d.Missing(advertised) {
			a.Advertised, advertised = a.Bind, key+".bind"
		}
		if d.Given(advertised) && isWildcard(a.Advertised.Host) {
			d.Fault(advertised, "invalid address %q: clients cannot connect to a wildcard; want {bind: %q, advertised: host:port that clients connect to}",
				a.Advertised, a.Bind)
		}
	}
}

// sni checks the block sni, and fills in the advertised port.
func (d *decoder) sni(item string, l *Listener) {
	if d.Missing(item + ".tls") {
		d.Fault(item+".sni", "missing tls block: nodes are selected by the server name of the TLS handshake; "+
			"add tls, or give each node its own port (nodes)")
	}
	s, path := l.SNI, item+".sni"
	if s == nil {
		return
	}
	if d.Missing(path + ".bind") {
		d.Fault(path+".bind", `missing: want the host:port to listen on, e.g. "0.0.0.0:9093"`)
	}
	if d.Missing(path + ".bootstrap_host") {
		d.Fault(path+".bootstrap_host", "missing: want the name that clients connect to first, e.g. kafka.example.com")
	}
	if d.Missing(path + ".node_host") {
		d.Fault(path+".node_host", "missing: want %s", wantNodePattern)
	}
	if d.Given(path + ".bootstrap_host") {
		_, err := netip.ParseAddr(string(s.BootstrapHost))
		switch {
		case err == nil || s.BootstrapHost == "*":
			d.Fault(path+".bootstrap_host", "invalid host name %q: want a DNS name, e.g. kafka.example.com; a TLS handshake contains no IP address", s.BootstrapHost)
		case d.Given(path+".node_host") && s.NodeHost.matches(string(s.BootstrapHost)):
			d.Fault(path+".bootstrap_host", "conflict: %q matches node_host, %q; want another name", s.BootstrapHost, s.NodeHost)
		}
	}
	switch advertised := path + ".advertised_port"; {
	case d.Missing(advertised):
		s.AdvertisedPort = int32(s.Bind.Port)
	case d.Given(advertised) && (s.AdvertisedPort < 1 || s.AdvertisedPort > math.MaxUint16):
		d.Fault(advertised, "invalid port %d: want 1 to 65535", s.AdvertisedPort)
	}
}

// advertisement is a range of consecutive nodes and their advertised addresses.
type advertisement struct {
	cluster, path, text string
	// bind is where tiergate listens for the nodes.
	bind PortRange
	// ports are advertised: the first one for the node first.
	ports PortRange
	first int32
}

// node returns the node that is advertised at a port.
func (t advertisement) node(port uint16) int64 {
	return int64(t.first) + int64(port) - int64(t.ports.First)
}

// advertisements returns those of the listeners with nodes and node_addresses.
func (d *decoder) advertisements(c *Config) []advertisement {
	var all []advertisement
	for _, at := range d.clusters(c) {
		for i, l := range at.Listeners {
			item := fmt.Sprintf("%s[%d]", strictyaml.Join(at.path, "listeners"), i)
			if d.Given(item+".nodes") && d.Given(item+".advertised_host") && !d.Faulty[item+".first_node_id"] && !d.Faulty[item+".direct"] {
				ports := l.Nodes
				ports.Host = string(l.AdvertisedHost)
				all = append(all, advertisement{at.path, item + ".nodes", l.Nodes.String(), l.Nodes, ports, l.FirstNodeID})
			}
			for _, a := range l.NodeAddresses {
				key := nodePath(item+".node_addresses", a.key)
				if d.Given(key) && !d.Faulty[key+".bind"] && !d.Faulty[key+".advertised"] && a.Advertised.Port > 0 {
					one := func(p HostPort) PortRange { return PortRange{Host: p.Host, First: p.Port, Last: p.Port} }
					all = append(all, advertisement{at.path, key, a.Bind.String(), one(a.Bind), one(a.Advertised), a.NodeID})
				}
			}
		}
	}
	return all
}

// advertisedTwice rejects one host:port for several node ids: clients identify brokers by
// address, and librdkafka then reconnects endlessly (its issue 4212). Two listeners can
// advertise one node at the same host:port: one can listen on IPv4, the other on IPv6.
func (d *decoder) advertisedTwice(c *Config) {
	all := d.advertisements(c)
	for i, b := range all {
		for _, a := range all[:i] {
			port := max(a.ports.First, b.ports.First)
			if port > min(a.ports.Last, b.ports.Last) || hostKey(a.ports.Host) != hostKey(b.ports.Host) ||
				a.cluster == b.cluster && a.node(port) == b.node(port) {
				continue
			}
			if hostsOverlap(a.bind.Host, b.bind.Host) && max(a.bind.First, b.bind.First) <= min(a.bind.Last, b.bind.Last) {
				continue // reported by overlaps
			}
			d.Fault(b.path, "conflict: %q advertises %s for node %d%s, and %s (line %d) for node %d%s; clients identify nodes "+
				"by address: want other ports or another advertised host", b.text, HostPort{Host: b.ports.Host, Port: port},
				b.node(port), in(b.cluster), a.path, d.Places[a.path].Line, a.node(port), in(a.cluster))
			break
		}
	}
}

// in names a cluster if there can be several.
func in(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " of " + cluster
}
