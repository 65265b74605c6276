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

// validate checks rules that concern several values. It skips values that are reported
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

// located is a cluster and its path, which is empty for the top level of the file.
type located struct {
	path string
	NamedCluster
}

// clusters returns the clusters of the file, without those that are invalid.
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

// alternative rejects clusters together with the keys of a single cluster.
func (d *decoder) alternative(c *Config) {
	if !d.present("clusters") {
		return
	}
	for _, f := range strictyaml.FieldsOf(reflect.TypeFor[Cluster]()) {
		if d.Given(f.Key) {
			d.Fault(f.Key, "conflicts with clusters (line %d): move it into one of the clusters, or remove clusters", d.Places["clusters"].Line)
		}
	}
	if d.Given("clusters") && len(c.Clusters) == 0 {
		d.Fault("clusters", "empty list: want at least one cluster, or the keys of one cluster at the top level")
	}
}

func (d *decoder) clusterName(c *Config, i int) {
	path := fmt.Sprintf("clusters[%d].name", i)
	if d.Missing(path) {
		d.Fault(path, "missing: want %s", wantName)
	}
	if !d.Given(path) {
		return
	}
	for j, other := range c.Clusters[:i] {
		if other.Name == c.Clusters[i].Name {
			first := fmt.Sprintf("clusters[%d]", j)
			d.Fault(path, "duplicate name %q, already used by %s (line %d): want a unique name", other.Name, first, d.Places[first+".name"].Line)
			return
		}
	}
}

// cluster checks one cluster; names are those of the earlier listeners.
func (d *decoder) cluster(c located, names map[Name]string) {
	d.bootstrapServers(c.path, c.Upstream.BootstrapServers)
	d.listeners(strictyaml.Join(c.path, "listeners"), c.Listeners, names)
	d.positive([]positive{
		{strictyaml.Join(c.path, "upstream.metadata_refresh"), int64(c.Upstream.MetadataRefresh), wantDuration, "brokers are queried without a pause"},
		{strictyaml.Join(c.path, "tiering.status_ttl"), int64(c.Tiering.StatusTTL), wantDuration, "brokers are queried for every -6 request"},
		{strictyaml.Join(c.path, "tiering.unknown_ttl"), int64(c.Tiering.UnknownTTL), wantDuration, "a lookup that failed is repeated for every -6 request"},
		{strictyaml.Join(c.path, "tiering.max_topics"), int64(c.Tiering.MaxTopics), "a positive number of topics", "no status is cached"},
		{strictyaml.Join(c.path, "tiering.max_tiered_partitions"), int64(c.Tiering.MaxTieredPartitions), "a positive number of partitions", "no tiered offset is known"},
		{strictyaml.Join(c.path, "tiering.max_in_flight_segments"), int64(c.Tiering.MaxInFlightSegments), "a positive number of segments", "no upload is recorded"},
	})
	d.security(c)
	for i, topic := range c.Tiering.TieredTopics {
		path := fmt.Sprintf("%s[%d]", strictyaml.Join(c.path, "tiering.tiered_topics"), i)
		if d.Given(path) && codec.NeverTiered(string(topic)) {
			d.Fault(path, "invalid topic %q: Kafka never tiers its internal topics; remove it", topic)
		}
	}
}

func (d *decoder) bootstrapServers(cluster string, servers []HostPort) {
	upstream := strictyaml.Join(cluster, "upstream")
	path := strictyaml.Join(upstream, "bootstrap_servers")
	if d.Missing(upstream) || d.Given(upstream) && d.Missing(path) {
		d.Fault(path, `missing: want a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`)
		return
	}
	if d.Given(path) && len(servers) == 0 {
		d.Fault(path, "empty list: want at least one broker, better three")
	}
	seen := map[string]string{}
	for i, a := range servers {
		item := fmt.Sprintf("%s[%d]", path, i)
		if !d.Given(item) {
			continue
		}
		d.brokerAddress(item, a)
		if first, ok := seen[addressKey(a)]; ok {
			d.Fault(item, "duplicate address %q, already given as %s: remove one of them", a, first)
			continue
		}
		seen[addressKey(a)] = item
	}
}

// brokerAddress rejects a wildcard as the address of a broker.
func (d *decoder) brokerAddress(path string, a HostPort) {
	if isWildcard(a.Host) {
		d.Fault(path, "invalid address %q: nobody can connect to a wildcard; want the host:port of the broker", a)
	}
}

// present reports whether the file has the key, valid or not.
func (d *decoder) present(path string) bool { return !d.Missing(path) }

// bind is a range of ports to listen on.
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
			if !d.Given(b.path) { // only admin.address has a default
				d.Fault(a.path, "conflict: %q overlaps the default of %s, %q, at port %d; want other ports",
					a.text, b.path, b.text, port)
				continue
			}
			d.Fault(b.path, "conflict: %q overlaps %s, %q (line %d), at port %d; want other ports",
				b.text, a.path, a.text, d.Places[a.path].Line, port)
			break
		}
	}
}

