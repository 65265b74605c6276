// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"tiergate/codec"
	"tiergate/internal/strictyaml"
)

// validate checks what single values cannot show. It skips values that were reported
// already.
func (d *decoder) validate(c *Config) {
	d.alternative(c)
	for i := range c.Clusters {
		if d.Given(fmt.Sprintf("clusters[%d]", i)) {
			d.clusterName(c, i)
		}
	}
	names := map[Name]string{}
	for _, at := range d.clusters(c) {
		d.cluster(at, names)
	}
	d.advertisedTwice(c)
	binds := d.binds(c)
	d.overlaps(binds)
	d.loops(c, binds)
	d.limits(c.Limits)
}

// located is a cluster and where it stands: the empty path is the top of the file.
type located struct {
	path string
	NamedCluster
}

// clusters returns those that the file means, as far as it can be told.
func (d *decoder) clusters(c *Config) []located {
	if !d.present("clusters") {
		return []located{{NamedCluster: NamedCluster{Cluster: c.Cluster}}}
	}
	var all []located
	for i, one := range c.Clusters {
		if path := fmt.Sprintf("clusters[%d]", i); d.Given(path) {
			all = append(all, located{path, one})
		}
	}
	return all
}

// alternative refuses clusters beside the keys of a single one.
func (d *decoder) alternative(c *Config) {
	if !d.present("clusters") {
		return
	}
	for _, f := range strictyaml.FieldsOf(reflect.TypeFor[Cluster]()) {
		if d.Given(f.Key) {
			d.Fault(f.Key, "stands beside clusters (line %d); move it into one of them, or do without clusters", d.Places["clusters"].Line)
		}
	}
	if d.Given("clusters") && len(c.Clusters) == 0 {
		d.Fault("clusters", "is empty; wanted one cluster at the least, or its keys at the top of the file")
	}
}

func (d *decoder) clusterName(c *Config, i int) {
	path := fmt.Sprintf("clusters[%d].name", i)
	if d.Missing(path) {
		d.Fault(path, "is missing; wanted %s", wantName)
	}
	if !d.Given(path) {
		return
	}
	for j, other := range c.Clusters[:i] {
		if other.Name == c.Clusters[i].Name {
			first := fmt.Sprintf("clusters[%d]", j)
			d.Fault(path, "%q is the name of %s already (line %d); wanted a name of its own", other.Name, first, d.Places[first+".name"].Line)
			return
		}
	}
}

// cluster checks one cluster; names are those of the listeners before.
func (d *decoder) cluster(c located, names map[Name]string) {
	d.bootstrapServers(c.path, c.Upstream.BootstrapServers)
	d.listeners(strictyaml.Join(c.path, "listeners"), c.Listeners, names)
	d.positive([]positive{
		{strictyaml.Join(c.path, "upstream.metadata_refresh"), int64(c.Upstream.MetadataRefresh), wantDuration, "brokers would be asked without a pause"},
		{strictyaml.Join(c.path, "tiering.status_ttl"), int64(c.Tiering.StatusTTL), wantDuration, "brokers would be asked again for every -6"},
		{strictyaml.Join(c.path, "tiering.unknown_ttl"), int64(c.Tiering.UnknownTTL), wantDuration, "a lookup that is denied would be repeated for every -6"},
		{strictyaml.Join(c.path, "tiering.max_topics"), int64(c.Tiering.MaxTopics), "a number of topics above zero", "no topic could be remembered"},
		{strictyaml.Join(c.path, "tiering.max_tiered_partitions"), int64(c.Tiering.MaxTieredPartitions), "a number of partitions above zero", "no tiered offset could be known"},
		{strictyaml.Join(c.path, "tiering.max_in_flight_segments"), int64(c.Tiering.MaxInFlightSegments), "a number of segments above zero", "no upload could be followed to its end"},
	})
	d.security(c)
	for i, topic := range c.Tiering.TieredTopics {
		path := fmt.Sprintf("%s[%d]", strictyaml.Join(c.path, "tiering.tiered_topics"), i)
		if d.Given(path) && codec.NeverTiered(string(topic)) {
			d.Fault(path, "%q is an internal topic, which Kafka never tiers; wanted topics of your own", topic)
		}
	}
}

