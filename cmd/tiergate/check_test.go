// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tiergate/codec"
	"tiergate/config"
	"tiergate/upstream"
)

// versions are those of a broker with these highest ones.
func versions(listOffsets, epochs, metadata int16) codec.BrokerVersions {
	return codec.BrokerVersions{
		ListOffsets: codec.VersionRange{Highest: listOffsets}, OffsetForLeaderEpoch: codec.VersionRange{Highest: epochs}, Metadata: codec.VersionRange{Highest: metadata},
	}
}

// broker returns a capability of a healthy broker at kafka-NODE:9092.
func broker(nodeID int32, listOffsets int16) upstream.Capability {
	return upstream.Capability{
		NodeID: nodeID, Host: fmt.Sprintf("kafka-%d", nodeID), Port: 9092, Versions: versions(listOffsets, 4, 12),
		RemoteStorage: codec.RemoteStorageEnabled,
	}
}

func TestAnswererOf(t *testing.T) {
	f := func(c upstream.Capability, mode config.PendingUpload, want string) {
		t.Helper()
		who, why := answererOf(c, mode)
		if got := string(who) + ": " + why; got != want {
			t.Errorf("%+v, %s:\ngot  %s\nwant %s", c, mode, got, want)
		}
	}
	down := broker(1, -1)
	down.Err = errors.New("connection refused")
	noEpochs := broker(1, 10)
	noEpochs.Versions = versions(10, 3, 12)
	noTopicIDs := broker(1, 8)
	noTopicIDs.Versions = versions(8, 4, 11)

	f(broker(1, 12), config.PendingUploadAuto, "native: the broker knows -6 itself; tiergate touches nothing")
	f(broker(1, 11), config.PendingUploadAuto, "native: the broker knows -6 itself; tiergate touches nothing")
	f(broker(1, 11), config.PendingUploadOff, "native: the broker knows -6 itself; tiergate touches nothing")
	f(broker(1, 11), config.PendingUploadAlways, "synthesised: earliest_pending_upload is always; the broker knows -6 itself")
	f(broker(1, 10), config.PendingUploadAuto, "synthesised: its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1")
	f(broker(1, 9), config.PendingUploadAlways, "synthesised: its ListOffsets ends at version 9; tiergate asks it for -4, -2, -5 and -1")
	f(broker(1, 10), config.PendingUploadOff, "off: earliest_pending_upload is off, and the broker does not know -6")
	f(broker(1, 8), config.PendingUploadAuto, "cannot: its ListOffsets ends at version 8 (Kafka 3.6 to 3.8): "+
		"it does not know -5 (latest tiered offset), from which -6 is made; Kafka 3.9 is the first that does. With earliest_pending_upload: metadata_topic tiergate makes both "+
		"from the topic __remote_log_metadata")
	f(broker(1, 8), config.PendingUploadMetadataTopic, "synthesised: its ListOffsets ends at version 8; tiergate makes -5 and -6 from the topic __remote_log_metadata")
	f(broker(1, 9), config.PendingUploadMetadataTopic, "synthesised: its ListOffsets ends at version 9; tiergate asks it for -4, -2, -5 and -1")
	f(broker(1, 11), config.PendingUploadMetadataTopic, "native: the broker knows -6 itself; tiergate touches nothing")
	f(broker(1, 7), config.PendingUploadMetadataTopic, "cannot: its ListOffsets ends at version 7: it is older than tiered storage (Kafka 3.6)")
	f(broker(1, 7), config.PendingUploadAuto, "cannot: its ListOffsets ends at version 7: it is older than tiered storage (Kafka 3.6)")
	f(broker(1, -1), config.PendingUploadAuto, "cannot: it does not offer ListOffsets at all: is it a Kafka broker?")
	f(noEpochs, config.PendingUploadAuto, "cannot: it does not offer OffsetForLeaderEpoch version 4, which tells the epoch of the answer")
	f(noTopicIDs, config.PendingUploadMetadataTopic, "cannot: it does not offer Metadata version 12, which tells the ids of topics")
	f(down, config.PendingUploadAuto, "unreachable: connection refused")
	f(down, config.PendingUploadOff, "unreachable: connection refused")
}

func TestRelease(t *testing.T) {
	f := func(guess string, listOffsets int16, want string) {
		t.Helper()
		if got := release(guess, listOffsets); got != want {
			t.Errorf("%q, %d: got %q, want %q", guess, listOffsets, got, want)
		}
	}

	f("v4.1", 10, "4.1")
	f("v3.9", 9, "3.9")
	f("at least v4.4", 11, "at least 4.4")
	f("between v1.0 and v1.1", 10, "4.0 or 4.1")
	f("unknown custom version", 12, "4.2 or later")
	f("not even v0.8.0", 9, "3.9")
	f("", 8, "3.6 to 3.8")
	f("", 7, "before 3.6")
	f("", 0, "before 3.6")
	f("", -1, "-")
}

func listener(t *testing.T, text string) (*config.Config, config.Listener) {
	t.Helper()
	c := parsed(t, "upstream: {bootstrap_servers: [\"kafka-0:9092\"]}\nlisteners:\n  - "+text)
	return c, c.Listeners[0]
}

