// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// validate checks what single values cannot show. It skips values that were reported
// already.
func (d *decoder) validate(c *Config) {
	d.bootstrapServers(c.Upstream.BootstrapServers)
	d.listeners(c.Listeners)
	binds := d.binds(c)
	d.overlaps(binds)
	d.loops(c, binds)
	d.numbers(c)
	d.security(c)
	for i, topic := range c.Tiering.TieredTopics {
		if path := fmt.Sprintf("tiering.tiered_topics[%d]", i); d.given(path) && slices.Contains(internalTopics, topic) {
			d.fault(path, "%q is an internal topic, which Kafka never tiers; wanted topics of your own", topic)
		}
	}
}

// internalTopics are those of org.apache.kafka.common.internals.Topic and the one of
// TopicBasedRemoteLogMetadataManager.
var internalTopics = []TopicName{
	"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata",
}

func (d *decoder) bootstrapServers(servers []HostPort) {
	const path = "upstream.bootstrap_servers"
	if d.missing("upstream") || d.given("upstream") && d.missing(path) {
		d.fault(path, `is missing; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`)
		return
	}
	if d.given(path) && len(servers) == 0 {
		d.fault(path, "is empty; wanted one broker at the least, better three")
	}
	seen := map[string]string{}
	for i, a := range servers {
		item := fmt.Sprintf("%s[%d]", path, i)
		if !d.given(item) {
			continue
		}
		d.brokerAddress(item, a)
		if first, ok := seen[addressKey(a)]; ok {
			d.fault(item, "%q is the same as %s; keep one of them", a, first)
			continue
		}
		seen[addressKey(a)] = item
	}
}

// brokerAddress refuses a broker address that names no place.
func (d *decoder) brokerAddress(path string, a HostPort) {
	if isWildcard(a.Host) {
		d.fault(path, "%q is a wildcard, which nobody can connect to; wanted the broker's own host:port", a)
	}
}

func (d *decoder) listeners(listeners []Listener) {
	const path = "listeners"
	if d.missing(path) {
		d.fault(path, "is missing; wanted one listener at the least, with name, bootstrap, nodes and advertised_host, "+
			"or with name and direct")
	}
	if d.given(path) && len(listeners) == 0 {
		d.fault(path, "is empty; wanted one listener at the least")
	}
	names := map[Name]string{}
	for i, l := range listeners {
		item := fmt.Sprintf("%s[%d]", path, i)
		if !d.given(item) {
			continue
		}
		d.listenerName(item+".name", l.Name, names)
		d.listener(item, l)
	}
	d.advertisedTwice(listeners)
}

func (d *decoder) listenerName(path string, name Name, names map[Name]string) {
	if d.missing(path) {
		d.fault(path, "is missing; wanted %s", wantName)
	}
	if !d.given(path) {
		return
	}
	if first, ok := names[name]; ok {
		d.fault(path, "%q is the name of %s already (line %d); wanted a name of its own", name, strings.TrimSuffix(first, ".name"), d.places[first].line)
		return
	}
	names[name] = path
}

// present says whether the file has the key at all, right or wrong.
func (d *decoder) present(path string) bool { return !d.missing(path) }

func (d *decoder) listener(item string, l Listener) {
	isDirect := d.present(item + ".direct")
	for _, key := range []string{".bootstrap", ".nodes"} {
		if isDirect && d.present(item+key) {
			d.fault(item+".direct", "stands beside %s; wanted either bootstrap and nodes (addresses are rewritten) "+
				"or direct (they are not)", strings.TrimPrefix(key, "."))
			return
		}
	}
	switch {
	case isDirect:
		d.direct(item, l)
	case !d.present(item+".bootstrap") && !d.present(item+".nodes"):
		d.fault(item, "has neither bootstrap and nodes nor direct; wanted bootstrap, nodes and advertised_host "+
			"(addresses are rewritten), or direct (they are not)")
	default:
		d.rewriting(item, l)
	}
}

