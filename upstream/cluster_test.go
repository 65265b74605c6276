// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Options{})
	wantText(t, err, "upstream: no bootstrap servers: at least one host:port is needed")
	_, err = New(Options{
		BootstrapServers: []string{"kafka-0:9092", "kafka-1", "::1"},
		TieredTopics:     []string{"orders", "__consumer_offsets"},
	})
	wantText(t, err, `upstream: bootstrap server "kafka-1": want host:port, and an IPv6 address in brackets
bootstrap server "::1": want host:port, and an IPv6 address in brackets
tiered topic "__consumer_offsets": Kafka never tiers this internal topic`)
}

func TestNewTakesAnyTimes(t *testing.T) {
	for _, d := range []time.Duration{time.Nanosecond, 100 * time.Hour} {
		newTestCluster(t, Options{
			BootstrapServers: []string{"127.0.0.1:1"}, DialTimeout: d, RequestTimeout: d, MetadataRefresh: d, StatusTTL: d, UnknownTTL: d,
		}, time.Now)
	}
}

func TestNewRefusesMetricsTwice(t *testing.T) {
	registry := prometheus.NewRegistry()
	newTestCluster(t, Options{BootstrapServers: []string{"127.0.0.1:1"}, Registerer: registry}, time.Now)
	if _, err := New(Options{BootstrapServers: []string{"127.0.0.1:1"}, Registerer: registry}); err == nil {
		t.Fatal("a second cluster could register the same metrics")
	}
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("gathered %d metrics, %v", len(families), err)
	}
}

func TestClusterThatIsDownAndComesUp(t *testing.T) {
	address := refusing(t)
	_, digits, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(digits)
	log := &logged{}
	c := newTestCluster(t, Options{BootstrapServers: []string{address}, MetadataRefresh: 50 * time.Millisecond, Logger: log.logger()}, time.Now)
	wantText(t, c.Ready(), "no broker was reached yet")
	c.Start(testContext(t))
	eventually(t, "a reason for not being ready", func() bool { return len(log.lines("no broker list")) == 1 })
	wantText(t, c.Ready(), "no broker was reached yet: no broker list: "+address+": connect: connection refused")

	k := newKafka(t, kfake.NumBrokers(1), kfake.Ports(port))
	eventually(t, "ready with a node", func() bool { return c.Ready() == nil && len(c.Nodes()) == 1 })
	eventually(t, "a line that says which brokers there are", func() bool { return len(log.lines("0="+address)) == 1 })

	k.Close()
	eventually(t, "not ready, and a second line about it", func() bool {
		return c.Ready() != nil && len(log.lines("level=WARN")) == 2
	})
	if n := len(log.lines("level=")); n != 3 {
		t.Fatalf("%d lines, want 3: down, up, down\n%s", n, log.buf.String())
	}
}

func TestReadyForTwoRefreshIntervals(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: []string{live.Addr().String()}, MetadataRefresh: 30 * time.Second}, clock.now)
	conn, err := c.DialAddress(testContext(t), live.Addr().String())
	connect(t, conn, err)
	clock.pass(time.Minute)
	if err := c.Ready(); err != nil {
		t.Fatalf("not ready after two refresh intervals: %v", err)
	}
	clock.pass(time.Second)
	wantText(t, c.Ready(), "no broker was reached for 1m1s")
}

func TestStartKeepsTheNodeMap(t *testing.T) {
	k := newKafka(t)
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs(), MetadataRefresh: 20 * time.Millisecond}, time.Now)
	c.Start(testContext(t))
	c.Start(testContext(t)) // counts for nothing
	eventually(t, "three nodes", func() bool { return len(c.Nodes()) == 3 })
	for i, node := range c.Nodes() {
		if node.NodeID != int32(i) || node.Address() != k.ListenAddrs()[i] {
			t.Fatalf("nodes %v, want 0, 1, 2 at %v", c.Nodes(), k.ListenAddrs())
		}
	}
	if _, _, err := k.AddNode(3, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "four nodes", func() bool { return len(c.Nodes()) == 4 })
}

func TestCloseTwice(t *testing.T) {
	k := newKafka(t)
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, time.Now)
	c.Start(testContext(t))
	c.Close()
	c.Close()
}

// The service client says who it is, and does so with the ApiVersions that opens
// every connection of it.
func TestServiceClientSaysWhoItIs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := newTestCluster(t, Options{BootstrapServers: []string{l.Addr().String()}, ClientID: "gate", RequestTimeout: time.Second}, time.Now)
	c.Start(testContext(t))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	header := make([]byte, 4+2+2+4+2+len("gate"))
	if _, err := io.ReadFull(conn, header); err != nil {
		t.Fatal(err)
	}
	if key, id := binary.BigEndian.Uint16(header[4:]), string(header[14:]); key != 18 || id != "gate" {
		t.Fatalf("first request: key %d, client id %q; want 18 and %q\n%x", key, id, "gate", header)
	}
}