func TestWiderRange(t *testing.T) {
	f := func(nodes string, first int32, ids []int32, want string) {
		t.Helper()
		_, l := listener(t, fmt.Sprintf("{name: a, bootstrap: \"h:1\", nodes: %q, first_node_id: %d, advertised_host: h}", nodes, first))
		if got := widerRange(l, ids); got != want {
			t.Errorf("%s from %d for %v: got %s, want %s", nodes, first, ids, got, want)
		}
	}

	f("h:9200-9209", 0, []int32{10}, `nodes: "h:9200-9210" would do`)
	f("[::1]:9200-9209", 0, []int32{12, 30, 11}, `nodes: "[::1]:9200-9230" would do`)
	f("h:9200-9209", 100, []int32{98}, `first_node_id: 98 with nodes: "h:9198-9209" would do`)
	f("h:9200-9209", 100, []int32{0, 120}, `first_node_id: 0 with nodes: "h:9100-9220" would do`)
	f("h:9200-9209", 0, []int32{56335}, `nodes: "h:9200-65535" would do`)
	f("h:9200-9209", 0, []int32{2147483647, 56336},
		`no range with node 0 at port 9200 reaches that far; give them a listener of their own, with first_node_id: 56336`)
	f("h:9200-9209", 10000, []int32{1},
		`no range with node 10000 at port 9200 reaches that far; give them a listener of their own, with first_node_id: 1`)
}