func (d *decoder) bootstrapServers(cluster string, servers []HostPort) {
	upstream := strictyaml.Join(cluster, "upstream")
	path := strictyaml.Join(upstream, "bootstrap_servers")
	if d.Missing(upstream) || d.Given(upstream) && d.Missing(path) {
		d.Fault(path, `is missing; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`)
		return
	}
	if d.Given(path) && len(servers) == 0 {
		d.Fault(path, "is empty; wanted one broker at the least, better three")
	}
	seen := map[string]string{}
	for i, a := range servers {
		item := fmt.Sprintf("%s[%d]", path, i)
		if !d.Given(item) {
			continue
		}
		d.brokerAddress(item, a)
		if first, ok := seen[addressKey(a)]; ok {
			d.Fault(item, "%q is the same as %s; keep one of them", a, first)
			continue
		}
		seen[addressKey(a)] = item
	}
}

// brokerAddress refuses a broker address that names no place.
func (d *decoder) brokerAddress(path string, a HostPort) {
	if isWildcard(a.Host) {
		d.Fault(path, "%q is a wildcard, which nobody can connect to; wanted the broker's own host:port", a)
	}
}

// present says whether the file has the key at all, right or wrong.
func (d *decoder) present(path string) bool { return !d.Missing(path) }

// bind is a run of ports that the configuration wants to listen on.
type bind struct {
	path  string
	ports PortRange
	text  string
}

func (d *decoder) binds(c *Config) []bind {
	var all []bind
	one := func(path string, a HostPort) {
		if d.Given(path) {
			all = append(all, bind{path, PortRange{Host: a.Host, First: a.Port, Last: a.Port}, a.String()})
		}
	}
	for _, at := range d.clusters(c) {
		for i, l := range at.Listeners {
			item := fmt.Sprintf("%s[%d]", strictyaml.Join(at.path, "listeners"), i)
			one(item+".bootstrap", l.Bootstrap)
			if d.Given(item + ".nodes") {
				all = append(all, bind{item + ".nodes", l.Nodes, l.Nodes.String()})
			}
			for _, a := range l.NodeAddresses {
				one(nodePath(item+".node_addresses", a.key)+".bind", a.Bind)
			}
			if l.SNI != nil {
				one(item+".sni.bind", l.SNI.Bind)
			}
			for _, r := range l.Direct {
				one(routePath(item+".direct", r.key), r.Listen)
			}
		}
	}
	if !d.Faulty["admin"] && !d.Faulty["admin.address"] {
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
			if !d.Given(b.path) { // only admin.address is here without being in the file
				d.Fault(a.path, "%q overlaps the default of %s, %q: both would listen on port %d; wanted ports of its own",
					a.text, b.path, b.text, port)
				continue
			}
			d.Fault(b.path, "%q overlaps %s, %q (line %d): both would listen on port %d; wanted ports of its own",
				b.text, a.path, a.text, d.Places[a.path].Line, port)
			break
		}
	}
}

