// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// inFolder parses a file in a folder with certificates.
func inFolder(t *testing.T, yaml string) *Config {
	t.Helper()
	c, err := Parse(filepath.Join(certificateFiles(t), "tiergate.yaml"), []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestListenerKinds(t *testing.T) {
	c := inFolder(t, `
upstream: {bootstrap_servers: [kafka-0:9092]}
listeners:
  - {name: range, bootstrap: "h:1", nodes: "h:2-3", advertised_host: h, unmapped_nodes: hide}
  - name: addresses
    bootstrap: "0.0.0.0:4"
    unmapped_nodes: passthrough
    node_addresses:
      2147483647: {bind: "0.0.0.0:5", advertised: "[2001:db8::1]:9092"}
      0:
        bind: 0.0.0.0:6
        advertised: kafka-0.example.com:9092
      7: 10.0.0.7:7
      8: {bind: "10.0.0.7:8"}
  - name: in-braces
    bootstrap: "0.0.0.0:9"
    node_addresses: {0: kafka-0:10, 1: "kafka-1:11", 2: {bind: "kafka-2:12"}}
  - name: names
    sni: {bind: "0.0.0.0:13", bootstrap_host: Kafka.example.com, node_host: B$(node_id).Kafka.example.com}
    tls: {cert_file: a.pem, key_file: a.key}
  - name: behind-a-balancer
    sni: {bind: "0.0.0.0:14", bootstrap_host: kafka.example.com, node_host: "$(node_id).example.com", advertised_port: 443}
    tls: {cert_file: a.pem, key_file: a.key}
  - {name: direct, direct: {"h:15": "k:1"}}
`)
	var got []string
	for _, l := range c.Listeners {
		line := fmt.Sprintf("%s: %d, %s", l.Name, l.Kind(), l.UnmappedNodes)
		for _, a := range l.NodeAddresses {
			line += fmt.Sprintf(", %d at %v advertised %v", a.NodeID, a.Bind, a.Advertised)
		}
		if s := l.SNI; s != nil {
			line += fmt.Sprintf(", %v %s %v %s %d", s.Bind, s.BootstrapHost, s.NodeHost, s.NodeHost.Host(12), s.AdvertisedPort)
		}
		got = append(got, line)
	}
	want := []string{
		"range: 0, hide",
		"addresses: 1, passthrough, 2147483647 at 0.0.0.0:5 advertised [2001:db8::1]:9092, 0 at 0.0.0.0:6 advertised kafka-0.example.com:9092, " +
			"7 at 10.0.0.7:7 advertised 10.0.0.7:7, 8 at 10.0.0.7:8 advertised 10.0.0.7:8",
		"in-braces: 1, reject, 0 at kafka-0:10 advertised kafka-0:10, 1 at kafka-1:11 advertised kafka-1:11, 2 at kafka-2:12 advertised kafka-2:12",
		"names: 2, reject, 0.0.0.0:13 Kafka.example.com b$(node_id).kafka.example.com b12.kafka.example.com 13",
		"behind-a-balancer: 2, reject, 0.0.0.0:14 kafka.example.com $(node_id).example.com 12.example.com 443",
		"direct: 3, reject",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKindFaults(t *testing.T) {
	f := func(listener string, want ...string) {
		t.Helper()
		wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- "+listener+"\n", want...)
	}

	f(`{name: a, bootstrap: "h:1", nodes: "h:2-3", advertised_host: h, unmapped_nodes: drop}`,
		`f:3:83: listeners[0].unmapped_nodes: invalid value "drop": want reject, hide or passthrough`)
	f(`{name: a, direct: {"h:1": "k:1"}, unmapped_nodes: hide}`,
		`f:3:53: listeners[0].unmapped_nodes: has no effect with direct, which rewrites no address: remove it`)
	f(`{name: a, bootstrap: "h:1", nodes: "h:2-3", advertised_host: h, node_addresses: {0: "h:4"}}`,
		`f:3:83: listeners[0].node_addresses: conflicts with nodes: `+wantKind)
	f(`{name: a, bootstrap: "h:1", node_addresses: {0: "h:4"}, advertised_host: h, first_node_id: 3}`,
		`f:3:76: listeners[0].advertised_host: has no effect with node_addresses, which gives every node its own address: remove it`,
		`f:3:94: listeners[0].first_node_id: has no effect with node_addresses, which gives every node its own address: remove it`)
	f(`{name: a, node_addresses: {0: "h:4"}}`,
		`f:3:3: listeners[0].bootstrap: missing: want the host:port that clients connect to first, e.g. "127.0.0.1:9192"`)
}

func TestNodeAddressFaults(t *testing.T) {
	const wanted = `a mapping of node id to address, e.g. {0: "kafka-0.example.com:9092"}, or to {bind: "0.0.0.0:9200", advertised: "kafka-0.example.com:9092"}`
	f := func(nodes string, want ...string) {
		t.Helper()
		wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- name: a\n  bootstrap: h:1\n  node_addresses:\n"+nodes, want...)
	}

	f("    {}\n", `f:6:5: listeners[0].node_addresses: invalid value (an empty mapping): want `+wanted)
	f("    - h:2\n", `f:6:5: listeners[0].node_addresses: invalid value (a list): want `+wanted)
	f("    h:2\n", `f:6:5: listeners[0].node_addresses: invalid value "h:2" (text): want `+wanted)
	f("    -1: h:2\n    01: h:3\n    b: h:4\n    2147483648: h:5\n",
		`f:6:5: listeners[0].node_addresses[-1]: invalid node id "-1": want an integer from 0 to 2147483647`,
		`f:7:5: listeners[0].node_addresses[01]: invalid node id "01": want an integer from 0 to 2147483647`,
		`f:8:5: listeners[0].node_addresses[b]: invalid node id "b": want an integer from 0 to 2147483647`,
		`f:9:5: listeners[0].node_addresses[2147483648]: invalid node id "2147483648": want an integer from 0 to 2147483647`)
	f("    3: h\n    4: 9200\n    5:\n    6: {}\n    7: {advertised: h:7}\n    8: {bind: h:8, port: 3}\n    9: {bind: h, advertised: 5}\n",
		`f:6:8: listeners[0].node_addresses[3]: invalid address "h": missing port; want host:port, e.g. "kafka-0:9092"`,
		`f:7:8: listeners[0].node_addresses[4]: invalid value 9200 (a number): want host:port, e.g. "kafka-0:9092"`,
		`f:8:7: listeners[0].node_addresses[5]: missing value: want host:port, e.g. "kafka-0:9092", or remove the key`,
		`f:9:5: listeners[0].node_addresses[6].bind: missing: want the host:port to listen on for this node, e.g. "0.0.0.0:9200"`,
		`f:10:5: listeners[0].node_addresses[7].bind: missing: want the host:port to listen on for this node, e.g. "0.0.0.0:9200"`,
		`f:11:20: listeners[0].node_addresses[8].port: unknown key: want one of bind, advertised`,
		`f:12:15: listeners[0].node_addresses[9].bind: invalid address "h": missing port; want host:port, e.g. "kafka-0:9092"`,
		`f:12:30: listeners[0].node_addresses[9].advertised: invalid value 5 (a number): want host:port, e.g. "kafka-0:9092"`)
	f("    3: h:2\n    3: h:3\n", `f:7:5: listeners[0].node_addresses[3]: duplicate key, first on line 6: remove one of them`)
	f("    3: 0.0.0.0:2\n    4: {bind: h:3, advertised: '[::]:3'}\n",
		`f:6:8: listeners[0].node_addresses[3].bind: invalid address "0.0.0.0:2": clients cannot connect to a wildcard; `+
			`want {bind: "0.0.0.0:2", advertised: host:port that clients connect to}`,
		`f:7:32: listeners[0].node_addresses[4].advertised: invalid address "[::]:3": clients cannot connect to a wildcard; `+
			`want {bind: "h:3", advertised: host:port that clients connect to}`)
	// The same place to listen, and the same advertised address, for two nodes.
	f("    3: h:2\n    4: h:2\n    5: h:1\n",
		`f:7:8: listeners[0].node_addresses[4].bind: conflict: "h:2" overlaps listeners[0].node_addresses[3].bind, "h:2" (line 6), at port 2; want other ports`,
		`f:8:8: listeners[0].node_addresses[5].bind: conflict: "h:1" overlaps listeners[0].bootstrap, "h:1" (line 4), at port 1; want other ports`)
	f("    3: {bind: h:2, advertised: k:9}\n    4: {bind: h:3, advertised: K.:9}\n",
		`f:7:5: listeners[0].node_addresses[4]: conflict: "h:3" advertises K.:9 for node 4, and listeners[0].node_addresses[3] (line 6) for node 3; `+
			`clients identify nodes by address: want other ports or another advertised host`)
}

func TestSNIFaults(t *testing.T) {
	dir := certificateFiles(t)
	file := filepath.Join(dir, "f")
	f := func(listener string, want ...string) {
		t.Helper()
		_, err := Parse(file, []byte("upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- name: a\n"+listener))
		got := "no fault"
		if err != nil {
			got = strings.ReplaceAll(err.Error(), file, "f")
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", listener, got, strings.Join(want, "\n"))
		}
	}
	const tls = "  tls: {cert_file: a.pem, key_file: a.key}\n"
	block := func(host, pattern, more string) string {
		return "  sni: {bind: 'h:1', bootstrap_host: " + host + ", node_host: '" + pattern + "'" + more + "}\n"
	}

	f(tls+block("k.example.com", "b$(node_id).example.com", ""), "no fault")
	f(block("k.example.com", "b$(node_id).example.com", ""),
		"f:4:8: listeners[0].sni: missing tls block: nodes are selected by the server name of the TLS handshake; "+
			"add tls, or give each node its own port (nodes)")
	f(tls+"  sni: {}\n",
		`f:5:8: listeners[0].sni.bind: missing: want the host:port to listen on, e.g. "0.0.0.0:9093"`,
		"f:5:8: listeners[0].sni.bootstrap_host: missing: want the name that clients connect to first, e.g. kafka.example.com",
		"f:5:8: listeners[0].sni.node_host: missing: want a host name with $(node_id) in it once, e.g. b$(node_id).kafka.example.com")
	f(tls+"  sni:\n", "f:5:8: listeners[0].sni: missing keys: want a mapping with the keys bind, bootstrap_host, node_host, advertised_port, "+
		"{} for all defaults, or remove the key")
	f(tls+"  bootstrap: h:2\n  unmapped_nodes: hide\n"+block("k.example.com", "b$(node_id).example.com", ""),
		"f:5:14: listeners[0].bootstrap: has no effect with sni, which has one address for all nodes, and a name for each: remove it",
		"f:6:19: listeners[0].unmapped_nodes: has no effect with sni, which has one address for all nodes, and a name for each: remove it")
	f(tls+block("10.0.0.1", "b$(node_id).example.com", ""),
		`f:5:38: listeners[0].sni.bootstrap_host: invalid host name "10.0.0.1": want a DNS name, e.g. kafka.example.com; a TLS handshake contains no IP address`)
	f(tls+block("B12.example.COM", "b$(node_id).example.com", ""),
		`f:5:38: listeners[0].sni.bootstrap_host: conflict: "B12.example.COM" matches node_host, "b$(node_id).example.com"; want another name`)
	f(tls+block("k.example.com", "b$(node_id).example.com", ", advertised_port: 65536"),
		`f:5:108: listeners[0].sni.advertised_port: invalid port 65536: want 1 to 65535`)
	for pattern, problem := range map[string]string{
		"b.example.com":                        "missing $(node_id)",
		"b$(node_id).$(node_id)":               "found $(node_id) twice",
		"b$(node_id).example.com:9093":         "found a port",
		"b$(node_id)..example.com":             `not a host name for node 1073741824: host "b1073741824..example.com" is not a DNS name`,
		"10.0.0.$(node_id)":                    `not a host name for node 1073741824: host "10.0.0.1073741824" is not an IPv4 address`,
		strings.Repeat("b", 54) + "$(node_id)": `not a host name for node 1073741824: host "` + strings.Repeat("b", 54) + `1073741824" is not a DNS name`,
	} {
		more := ""
		if problem == "found a port" {
			more = " (the port is advertised_port, or that of bind)"
		}
		f(tls+block("k.example.com", pattern, ""), `f:5:64: listeners[0].sni.node_host: invalid host name pattern "`+pattern+`": `+problem+"; want "+wantNodePattern+more)
	}
}

const twoClusters = `
clusters:
  - name: orders
    upstream: {bootstrap_servers: [orders-0:9092], metadata_refresh: 7s}
    listeners: [{name: inside, bootstrap: "h:1", nodes: "h:2-3", advertised_host: h}]
  - name: metering
    upstream: {bootstrap_servers: [metering-0:9092]}
    listeners: [{name: outside, bootstrap: "h:4", nodes: "h:5-6", advertised_host: h}]
    earliest_pending_upload: off
    tiering: {max_topics: 3}
admin: {address: "h:7"}
`

func TestClusters(t *testing.T) {
	got, err := Parse("f", []byte(twoClusters))
	if err != nil {
		t.Fatal(err)
	}
	defaults := Defaults().Cluster
	orders, metering := NamedCluster{"orders", defaults}, NamedCluster{"metering", defaults}
	orders.Upstream.BootstrapServers = []HostPort{{"orders-0", 9092}}
	orders.Upstream.MetadataRefresh = 7e9
	metering.Upstream.BootstrapServers = []HostPort{{"metering-0", 9092}}
	metering.EarliestPendingUpload, metering.Tiering.MaxTopics = PendingUploadOff, 3
	listener := Listener{Name: "inside", Bootstrap: HostPort{"h", 1}, Nodes: PortRange{"h", 2, 3}, AdvertisedHost: "h"}
	listener.setDefaults()
	orders.Listeners = []Listener{listener}
	listener.Name, listener.Bootstrap.Port, listener.Nodes.First, listener.Nodes.Last = "outside", 4, 5, 6
	metering.Listeners = []Listener{listener}
	if want := []NamedCluster{orders, metering}; !reflect.DeepEqual(got.All(), want) {
		t.Errorf("got  %+v\nwant %+v", got.All(), want)
	}
	one, err := Parse("f", []byte(issue3))
	if err != nil {
		t.Fatal(err)
	}
	if want := []NamedCluster{{Cluster: one.Cluster}}; !reflect.DeepEqual(one.All(), want) {
		t.Errorf("got  %+v\nwant %+v", one.All(), want)
	}
}

func TestClusterFaults(t *testing.T) {
	f := func(yaml string, want ...string) { t.Helper(); wantFaults(t, yaml, want...) }
	change := func(pairs ...string) string {
		t.Helper()
		yaml := twoClusters
		for i := 0; i < len(pairs); i += 2 {
			if strings.Count(yaml, pairs[i]) != 1 {
				t.Fatalf("%q is not once in the file", pairs[i])
			}
			yaml = strings.Replace(yaml, pairs[i], pairs[i+1], 1)
		}
		return yaml
	}

	f(twoClusters+"upstream: {bootstrap_servers: [k:1]}\ntiering: {max_topics: 4}\nlimits: {max_inflight: 3}\n",
		"f:12:11: upstream: conflicts with clusters (line 3): move it into one of the clusters, or remove clusters",
		"f:13:10: tiering: conflicts with clusters (line 3): move it into one of the clusters, or remove clusters")
	f("clusters: []\n", "f:1:11: clusters: empty list: want at least one cluster, or the keys of one cluster at the top level")
	f("clusters: {}\n", "f:1:11: clusters: invalid value (an empty mapping): want a list of mappings")
	f("clusters: [{}, 3]\n",
		`f:1:12: clusters[0].name: missing: want at most 64 letters, digits, ".", "_" and "-" (quote a number)`,
		`f:1:12: clusters[0].upstream.bootstrap_servers: missing: want a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`,
		`f:1:12: clusters[0].listeners: missing: want at least one listener, with name, bootstrap, nodes and advertised_host, or with name and direct`,
		`f:1:16: clusters[1]: invalid value 3 (a number): want a mapping with the keys name, upstream, listeners, earliest_pending_upload, tiering`)
	f(change("name: metering", "name: orders", "name: outside", "name: inside"),
		`f:6:11: clusters[1].name: duplicate name "orders", already used by clusters[0] (line 3): want a unique name`,
		`f:8:24: clusters[1].listeners[0].name: duplicate name "inside", already used by clusters[0].listeners[0] (line 5): want a unique name`)
	// Ports, advertised addresses and brokers are compared across clusters.
	f(change("h:4", "h:3", "[metering-0:9092]", "[h:1]"),
		`f:7:36: clusters[1].upstream.bootstrap_servers[0]: invalid broker address "h:1": tiergate itself listens there (clusters[0].listeners[0].bootstrap, line 5); want the address of a broker`,
		`f:8:44: clusters[1].listeners[0].bootstrap: conflict: "h:3" overlaps clusters[0].listeners[0].nodes, "h:2-3" (line 5), at port 3; want other ports`)
	f(change(`"h:5-6", advertised_host: h`, `"other:2-3", advertised_host: h`),
		`f:8:58: clusters[1].listeners[0].nodes: conflict: "other:2-3" advertises h:2 for node 0 of clusters[1], and clusters[0].listeners[0].nodes (line 5) for node 0 of clusters[0]; `+
			`clients identify nodes by address: want other ports or another advertised host`)
	f(change("max_topics: 3", "max_topics: 0", "metadata_refresh: 7s", "metadata_refresh: 0s"),
		`f:4:70: clusters[0].upstream.metadata_refresh: invalid value "0s": want `+wantDuration+`; otherwise brokers are queried without a pause`,
		`f:10:27: clusters[1].tiering.max_topics: invalid value "0": want a positive number of topics; otherwise no status is cached`)
	f(change("    tiering:", "    limits: {max_inflight: 1}\n    tiering:"),
		`f:10:5: clusters[1].limits: unknown key here: did you mean "limits"?`)
}

// What is invalid in TLS files and SASL is found in every cluster, and names of files
// begin in the folder of the configuration there too.
func TestClusterSecurity(t *testing.T) {
	dir := certificateFiles(t)
	yaml := strings.NewReplacer(
		"metadata_refresh: 7s", "tls: {ca_file: ca.pem}, sasl: {mechanism: PLAIN, username: me, password_file: password}",
		`"h:5-6", advertised_host: h`, `"h:5-6", advertised_host: h, tls: {cert_file: a.pem, key_file: b.key}`,
	).Replace(twoClusters)
	file := filepath.Join(dir, "f")
	_, err := Parse(file, []byte(yaml))
	want := file + `:8:121: clusters[1].listeners[0].tls.key_file: "` + filepath.Join(dir, "b.key") + `" is not the key of the certificate in "` + filepath.Join(dir, "a.pem") + `"; want the matching key`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	c, err := Parse(file, []byte(strings.Replace(yaml, "b.key", "a.key", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.Clusters[0].Upstream.TLS.CAFile), filepath.Join(dir, "ca.pem"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if password, err := c.Clusters[0].Upstream.SASL.Password(); password != "secret" || err != nil {
		t.Errorf("got %q, %v", password, err)
	}
	if _, err := os.Stat(string(c.Clusters[1].Listeners[0].TLS.KeyFile)); err != nil {
		t.Error(err)
	}
}