func TestCheckReport(t *testing.T) {
	c := parsed(t, `
upstream: {bootstrap_servers: ["kafka-0:9092"]}
listeners:
  - {name: clients, bootstrap: "0.0.0.0:9192", nodes: "0.0.0.0:9200-9203", advertised_host: kafka-3}
  - {name: sidecar, direct: {"10.0.0.1:9092": "kafka-0:9092", "10.0.0.2:9092": "kafka-9:19092"}}
`)
	off, unknown, twin, own, down := broker(1, 9), broker(2, 11), broker(3, 10), broker(0, 10), broker(7, -1)
	off.RemoteStorage = codec.RemoteStorageDisabled
	unknown.RemoteStorage, unknown.RemoteStorageErr = codec.RemoteStorageUnknown, errors.New("CLUSTER_AUTHORIZATION_FAILED")
	twin.Host = "kafka-1"
	own.Release = "v4.1"
	down.Err = errors.New("kafka-7:9092: connection refused")
	loop := broker(5, 10)
	loop.Host, loop.Port, loop.NodeID = "kafka-3", 9203, 3
	moved := upstream.Capability{NodeID: -1, Host: "kafka-9", Port: 19092, Versions: versions(8, -1, -1), RemoteStorageErr: errors.New("no node id")}
	found := findings{clusters: []brokers{{
		cfg: c, NamedCluster: c.All()[0],
		nodes:  []upstream.Capability{own, off, unknown, twin, loop, down},
		direct: map[string]upstream.Capability{"kafka-0:9092": own, "kafka-9:19092": moved},
	}}}
	var out bytes.Buffer
	if err := printCheck(&out, found); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "Who answers EARLIEST_PENDING_UPLOAD (-6):\n\n")
	want := `NODE  BROKER         CLIENTS ARE TOLD          KAFKA         LISTOFFSETS  TIERED STORAGE  -6           WHY
0     kafka-0:9092   kafka-3:9200, as it says  4.1           up to 10     on              synthesised  its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1
1     kafka-1:9092   kafka-3:9201              3.9           up to 9      off             synthesised  its ListOffsets ends at version 9; tiergate asks it for -4, -2, -5 and -1
2     kafka-2:9092   kafka-3:9202              4.2 or later  up to 11     unknown         native       the broker knows -6 itself; tiergate touches nothing
3     kafka-1:9092   kafka-3:9203              4.0 or 4.1    up to 10     on              synthesised  its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1
3     kafka-3:9203   kafka-3:9203              4.0 or 4.1    up to 10     on              synthesised  its ListOffsets ends at version 10; tiergate asks it for -4, -2, -5 and -1
7     kafka-7:9092   no address at clients     -             -            -               unreachable  see below
?     kafka-9:19092  as it says                3.6 to 3.8    up to 8      unknown         cannot       see below

PROBLEM: node 3 (kafka-1:9092) has the same address as node 1 (kafka-1:9092): clients cannot tell them apart; look at the brokers' advertised.listeners
PROBLEM: node 7 (kafka-7:9092) does not answer: kafka-7:9092: connection refused
PROBLEM: -6 cannot be answered at kafka-9:19092: its ListOffsets ends at version 8 (Kafka 3.6 to 3.8): it does not know -5 (latest tiered offset), from which -6 is made; Kafka 3.9 is the first that does. With earliest_pending_upload: metadata_topic tiergate makes both from the topic __remote_log_metadata
PROBLEM: node 3 (kafka-3:9203) advertises what listener "clients" tells clients of it: bootstrap_servers lead back to tiergate, or both want the same port
PROBLEM: listener "clients" has no address for node 7 (kafka-7:9092), so clients cannot reach them through it: nodes: "0.0.0.0:9200-9207" would do
note: node 1 (kafka-1:9092) has remote.log.storage.system.enable=false: no topic is tiered there, and -6 is answered with -1
note: node 2 (kafka-2:9092) does not say whether tiered storage is on: CLUSTER_AUTHORIZATION_FAILED
note: some brokers know -6 and some do not, as during a rolling upgrade; tiergate decides on each connection

5 problems found.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// With direct listeners only, the bootstrap servers are needed all the same: for
// statuses on topics.
func TestCheckReportsBootstrapOfDirectListeners(t *testing.T) {
	c, _ := listener(t, `{name: a, direct: {"h:1": "kafka-1:9092"}}`)
	lost := upstream.Capability{NodeID: -1, Host: "kafka-0", Port: 9092, Versions: codec.NoVersions(), Err: errors.New("no route to host")}
	found := brokers{cfg: c, NamedCluster: c.All()[0], nodes: []upstream.Capability{lost}, direct: map[string]upstream.Capability{"kafka-1:9092": broker(1, 10)}}
	if got, want := strings.Join(found.problems(), "\n"), "kafka-0:9092 does not answer: no route to host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	found.nodes = []upstream.Capability{broker(0, 8), broker(1, 10)} // node 0 is nobody's
	if got := found.problems(); len(got) != 0 {
		t.Errorf("got %q, want none", got)
	}
	if got := conclusion(found.problems(), found.notes()); got != "All is well." {
		t.Errorf("got %q", got)
	}
}

// Ports that the kernel may give to outgoing connections are noted, unless they are reserved.
func TestUnreservedPorts(t *testing.T) {
	f := func(ports []int32, reserved, want string) {
		t.Helper()
		got := unreserved(ports, "32768\t60999\n", reserved)
		if want != "" {
			want = "the ports " + want + " to listen on are among those that this machine gives to outgoing connections " +
				"(net.ipv4.ip_local_port_range is 32768 to 60999), so one may be held when tiergate starts: " +
				"add them to net.ipv4.ip_local_reserved_ports, or take lower ports"
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%v without %q:\ngot  %q\nwant %s", ports, reserved, got, want)
		}
	}
	f([]int32{9192, 9200, 32767, 61000}, "\n", "")
	f([]int32{9192, 32768, 32769, 32770, 60999, 61000}, "\n", "32768-32770,60999")
	f([]int32{40000, 40001, 40002, 40003, 40004}, "80,40001-40002,40004\n", "40000,40003")
	f([]int32{40000, 40001}, "32768-60999\n", "")
}

// Names that only Java clients refuse are noted where clients speak TLS.
func TestInvalidTLSNames(t *testing.T) {
	dir := t.TempDir()
	pair := issue(t, newAuthority(t, "ca"), loopback("tiergate"))
	for name, text := range map[string][]byte{"a.pem": pair.CertPEM, "a.key": pair.KeyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const tls = ", tls: {cert_file: a.pem, key_file: a.key}}\n"
	cfg, err := config.Parse(filepath.Join(dir, "tiergate.yaml"), []byte("upstream: {bootstrap_servers: [\"kafka-0:9092\"]}\nlisteners:\n"+
		`  - {name: plain, bootstrap: "0.0.0.0:9100", nodes: "0.0.0.0:9101-9102", advertised_host: k_1.kafka.test}`+"\n"+
		`  - {name: range, bootstrap: "0.0.0.0:9200", nodes: "0.0.0.0:9201-9202", advertised_host: k_1.kafka.test`+tls+
		`  - {name: names, sni: {bind: "0.0.0.0:9300", bootstrap_host: kafka.test., node_host: "n_$(node_id).kafka.test"}`+tls+
		`  - {name: fine, bootstrap: "0.0.0.0:9400", nodes: "0.0.0.0:9401-9402", advertised_host: k-1.kafka.test`+tls))
	if err != nil {
		t.Fatal(err)
	}
	const why = " is invalid as the name of a TLS server, which has letters, digits, hyphens and inner dots only: Java clients refuse it (Illegal given domain name)"
	want := []string{
		`listener "range": advertised_host k_1.kafka.test` + why,
		`listener "names": sni.bootstrap_host kafka.test.` + why,
		`listener "names": sni.node_host, such as n_0.kafka.test` + why,
	}
	if got := invalidNames(cfg); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A port that resets the first request may want TLS.
func TestCheckExplainsReset(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}()
	file := filepath.Join(t.TempDir(), "tiergate.yaml")
	text := fmt.Sprintf("upstream: {bootstrap_servers: [%q]}\nlisteners: [{name: a, direct: {\"127.0.0.1:9\": %q}}]\n", server.Addr(), server.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = (&CheckCmd{Config: file}).Run(within(t), &Streams{Out: &out, Err: queued(t, io.Discard)})
	want := "does not answer: the broker reset the connection at the first request, as one does that wants TLS (upstream.tls) or SASL (upstream.sasl): connection reset by peer"
	if err == nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant %s", err, out.String(), want)
	}
}
