// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"tiergate/config"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
)

// demoWidth is what a terminal must have for the demo.
const demoWidth = 110

// newDemo is a demo whose two sides are simulated clusters of the given versions: one
// in the place of the brokers, one in the place of tiergate.
func newDemo(t *testing.T, brokers, front sim.Version) (d *demo, in *sim.Cluster, out *bytes.Buffer) {
	t.Helper()
	var clusters []*sim.Cluster
	for _, version := range []sim.Version{brokers, front} {
		c, err := sim.New(sim.Options{Version: version, Topics: sim.SampleTopics()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clusters = append(clusters, c)
	}
	out = new(bytes.Buffer)
	return &demo{cluster: clusters[0], topics: sim.SampleTopics(), through: clusters[1].Addresses()[0], out: out}, clusters[1], out
}

func TestDemoFindsAWrongAnswer(t *testing.T) {
	d, front, out := newDemo(t, sim.Kafka41, sim.Kafka43)
	if err := front.Update("orders", 2, func(l *tierlog.Log) { l.Upload(1100) }); err != nil {
		t.Fatal(err)
	}
	err := d.show(t.Context())
	var exit *exitError
	if !errors.Is(err, errDemoDiffers) || !errors.As(err, &exit) || exit.code != exitIncomplete {
		t.Fatalf("got %v, want errDemoDiffers with exit code %d\n%s", err, exitIncomplete, out)
	}
	for _, want := range []string{
		"orders    2  partly uploaded, all on disk      0      0     999  1800   refused      1101      699  WRONG\n",
		"CHECK: 8 of 9 answers",
		"WRONG: orders-2: a Kafka 4.2+ broker says 1000 (leader epoch 0), tiergate says 1101 (leader epoch 0)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

// The right offset with the wrong leader epoch is wrong.
func TestDemoComparesEpochs(t *testing.T) {
	d, front, out := newDemo(t, sim.Kafka41, sim.Kafka43)
	if err := front.Update("clicks", 0, func(l *tierlog.Log) {
		l.LoseEpochs() // offset 0 has no known epoch any more
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.show(t.Context()); !errors.Is(err, errDemoDiffers) {
		t.Fatalf("got %v, want errDemoDiffers\n%s", err, out)
	}
	want := "WRONG: clicks-0: a Kafka 4.2+ broker says 0 (leader epoch 0), tiergate says 0 (leader epoch -1)\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

// A front that refuses, as tiergate would if it did nothing, is found out.
func TestDemoFindsAProxyThatDoesNothing(t *testing.T) {
	d, _, out := newDemo(t, sim.Kafka41, sim.Kafka41)
	if err := d.show(t.Context()); !errors.Is(err, errDemoDiffers) {
		t.Fatalf("got %v, want errDemoDiffers\n%s", err, out)
	}
	if want := "CHECK: 0 of 9 answers"; !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

func TestDemoFindsBrokersThatDoNotRefuse(t *testing.T) {
	d, _, out := newDemo(t, sim.Kafka43, sim.Kafka43)
	if err := d.show(t.Context()); !errors.Is(err, errDemoDiffers) {
		t.Fatalf("got %v, want errDemoDiffers\n%s", err, out)
	}
	if want := "WRONG: orders-0: asked directly, the Kafka 4.1 broker says 4200 and should refuse\n"; !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

// startDemo is the demo as Run starts it, with tiergate in front.
func startDemo(t *testing.T) (d *demo, out *bytes.Buffer) {
	t.Helper()
	topics := sim.SampleTopics()
	c, err := sim.New(sim.Options{Topics: topics, SystemRemoteStorage: sim.RemoteStorageEnabled})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	out = new(bytes.Buffer)
	d = &demo{cluster: c, topics: topics, out: out}
	stop, err := d.startProxy(t.Context(), 0, &Streams{Out: out, Err: queued(t, io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return d, out
}

// Through the real proxy, while the logs go through their states: every answer stays
// the native one, and no ListOffsets above the brokers' version reaches them.
func TestDemoLogsMove(t *testing.T) {
	d, out := startDemo(t)
	var ends []string
	for step := range 12 {
		out.Reset()
		if err := d.show(t.Context()); err != nil {
			t.Fatalf("after %d steps: %v\n%s", step, err, out)
		}
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimSuffix(line, "\n")); n > demoWidth {
				t.Errorf("%d columns, want at most %d: %s", n, demoWidth, line)
			}
			if strings.HasPrefix(line, "sensors") {
				ends = append(ends, strings.Join(strings.Fields(line)[2:], " "))
			}
		}
		if err := d.move(step); err != nil {
			t.Fatal(err)
		}
	}
	// The seventh partition: 29 records a step, and an upload every fourth.
	want := []string{
		"tiered, still empty 0 0 none 0 refused none 0 ok",
		"nothing uploaded yet 0 0 none 29 refused 0 29 ok",
		"partly uploaded, all on disk 0 0 37 58 refused 38 20 ok",
		"partly uploaded, all on disk 0 0 37 87 refused 38 49 ok",
	}
	if !slices.Equal(ends[:len(want)], want) {
		t.Errorf("sensors-0 went through\n%s\nwant\n%s", strings.Join(ends[:len(want)], "\n"), strings.Join(want, "\n"))
	}
	if last, want := ends[len(ends)-1], "partly uploaded, all on disk 0 0 269 319 refused 270 49 ok"; last != want {
		t.Errorf("at last: %s, want %s", last, want)
	}
	for r := range d.cluster.Requests() {
		if r.Key == kmsg.ListOffsets && r.Version > 10 {
			t.Errorf("node %d was asked with ListOffsets %d", r.NodeID, r.Version)
		}
	}
}

// keepDemo runs `tiergate demo --keep` until it has said where to ask. end stops it.
func keepDemo(t *testing.T, args ...string) (bootstrap string, end func() (code int, errOut string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var errOut bytes.Buffer
	code := make(chan int, 1)
	go func() {
		defer w.Close()
		code <- run(append([]string{"demo", "--keep"}, args...), Stop{Soon: ctx, Now: ctx}, w, &errOut)
	}()
	end = func() (int, string) {
		cancel()
		_, _ = io.Copy(io.Discard, r)
		return <-code, errOut.String()
	}
	var out bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(out.String(), "refused there") {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			c, e := end()
			t.Fatalf("ended with code %d: %s\n%s", c, e, out.String())
		}
	}
	_, rest, _ := strings.Cut(out.String(), "tiergate answers at ")
	bootstrap, _, _ = strings.Cut(rest, " ")
	return bootstrap, end
}

// offsetsOf runs `tiergate offsets` and returns end and -6 of a partition.
func offsetsOf(t *testing.T, bootstrap, topic string) (end, pending int64) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run([]string{"offsets", "--json", "--bootstrap-servers", bootstrap, "--topic", topic},
		Stop{Soon: t.Context(), Now: t.Context()}, &out, &errOut)
	var row struct {
		End     *int64 `json:"end"`
		Pending *int64 `json:"earliest_pending_upload"`
	}
	if err := json.NewDecoder(&out).Decode(&row); code != exitOK || err != nil || row.End == nil {
		t.Fatalf("code %d, %v: %s%s", code, err, out.String(), errOut.String())
	}
	if row.Pending == nil {
		return *row.End, -1
	}
	return *row.End, *row.Pending
}

func TestDemoKeep(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	bootstrap, end := keepDemo(t, "--pace", "20ms")
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	firstEnd, firstPending := offsetsOf(t, bootstrap, "clicks")
	lastEnd, lastPending := firstEnd, firstPending
	for lastEnd <= firstEnd || lastPending <= firstPending {
		if deadline.Err() != nil {
			t.Fatalf("the logs stand still: end %d, pending from %d", lastEnd, lastPending)
		}
		lastEnd, lastPending = offsetsOf(t, bootstrap, "clicks")
	}
	if code, errOut := end(); code != exitOK || errOut != "" {
		t.Errorf("exit code %d, want %d; stderr: %s", code, exitOK, errOut)
	}
}

// What the demo says to write into a file is a configuration.
func TestDemoConfigIsRight(t *testing.T) {
	var text strings.Builder
	for line := range strings.Lines(demoConfig) {
		text.WriteString(strings.TrimPrefix(line, "  "))
	}
	c, err := config.Parse("demo", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Listeners[0].Bootstrap.String(), "127.0.0.1:9192"; got != want {
		t.Errorf("bootstrap %s, want %s", got, want)
	}
}
