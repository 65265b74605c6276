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
		d.Fault(path, "is missing; wanted one listener at the least, with name, bootstrap, nodes and advertised_host, "+
			"or with name and direct")
	}
	if d.Given(path) && len(listeners) == 0 {
		d.Fault(path, "is empty; wanted one listener at the least")
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
		d.Fault(path, "is missing; wanted %s", wantName)
	}
	if !d.Given(path) {
		return
	}
	if first, ok := names[name]; ok {
		d.Fault(path, "%q is the name of %s already (line %d); wanted a name of its own", name, strings.TrimSuffix(first, ".name"), d.Places[first].Line)
		return
	}
	names[name] = path
}

// deciding are the keys of which a listener has one, and with them which keys of the
// others it takes too.
var deciding = []struct {
	key   string
	takes []string
	why   string
}{
	{"nodes", []string{"bootstrap", "first_node_id", "advertised_host", "unmapped_nodes"}, ""},
	{"node_addresses", []string{"bootstrap", "unmapped_nodes"}, "which gives every node its own address"},
	{"sni", nil, "which has one address for all, and a name for every node"},
	{"direct", nil, "where no address is rewritten"},
}

const wantKind = "wanted bootstrap, nodes and advertised_host (a port for each node), bootstrap and node_addresses (an address for each), " +
	"sni (a name for each), or direct (no address is rewritten)"

