// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
)

// ledger is the topic of these tests, with partitions that are empty at first.
func ledger(partitions int) sim.Topic {
	t := sim.Topic{Name: "ledger"}
	for range partitions {
		t.Partitions = append(t.Partitions, tierlog.New(0))
	}
	return t
}

// within bounds what a test asks of a client.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// oneOfEach is a record for each partition of the topic.
func oneOfEach(partitions int, value string) []*kgo.Record {
	var records []*kgo.Record
	for p := range partitions {
		records = append(records, &kgo.Record{Topic: "ledger", Partition: int32(p), Value: fmt.Appendf(nil, "%s in %d", value, p)})
	}
	return records
}

// consume polls until n records are there and returns their values, sorted.
func consume(ctx context.Context, t *testing.T, cl *kgo.Client, n int) []string {
	t.Helper()
	var values []string
	for len(values) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(values), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	slices.Sort(values)
	return values
}

// Clients that produce, consume, run a group and transactions while leaders move see no
// address but the proxy's, and connect to no other.
func TestNoAddressLeaks(t *testing.T) {
	const partitions, rounds = 6, 5
	cluster := startSim(t, sim.Options{Version: sim.Kafka43, Topics: []sim.Topic{ledger(partitions)}})
	first, err := freePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	startProcess(t, t.TempDir(), at(4), fmt.Sprintf(`
upstream: {bootstrap_servers: [%q]}
listeners: [{name: clients, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: tiergate.test}]
`, cluster.Addresses()[0], at(0), first+1, first+3))
	r := &recorder{lookup: to127, proxys: func(hostport string) bool {
		host, port, _ := net.SplitHostPort(hostport)
		n, _ := strconv.Atoi(port)
		return hostport == at(0) || host == "tiergate.test" && n > first && n <= first+3
	}}
	ctx := within(t)
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	plain := r.newClient(t, at(0), manual)
	transactional := r.newClient(t, at(0), manual, kgo.TransactionalID("ledger-writer"))
	group := r.newClient(t, at(0), kgo.ConsumerGroup("ledger-readers"), kgo.ConsumeTopics("ledger"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))

	for round := range rounds {
		for p := range int32(partitions) {
			if err := cluster.MoveLeader("ledger", p, (p+int32(round))%3); err != nil {
				t.Fatal(err)
			}
		}
		records := oneOfEach(partitions, fmt.Sprint("plain ", round))
		if err := plain.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := transactional.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		inTransaction := oneOfEach(partitions, fmt.Sprint("transaction ", round))
		if err := transactional.ProduceSync(ctx, inTransaction...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := transactional.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, rec := range append(records, inTransaction...) {
			values = append(values, string(rec.Value))
		}
		slices.Sort(values)
		if got := consume(ctx, t, group, len(values)); !slices.Equal(got, values) {
			t.Fatalf("round %d: got %q, want %q", round, got, values)
		}
	}
	if err := group.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	askEveryVersion(ctx, t, r, at(0))
	r.wantNone(t, "dial", "Metadata", "FindCoordinator", "DescribeCluster", "Produce", "Fetch")
}

// askEveryVersion asks for the addresses in every form that the cluster and we know.
func askEveryVersion(ctx context.Context, t *testing.T, r *recorder, seed string) {
	t.Helper()
	group := func() kmsg.Request {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "ledger-readers", []string{"ledger-readers", "others"}
		return req
	}
	for _, ask := range []struct {
		request func() kmsg.Request
		max     int16
	}{
		{func() kmsg.Request { return kmsg.NewPtrMetadataRequest() }, 13},
		{group, 6},
		{func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() }, 2},
	} {
		for version := range ask.max + 1 {
			req := ask.request()
			versions := kversion.Stable()
			versions.SetMaxKeyVersion(req.Key(), version)
			resp, err := r.newClient(t, seed, kgo.MaxVersions(versions)).Request(ctx, req)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
			}
			newest, _ := kversion.V4_3_0().LookupMaxKeyVersion(req.Key())
			if got, want := resp.GetVersion(), min(version, newest); got != want {
				t.Fatalf("%s: asked for version %d, got %d, want %d", kmsg.NameForKey(req.Key()), version, got, want)
			}
		}
	}
}

// The recorder finds what leaks: a client that speaks to the brokers themselves.
func TestRecorderSeesLeaks(t *testing.T) {
	cluster := startSim(t, sim.Options{Topics: []sim.Topic{ledger(1)}})
	brokers := cluster.Addresses()
	r := &recorder{proxys: func(hostport string) bool { return hostport == brokers[0] }}
	if err := r.newClient(t, brokers[0]).Ping(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.newClient(t, brokers[0]).Request(within(t), kmsg.NewPtrMetadataRequest()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range []string{"Metadata: " + brokers[1], "Metadata: " + brokers[2]} {
		if !slices.Contains(r.leaks, want) {
			t.Errorf("%s is not found: %q", want, r.leaks)
		}
	}
}
