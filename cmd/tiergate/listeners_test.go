// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/internal/testkit/authority"
	"tiergate/internal/testkit/sim"
)

// exchange produces a record into each partition through one client and reads all that
// the topic has, n records, through another.
func (r *recorder) exchange(t *testing.T, seed string, partitions, n int) {
	t.Helper()
	ctx := within(t)
	producer := r.newClient(t, seed, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(ctx, oneOfEach(partitions, "record")...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer := r.newClient(t, seed, kgo.ConsumeTopics("ledger"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	consume(ctx, t, consumer, n)
	if _, err := producer.Request(ctx, kmsg.NewPtrDescribeClusterRequest()); err != nil {
		t.Fatal(err)
	}
}

// wantHosts fails unless exactly these addresses were seen.
func (r *recorder) wantHosts(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.hosts)
	slices.Sort(want)
	if !slices.Equal(r.hosts, want) {
		t.Errorf("seen %q, want %q", r.hosts, want)
	}
}

func anywhere(string) bool { return true }

// One cluster, three ways in: each has its own map, and its clients see that one only.
func TestInsideAndOutside(t *testing.T) {
	const partitions = 6
	var mu sync.Mutex
	asked := map[string]int32{} // node by client id
	cluster := startSim(t, sim.Options{Topics: []sim.Topic{ledger(partitions)}, OnRequest: func(nodeID int32, frame []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range []string{"asks-b0", "asks-b1", "asks-b2"} {
			if bytes.Contains(frame, []byte(id)) {
				asked[id] = nodeID
			}
		}
	}})
	ca, err := authority.New("test CA")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(authority.Leaf{Name: "tiergate", Hosts: []string{"names.test", "*.names.test"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"cert.pem": leaf.CertPEM, "key.pem": leaf.KeyPEM} {
		if err := authority.Write(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	first, err := freePorts(10)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	named := func(host string, i int) string { return fmt.Sprintf("%s:%d", host, first+i) }
	p := startProcess(t, dir, at(9), fmt.Sprintf(`
upstream: {bootstrap_servers: [%q]}
listeners:
  - {name: inside, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: inside.test}
  - name: outside
    bootstrap: %q
    node_addresses:
      0: {bind: %q, advertised: "outside-0.test:9092"}
      1: {bind: %q, advertised: "outside-1.test:9092"}
      2: {bind: %q, advertised: "outside-2.test:9092"}
  - name: names
    sni: {bind: %q, bootstrap_host: names.test, node_host: b$(node_id).names.test}
    tls: {cert_file: cert.pem, key_file: key.pem}
`, cluster.Addresses()[0], at(0), first+1, first+3, at(4), at(5), at(6), at(7), at(8)))

	inside := &recorder{proxys: anywhere, lookup: to127}
	inside.exchange(t, at(0), partitions, partitions)
	inside.wantHosts(t, at(0), named("inside.test", 1), named("inside.test", 2), named("inside.test", 3))

	outside := &recorder{proxys: anywhere, lookup: func(hostport string) string {
		if node, ok := strings.CutPrefix(strings.TrimSuffix(hostport, ".test:9092"), "outside-"); ok {
			n, _ := strconv.Atoi(node)
			return at(5 + n)
		}
		return hostport
	}}
	outside.exchange(t, at(4), partitions, 2*partitions)
	outside.wantHosts(t, at(4), "outside-0.test:9092", "outside-1.test:9092", "outside-2.test:9092")

	trusting := &tls.Config{RootCAs: ca.Pool()}
	names := &recorder{proxys: anywhere, lookup: to127, tls: trusting}
	names.exchange(t, named("names.test", 8), partitions, 3*partitions)
	names.wantHosts(t, named("names.test", 8), named("b0.names.test", 8), named("b1.names.test", 8), named("b2.names.test", 8))
	if got := p.metric(t, `tiergate_sni_fallbacks_total{listener="names"}`); got != "0" {
		t.Errorf("%s connections without a name that is known, want 0", got)
	}

	// Each name leads to its node, and nothing else does.
	for _, c := range []struct{ name, id string }{{"b0.names.test", "asks-b0"}, {"B1.names.TEST", "asks-b1"}, {"b2.names.test", "asks-b2"}} {
		if got := metadataBy(t, at(8), &tls.Config{RootCAs: ca.Pool(), ServerName: c.name}, c.id); got < 0 {
			t.Errorf("%s: no answer", c.name)
		}
	}
	mu.Lock()
	if got, want := fmt.Sprint(asked), "map[asks-b0:0 asks-b1:1 asks-b2:2]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	mu.Unlock()

	// A client without a name, or with one of nobody, gets a bootstrap connection.
	for _, name := range []string{"", "other.test", "b01.names.test"} {
		if got := metadataBy(t, at(8), &tls.Config{InsecureSkipVerify: true, ServerName: name}, "stranger"); got < 0 {
			t.Errorf("%q: no answer", name)
		}
	}
	await(t, "three strangers", func() bool { return p.metric(t, `tiergate_sni_fallbacks_total{listener="names"}`) == "3" })
	if got := p.lines("names no server of this listener"); len(got) != 1 || !strings.Contains(got[0], `listener=names server_name=""`) {
		t.Errorf("warnings %q, want one about no name", got)
	}
	// A node that the cluster does not have.
	if got := metadataBy(t, at(8), &tls.Config{InsecureSkipVerify: true, ServerName: "b77.names.test"}, "lost"); got >= 0 {
		t.Error("an answer from node 77")
	}
	await(t, "a line about node 77", func() bool { return len(p.lines("node 77 is not known: brokers seen are 0, 1, 2")) == 1 })
	if got := p.lines("node 77 is not known")[0]; !strings.Contains(got, `broker="by SNI: b77.names.test"`) {
		t.Errorf("got %s", got)
	}
}

// metadataBy asks for metadata over TLS and returns the length of the answer, or -1.
func metadataBy(t *testing.T, address string, config *tls.Config, clientID string) int {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	secured := tls.Client(conn, config)
	if _, err := secured.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, 1)); err != nil {
		return -1
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(secured, size); err != nil {
		return -1
	}
	return int(size[2])<<8 | int(size[3])
}

// Two clusters in one process: their clients and their metrics stay apart, and it is
// ready only while brokers of both can be reached.
func TestSeveralClusters(t *testing.T) {
	const partitions = 3
	one := startSim(t, sim.Options{Topics: []sim.Topic{ledger(partitions)}})
	two := startSim(t, sim.Options{Brokers: 2, Version: sim.Kafka43, Topics: []sim.Topic{ledger(partitions)}})
	first, err := freePorts(8)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	named := func(host string, i int) string { return fmt.Sprintf("%s:%d", host, first+i) }
	p := startProcess(t, t.TempDir(), at(7), fmt.Sprintf(`
clusters:
  - name: one
    upstream: {bootstrap_servers: [%q], metadata_refresh: 1s}
    listeners: [{name: first, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: one.test}]
  - name: two
    upstream: {bootstrap_servers: [%q], metadata_refresh: 1s}
    listeners: [{name: second, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: two.test}]
    earliest_pending_upload: off
`, one.Addresses()[0], at(0), first+1, first+3, two.Addresses()[0], at(4), first+5, first+6))
	ofOne := &recorder{proxys: anywhere, lookup: to127}
	ofOne.exchange(t, at(0), partitions, partitions)
	ofOne.wantHosts(t, at(0), named("one.test", 1), named("one.test", 2), named("one.test", 3))
	ofTwo := &recorder{proxys: anywhere, lookup: to127}
	ofTwo.exchange(t, at(4), partitions, partitions)
	ofTwo.wantHosts(t, at(4), named("two.test", 5), named("two.test", 6))
	for series, want := range map[string]string{
		`tiergate_upstream_nodes{cluster="one"}`: "3", `tiergate_upstream_nodes{cluster="two"}`: "2",
		`tiergate_unmapped_nodes_total{listener="first"}`: "0", `tiergate_unmapped_nodes_total{listener="second"}`: "0",
	} {
		if got := p.metric(t, series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
	if got := p.lines(`msg="brokers of the cluster" cluster=two nodes="0=` + two.Addresses()[0]); len(got) != 1 {
		t.Errorf("lines about the brokers of two: %q, want one", got)
	}
	two.Close()
	await(t, "that it is not ready", func() bool {
		return strings.HasPrefix(p.get(t, "/readyz"), `503 not ready: cluster "two": no broker was reached for `)
	})
	ofOne.exchange(t, at(0), partitions, 2*partitions)
}

// Brokers move to another port, come and go while clients are served: nothing has to be
// restarted, and every client finds its way.
func TestBrokersComeAndGo(t *testing.T) {
	const partitions = 6
	cluster := startSim(t, sim.Options{Topics: []sim.Topic{ledger(partitions)}})
	first, err := freePorts(6)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	p := startProcess(t, t.TempDir(), at(5), fmt.Sprintf(`
upstream: {bootstrap_servers: [%q], metadata_refresh: 1s}
listeners: [{name: clients, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: tiergate.test}]
`, cluster.Addresses()[0], at(0), first+1, first+4))
	r := &recorder{lookup: to127, proxys: func(hostport string) bool {
		return hostport == at(0) || strings.HasPrefix(hostport, "tiergate.test:")
	}}
	producer := r.newClient(t, at(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	consumer := r.newClient(t, at(0), kgo.ConsumeTopics("ledger"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	step := func(what string) {
		t.Helper()
		ctx := within(t)
		records := oneOfEach(partitions, what)
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var want []string
		for _, record := range records {
			want = append(want, string(record.Value))
		}
		slices.Sort(want)
		if got := consume(ctx, t, consumer, partitions); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		// The models learn of the records before kfake moves leaders behind their back.
		if _, err := cluster.Model("ledger", 0); err != nil {
			t.Fatal(err)
		}
	}
	lead := func(nodes ...int32) {
		t.Helper()
		for i := range int32(partitions) {
			if err := cluster.MoveLeader("ledger", i, nodes[int(i)%len(nodes)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	step("at the start")

	// Nodes 1 and 2 restart under other ports.
	for _, node := range []int32{1, 2} {
		if err := cluster.Kfake().RemoveNode(node); err != nil {
			t.Fatal(err)
		}
		if _, _, err := cluster.Kfake().AddNode(node, 0); err != nil {
			t.Fatal(err)
		}
	}
	cluster.CloseConnections()
	lead(1, 2)
	step("moved")

	// Node 3 is added: its port was listened on all along.
	if _, _, err := cluster.Kfake().AddNode(3, 0); err != nil {
		t.Fatal(err)
	}
	lead(3)
	step("added")

	// Node 2 is removed. Who asks for it all the same is told, and in the log why.
	lead(0, 1, 3)
	if err := cluster.Kfake().RemoveNode(2); err != nil {
		t.Fatal(err)
	}
	lead(0, 1, 3)
	cluster.CloseConnections()
	step("removed")
	await(t, "a line about node 2", func() bool {
		if conn, err := net.Dial("tcp", at(3)); err == nil { // else it was reset at once
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Fatalf("%d bytes from a broker that is gone", n)
			}
			conn.Close()
		}
		return len(p.lines("it is down or was removed: the cluster's last ")) > 0
	})
	r.wantNone(t, "dial", "Metadata")
}

// A node beyond the range, in each of the three ways: the rest is served as ever.
func TestUnmappedNodesAreServed(t *testing.T) {
	const partitions = 3 // partition N is led by node N
	cluster := startSim(t, sim.Options{Topics: []sim.Topic{ledger(partitions)}})
	for i := range int32(partitions) {
		if err := cluster.MoveLeader("ledger", i, i); err != nil {
			t.Fatal(err)
		}
	}
	first, err := freePorts(12)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	listener := func(mode string, i int) string {
		return fmt.Sprintf("  - {name: %s, bootstrap: %q, nodes: \"127.0.0.1:%d-%d\", advertised_host: %s.test, unmapped_nodes: %s}\n",
			mode, at(i), first+i+1, first+i+2, mode, mode)
	}
	// Behind each range one port is left free.
	p := startProcess(t, t.TempDir(), at(11), fmt.Sprintf("upstream: {bootstrap_servers: [%q]}\nlisteners:\n%s%s%s", cluster.Addresses()[0],
		listener("reject", 0), listener("hide", 4), listener("passthrough", 8)))
	for mode, c := range map[string]struct {
		i         int
		reachable int
		hosts     []string
	}{
		"reject":      {0, 2, []string{at(0), fmt.Sprintf("reject.test:%d", first+1), fmt.Sprintf("reject.test:%d", first+2), fmt.Sprintf("reject.test:%d", first+3)}},
		"hide":        {4, 2, []string{at(4), fmt.Sprintf("hide.test:%d", first+5), fmt.Sprintf("hide.test:%d", first+6)}},
		"passthrough": {8, 3, []string{at(8), fmt.Sprintf("passthrough.test:%d", first+9), fmt.Sprintf("passthrough.test:%d", first+10), cluster.Addresses()[2]}},
	} {
		r := &recorder{proxys: anywhere, lookup: to127}
		cl := r.newClient(t, at(c.i), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.ProduceSync(within(t), oneOfEach(c.reachable, mode)...).FirstErr(); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		r.wantHosts(t, c.hosts...)
		if got := p.metric(t, fmt.Sprintf(`tiergate_unmapped_nodes_total{listener=%q}`, mode)); got == "" {
			t.Errorf("%s: no count", mode)
		}
		await(t, "a count of "+mode, func() bool {
			n, _ := strconv.Atoi(p.metric(t, fmt.Sprintf(`tiergate_unmapped_nodes_total{listener=%q}`, mode)))
			return n > 0
		})
		if got := p.lines("listener=" + mode + " nodes=2 unmapped_nodes=" + mode); len(got) == 0 {
			t.Errorf("%s: no warning", mode)
		}
	}
}