func (d *decoder) direct(item string, l Listener) {
	for _, key := range []string{".first_node_id", ".advertised_host"} {
		if d.given(item + key) {
			d.fault(item+key, "is of no use beside direct, where no address is rewritten; remove it")
		}
	}
	for _, r := range l.Direct {
		if path := routePath(item+".direct", r.key); d.given(path) {
			d.brokerAddress(path, r.Broker)
		}
	}
}

func (d *decoder) rewriting(item string, l Listener) {
	if d.missing(item + ".bootstrap") {
		d.fault(item+".bootstrap", `is missing; wanted the host:port where clients connect first, such as "127.0.0.1:9192"`)
	}
	if d.missing(item + ".nodes") {
		d.fault(item+".nodes", "is missing; wanted %s", wantPortRange)
	}
	d.advertisedHost(item+".advertised_host", l.AdvertisedHost)
	path := item + ".first_node_id"
	switch last := int64(l.FirstNodeID) + int64(l.Nodes.Count()) - 1; {
	case d.faulty[path]:
	case l.FirstNodeID < 0:
		d.fault(path, "%d is below zero; wanted the node id behind the first port of nodes", l.FirstNodeID)
	case d.given(item+".nodes") && last > math.MaxInt32:
		d.fault(path, "%d gives the last port of nodes the node id %d, above %d; wanted a lower one", l.FirstNodeID, last, math.MaxInt32)
	}
}

func (d *decoder) advertisedHost(path string, host Host) {
	const want = "wanted the host that clients connect to: they are told host:port of every node, and cannot connect to a wildcard"
	switch {
	case d.missing(path):
		d.fault(path, "is missing; %s", want)
	case d.given(path) && isWildcard(string(host)):
		d.fault(path, "%q is a wildcard; %s", host, want)
	}
}

// advertisedTwice refuses one host:port for several node ids: clients tell brokers
// apart by address, and librdkafka (issue 4212) then reconnects without end. The same
// node at the same host:port of two listeners is well: one may listen on IPv4, one on IPv6.
func (d *decoder) advertisedTwice(listeners []Listener) {
	for i, b := range listeners {
		for j, a := range listeners[:i] {
			pathA, pathB := fmt.Sprintf("listeners[%d]", j), fmt.Sprintf("listeners[%d]", i)
			if !d.advertises(pathA) || !d.advertises(pathB) || hostKey(string(a.AdvertisedHost)) != hostKey(string(b.AdvertisedHost)) {
				continue
			}
			port := max(a.Nodes.First, b.Nodes.First)
			nodeA := int64(a.FirstNodeID) + int64(port) - int64(a.Nodes.First)
			nodeB := int64(b.FirstNodeID) + int64(port) - int64(b.Nodes.First)
			if port > min(a.Nodes.Last, b.Nodes.Last) || nodeA == nodeB || hostsOverlap(a.Nodes.Host, b.Nodes.Host) {
				continue // overlapping hosts and ports are reported as such
			}
			d.fault(pathB+".nodes", "%q gives %s to node %d, and %s (line %d) gives it to node %d: clients tell nodes apart "+
				"by address; wanted other ports or another advertised_host", b.Nodes,
				HostPort{Host: string(b.AdvertisedHost), Port: port}, nodeB, pathA+".nodes", d.places[pathA+".nodes"].line, nodeA)
		}
	}
}

func (d *decoder) advertises(item string) bool {
	return d.given(item+".nodes") && d.given(item+".advertised_host") && !d.faulty[item+".first_node_id"] && !d.faulty[item+".direct"]
}

// bind is a run of ports that the configuration wants to listen on.
type bind struct {
	path  string
	ports PortRange
	text  string
}

func (d *decoder) binds(c *Config) []bind {
	var all []bind
	one := func(path string, a HostPort) {
		if d.given(path) {
			all = append(all, bind{path, PortRange{Host: a.Host, First: a.Port, Last: a.Port}, a.String()})
		}
	}
	for i, l := range c.Listeners {
		item := fmt.Sprintf("listeners[%d]", i)
		one(item+".bootstrap", l.Bootstrap)
		if d.given(item + ".nodes") {
			all = append(all, bind{item + ".nodes", l.Nodes, l.Nodes.String()})
		}
		for _, r := range l.Direct {
			one(routePath(item+".direct", r.key), r.Listen)
		}
	}
	if !d.faulty["admin"] && !d.faulty["admin.address"] {
		a := c.Admin.Address
		all = append(all, bind{"admin.address", PortRange{Host: a.Host, First: a.Port, Last: a.Port}, a.String()})
	}
	return all
}

