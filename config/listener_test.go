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

// inFolder parses a file that stands in a folder with certificates.
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
			line += fmt.Sprintf(", %d at %v told %v", a.NodeID, a.Bind, a.Advertised)
		}
		if s := l.SNI; s != nil {
			line += fmt.Sprintf(", %v %s %v %s %d", s.Bind, s.BootstrapHost, s.NodeHost, s.NodeHost.Host(12), s.AdvertisedPort)
		}
		got = append(got, line)
	}
	want := []string{
		"range: 0, hide",
		"addresses: 1, passthrough, 2147483647 at 0.0.0.0:5 told [2001:db8::1]:9092, 0 at 0.0.0.0:6 told kafka-0.example.com:9092, " +
			"7 at 10.0.0.7:7 told 10.0.0.7:7, 8 at 10.0.0.7:8 told 10.0.0.7:8",
		"in-braces: 1, reject, 0 at kafka-0:10 told kafka-0:10, 1 at kafka-1:11 told kafka-1:11, 2 at kafka-2:12 told kafka-2:12",
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
		`f:3:83: listeners[0].unmapped_nodes: "drop" is not known; wanted reject, hide or passthrough`)
	f(`{name: a, direct: {"h:1": "k:1"}, unmapped_nodes: hide}`,
		`f:3:53: listeners[0].unmapped_nodes: is of no use beside direct, where no address is rewritten; remove it`)
	f(`{name: a, bootstrap: "h:1", nodes: "h:2-3", advertised_host: h, node_addresses: {0: "h:4"}}`,
		`f:3:83: listeners[0].node_addresses: stands beside nodes; `+wantKind)
	f(`{name: a, bootstrap: "h:1", node_addresses: {0: "h:4"}, advertised_host: h, first_node_id: 3}`,
		`f:3:76: listeners[0].advertised_host: is of no use beside node_addresses, which gives every node its own address; remove it`,
		`f:3:94: listeners[0].first_node_id: is of no use beside node_addresses, which gives every node its own address; remove it`)
	f(`{name: a, node_addresses: {0: "h:4"}}`,
		`f:3:3: listeners[0].bootstrap: is missing; wanted the host:port where clients connect first, such as "127.0.0.1:9192"`)
}

