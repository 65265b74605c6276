// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// BenchmarkMetadata rewrites the brokers of a Metadata answer: what it costs is the copy of
// the partitions behind them.
func BenchmarkMetadata(b *testing.B) {
	for _, partitions := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("%d partitions", partitions), func(b *testing.B) {
			benchmarkResponse(b, codec.KeyMetadata, 13, metadataOf(6, partitions))
		})
	}
}

// BenchmarkFindCoordinator and BenchmarkProduce are the answers that come most often.
func BenchmarkFindCoordinator(b *testing.B) {
	r := kmsg.NewPtrFindCoordinatorResponse()
	r.Version = 6
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Host, c.Port = "group", 1, "broker-1.kafka.internal", 9092
	r.Coordinators = append(r.Coordinators, c)
	benchmarkResponse(b, codec.KeyFindCoordinator, 6, frameOf(r, codec.Flexible))
}

func BenchmarkProduce(b *testing.B) {
	r := kmsg.NewPtrProduceResponse()
	r.Version = 13
	topic := kmsg.NewProduceResponseTopic()
	for i := range int32(10) {
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition = i
		topic.Partitions = append(topic.Partitions, p)
	}
	r.Topics = append(r.Topics, topic)
	benchmarkResponse(b, codec.KeyProduce, 13, frameOf(r, codec.Flexible))
}

// benchmarkResponse rewrites a frame that is not changed in place.
func benchmarkResponse(b *testing.B, key, version int16, frame []byte) {
	v := NewConversation(&Rules{Addresses: fleet{host: "tiergate.example.com"}})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := v.Response(key, version, frame); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApiVersions is the answer of a broker of today: in direct mode, and with
// addresses rewritten, where the rows of a broker stay as they are too.
func BenchmarkApiVersions(b *testing.B) {
	r := kmsg.NewPtrApiVersionsResponse()
	r.Version = 4
	for key := range int16(70) {
		r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key + 100, MaxVersion: 9})
	}
	r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 2, MaxVersion: 10}, kmsg.ApiVersionsResponseApiKey{ApiKey: 23, MaxVersion: 4})
	frame := frameOf(r, codec.Classic)
	for name, rules := range map[string]*Rules{"direct": {}, "rewriting": {Addresses: fleet{host: "p"}}} {
		b.Run(name, func(b *testing.B) {
			v := NewConversation(rules)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Response(codec.KeyApiVersions, 4, frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream walks a Fetch answer of 1 MiB and 100 partitions to its tail, and
// rewrites that.
func BenchmarkStream(b *testing.B) {
	frame := bigFetch(11, 100)
	v := NewConversation(&Rules{Addresses: fleet{host: "tiergate.example.com", growth: 300}})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		s := v.Stream(codec.KeyFetch, 17)
		left := walkAll(b, s, frame)
		if _, _, err := s.Tail(frame[len(frame)-left:]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStreamNext is the walk alone.
func BenchmarkStreamNext(b *testing.B) {
	frame := bigFetch(11, 100)
	v := NewConversation(&Rules{Addresses: fleet{host: "tiergate.example.com"}})
	s := v.Stream(codec.KeyFetch, 17)
	fresh := s.position
	b.ReportAllocs()
	for b.Loop() {
		s.position = fresh
		walkAll(b, s, frame)
	}
}

// BenchmarkListOffsets looks into a request without -6 and lowers it, for a broker that
// ends at 10 and one that ends at 9.
func BenchmarkListOffsets(b *testing.B) {
	for _, broker := range []string{"10", "9"} {
		for _, partitions := range []int{1, 1000} {
			b.Run(fmt.Sprintf("to v%s, %d partitions", broker, partitions), func(b *testing.B) {
				came := listOffsetsFrame(11, make([]int64, partitions)...)
				v := talkTo(b, broker, &Rules{})
				frame := make([]byte, len(came))
				b.ReportAllocs()
				for b.Loop() {
					copy(frame, came)
					if step, _, _, err := v.ListOffsets(frame); step != Forward || err != nil {
						b.Fatal(step, err)
					}
				}
			})
		}
	}
}

// BenchmarkRequest is asked for every request of every session.
func BenchmarkRequest(b *testing.B) {
	v := NewConversation(&Rules{Addresses: fleet{host: "p"}})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := v.Request(codec.KeyFetch, 17); err != nil {
			b.Fatal(err)
		}
	}
}