func (d *decoder) overlaps(binds []bind) {
	for i, b := range binds {
		for _, a := range binds[:i] {
			port := max(a.ports.First, b.ports.First)
			if port > min(a.ports.Last, b.ports.Last) || !hostsOverlap(a.ports.Host, b.ports.Host) {
				continue
			}
			if !d.given(b.path) { // only admin.address is here without being in the file
				d.fault(a.path, "%q overlaps the default of %s, %q: both would listen on port %d; wanted ports of its own",
					a.text, b.path, b.text, port)
				continue
			}
			d.fault(b.path, "%q overlaps %s, %q (line %d): both would listen on port %d; wanted ports of its own",
				b.text, a.path, a.text, d.places[a.path].line, port)
			break
		}
	}
}

// loops refuses broker addresses that are the proxy's own: it would connect to itself.
func (d *decoder) loops(c *Config, binds []bind) {
	check := func(path string, broker HostPort) {
		if !d.given(path) {
			return
		}
		for _, b := range binds {
			if broker.Port >= b.ports.First && broker.Port <= b.ports.Last && serves(b.ports.Host, broker.Host) {
				d.fault(path, "%q is where %s listens (line %d): tiergate would connect to itself; wanted the address of a broker",
					broker, b.path, d.places[b.path].line)
				return
			}
		}
	}
	for i, a := range c.Upstream.BootstrapServers {
		check(fmt.Sprintf("upstream.bootstrap_servers[%d]", i), a)
	}
	for i, l := range c.Listeners {
		for _, r := range l.Direct {
			check(routePath(fmt.Sprintf("listeners[%d].direct", i), r.key), r.Broker)
		}
	}
}

