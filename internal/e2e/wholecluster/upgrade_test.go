// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"tiergate/loadtest/kafka"
)

// testUpgrade upgrades the nodes from 4.1.1 to 4.3.0, one after the other, while clients
// work and ask for -6. In between, when one node is new and two are old, clients of each
// kind do all that they do.
func testUpgrade(t *testing.T, ctx context.Context, w *whole) {
	p := createPending(t, ctx, w, "upgraded")
	for partition := range int32(pendingPartitions) {
		// Something uploaded, something not, nothing that moves by itself.
		for range 2 + partition {
			p.appendSegment(t, ctx, partition)
		}
		p.awaitUpload(t, ctx, partition)
	}
	numbers := startNumbered(t, ctx, w, "upgraded")
	asked := startAskers(t, ctx, w, p.name, pendingPartitions, true)
	java := watch(t, "Java", w.java(t, ctx, "pending", w.bootstrap, p.name, fmt.Sprint(pendingPartitions)))

	for id := int32(1); id <= nodes; id++ {
		node := w.cluster.Node(id)
		must(t, node.Stop(ctx))
		must(t, node.SetVersion(ctx, kafka.Kafka43))
		must(t, node.Start(ctx))
		numbers.awaitProgress(t, ctx)
		asked.awaitRounds(t, ctx)
		// The leaders are back among all, so that every node is asked for something.
		w.moveLeaders(t, ctx, shifted(int(id), pendingPartitions, p.name))
		asked.awaitRounds(t, ctx)
		t.Run(fmt.Sprintf("node %d of %d upgraded", id, nodes), func(t *testing.T) { testWhoAnswers(t, ctx, w, p.name) })
		if id == 1 {
			t.Run("calls", func(t *testing.T) { testCalls(t, ctx, w, "mixed") })
		}
	}
	numbers.end(t)
	java.end(t)
	checkJavaAnswers(t, asked, java.wait(t, ctx))
	w.checkTargets(t, "Java, asking for -6", java.targets(t))
	reportAnswers(t, asked.end(t))
	finalizeMetadata(t, ctx, w)
}

// testWhoAnswers asks each node for -6 through a tiergate of its own and counts what that
// one answered from look-ups: the requests to the older nodes, and no others.
func testWhoAnswers(t *testing.T, ctx context.Context, w *whole, topic string) {
	const requests = 5
	w = w.open(t, ctx, "auto")
	older := 0
	// The newest first, so that what a native broker was asked is counted when the last is.
	for id := int32(1); id <= nodes; id++ {
		a := &asker{askers: &askers{whole: w, topic: topic, partitions: pendingPartitions}, nodeID: id, spans: make([][]span, pendingPartitions)}
		must(t, a.open(ctx))
		if want := w.cluster.Node(id).Version() == kafka.Kafka43; a.native != want {
			t.Errorf("node %d of Kafka %s is native: %v, want %v", id, w.cluster.Node(id).Version(), a.native, want)
		}
		if !a.native {
			older++
		}
		for range requests {
			got, err := a.ask(ctx, a.through)
			must(t, err)
			want, err := a.own(ctx)
			must(t, err)
			if fmt.Sprint(got) != fmt.Sprint(want.pending) {
				t.Errorf("node %d (native %v): tiergate answers %v, the node itself %v", id, a.native, got, want.pending)
			}
		}
		a.close()
	}
	var answered float64
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	must(t, kafka.Poll(waiting, "metrics of tiergate", func(ctx context.Context) error {
		all, err := w.gate.Metric(ctx, "tiergate_requests_total", `api="ListOffsets"`)
		if err == nil && all < nodes*requests {
			err = fmt.Errorf("%v requests counted", all)
		}
		if err == nil {
			answered, err = w.gate.Metric(ctx, "tiergate_pending_upload_requests_total")
		}
		if err == nil && answered < float64(older*requests) {
			err = fmt.Errorf("%v answered from look-ups, of %d to older nodes", answered, older*requests)
		}
		return err
	}))
	if answered != float64(older*requests) {
		t.Errorf("tiergate answered %v requests from look-ups, want %d: those to the %d older nodes", answered, older*requests, older)
	}
	t.Logf("%d of %d requests answered from look-ups, those to %d older nodes", int(answered), nodes*requests, older)
}

// checkJavaAnswers compares what the Java client was answered, over the whole upgrade on
// one Admin, with what nodes themselves said at that time.
func checkJavaAnswers(t *testing.T, asked *askers, out string) {
	t.Helper()
	answers := 0
	for line := range strings.Lines(out) {
		var began, ended int64
		var partition int32
		var got answer
		if _, err := fmt.Sscan(line, &began, &ended, &partition, &got.Offset, &got.Epoch); err != nil {
			t.Fatalf("the Java client says %q: %v", line, err)
		}
		answers++
		if !asked.saidAround(partition, got, time.UnixMilli(began), time.UnixMilli(ended)) {
			t.Errorf("the Java client was answered %v for partition %d, which no node said at the time", got.Position, partition)
		}
	}
	t.Logf("a Java client was answered %d times over the upgrade", answers)
	if answers < 100 {
		t.Errorf("the Java client was answered %d times in all", answers)
	}
}

// finalizeMetadata ends the upgrade: metadata.version of the new release.
func finalizeMetadata(t *testing.T, ctx context.Context, w *whole) {
	t.Helper()
	cl, err := w.cluster.Client()
	must(t, err)
	defer cl.Close()
	versions, err := kadm.NewClient(cl).ApiVersions(ctx)
	must(t, err)
	level := int16(0)
	versions.Each(func(v kadm.BrokerApiVersions) {
		for _, f := range v.Raw().SupportedFeatures {
			if f.Name == "metadata.version" {
				level = f.MaxVersion
			}
		}
	})
	w.finalize(t, ctx, "metadata.version", level)
}
