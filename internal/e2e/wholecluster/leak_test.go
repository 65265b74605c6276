// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// testLeakIsSeen leads every client elsewhere on purpose, through a listener that passes
// the last node's own address on, and makes sure that the checks of all other tests would
// notice: the name, and addresses that are not those of the listener under test.
func testLeakIsSeen(t *testing.T, ctx context.Context, w *whole) {
	const topic = "leaked"
	must(t, w.cluster.CreateTopic(ctx, topic, nodes, nodes, nil))
	w.moveLeaders(t, ctx, shifted(0, nodes, topic))
	want := append([]string{brokerName(nodes)}, w.leaking...)
	slices.Sort(want)
	check := func(what string, seen targets) {
		t.Helper()
		if got := seen.elsewhere(w.allowed()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s was led to %v, and of %v what was noticed is %v", what, want, seen, got)
		}
	}
	for what, cmd := range map[string]*exec.Cmd{
		"Java": w.java(t, ctx, "touch", w.leaking[0], topic), "librdkafka": w.librdkafka(t, "touch", w.leaking[0], topic),
	} {
		c := watch(t, what, cmd)
		c.wait(t, ctx)
		check(what, c.targets(t))
	}
	var d dialer
	cl := w.franz(t, &d, kgo.SeedBrokers(w.leaking[0]), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(2*time.Second))
	for p := range int32(nodes) {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("touch")}, nil) // whatever becomes of it
	}
	must(t, cl.Flush(ctx))
	check("franz-go", d.targets())
}