func (d *decoder) listener(item string, l *Listener) {
	decided := -1
	for i, k := range deciding {
		switch {
		case !d.present(item + "." + k.key):
		case decided >= 0:
			d.Fault(item+"."+k.key, "stands beside %s; %s", deciding[decided].key, wantKind)
			return
		default:
			decided = i
		}
	}
	if decided < 0 && d.present(item+".bootstrap") {
		decided = 0
	}
	if decided < 0 {
		d.Fault(item, "has no addresses to listen on; %s", wantKind)
		return
	}
	kind := deciding[decided]
	for _, key := range deciding[0].takes {
		if d.Given(item+"."+key) && !slices.Contains(kind.takes, key) {
			d.Fault(item+"."+key, "is of no use beside %s, %s; remove it", kind.key, kind.why)
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
		d.Fault(item+".bootstrap", `is missing; wanted the host:port where clients connect first, such as "127.0.0.1:9192"`)
	}
}

func (d *decoder) nodesInRange(item string, l *Listener) {
	if d.Missing(item + ".nodes") {
		d.Fault(item+".nodes", "is missing; wanted %s", wantPortRange)
	}
	d.advertisedHost(item+".advertised_host", l.AdvertisedHost)
	path := item + ".first_node_id"
	switch last := int64(l.FirstNodeID) + int64(l.Nodes.Count()) - 1; {
	case d.Faulty[path]:
	case l.FirstNodeID < 0:
		d.Fault(path, "%d is below zero; wanted the node id behind the first port of nodes", l.FirstNodeID)
	case d.Given(item+".nodes") && last > math.MaxInt32:
		d.Fault(path, "%d gives the last port of nodes the node id %d, above %d; wanted a lower one", l.FirstNodeID, last, math.MaxInt32)
	}
}

func (d *decoder) advertisedHost(path string, host Host) {
	const want = "wanted the host that clients connect to: they are told host:port of every node, and cannot connect to a wildcard"
	switch {
	case d.Missing(path):
		d.Fault(path, "is missing; %s", want)
	case d.Given(path) && isWildcard(string(host)):
		d.Fault(path, "%q is a wildcard; %s", host, want)
	}
}

// nodesWithAddresses checks the entries of node_addresses, and fills in what clients are
// told where the file has one address for both.
func (d *decoder) nodesWithAddresses(path string, nodes NodeAddresses) {
	for i := range nodes {
		a := &nodes[i]
		key := nodePath(path, a.key)
		if d.Faulty[key] {
			continue
		}
		if d.Missing(key + ".bind") {
			d.Fault(key+".bind", `is missing; wanted the host:port where this node is listened for, such as "0.0.0.0:9200"`)
			continue
		}
		told := key + ".advertised"
		if d.Missing(told) {
			a.Advertised, told = a.Bind, key+".bind"
		}
		if d.Given(told) && isWildcard(a.Advertised.Host) {
			d.Fault(told, "%q is a wildcard, which clients cannot connect to; wanted {bind: %q, advertised: host:port that clients connect to}",
				a.Advertised, a.Bind)
		}
	}
}

// sni checks the block sni, and fills in the port that clients are told.
func (d *decoder) sni(item string, l *Listener) {
	if d.Missing(item + ".tls") {
		d.Fault(item+".sni", "needs a tls block: it is the name that a TLS handshake asks for that tells the nodes apart; "+
			"without TLS, give each node a port of its own (nodes)")
	}
	s, path := l.SNI, item+".sni"
	if s == nil {
		return
	}
	if d.Missing(path + ".bind") {
		d.Fault(path+".bind", `is missing; wanted the host:port where clients connect, such as "0.0.0.0:9093"`)
	}
	if d.Missing(path + ".bootstrap_host") {
		d.Fault(path+".bootstrap_host", "is missing; wanted the name that clients connect to first, such as kafka.example.com")
	}
	if d.Missing(path + ".node_host") {
		d.Fault(path+".node_host", "is missing; wanted %s", wantNodePattern)
	}
	if d.Given(path + ".bootstrap_host") {
		_, err := netip.ParseAddr(string(s.BootstrapHost))
		switch {
		case err == nil || s.BootstrapHost == "*":
			d.Fault(path+".bootstrap_host", "%q is no name, and clients ask for names only; wanted one such as kafka.example.com", s.BootstrapHost)
		case d.Given(path+".node_host") && s.NodeHost.matches(string(s.BootstrapHost)):
			d.Fault(path+".bootstrap_host", "%q is the name of a node by node_host, %q; wanted another one", s.BootstrapHost, s.NodeHost)
		}
	}
	switch told := path + ".advertised_port"; {
	case d.Missing(told):
		s.AdvertisedPort = int32(s.Bind.Port)
	case d.Given(told) && (s.AdvertisedPort < 1 || s.AdvertisedPort > math.MaxUint16):
		d.Fault(told, "%d is no port; wanted one from 1 to 65535", s.AdvertisedPort)
	}
}

// told is a run of neighbouring nodes and what clients are told of them.
type told struct {
	cluster, path, text string
	// bind is where the nodes are listened for.
	bind PortRange
	// ports are what clients are told, the node first at the first port.
	ports PortRange
	first int32
}

// node returns the node that is told at a port.
func (t told) node(port uint16) int64 { return int64(t.first) + int64(port) - int64(t.ports.First) }

// tellings lists what listeners with nodes and node_addresses tell.
func (d *decoder) tellings(c *Config) []told {
	var all []told
	for _, at := range d.clusters(c) {
		for i, l := range at.Listeners {
			item := fmt.Sprintf("%s[%d]", strictyaml.Join(at.path, "listeners"), i)
			if d.Given(item+".nodes") && d.Given(item+".advertised_host") && !d.Faulty[item+".first_node_id"] && !d.Faulty[item+".direct"] {
				ports := l.Nodes
				ports.Host = string(l.AdvertisedHost)
				all = append(all, told{at.path, item + ".nodes", l.Nodes.String(), l.Nodes, ports, l.FirstNodeID})
			}
			for _, a := range l.NodeAddresses {
				key := nodePath(item+".node_addresses", a.key)
				if d.Given(key) && !d.Faulty[key+".bind"] && !d.Faulty[key+".advertised"] && a.Advertised.Port > 0 {
					one := func(p HostPort) PortRange { return PortRange{Host: p.Host, First: p.Port, Last: p.Port} }
					all = append(all, told{at.path, key, a.Bind.String(), one(a.Bind), one(a.Advertised), a.NodeID})
				}
			}
		}
	}
	return all
}

// advertisedTwice refuses one host:port for several node ids: clients tell brokers
// apart by address, and librdkafka (issue 4212) then reconnects without end. The same
// node at the same host:port of two listeners is well: one may listen on IPv4, one on IPv6.
func (d *decoder) advertisedTwice(c *Config) {
	all := d.tellings(c)
	for i, b := range all {
		for _, a := range all[:i] {
			port := max(a.ports.First, b.ports.First)
			if port > min(a.ports.Last, b.ports.Last) || hostKey(a.ports.Host) != hostKey(b.ports.Host) ||
				a.cluster == b.cluster && a.node(port) == b.node(port) {
				continue
			}
			if hostsOverlap(a.bind.Host, b.bind.Host) && max(a.bind.First, b.bind.First) <= min(a.bind.Last, b.bind.Last) {
				continue // that is reported
			}
			d.Fault(b.path, "%q gives %s to node %d%s, and %s (line %d) gives it to node %d%s: clients tell nodes apart "+
				"by address; wanted other ports or another advertised host", b.text, HostPort{Host: b.ports.Host, Port: port},
				b.node(port), in(b.cluster), a.path, d.Places[a.path].Line, a.node(port), in(a.cluster))
			break
		}
	}
}

// in names a cluster where there may be several.
func in(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " of " + cluster
}
