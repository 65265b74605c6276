// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/cache/tiered"
	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// BenchmarkReadMetadataTopic reads 500,000 records, those of 250,000 segments of 2,500
// partitions with four epochs each, from the start of the topic to its end.
func BenchmarkReadMetadataTopic(b *testing.B) {
	const segments, partitions = 250_000, 2_500
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(50, codec.RemoteLogMetadata))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	fillMetadataTopic(b, cluster, segments, partitions)
	var before, after runtime.MemStats
	for b.Loop() {
		c, err := New(Options{BootstrapServers: cluster.ListenAddrs(), TieredOffsets: TieredOffsetsFromMetadataTopic})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		c.Start(ctx)
		if err := c.AwaitTiered(ctx, []TopicPartition{{}}); err != nil {
			b.Fatal(err)
		}
		for c.TieredOffsetsReady() != nil && ctx.Err() == nil {
			runtime.Gosched()
		}
		b.ReportMetric(2*segments/time.Since(began).Seconds(), "records/s")
		index := c.tieredReader.index
		c.Close()
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := index.Counts()
		if n.Partitions != partitions || n.Records != 2*segments || n.InFlight != 0 {
			b.Fatalf("%+v", n)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/partitions, "bytes/partition")
		b.ReportMetric(float64(n.Epochs)/partitions, "epochs/partition")
		cancel()
	}
}

// fillMetadataTopic writes the records of segments.
func fillMetadataTopic(b *testing.B, cluster *kfake.Cluster, segments, partitions int) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(segments))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for n := range segments {
		s := tierlog.RemoteSegment{Topic: "a-topic-of-some-length", TopicID: tiered.UUID{1}, Partition: int32(n % partitions)}
		binary.BigEndian.PutUint64(s.ID[:], uint64(n))
		round := int64(n / partitions)
		s.Start, s.End = round*100, round*100+99
		s.Epochs = []tierlog.EpochStart{{Epoch: int32(round / 25), Offset: s.Start}}
		for _, state := range []int8{tierlog.CopySegmentStarted, tierlog.CopySegmentFinished} {
			client.Produce(b.Context(), &kgo.Record{
				Topic: codec.RemoteLogMetadata, Partition: tiered.MetadataPartition(s.TopicID, s.Partition, 50), Value: tierlog.RemoteEvent{Segment: s, State: state}.Value(),
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}