// hostKey brings the spellings of one host together.
func hostKey(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func addressKey(a HostPort) string {
	return HostPort{Host: hostKey(a.Host), Port: a.Port}.String()
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return hostKey(host) == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// hostsOverlap says whether listening on the same port of both hosts would fail. Names
// other than localhost are not resolved: they are the same only if they are spelled so.
func hostsOverlap(a, b string) bool {
	if isWildcard(a) || isWildcard(b) {
		// "::" takes IPv4 as well; "0.0.0.0" leaves IPv6 alone.
		return isWildcard(a) && isWildcard(b) || !isV4Wildcard(a) && !isV4Wildcard(b) || !isV6(a) && !isV6(b)
	}
	return hostKey(a) == hostKey(b) ||
		(hostKey(a) == "localhost" || hostKey(b) == "localhost") && isLoopback(a) && isLoopback(b)
}

func isV6(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().Is6()
}

func isV4Wildcard(host string) bool { return isWildcard(host) && !isV6(host) }

// serves says whether a connection to the host dialled ends at a listener bound to host.
func serves(bound, dialled string) bool {
	if isWildcard(bound) {
		return isLoopback(dialled)
	}
	return hostsOverlap(bound, dialled)
}

// minFrameLimit keeps a limit that lacks its unit (32 for 32MiB) from being taken for
// bytes; ApiVersions and Metadata answers of a small cluster are below it.
const minFrameLimit = 64 << 10

func (d *decoder) numbers(c *Config) {
	for _, n := range []struct {
		path   string
		value  int64
		wanted string
		why    string
	}{
		{"upstream.metadata_refresh", int64(c.Upstream.MetadataRefresh), wantDuration, "brokers would be asked without a pause"},
		{"tiering.verdict_ttl", int64(c.Tiering.VerdictTTL), wantDuration, "brokers would be asked again for every -6"},
		{"tiering.unknown_ttl", int64(c.Tiering.UnknownTTL), wantDuration, "a look-up that is denied would be repeated for every -6"},
		{"tiering.max_topics", int64(c.Tiering.MaxTopics), "a number of topics above zero", "no verdict could be remembered"},
		{"limits.max_request_bytes", int64(c.Limits.MaxRequestBytes), wantSize, "no request would be let through"},
		{"limits.max_response_bytes", int64(c.Limits.MaxResponseBytes), wantSize, "no response would be let through"},
		{"limits.max_held_bytes", int64(c.Limits.MaxHeldBytes), wantSize, "no answer could be changed"},
		{"limits.max_buffered_bytes", int64(c.Limits.MaxBufferedBytes), wantSize, "no answer could be changed"},
		{"limits.max_inflight", int64(c.Limits.MaxInflight), "a number of requests above zero", "no request would be read"},
		{"limits.max_handshakes", int64(c.Limits.MaxHandshakes), "a number of handshakes above zero", "no client could speak TLS"},
		{"limits.handshake_timeout", int64(c.Limits.HandshakeTimeout), wantDuration, "no handshake could end in time"},
		{"limits.dial_timeout", int64(c.Limits.DialTimeout), wantDuration, "no broker could be reached in time"},
		{"limits.verdict_timeout", int64(c.Limits.VerdictTimeout), wantDuration, "every look-up would end as unknown"},
		{"limits.linger_timeout", int64(c.Limits.LingerTimeout), wantDuration, "a connection would be cut before its last answer"},
		{"limits.drain_timeout", int64(c.Limits.DrainTimeout), wantDuration, "no exchange could end before the proxy stops (a second signal stops it at once)"},
	} {
		if d.given(n.path) && n.value <= 0 {
			d.fault(n.path, "%q is not above zero: %s; wanted %s", d.texts[n.path], n.why, n.wanted)
		}
	}
	for _, n := range []struct {
		path  string
		value int64
		means string
	}{
		{"limits.max_pipes", int64(c.Limits.MaxPipes), "none, so that bytes are copied"},
		{"limits.max_sessions", int64(c.Limits.MaxSessions), "no bound"},
		{"limits.max_sessions_per_client", int64(c.Limits.MaxSessionsPerClient), "no bound"},
		{"limits.accept_rate", int64(c.Limits.AcceptRate), "no bound"},
		{"limits.idle_timeout", int64(c.Limits.IdleTimeout), "never"},
	} {
		if d.given(n.path) && n.value < 0 {
			d.fault(n.path, "%q is below zero; wanted a number above it, or 0 for %s", d.texts[n.path], n.means)
		}
	}
	d.bufferLimit(c.Limits)
	d.frameLimit("limits.max_request_bytes", c.Limits.MaxRequestBytes)
	d.frameLimit("limits.max_response_bytes", c.Limits.MaxResponseBytes)
	d.frameLimit("limits.max_held_bytes", c.Limits.MaxHeldBytes)
}

// bufferLimit refuses a bound for all connections that one frame of one would break.
func (d *decoder) bufferLimit(l Limits) {
	path := "limits.max_buffered_bytes"
	if d.faulty[path] || d.faulty["limits.max_held_bytes"] || l.MaxBufferedBytes >= l.MaxHeldBytes {
		return
	}
	if !d.given(path) {
		path = "limits.max_held_bytes"
	}
	d.fault(path, "%q: max_buffered_bytes (%v) is less than max_held_bytes (%v), so that a frame could never be as large as allowed; "+
		"wanted several times as much", d.texts[path], l.MaxBufferedBytes, l.MaxHeldBytes)
}

func (d *decoder) frameLimit(path string, size Size) {
	switch {
	case !d.given(path):
	case size < minFrameLimit:
		d.fault(path, "%q is less than 64KiB, which not even Metadata of a small cluster fits in; wanted %s", d.texts[path], wantSize)
	case size > maxFrameSize:
		d.fault(path, "%q is more than %d, the most that the size field of a Kafka frame can say; wanted that at the most",
			d.texts[path], maxFrameSize)
	}
}