// loops rejects broker addresses that tiergate listens on: it would connect to itself.
func (d *decoder) loops(c *Config, binds []bind) {
	check := func(path string, broker HostPort) {
		if !d.Given(path) {
			return
		}
		for _, b := range binds {
			if broker.Port >= b.ports.First && broker.Port <= b.ports.Last && serves(b.ports.Host, broker.Host) {
				d.Fault(path, "invalid broker address %q: tiergate itself listens there (%s, line %d); want the address of a broker",
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

// hostKey is the same for all spellings of one host.
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

// hostsOverlap reports whether listening on the same port of both hosts fails. Names other
// than localhost are not resolved: they overlap only if they are equal.
func hostsOverlap(a, b string) bool {
	if isWildcard(a) || isWildcard(b) {
		// "::" includes IPv4; "0.0.0.0" does not include IPv6.
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

// serves reports whether a connection to the host dialled reaches a listener on bound.
func serves(bound, dialled string) bool {
	if isWildcard(bound) {
		return isLoopback(dialled)
	}
	return hostsOverlap(bound, dialled)
}

// minFrameLimit detects a limit without its unit (32 for 32MiB). The ApiVersions and Metadata
// responses of a small cluster are smaller.
const minFrameLimit = 64 << 10

// positive is a number that must be above zero. otherwise is the effect of a smaller one.
type positive struct {
	path      string
	value     int64
	wanted    string
	otherwise string
}

func (d *decoder) positive(numbers []positive) {
	for _, n := range numbers {
		if d.Given(n.path) && n.value <= 0 {
			d.Fault(n.path, "invalid value %q: want %s; otherwise %s", d.texts[n.path], n.wanted, n.otherwise)
		}
	}
}

func (d *decoder) limits(l Limits) {
	d.positive([]positive{
		{"limits.max_request_bytes", int64(l.MaxRequestBytes), wantPositiveSize, "every request is rejected"},
		{"limits.max_response_bytes", int64(l.MaxResponseBytes), wantPositiveSize, "every response is rejected"},
		{"limits.max_held_bytes", int64(l.MaxHeldBytes), wantPositiveSize, "no response can be changed"},
		{"limits.max_unauthenticated_bytes", int64(l.MaxUnauthenticatedBytes), wantPositiveSize, "no client can send ListOffsets first"},
		{"limits.max_buffered_bytes", int64(l.MaxBufferedBytes), wantPositiveSize, "no response can be changed"},
		{"limits.max_inflight", int64(l.MaxInflight), "a positive number of requests", "no request is read"},
		{"limits.max_handshakes", int64(l.MaxHandshakes), "a positive number of handshakes", "no client can use TLS"},
		{"limits.max_pending_connections", int64(l.MaxPendingConnections), "a positive number of connections", "no client can use TLS"},
		{"limits.handshake_timeout", int64(l.HandshakeTimeout), wantDuration, "every handshake times out"},
		{"limits.dial_timeout", int64(l.DialTimeout), wantDuration, "every dial times out"},
		{"limits.remote_storage_timeout", int64(l.RemoteStorageTimeout), wantDuration, "every lookup times out"},
		{"limits.first_request_timeout", int64(l.FirstRequestTimeout), wantDuration, "every client times out"},
		{"limits.progress_timeout", int64(l.ProgressTimeout), wantDuration, "every frame times out"},
		{"limits.lookup_timeout", int64(l.LookupTimeout), wantDuration, "every lookup request times out"},
		{"limits.linger_timeout", int64(l.LingerTimeout), wantDuration, "connections are closed before their last response"},
		{"limits.drain_timeout", int64(l.DrainTimeout), wantDuration, "open exchanges are cut off at the stop (a second signal stops at once too)"},
	})
	for _, n := range []struct {
		path  string
		value int64
		means string
	}{
		{"limits.max_pipes", int64(l.MaxPipes), "no pipes, bytes are copied"},
		{"limits.max_sessions", int64(l.MaxSessions), "unlimited"},
		{"limits.max_sessions_per_client", int64(l.MaxSessionsPerClient), "unlimited"},
		{"limits.accept_rate", int64(l.AcceptRate), "unlimited"},
		{"limits.idle_timeout", int64(l.IdleTimeout), "never"},
	} {
		if d.Given(n.path) && n.value < 0 {
			d.Fault(n.path, "invalid value %q: want 0 (%s) or more", d.texts[n.path], n.means)
		}
	}
	d.bufferLimit(l)
	d.frameLimit("limits.max_request_bytes", l.MaxRequestBytes)
	d.frameLimit("limits.max_response_bytes", l.MaxResponseBytes)
	d.frameLimit("limits.max_held_bytes", l.MaxHeldBytes)
}

// bufferLimit rejects a bound for all connections that is below the bound for one frame.
func (d *decoder) bufferLimit(l Limits) {
	path := "limits.max_buffered_bytes"
	if d.Faulty[path] || d.Faulty["limits.max_held_bytes"] || l.MaxBufferedBytes >= l.MaxHeldBytes {
		return
	}
	if !d.Given(path) {
		path = "limits.max_held_bytes"
	}
	d.Fault(path, "invalid value %q: max_buffered_bytes (%v) is less than max_held_bytes (%v), which bounds a single frame; "+
		"want several times max_held_bytes", d.texts[path], l.MaxBufferedBytes, l.MaxHeldBytes)
}

func (d *decoder) frameLimit(path string, size Size) {
	switch {
	case !d.Given(path):
	case size < minFrameLimit:
		d.Fault(path, "invalid size %q: too small for the Metadata response of a small cluster; want 64KiB or more: %s", d.texts[path], wantSize)
	case size > maxFrameSize:
		d.Fault(path, "invalid size %q: want at most %d, the limit of the size field of a Kafka frame",
			d.texts[path], maxFrameSize)
	}
}
