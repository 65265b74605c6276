// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
	"tiergate/upstream"
)

// versions are what the tests run: the newest without -5.
var versions = flag.String("versions", kafka.Kafka38, "versions of Kafka, comma-separated")

// bench is a cluster whose brokers' memory can be read, and a reader of its metadata topic.
type bench struct {
	cluster *kafka.Cluster
	reader  *upstream.Cluster
	debug   map[int32]int // port of each node

	comparisons int
	different   int
	causes      map[cause]int
}

// cause is why the broker and what is derived differ, as docs/operations.md says.
type cause string

const (
	// noCause: a difference is a failure.
	noCause cause = ""
	// deletedEpochs: all records that were uploaded, and their leader epochs, were deleted
	// since the leader looked. It remembers the old offset until it looks again.
	deletedEpochs cause = "uploaded epochs deleted"
	// electedAgain: the leader was elected again in the same process, and its copy task has
	// found what is derived. The log's field keeps the higher offset of before: it only grows.
	electedAgain cause = "elected again, the field only grows"
	// notRefilled: the copy task of Kafka 3.6 has looked what is uploaded, but does not put
	// it into the log's field, as later versions do: only the next copy does. The task's
	// offset is compared.
	notRefilled cause = "3.6: field not refilled"
	// notLimited: more was uploaded of the epoch that decides than the log has of it.
	// RemoteLogManager.findHighestRemoteOffset of Kafka 3.6 returns that, from 3.7 on it
	// returns the last offset of the epoch in the log.
	notLimited cause = "3.6: not limited to the epoch's end"
)

func newBench(t *testing.T, version string) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with a JDK 17+ and Maven")
	}
	ports, err := kafka.FreePorts(1)
	must(t, err)
	b := &bench{debug: map[int32]int{}, causes: map[cause]int{}}
	options := kafka.Options{
		Version: version, TieredStorage: kafka.TieredStorageOn, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		// A broker that waits for a processor must not be fenced: that is an election.
		Properties: map[string]string{"broker.session.timeout.ms": "30000"},
	}
	for i, port := range ports {
		id := int32(i + 1)
		b.debug[id] = port
		options.Nodes = append(options.Nodes, kafka.NodeOptions{NodeID: id, JVM: []string{kafka.PeekJVM(port)}})
	}
	b.cluster = stand.Brokers(t, options)
	b.reader, err = upstream.New(upstream.Options{
		BootstrapServers: b.cluster.BootstrapServers(), TieredOffsets: upstream.TieredOffsetsFromMetadataTopic,
		Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
	})
	must(t, err)
	b.reader.Start(t.Context())
	t.Cleanup(b.reader.Close)
	return b
}

// compare compares every partition of the user's topics at rest. A broker comes to rest by
// itself: a difference must stay over five tries. allowed is what the history may have
// caused; the causes of Kafka 3.6 are always allowed there.
func (b *bench) compare(t *testing.T, ctx context.Context, state string, allowed cause) {
	t.Helper()
	began := time.Now()
	var found []string
	var causes map[cause]int
	n := 0
	for range 5 {
		memory, err := b.memory(ctx)
		if err != nil { // objects may go while they are looked at
			found = []string{err.Error()}
			continue
		}
		if found, causes, n = b.differences(t, ctx, memory, allowed); len(found) == 0 {
			break
		}
	}
	b.count(t, state, found, causes, n, began)
}

// memory is what the leaders have in memory, by their node ids.
func (b *bench) memory(ctx context.Context) (map[int32][]kafka.TieredInMemory, error) {
	all := map[int32][]kafka.TieredInMemory{}
	for _, node := range b.cluster.Nodes() {
		if !node.Running() {
			continue
		}
		memory, err := kafka.Peek(ctx, b.debug[node.NodeID()])
		if err != nil {
			return nil, err
		}
		if all[node.NodeID()], err = b.led(ctx, node, memory); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// led leaves out the partitions that a node does not lead, those of deleted topics, whose
// objects are still in memory, and Kafka's own.
func (b *bench) led(ctx context.Context, node *kafka.Node, memory []kafka.TieredInMemory) ([]kafka.TieredInMemory, error) {
	conn, err := kafka.Dial(ctx, node.Address(), "leaders")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	req := kmsg.NewPtrMetadataRequest() // all topics
	req.Version = 12
	resp, err := conn.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	type partition struct {
		id     [16]byte
		number int32
	}
	leaders := map[partition]int32{}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			leaders[partition{t.TopicID, p.Partition}] = p.Leader
		}
	}
	return slices.DeleteFunc(memory, func(m kafka.TieredInMemory) bool {
		leader, known := leaders[partition{m.TopicID, m.Partition}]
		return strings.HasPrefix(m.Topic, "__") || !known || leader != node.NodeID()
	}), nil
}

