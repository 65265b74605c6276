// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/internal/testkit/sim"
	"tiergate/loadtest/report"
)

// logProgress shows a run in the test's log, and calls f once a second of a turn.
type logProgress struct {
	t *testing.T
	f func(Second)

	mu *sync.Mutex
}

func newLogProgress(t *testing.T, f func(Second)) logProgress {
	return logProgress{t, f, new(sync.Mutex)}
}

func (p logProgress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Logf(format, args...)
}

func (p logProgress) Second(s Second) {
	if p.f != nil {
		p.f(s)
	}
}

// TestQuick plays the scenario that needs Go only: every kind of workload, with every
// verification, directly and through tiergate, and faults.
func TestQuick(t *testing.T) {
	s, err := Open("quick")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Scenario: s, Tool: "test", Progress: newLogProgress(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict.Outcome != report.Passed {
		t.Errorf("%s: %v", r.Verdict.Outcome, r.Verdict.Reasons)
	}
	var measured []string
	for _, w := range r.Target("tiergate").Workloads {
		measured = append(measured, w.Name)
		if round := w.Round(1); round == nil || round.Operations() == 0 || len(round.Series) == 0 {
			t.Errorf("workload %s has no operations: %+v", w.Name, w)
		}
	}
	const want = "produce mix mix-consumed keyed keyed-consumed transactions transactions-consumed slow slow-consumed churn churn-consumed " +
		"admin connections consume catch-up pending-upload mix-under-faults mix-under-faults-consumed lookups-under-faults"
	if got := strings.Join(measured, " "); got != want {
		t.Errorf("workloads\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"pending-upload", "lookups-under-faults"} {
		if w := r.Target("tiergate").Workload(name); w == nil || w.Counts().Answers == 0 {
			t.Errorf("%s: no answers were judged", name)
		}
	}
	var kinds []string
	for _, m := range r.Marks {
		kinds = append(kinds, m.Kind)
	}
	slices.Sort(kinds)
	if got := strings.Join(slices.Compact(kinds), " "); got != "cut-rst latency proxy-restart" {
		t.Errorf("faults %s; want cut-rst, latency and proxy-restart", got)
	}
	if turn := r.Target("tiergate").Turn("mixed", 1); turn == nil || len(turn.Metrics) == 0 {
		t.Error("no metrics of tiergate")
	}
}

const oneWorkload = `
name: one
clusters: [{name: main, kind: sim}]
topics: [{name: tiered, partitions: 3, tiered: true, records: 300, record_size: 100, uploaded: true}]
targets: [{kind: direct}]
phases:
  - name: only
    duration: 1s
    workloads: [WORKLOAD]
`

// A broker that acknowledges what it throws away is caught.
func TestALostBatchIsSeenEndToEnd(t *testing.T) {
	c, err := startCluster(t.Context(), Cluster{Name: "main", Kind: ClusterSim, Version: "4.1.1", Brokers: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	produced, thrown := 0, int64(0)
	c.sim.Kfake().ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.sim.Kfake().KeepControl()
		if produced++; produced != 3 {
			return nil, nil, false
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(req.GetVersion())
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				batch := kmsg.NewRecordBatch()
				if err := batch.ReadFrom(p.Records); err != nil {
					return nil, err, true
				}
				thrown += int64(batch.NumRecords)
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	w := Workload{}
	w.setDefaults()
	w.Name, w.Kind, w.Partitions, w.Rate, w.Idempotent, w.Acks = "w", WorkloadProduce, 1, 2000, false, AcksLeader
	j := newJob(setting{spec: w, target: &target{bootstrap: c.bootstrap}, cluster: c, number: 1, topic: "t"})
	defer j.close(t.Context())
	if err := j.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for j.(*recordsJob).ledger.sent() < 200 {
			if !pause(t.Context(), nil, shortestWait) {
				return
			}
		}
	}()
	if err := j.run(t.Context(), stop); err != nil {
		t.Fatal(err)
	}
	if err := j.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := j.measured()[0].counts
	if thrown == 0 || got.Lost != thrown || got.Sent != got.Received+thrown {
		t.Errorf("%d records thrown away; verdict %+v", thrown, got)
	}
}

// An answer that no broker would give is caught.
func TestAWrongAnswerIsSeenEndToEnd(t *testing.T) {
	c, err := startCluster(t.Context(), Cluster{Name: "main", Kind: ClusterSim, Version: "4.3.0", Brokers: 1, Tiered: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.createShared(t.Context(), Topic{Name: "t", Partitions: 2, Tiered: true, Records: 200, RecordSize: 100, Uploaded: true}, 1); err != nil {
		t.Fatal(err)
	}
	j := &pendingUploadJob{setting: setting{spec: Workload{Topic: "t", Clients: 1, Timestamp: -6}, target: &target{bootstrap: c.bootstrap}, cluster: c}}
	defer j.close(t.Context())
	if err := j.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := j.asking[0]
	for range 3 {
		if err := a.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	right := j.truth.states[0][1].pending(true)
	if right <= 0 {
		t.Fatalf("nothing is pending: %+v", j.truth.states[0])
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = 11
	topic := kmsg.NewListOffsetsResponseTopic()
	topic.Topic = "t"
	wrong := kmsg.NewListOffsetsResponseTopicPartition()
	wrong.Partition, wrong.Offset, wrong.LeaderEpoch = 1, right-1, 0
	refused := kmsg.NewListOffsetsResponseTopicPartition()
	refused.ErrorCode = kerr.UnsupportedVersion.Code
	topic.Partitions = append(topic.Partitions, wrong, refused)
	resp.Topics = append(resp.Topics, topic)
	frame := append([]byte{0, 0, 0, 0, 0, 0, 0, 9, 0}, resp.AppendTo(nil)...)
	if err := a.answered(a.conns[0], frame, a.conns[0].began); err != nil {
		t.Fatal(err)
	}
	if err := j.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The three right answers of that partition are in the same window.
	if got := j.got.counts; got != (report.Counts{Answers: 7, Wrong: 4}) {
		t.Errorf("%+v, want 7 answers and the 4 of partition 1 wrong: %v", got, j.got.notes)
	}
	notes := strings.Join(j.got.notes, "\n")
	if !strings.Contains(notes, "UNSUPPORTED_VERSION") || !strings.Contains(notes, "partition 1, 4 answers") {
		t.Errorf("notes %s", notes)
	}
}

// The report so far is a whole one: what was measured until then is verified.
func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s, err := Parse("one.yaml", []byte(strings.NewReplacer("WORKLOAD", "{kind: produce-consume, rate: 500, partitions: 2, in_flight: 500}", "1s", "1h").Replace(oneWorkload)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(ctx, Options{Scenario: s, Tool: "test", Progress: newLogProgress(t, func(Second) { interrupt() })})
	if err != nil {
		t.Fatal(err)
	}
	w := r.Target("direct").Workload("produce-consume")
	if w == nil || !r.Interrupted || r.Verdict.Outcome != report.Incomplete {
		t.Fatalf("%+v", r)
	}
	if c := w.Counts(); c.Sent < 500 || c.Received != c.Sent || c.Lost != 0 {
		t.Errorf("%+v; want at least a second's records, all of them received", c)
	}
}

// On a cluster that is there, topics are created and deleted again.
func TestExistingCluster(t *testing.T) {
	c, err := sim.New(sim.Options{Brokers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := `
name: there
topics: [{name: shared, partitions: 2, records: 100, record_size: 100}]
targets: [{kind: direct}, {kind: tiergate}, {kind: haproxy}]
phases:
  - name: only
    duration: 300ms
    workloads:
      - {kind: produce, rate: 200, partitions: 2, in_flight: 500}
      - {kind: consume, topic: shared, consume_rate: 1000}
`
	s, err := Parse("there.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Scenario: s, Tool: "test", Progress: newLogProgress(t, nil), Cluster: strings.Join(c.Addresses(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	// HAProxy is left out, and the report says so.
	if r.Verdict.Outcome != report.Incomplete || len(r.Verdict.Reasons) != 1 || !strings.Contains(r.Verdict.Reasons[0], "haproxy") {
		t.Errorf("%+v", r.Verdict)
	}
	for _, name := range []string{"direct", "tiergate"} {
		if got := r.Target(name).Workload("produce").Counts(); got.Sent < 40 || got.Received != got.Sent {
			t.Errorf("%s: %+v", name, got)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addresses()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context())
	if err != nil || len(topics) != 0 {
		t.Errorf("topics that are left: %v, %v", topics.Names(), err)
	}
}