// loops refuses broker addresses that are the proxy's own: it would connect to itself.
func (d *decoder) loops(c *Config, binds []bind) {
	check := func(path string, broker HostPort) {
		if !d.Given(path) {
			return
		}
		for _, b := range binds {
			if broker.Port >= b.ports.First && broker.Port <= b.ports.Last && serves(b.ports.Host, broker.Host) {
				d.Fault(path, "%q is where %s listens (line %d): tiergate would connect to itself; wanted the address of a broker",
					broker, b.path, d.Places[b.path].Line)
				return
			}
		}
	}
	for _, at := range d.clusters(c) {
		for i, a := range at.Upstream.BootstrapServers {
			path := fmt.Sprintf("%s[%d]", strictyaml.Join(at.path, "upstream.bootstrap_servers"), i)
			check(path, a)
			for _, addr := range at.Upstream.Hosts.Lookup(a.Host) {
				check(path, HostPort{Host: addr.String(), Port: a.Port})
			}
		}
		for i, l := range at.Listeners {
			for _, r := range l.Direct {
				check(routePath(fmt.Sprintf("%s[%d].direct", strictyaml.Join(at.path, "listeners"), i), r.key), r.Broker)
			}
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

// positive is a number that must be above zero.
type positive struct {
	path   string
	value  int64
	wanted string
	why    string
}

func (d *decoder) positive(numbers []positive) {
	for _, n := range numbers {
		if d.Given(n.path) && n.value <= 0 {
			d.Fault(n.path, "%q is not above zero: %s; wanted %s", d.texts[n.path], n.why, n.wanted)
		}
	}
}

func (d *decoder) limits(l Limits) {
	d.positive([]positive{
		{"limits.max_request_bytes", int64(l.MaxRequestBytes), wantSize, "no request would be let through"},
		{"limits.max_response_bytes", int64(l.MaxResponseBytes), wantSize, "no response would be let through"},
		{"limits.max_held_bytes", int64(l.MaxHeldBytes), wantSize, "no answer could be changed"},
		{"limits.max_unauthenticated_bytes", int64(l.MaxUnauthenticatedBytes), wantSize, "no client could begin with ListOffsets"},
		{"limits.max_buffered_bytes", int64(l.MaxBufferedBytes), wantSize, "no answer could be changed"},
		{"limits.max_inflight", int64(l.MaxInflight), "a number of requests above zero", "no request would be read"},
		{"limits.max_handshakes", int64(l.MaxHandshakes), "a number of handshakes above zero", "no client could speak TLS"},
		{"limits.max_pending_connections", int64(l.MaxPendingConnections), "a number of connections above zero", "no client could speak TLS"},
		{"limits.handshake_timeout", int64(l.HandshakeTimeout), wantDuration, "no handshake could end in time"},
		{"limits.dial_timeout", int64(l.DialTimeout), wantDuration, "no broker could be reached in time"},
		{"limits.remote_storage_timeout", int64(l.RemoteStorageTimeout), wantDuration, "every look-up would end as unknown"},
		{"limits.first_request_timeout", int64(l.FirstRequestTimeout), wantDuration, "no client could send its first request in time"},
		{"limits.progress_timeout", int64(l.ProgressTimeout), wantDuration, "no frame could be complete in time"},
		{"limits.lookup_timeout", int64(l.LookupTimeout), wantDuration, "no broker could respond in time"},
		{"limits.linger_timeout", int64(l.LingerTimeout), wantDuration, "a connection would be cut before its last answer"},
		{"limits.drain_timeout", int64(l.DrainTimeout), wantDuration, "no exchange could end before the proxy stops (a second signal stops it at once)"},
	})
	for _, n := range []struct {
		path  string
		value int64
		means string
	}{
		{"limits.max_pipes", int64(l.MaxPipes), "none, so that bytes are copied"},
		{"limits.max_sessions", int64(l.MaxSessions), "no bound"},
		{"limits.max_sessions_per_client", int64(l.MaxSessionsPerClient), "no bound"},
		{"limits.accept_rate", int64(l.AcceptRate), "no bound"},
		{"limits.idle_timeout", int64(l.IdleTimeout), "never"},
	} {
		if d.Given(n.path) && n.value < 0 {
			d.Fault(n.path, "%q is below zero; wanted a number above it, or 0 for %s", d.texts[n.path], n.means)
		}
	}
	d.bufferLimit(l)
	d.frameLimit("limits.max_request_bytes", l.MaxRequestBytes)
	d.frameLimit("limits.max_response_bytes", l.MaxResponseBytes)
	d.frameLimit("limits.max_held_bytes", l.MaxHeldBytes)
}

// bufferLimit refuses a bound for all connections that one frame of one would break.
func (d *decoder) bufferLimit(l Limits) {
	path := "limits.max_buffered_bytes"
	if d.Faulty[path] || d.Faulty["limits.max_held_bytes"] || l.MaxBufferedBytes >= l.MaxHeldBytes {
		return
	}
	if !d.Given(path) {
		path = "limits.max_held_bytes"
	}
	d.Fault(path, "%q: max_buffered_bytes (%v) is less than max_held_bytes (%v), so that a frame could never be as large as allowed; "+
		"wanted several times as much", d.texts[path], l.MaxBufferedBytes, l.MaxHeldBytes)
}

func (d *decoder) frameLimit(path string, size Size) {
	switch {
	case !d.Given(path):
	case size < minFrameLimit:
		d.Fault(path, "%q is less than 64KiB, which not even Metadata of a small cluster fits in; wanted %s", d.texts[path], wantSize)
	case size > maxFrameSize:
		d.Fault(path, "%q is more than %d, the most that the size field of a Kafka frame can say; wanted that at the most",
			d.texts[path], maxFrameSize)
	}
}
