// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a file listens on, of every kind and cluster, is its own, under every address that
// leads there.
func TestOwn(t *testing.T) {
	c := parsed(t, `
clusters:
  - name: a
    upstream: {bootstrap_servers: ["kafka-0:9092"]}
    listeners:
      - {name: everywhere, bootstrap: "0.0.0.0:9192", nodes: "[::]:9200-9202", advertised_host: a.test}
      - {name: sidecar, direct: {"10.0.0.1:9092": "kafka-0:19092"}}
  - name: b
    upstream: {bootstrap_servers: ["kafka-1:9092"]}
    listeners:
      - name: one
        bootstrap: "localhost:9300"
        node_addresses: {7: {bind: "127.0.0.2:9301", advertised: "b.test:9092"}}
admin: {address: "127.0.0.1:9400"}
`)
	o := newOwn(c)
	o.locals.list = func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.IPv4(192, 0, 2, 5), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("fe80::5"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	f := func(at, want string) {
		t.Helper()
		route, own := o.of("a")(netip.MustParseAddrPort(at))
		if got := fmt.Sprint(own, " ", route); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}

	for _, port := range []string{"9192", "9200", "9202"} {
		for _, local := range []string{"127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "192.0.2.5", "[::ffff:192.0.2.5]", "[fe80::5%eth0]", "0.0.0.0", "[::]"} {
			f(local+":"+port, "true ")
		}
		f("192.0.2.6:"+port, "false ") // another machine
		f("[fe80::6]:"+port, "false ")
	}
	f("127.0.0.1:9203", "false ")
	f("127.0.0.1:9300", "true ") // localhost, another cluster
	f("0.0.0.0:9300", "true ")
	f("127.0.0.2:9300", "false ")
	f("192.0.2.5:9300", "false ")
	f("127.0.0.2:9301", "true ")
	f("127.0.0.1:9301", "false ")
	f("127.0.0.1:9400", "true ")
	f("10.0.0.1:9092", "true kafka-0:19092")
	f("[::ffff:10.0.0.1]:9092", "true kafka-0:19092")
	f("10.0.0.2:9092", "false ")
	if route, own := o.of("b")(netip.MustParseAddrPort("10.0.0.1:9092")); route != "" || !own {
		t.Errorf("a direct listener of another cluster: %q, %v, want no route, and own", route, own)
	}
}

// startAdvertising starts a broker that tells of nodes at these addresses.
func startAdvertising(t *testing.T, nodes ...string) string {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for id, at := range nodes {
			host, port, _ := net.SplitHostPort(at)
			n, _ := strconv.Atoi(port)
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(id), Host: host, Port: int32(n)})
		}
		return resp, nil, true
	})
	return k.ListenAddrs()[0]
}

// A broker that advertises an address of tiergate itself, of its own listener or of that of
// another cluster, costs its clients a reset and tiergate nothing.
func TestServeDoesNotDialItself(t *testing.T) {
	first, err := freePorts(7)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return net.JoinHostPort("localhost", strconv.Itoa(first+i)) }
	other := startAdvertising(t, at(1))
	broker := startAdvertising(t, at(1), at(4))
	yaml := fmt.Sprintf(`
clusters:
  - name: a
    upstream: {bootstrap_servers: [%q]}
    listeners: [{name: a, bootstrap: "0.0.0.0:%d", nodes: "0.0.0.0:%d-%d", advertised_host: a.test}]
  - name: b
    upstream: {bootstrap_servers: [%q]}
    listeners: [{name: b, bootstrap: "127.0.0.1:%d", nodes: "127.0.0.1:%d-%d", advertised_host: b.test}]
`, broker, first, first+1, first+2, other, first+3, first+4, first+5)
	dir := t.TempDir()
	p := startProcess(t, dir, at(6), yaml)
	const clients = 5
	for range clients {
		for _, node := range []int{1, 2} {
			if c, err := net.Dial("tcp", at(node)); err == nil { // a reset may come first
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				if n, err := io.Copy(io.Discard, c); n != 0 || err == nil {
					t.Errorf("node port %d: %d bytes, %v; want a reset", node, n, err)
				}
				c.Close()
			}
		}
	}
	await(t, "the end of all sessions", func() bool {
		return p.metric(t, `tiergate_sessions_ended_total{reason="dial_failed"}`) == strconv.Itoa(2*clients)
	})
	for listener, want := range map[string]string{"a": strconv.Itoa(2 * clients), "b": "0"} {
		if got := p.metric(t, fmt.Sprintf("tiergate_sessions_opened_total{listener=%q}", listener)); got != want {
			t.Errorf("%s sessions of listener %s, want %s", got, listener, want)
		}
	}
	for _, node := range []int{1, 4} {
		if got := p.lines("is one that tiergate itself listens on: it is not dialed"); strings.Count(strings.Join(got, ""), "address="+at(node)) == 0 {
			t.Errorf("nothing is logged about %s: %q", at(node), got)
		}
	}
	if got := p.lines("session closed"); len(got) != 0 {
		t.Errorf("a line for each session: %q", got)
	}

	var out strings.Builder
	err = (&CheckCmd{Config: filepath.Join(dir, "tiergate.yaml")}).Run(t.Context(), &Streams{Out: &out, Err: queued(t, io.Discard)})
	want := fmt.Sprintf("PROBLEM: cluster \"a\": node 0 (%s) does not answer: %s: 127.0.0.1:%d: tiergate itself listens on this address", at(1), at(1), first+1)
	if err == nil || !strings.Contains(out.String(), want) {
		t.Errorf("check: %v\n%s\nwant %s", err, out.String(), want)
	}
}
