// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/internal/testkit/authority"
	"tiergate/proxy"
	"tiergate/rewrite"
	"tiergate/upstream"
)

// everyKind has every kind of listener, in two clusters.
const everyKind = `
clusters:
  - name: one
    upstream: {bootstrap_servers: ["one-0:9092"]}
    listeners:
      - {name: range, bootstrap: "0.0.0.0:9192", nodes: "0.0.0.0:9200-9201", advertised_host: h, unmapped_nodes: hide}
      - name: addresses
        bootstrap: "0.0.0.0:9193"
        unmapped_nodes: passthrough
        node_addresses: {5: {bind: "0.0.0.0:9205", advertised: "[2001:db8::5]:92"}, 3: "10.0.0.3:9203"}
  - name: two
    upstream: {bootstrap_servers: ["two-0:9092", "two-1:9092"]}
    listeners:
      - name: names
        sni: {bind: "0.0.0.0:9093", bootstrap_host: Two.example.com, node_host: b$(node_id).two.example.com, advertised_port: 443}
        tls: {cert_file: cert.pem, key_file: key.pem}
      - {name: direct, direct: {"10.0.0.9:9092": "two-1:19092"}}
    earliest_pending_upload: off
admin: {address: "127.0.0.1:9202"}
`

// loadedEveryKind is everyKind with a certificate for the given hosts.
func loadedEveryKind(t *testing.T, hosts ...string) (*config.Config, *certs.Store) {
	t.Helper()
	pair, err := authority.SelfSigned(authority.Leaf{Name: "tiergate", Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"cert.pem": pair.CertPEM, "key.pem": pair.KeyPEM} {
		if err := authority.Write(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse(filepath.Join(dir, "tiergate.yaml"), []byte(everyKind))
	if err != nil {
		t.Fatal(err)
	}
	return c, noTLS(t, c)
}

func TestEndpointsOfEveryKind(t *testing.T) {
	c, tls := loadedEveryKind(t, "two.example.com")
	one, two := &dialed{}, &dialed{}
	inRange := rewrite.Rules{
		Unmapped: rewrite.UnmappedHide, Nodes: namedNodes{one},
		Addresses: rewrite.PortRange{Host: "h", FirstPort: 9200, Count: 2, Taken: []int32{9092, 9093, 9192, 9193, 9202, 9203, 9205}},
	}
	byAddress := rewrite.Rules{
		Unmapped: rewrite.UnmappedPassthrough, Nodes: namedNodes{one},
		Addresses: rewrite.NewNodeTable(map[int32]rewrite.Address{5: {Host: "2001:db8::5", Port: 92}, 3: {Host: "10.0.0.3", Port: 9203}}),
	}
	names := rewrite.Rules{
		PendingUpload: rewrite.PendingUploadOff, Nodes: namedNodes{two},
		Addresses: rewrite.NodeNames{Before: "b", After: ".two.example.com", Port: 443},
	}
	want := []struct {
		listener, address, broker, dials string
		rules                            rewrite.Rules
	}{
		{"range", "0.0.0.0:9192", "bootstrap", "bootstrap", inRange},
		{"range", "0.0.0.0:9200", "node 0", "node 0", inRange},
		{"range", "0.0.0.0:9201", "node 1", "node 1", inRange},
		{"addresses", "0.0.0.0:9193", "bootstrap", "bootstrap", byAddress},
		{"addresses", "0.0.0.0:9205", "node 5", "node 5", byAddress},
		{"addresses", "10.0.0.3:9203", "node 3", "node 3", byAddress},
		{"names", "0.0.0.0:9093", "by SNI", "", names},
		{"direct", "10.0.0.9:9092", "two-1:19092", "two-1:19092", rewrite.Rules{PendingUpload: rewrite.PendingUploadOff}},
	}
	all := c.All()
	var got []proxy.Endpoint
	got = append(got, endpoints(c, all[0], one, tls, nil)...)
	got = append(got, endpoints(c, all[1], two, tls, nil)...)
	if len(got) != len(want) {
		t.Fatalf("%d endpoints, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		one.last, two.last = "", ""
		if g.Dial != nil {
			if _, err := g.Dial(t.Context()); !errors.Is(err, errDialed) {
				t.Errorf("endpoint %d: %v", i, err)
			}
		}
		if (g.DialName != nil) != (w.listener == "names") || (g.TLS != nil) != (w.listener == "names") {
			t.Errorf("endpoint %d: by name %t, TLS %t", i, g.DialName != nil, g.TLS != nil)
		}
		if dials := one.last + two.last; g.Listener != w.listener || g.Address != w.address || g.Broker != w.broker || dials != w.dials ||
			!reflect.DeepEqual(g.Rules, w.rules) {
			t.Errorf("endpoint %d: got %q %q %q, dials %q, %+v; want %+v", i, g.Listener, g.Address, g.Broker, dials, g.Rules, w)
		}
	}
}

// Each name is dialed as what it stands for; the others are counted, and warned of once.
func TestDialByName(t *testing.T) {
	c, tls := loadedEveryKind(t)
	var log lockedBuffer
	metrics := prometheus.NewRegistry()
	strangers, err := newStrangers(c, slog.New(slog.NewTextHandler(&log, nil)), metrics)
	if err != nil {
		t.Fatal(err)
	}
	to := &dialed{}
	e := endpoints(c, c.All()[1], to, tls, strangers)[0]
	f := func(name, want string) {
		t.Helper()
		if _, err := e.DialName(t.Context(), name); !errors.Is(err, errDialed) || to.last != want {
			t.Errorf("%q: dialed %s, %v; want %s", name, to.last, err, want)
		}
	}
	f("b0.two.example.com", "node 0")
	f("B12.TWO.example.com", "node 12")
	f("two.example.com", "bootstrap")
	f("TWO.example.com", "bootstrap")
	if log.String() != "" {
		t.Errorf("logged %s", log.String())
	}
	f("", "bootstrap")
	f("b.two.example.com", "bootstrap")
	f("b007.two.example.com", "bootstrap")
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%d lines, want one warning:\n%s", got, log.String())
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 3 {
		t.Errorf("got %v, want one metric of 3", families)
	}
}

func TestNodeMapOfEveryKind(t *testing.T) {
	c, _ := loadedEveryKind(t)
	var rows []mapRow
	for _, of := range c.All() {
		rows = append(rows, nodeMap(of, []upstream.Node{{NodeID: 1, Host: "kafka-1", Port: 9092}, {NodeID: 3, Host: "kafka-3", Port: 9092}})...)
	}
	var out bytes.Buffer
	if err := printMap(&out, rows); err != nil {
		t.Fatal(err)
	}
	want := `CLUSTER  LISTENER   SERVES       CLIENTS ARE TOLD                 LISTENS ON                                    BROKER
one      range      bootstrap    -                                0.0.0.0:9192                                  any of one-0:9092
one      range      node 0       h:9200                           0.0.0.0:9200                                  not known yet
one      range      node 1       h:9201                           0.0.0.0:9201                                  kafka-1:9092
one      addresses  bootstrap    -                                0.0.0.0:9193                                  any of one-0:9092
one      addresses  node 5       [2001:db8::5]:92                 0.0.0.0:9205                                  not known yet
one      addresses  node 3       10.0.0.3:9203                    10.0.0.3:9203                                 kafka-3:9092
two      names      bootstrap    -                                0.0.0.0:9093 for Two.example.com              any of two-0:9092, two-1:9092
two      names      node 1       b1.two.example.com:443           0.0.0.0:9093 for b1.two.example.com           kafka-1:9092
two      names      node 3       b3.two.example.com:443           0.0.0.0:9093 for b3.two.example.com           kafka-3:9092
two      names      other nodes  b$(node_id).two.example.com:443  0.0.0.0:9093 for b$(node_id).two.example.com  not known yet
two      direct     direct       -                                10.0.0.9:9092                                 two-1:19092
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// check names the cluster in its table, and in each line about it.
func TestCheckOfSeveralClusters(t *testing.T) {
	c, tls := loadedEveryKind(t, "two.example.com", "10.0.0.3")
	all := c.All()
	lost := broker(3, -1)
	lost.Err = errors.New("refused")
	found := findings{own: misnamed(c, tls), clusters: []brokers{
		{cfg: c, NamedCluster: all[0], nodes: []upstream.Capability{broker(0, 10), lost, broker(7, 10)}},
		{cfg: c, NamedCluster: all[1], nodes: []upstream.Capability{broker(0, 9)}, direct: map[string]upstream.Capability{"two-1:19092": broker(1, 11)}},
	}}
	var out bytes.Buffer
	if err := printCheck(&out, found); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "Who answers EARLIEST_PENDING_UPLOAD (-6):\n\n")
	want := `CLUSTER  NODE  BROKER        CLIENTS ARE TOLD                              KAFKA         LISTOFFSETS  TIERED STORAGE  -6           WHY
one      0     kafka-0:9092  h:9200, no address at addresses               4.0 or 4.1    up to 10     on              synthesised  its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1
one      3     kafka-3:9092  no address at range, 10.0.0.3:9203            -             -            -               unreachable  see below
one      7     kafka-7:9092  no address at range, no address at addresses  4.0 or 4.1    up to 10     on              synthesised  its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1
two      0     kafka-0:9092  b0.two.example.com:443                        3.9           up to 9      on              off          earliest_pending_upload is off, and the broker does not know -6
two      1     kafka-1:9092  as it says                                    4.2 or later  up to 11     on              native       the broker knows -6 itself; tiergate touches nothing

PROBLEM: cluster "one": node 3 (kafka-3:9092) does not answer: refused
note: cluster "one": listener "range" has no address for node 3 (kafka-3:9092), node 7 (kafka-7:9092), so they are hidden from clients (unmapped_nodes: hide)
note: cluster "one": listener "addresses" has no address for node 0 (kafka-0:9092), node 7 (kafka-7:9092), so clients are told these addresses (unmapped_nodes: passthrough)
note: listener "names": its certificate (CN=tiergate) is not for sni.node_host, such as b0.two.example.com: clients that check host names, as they do by default, will refuse it

1 problem found.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestToldHosts(t *testing.T) {
	c, _ := loadedEveryKind(t)
	var got []string
	for _, of := range c.All() {
		for _, l := range of.Listeners {
			got = append(got, fmt.Sprintf("%s %v", l.Name, toldHosts(l)))
		}
	}
	want := []string{
		"range [{advertised_host h}]", "addresses [{node_addresses[5] 2001:db8::5} {node_addresses[3] 10.0.0.3}]",
		"names [{sni.bootstrap_host Two.example.com} {sni.node_host, such as b0.two.example.com}]", "direct []",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestReadinessOfSeveralClusters(t *testing.T) {
	c, tls := loadedEveryKind(t)
	to, err := newClusters(c, tls, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	want := "cluster \"one\": no broker was reached yet\ncluster \"two\": no broker was reached yet"
	if got := fmt.Sprint(to.ready()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