// count adds a comparison to the totals.
func (b *bench) count(t *testing.T, state string, found []string, causes map[cause]int, n int, began time.Time) {
	t.Helper()
	if n == 0 {
		t.Errorf("%s: nothing was compared", state)
	}
	b.comparisons += n
	b.different += len(found)
	for c, n := range causes {
		b.causes[c] += n
	}
	for _, difference := range found {
		t.Errorf("%s: %s", state, difference)
	}
	t.Logf("%s: Kafka %s: %d partitions compared, %d different; by cause %v, %v",
		state, b.cluster.Jars().Version, n, len(found), causes, time.Since(began).Round(time.Millisecond))
}

// differences compares every partition once.
func (b *bench) differences(t *testing.T, ctx context.Context, memory map[int32][]kafka.TieredInMemory, allowed cause) (found []string, causes map[cause]int, n int) {
	t.Helper()
	causes = map[cause]int{}
	for node, partitions := range memory {
		conn, err := kafka.Dial(ctx, b.cluster.Node(node).Address(), "compare")
		must(t, err)
		for _, m := range partitions {
			n++
			if b.version36() && m.Task != nil && m.Log != *m.Task {
				if m.Log != -1 {
					found = append(found, fmt.Sprintf("%s-%d: the copy task has %d, the log %d", m.Topic, m.Partition, *m.Task, m.Log))
				}
				causes[notRefilled]++
			}
			switch text, why := b.difference(ctx, conn, m); {
			case text == "":
			case why == notLimited, why == electedAgain, why == deletedEpochs && allowed == deletedEpochs:
				causes[why]++
			default:
				found = append(found, text)
			}
		}
		conn.Close()
	}
	return found, causes, n
}

func (b *bench) version36() bool { return strings.HasPrefix(b.cluster.Jars().Version, "3.6.") }

// summary says what all comparisons came to.
func (b *bench) summary(t *testing.T) {
	t.Logf("Kafka %s: %d comparisons, %d different beyond the named causes; by cause %v",
		b.cluster.Jars().Version, b.comparisons, b.different, b.causes)
}

// difference compares one partition. The text is empty where the broker and what is
// derived agree.
func (b *bench) difference(ctx context.Context, conn *kafka.Conn, m kafka.TieredInMemory) (text string, why cause) {
	want := m.Log
	if b.version36() && m.Task != nil {
		want = *m.Task
	}
	got, err := derive(ctx, conn, b.reader, m.Topic, upstream.TopicPartition{TopicID: m.TopicID, Partition: m.Partition})
	if err == nil && got.offset == want {
		return "", noCause
	}
	text = fmt.Sprintf("%s-%d: derived %+v (%v), the broker has %d", m.Topic, m.Partition, got, err, want)
	if err != nil {
		return text, noCause
	}
	if b.version36() && m.Task != nil && got.unlimited == want && got.offset < want {
		return text, notLimited
	}
	if !b.version36() && m.Task != nil && got.offset == *m.Task && m.Log > *m.Task {
		return text, electedAgain
	}
	start, err := listOffset(ctx, conn, m.Topic, m.Partition, codec.EarliestTimestamp)
	if err == nil && got.offset == -1 && want < start.Offset {
		return text, deletedEpochs
	}
	return text, noCause
}

func eachVersion(t *testing.T, f func(*testing.T, string)) {
	for version := range strings.SplitSeq(*versions, ",") {
		t.Run(version, func(t *testing.T) { f(t, version) })
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
