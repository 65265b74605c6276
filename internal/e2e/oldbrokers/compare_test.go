// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
	"tiergate/upstream"
)

// versions are what the tests run: the newest without -5.
var versions = flag.String("versions", kafka.Kafka38, "versions of Kafka, comma-separated")

// bench is one broker whose memory can be read, and a reader of its metadata topic.
type bench struct {
	cluster *kafka.Cluster
	reader  *upstream.Cluster
	debug   int // port

	comparisons int
	refilled    int // Kafka 3.6: differences of the log's field, which is not refilled after a restart
	deleted     int // differences because of deletedEpochs
	different   int
}

// cause is a difference that docs/operations.md names.
type cause uint8

const (
	// noCause: the leader has just looked what is uploaded.
	noCause cause = iota
	// deletedEpochs: all records that were uploaded, and their leader epochs, were deleted
	// since the leader looked. It remembers the old offset until it looks again.
	deletedEpochs
)

func newBench(t *testing.T, version string) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with a JDK 17+ and Maven")
	}
	ports, err := kafka.FreePorts(1)
	must(t, err)
	b := &bench{debug: ports[0]}
	b.cluster = stand.Brokers(t, kafka.Options{
		Version: version, TieredStorage: kafka.TieredStorageOn, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		JVM: []string{kafka.PeekJVM(b.debug)},
	})
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
// itself: a difference must stay over five tries.
func (b *bench) compare(t *testing.T, ctx context.Context, state string, allowed cause) {
	t.Helper()
	began := time.Now()
	var found []string
	n, refilled, deleted := 0, 0, 0
	for range 5 {
		memory, err := kafka.Peek(ctx, b.debug)
		if err != nil { // objects may go while they are looked at
			found = []string{err.Error()}
			continue
		}
		conn, err := kafka.Dial(ctx, b.cluster.Node(1).Address(), "compare")
		must(t, err)
		found, n, refilled, deleted = nil, 0, 0, 0
		for _, m := range memory {
			if strings.HasPrefix(m.Topic, "__") {
				continue
			}
			n++
			d := b.difference(ctx, conn, m)
			switch {
			case d.text == "":
			case d.cause == deletedEpochs && allowed == deletedEpochs:
				deleted++
			default:
				found = append(found, d.text)
			}
			refilled += d.refilled
		}
		conn.Close()
		if len(found) == 0 {
			break
		}
	}
	b.comparisons += n
	b.refilled += refilled
	b.deleted += deleted
	b.different += len(found)
	for _, difference := range found {
		t.Errorf("%s: %s", state, difference)
	}
	t.Logf("%s: Kafka %s: %d partitions compared, %d different, %d of deleted epochs, %d with a field not refilled, %v",
		state, b.cluster.Jars().Version, n, len(found), deleted, refilled, time.Since(began).Round(time.Millisecond))
}

// summary says what all comparisons came to.
func (b *bench) summary(t *testing.T) {
	t.Logf("Kafka %s: %d comparisons, %d different; beyond these %d because the uploaded epochs were deleted, %d where Kafka 3.6 had not refilled its field",
		b.cluster.Jars().Version, b.comparisons, b.different, b.deleted, b.refilled)
}

// difference is one between the broker and what is derived. The text is empty where there
// is none.
type difference struct {
	text  string
	cause cause
	// refilled is 1 where the log's field of Kafka 3.6 is -1 although the copy task knows
	// better: only the next copy fills it.
	refilled int
}

// difference compares one partition.
func (b *bench) difference(ctx context.Context, conn *kafka.Conn, m kafka.TieredInMemory) difference {
	var d difference
	want := m.Log
	if b.cluster.Jars().Version == kafka.Kafka36 && m.Task != nil {
		if want = *m.Task; m.Log == -1 && want != -1 {
			d.refilled = 1
		}
	}
	got, err := derive(ctx, conn, b.reader, m.Topic, upstream.TopicPartition{TopicID: m.TopicID, Partition: m.Partition})
	if err == nil && got == want {
		return d
	}
	d.text = fmt.Sprintf("%s-%d: derived %d (%v), the broker has %d", m.Topic, m.Partition, got, err, want)
	if start, startErr := listOffset(ctx, conn, m.Topic, m.Partition, kafka.EarliestTimestamp); err == nil && startErr == nil && got == -1 && want < start.Offset {
		d.cause = deletedEpochs
	}
	return d
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