func TestNodeAddressFaults(t *testing.T) {
	const wanted = `a mapping of node id to address, such as {0: "kafka-0.example.com:9092"}, or to {bind: "0.0.0.0:9200", advertised: "kafka-0.example.com:9092"}`
	f := func(nodes string, want ...string) {
		t.Helper()
		wantFaults(t, "upstream: {bootstrap_servers: [kafka-0:9092]}\nlisteners:\n- name: a\n  bootstrap: h:1\n  node_addresses:\n"+nodes, want...)
	}

	f("    {}\n", `f:6:5: listeners[0].node_addresses: is an empty mapping; wanted `+wanted)
	f("    - h:2\n", `f:6:5: listeners[0].node_addresses: is a list; wanted `+wanted)
	f("    h:2\n", `f:6:5: listeners[0].node_addresses: "h:2" is text; wanted `+wanted)
	f("    -1: h:2\n    01: h:3\n    b: h:4\n    2147483648: h:5\n",
		`f:6:5: listeners[0].node_addresses[-1]: "-1" is no node id; wanted a whole number from 0 to 2147483647`,
		`f:7:5: listeners[0].node_addresses[01]: "01" is no node id; wanted a whole number from 0 to 2147483647`,
		`f:8:5: listeners[0].node_addresses[b]: "b" is no node id; wanted a whole number from 0 to 2147483647`,
		`f:9:5: listeners[0].node_addresses[2147483648]: "2147483648" is no node id; wanted a whole number from 0 to 2147483647`)
	f("    3: h\n    4: 9200\n    5:\n    6: {}\n    7: {advertised: h:7}\n    8: {bind: h:8, port: 3}\n    9: {bind: h, advertised: 5}\n",
		`f:6:8: listeners[0].node_addresses[3]: "h" has no port; wanted host:port, such as "kafka-0:9092"`,
		`f:7:8: listeners[0].node_addresses[4]: 9200 is a number; wanted host:port, such as "kafka-0:9092"`,
		`f:8:7: listeners[0].node_addresses[5]: has no value; wanted host:port, such as "kafka-0:9092", or leave the key out`,
		`f:9:5: listeners[0].node_addresses[6].bind: is missing; wanted the host:port where this node is listened for, such as "0.0.0.0:9200"`,
		`f:10:5: listeners[0].node_addresses[7].bind: is missing; wanted the host:port where this node is listened for, such as "0.0.0.0:9200"`,
		`f:11:20: listeners[0].node_addresses[8].port: is not known; wanted one of bind, advertised`,
		`f:12:15: listeners[0].node_addresses[9].bind: "h" has no port; wanted host:port, such as "kafka-0:9092"`,
		`f:12:30: listeners[0].node_addresses[9].advertised: 5 is a number; wanted host:port, such as "kafka-0:9092"`)
	f("    3: h:2\n    3: h:3\n", `f:7:5: listeners[0].node_addresses[3]: is given twice, first on line 6; keep one of them`)
	f("    3: 0.0.0.0:2\n    4: {bind: h:3, advertised: '[::]:3'}\n",
		`f:6:8: listeners[0].node_addresses[3].bind: "0.0.0.0:2" is a wildcard, which clients cannot connect to; `+
			`wanted {bind: "0.0.0.0:2", advertised: host:port that clients connect to}`,
		`f:7:32: listeners[0].node_addresses[4].advertised: "[::]:3" is a wildcard, which clients cannot connect to; `+
			`wanted {bind: "h:3", advertised: host:port that clients connect to}`)
	// The same place to listen, and the same address told, for two nodes.
	f("    3: h:2\n    4: h:2\n    5: h:1\n",
		`f:7:8: listeners[0].node_addresses[4].bind: "h:2" overlaps listeners[0].node_addresses[3].bind, "h:2" (line 6): both would listen on port 2; wanted ports of its own`,
		`f:8:8: listeners[0].node_addresses[5].bind: "h:1" overlaps listeners[0].bootstrap, "h:1" (line 4): both would listen on port 1; wanted ports of its own`)
	f("    3: {bind: h:2, advertised: k:9}\n    4: {bind: h:3, advertised: K.:9}\n",
		`f:7:5: listeners[0].node_addresses[4]: "h:3" gives K.:9 to node 4, and listeners[0].node_addresses[3] (line 6) gives it to node 3: `+
			`clients tell nodes apart by address; wanted other ports or another advertised host`)
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
		"f:4:8: listeners[0].sni: needs a tls block: it is the name that a TLS handshake asks for that tells the nodes apart; "+
			"without TLS, give each node a port of its own (nodes)")
	f(tls+"  sni: {}\n",
		`f:5:8: listeners[0].sni.bind: is missing; wanted the host:port where clients connect, such as "0.0.0.0:9093"`,
		"f:5:8: listeners[0].sni.bootstrap_host: is missing; wanted the name that clients connect to first, such as kafka.example.com",
		"f:5:8: listeners[0].sni.node_host: is missing; wanted a host name with $(node_id) in it once, such as b$(node_id).kafka.example.com")
	f(tls+"  sni:\n", "f:5:8: listeners[0].sni: has no keys; wanted a mapping with the keys bind, bootstrap_host, node_host, advertised_port, "+
		"{} for one with all defaults, or leave the key out")
	f(tls+"  bootstrap: h:2\n  unmapped_nodes: hide\n"+block("k.example.com", "b$(node_id).example.com", ""),
		"f:5:14: listeners[0].bootstrap: is of no use beside sni, which has one address for all, and a name for every node; remove it",
		"f:6:19: listeners[0].unmapped_nodes: is of no use beside sni, which has one address for all, and a name for every node; remove it")
	f(tls+block("10.0.0.1", "b$(node_id).example.com", ""),
		`f:5:38: listeners[0].sni.bootstrap_host: "10.0.0.1" is no name, and clients ask for names only; wanted one such as kafka.example.com`)
	f(tls+block("B12.example.COM", "b$(node_id).example.com", ""),
		`f:5:38: listeners[0].sni.bootstrap_host: "B12.example.COM" is the name of a node by node_host, "b$(node_id).example.com"; wanted another one`)
	f(tls+block("k.example.com", "b$(node_id).example.com", ", advertised_port: 65536"),
		`f:5:108: listeners[0].sni.advertised_port: 65536 is no port; wanted one from 1 to 65535`)
	for pattern, problem := range map[string]string{
		"b.example.com":                        "has no $(node_id)",
		"b$(node_id).$(node_id)":               "has $(node_id) twice",
		"b$(node_id).example.com:9093":         "has a port",
		"b$(node_id)..example.com":             `gives node 1073741824 no host name: it has the host "b1073741824..example.com", which is no DNS name`,
		"10.0.0.$(node_id)":                    `gives node 1073741824 no host name: it has the host "10.0.0.1073741824", which is no IPv4 address`,
		strings.Repeat("b", 54) + "$(node_id)": `gives node 1073741824 no host name: it has the host "` + strings.Repeat("b", 54) + `1073741824", which is no DNS name`,
	} {
		more := ""
		if problem == "has a port" {
			more = ": the port is advertised_port, or that of bind"
		}
		f(tls+block("k.example.com", pattern, ""), `f:5:64: listeners[0].sni.node_host: "`+pattern+`" `+problem+"; wanted "+wantNodePattern+more)
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
		"f:12:11: upstream: stands beside clusters (line 3); move it into one of them, or do without clusters",
		"f:13:10: tiering: stands beside clusters (line 3); move it into one of them, or do without clusters")
	f("clusters: []\n", "f:1:11: clusters: is empty; wanted one cluster at the least, or its keys at the top of the file")
	f("clusters: {}\n", "f:1:11: clusters: is an empty mapping; wanted a list of mappings")
	f("clusters: [{}, 3]\n",
		`f:1:12: clusters[0].name: is missing; wanted letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`,
		`f:1:12: clusters[0].upstream.bootstrap_servers: is missing; wanted a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`,
		`f:1:12: clusters[0].listeners: is missing; wanted one listener at the least, with name, bootstrap, nodes and advertised_host, or with name and direct`,
		`f:1:16: clusters[1]: 3 is a number; wanted a mapping with the keys name, upstream, listeners, earliest_pending_upload, tiering`)
	f(change("name: metering", "name: orders", "name: outside", "name: inside"),
		`f:6:11: clusters[1].name: "orders" is the name of clusters[0] already (line 3); wanted a name of its own`,
		`f:8:24: clusters[1].listeners[0].name: "inside" is the name of clusters[0].listeners[0] already (line 5); wanted a name of its own`)
	// Ports, addresses told and brokers are looked at across clusters.
	f(change("h:4", "h:3", "[metering-0:9092]", "[h:1]"),
		`f:7:36: clusters[1].upstream.bootstrap_servers[0]: "h:1" is where clusters[0].listeners[0].bootstrap listens (line 5): `+
			`tiergate would connect to itself; wanted the address of a broker`,
		`f:8:44: clusters[1].listeners[0].bootstrap: "h:3" overlaps clusters[0].listeners[0].nodes, "h:2-3" (line 5): both would listen on port 3; wanted ports of its own`)
	f(change(`"h:5-6", advertised_host: h`, `"other:2-3", advertised_host: h`),
		`f:8:58: clusters[1].listeners[0].nodes: "other:2-3" gives h:2 to node 0 of clusters[1], and clusters[0].listeners[0].nodes (line 5) gives it to node 0 of clusters[0]: `+
			`clients tell nodes apart by address; wanted other ports or another advertised host`)
	f(change("max_topics: 3", "max_topics: 0", "metadata_refresh: 7s", "metadata_refresh: 0s"),
		`f:4:70: clusters[0].upstream.metadata_refresh: "0s" is not above zero: brokers would be asked without a pause; `+wantDuration1,
		`f:10:27: clusters[1].tiering.max_topics: "0" is not above zero: no topic could be remembered; wanted a number of topics above zero`)
	f(change("    tiering:", "    limits: {max_inflight: 1}\n    tiering:"),
		`f:10:5: clusters[1].limits: is not known here; did you mean "limits"?`)
}

const wantDuration1 = "wanted " + wantDuration

// What is wrong with TLS files and SASL is found in every cluster, and names of files
// begin in the folder of the configuration there too.
func TestClusterSecurity(t *testing.T) {
	dir := certificateFiles(t)
	yaml := strings.NewReplacer(
		"metadata_refresh: 7s", "tls: {ca_file: ca.pem}, sasl: {mechanism: PLAIN, username: me, password_file: password}",
		`"h:5-6", advertised_host: h`, `"h:5-6", advertised_host: h, tls: {cert_file: a.pem, key_file: b.key}`,
	).Replace(twoClusters)
	file := filepath.Join(dir, "f")
	_, err := Parse(file, []byte(yaml))
	want := file + `:8:121: clusters[1].listeners[0].tls.key_file: "` + filepath.Join(dir, "b.key") + `" is not the key of the certificate in "` + filepath.Join(dir, "a.pem") + `"`
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
