// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"tiergate/codec"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/stand"
	"tiergate/internal/testkit/tierlog"
)

// terminalWidth is what a terminal must have for the demo.
const terminalWidth = 110

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tiergate-demo-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = stand.Build(dir)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

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
	if err := d.show(t.Context()); !errors.Is(err, ErrDiffers) {
		t.Fatalf("got %v, want ErrDiffers\n%s", err, out)
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
	if err := d.show(t.Context()); !errors.Is(err, ErrDiffers) {
		t.Fatalf("got %v, want ErrDiffers\n%s", err, out)
	}
	want := "WRONG: clicks-0: a Kafka 4.2+ broker says 0 (leader epoch 0), tiergate says 0 (leader epoch -1)\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

// A front that refuses, as tiergate would if it did nothing, is found out.
func TestDemoFindsAProxyThatDoesNothing(t *testing.T) {
	d, _, out := newDemo(t, sim.Kafka41, sim.Kafka41)
	if err := d.show(t.Context()); !errors.Is(err, ErrDiffers) {
		t.Fatalf("got %v, want ErrDiffers\n%s", err, out)
	}
	if want := "CHECK: 0 of 9 answers"; !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

func TestDemoFindsBrokersThatDoNotRefuse(t *testing.T) {
	d, _, out := newDemo(t, sim.Kafka43, sim.Kafka43)
	if err := d.show(t.Context()); !errors.Is(err, ErrDiffers) {
		t.Fatalf("got %v, want ErrDiffers\n%s", err, out)
	}
	if want := "WRONG: orders-0: asked directly, the Kafka 4.1 broker says 4200 and should refuse\n"; !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

// startDemo is the demo as Run starts it, with tiergate in front.
func startDemo(t *testing.T) (d *demo, out *bytes.Buffer) {
	t.Helper()
	topics := sim.SampleTopics()
	c, err := sim.New(sim.Options{Topics: topics, SystemRemoteStorage: codec.RemoteStorageEnabled})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	out = new(bytes.Buffer)
	d = &demo{cluster: c, topics: topics, out: out}
	stop, err := d.startProxy(t.Context(), stand.Binary(), 0)
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
			if n := len(strings.TrimSuffix(line, "\n")); n > terminalWidth {
				t.Errorf("%d columns, want at most %d: %s", n, terminalWidth, line)
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

// keepDemo runs the demo with Pace until it has said where to ask. end stops it.
func keepDemo(t *testing.T, pace time.Duration) (bootstrap string, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		defer w.Close()
		ended <- Run(ctx, Options{Binary: stand.Binary(), Brokers: 3, Pace: pace, Out: w})
	}()
	end = func() error {
		cancel()
		_, _ = io.Copy(io.Discard, r)
		return <-ended
	}
	var out bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(out.String(), "refused there") {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			t.Fatalf("ended: %v\n%s", end(), out.String())
		}
	}
	_, rest, _ := strings.Cut(out.String(), "tiergate answers at ")
	bootstrap, _, _ = strings.Cut(rest, " ")
	return bootstrap, end
}

// offsetsOf returns the end and -6 of partition 0 of a topic.
func offsetsOf(t *testing.T, client *kgo.Client, topic string) (end, pending int64) {
	t.Helper()
	at := position{topic, 0}
	var offsets []int64
	for _, timestamp := range []int64{codec.LatestTimestamp, codec.EarliestPendingUploadTimestamp} {
		got, err := list(t.Context(), client, timestamp, []row{{at: at}})
		if err != nil || got[at].code != 0 {
			t.Fatalf("timestamp %d: %+v, %v", timestamp, got, err)
		}
		offsets = append(offsets, got[at].offset)
	}
	return offsets[0], offsets[1]
}

func TestDemoKeep(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	bootstrap, end := keepDemo(t, 20*time.Millisecond)
	client, err := newClient(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	firstEnd, firstPending := offsetsOf(t, client, "clicks")
	lastEnd, lastPending := firstEnd, firstPending
	for lastEnd <= firstEnd || lastPending <= firstPending {
		if deadline.Err() != nil {
			t.Fatalf("the logs stand still: end %d, pending from %d", lastEnd, lastPending)
		}
		lastEnd, lastPending = offsetsOf(t, client, "clicks")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A tiergate that ends by itself ends the demo, with what it said.
func TestDemoWithoutItsProxy(t *testing.T) {
	d, _ := startDemo(t)
	d.gate.Kill()
	err := d.keep(t.Context(), time.Hour)
	if err == nil || !strings.HasPrefix(err.Error(), "tiergate ended by itself:\n") {
		t.Errorf("got %v", err)
	}
}

// What the demo says to write into a file is a configuration.
func TestDemoConfigIsRight(t *testing.T) {
	var text strings.Builder
	for line := range strings.Lines(firstConfig) {
		text.WriteString(strings.TrimPrefix(line, "  "))
	}
	file := filepath.Join(t.TempDir(), "tiergate.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(stand.Binary(), "serve", "--dry-run", "--config", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "127.0.0.1:9192") {
		t.Errorf("%v\n%s", err, out)
	}
}
