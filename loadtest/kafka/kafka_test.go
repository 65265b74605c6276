// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// realBrokers says what a test is about to need. A run with -short starts none.
func realBrokers(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with Java 17+ and Maven")
	}
	return testContext(t, 4*time.Minute)
}

// start launches a cluster and closes it when the test ends.
func start(t *testing.T, options Options) *Cluster {
	t.Helper()
	c, err := Launch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func progress() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

func TestLatestTieredOffsetOfAnUploadedTopic(t *testing.T) {
	ctx := realBrokers(t)
	c := start(t, Options{Version: Kafka41, TieredStorage: TieredStorageOn, Logger: progress()})
	l, err := c.CreateLog(ctx, "uploaded", tiered(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := stages(appendLarge(fourSegments), awaitState(uploadedAllLocal))(ctx, l); err != nil {
		t.Fatal(err)
	}
	d, err := l.Disk()
	if err != nil {
		t.Fatal(err)
	}

	// The same question from a raw client, as version 10 has it.
	conn, err := Dial(ctx, c.Node(1).Address(), "raw")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 10, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = codec.LatestTieredTimestamp
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "uploaded", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := conn.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.Offset != d.Active()-1 || got.LeaderEpoch != 0 || d.Active() < 1 {
		t.Errorf("got %+v; want offset %d, the one before the active segment, of epoch 0", got, d.Active()-1)
	}

	// The restart adds a leader epoch, and the log is what it was.
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := awaitState(uploadedAllLocal)(ctx, l); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(ctx, 1, 1); err != nil {
		t.Fatal(err)
	}
	if len(l.Epochs) != 2 || l.Epochs[1].Offset != fourSegments || l.Epochs[1].Epoch <= l.Epochs[0].Epoch {
		t.Errorf("epochs after a restart: %v; want a second one from %d on", l.Epochs, fourSegments)
	}

	r, err := c.Jars().Run(ctx, Tool{
		Class: "org.apache.kafka.tools.GetOffsetShell",
		Args:  []string{"--bootstrap-server", c.Node(1).Address(), "--topic", "uploaded", "--time", "latest"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 0 || r.Stdout != "uploaded:0:801\n" {
		t.Errorf("GetOffsetShell: %v\nwant uploaded:0:801", r)
	}
}

func TestThreeNodesOneKilled(t *testing.T) {
	ctx := realBrokers(t)
	c := start(t, Options{Version: Kafka43, Logger: progress(), Nodes: []NodeOptions{
		{NodeID: 0},
		{NodeID: 1, Listeners: []Listener{{Name: "CLIENTS", Advertised: "kafka.example:9092"}}},
		{NodeID: 2},
	}})
	if err := c.CreateTopic(ctx, "t", 1, 3, nil); err != nil {
		t.Fatal(err)
	}
	if got := advertised(t, ctx, c.Node(1).ListenerAddress("CLIENTS")); got != "kafka.example:9092" {
		t.Errorf("node 1 advertises %s to CLIENTS, want kafka.example:9092", got)
	}
	before, leader, err := c.LeaderEpoch(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	addr := c.Node(leader).Address()
	c.Node(leader).Kill()
	if c.Node(leader).Running() {
		t.Fatalf("node %d runs on after Kill", leader)
	}
	err = Poll(ctx, "another leader", func(ctx context.Context) error {
		epoch, now, err := c.LeaderEpoch(ctx, "t")
		if err == nil && (now == leader || epoch <= before) {
			err = errNotYet
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Node(leader).Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.Node(leader).Address(); got != addr || !slices.Contains(c.BootstrapServers(), addr) {
		t.Errorf("after the restart node %d is at %s, before it was at %s", leader, got, addr)
	}
	pid := c.Node(0).PID()
	c.Close()
	if err := signalGroup(pid, 0); err == nil {
		t.Errorf("process group %d of node 0 lives after Close", pid)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of the cluster after Close: %v", err)
	}
}

// advertised returns the address of node 1 in the Metadata answer of a listener.
func advertised(t *testing.T, ctx context.Context, addr string) string {
	t.Helper()
	conn, err := Dial(ctx, addr, "raw")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{}
	resp, err := conn.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
		if b.NodeID == 1 {
			return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	t.Fatalf("node 1 is not in %+v", resp)
	return ""
}

func TestABrokerThatDoesNotStartShowsItsLog(t *testing.T) {
	ctx := realBrokers(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = Launch(ctx, Options{Version: Kafka43, Nodes: []NodeOptions{{NodeID: 5, Listeners: []Listener{{Name: "CLIENTS", Port: port}}}}})
	if err == nil {
		t.Fatalf("a broker started on port %d, which is taken", port)
	}
	for _, want := range []string{"node 5 of Kafka 4.3.0", "the broker ended", "Address already in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestFetchOfACachedVersionNeedsNoMaven(t *testing.T) {
	ctx := realBrokers(t)
	want, err := Fetch(ctx, Kafka41, progress())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(CacheEnv, filepath.Dir(want.Dir))
	t.Setenv("PATH", t.TempDir())
	if got, err := Fetch(ctx, Kafka41, progress()); err != nil || got != want {
		t.Errorf("got %v, %v; want %v from the cache", got, err, want)
	}
}
