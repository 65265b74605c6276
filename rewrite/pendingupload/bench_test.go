// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"tiergate/codec"
)

// wideRequest is a request for -6 of topics with an equal number of partitions each.
func wideRequest(topics, partitions int) []byte {
	b := []byte{0, 0, 0, 0, 0, 2, 0, 11, 0, 0, 0, 1}
	b = codec.AppendNoTags(codec.AppendNullableString(b, codec.Classic, []byte("client")), codec.Flexible)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0)
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	for t := range topics {
		b = codec.AppendString(b, codec.Flexible, fmt.Sprintf("topic-%06d", t))
		b = codec.AppendArrayLen(b, codec.Flexible, partitions)
		for p := range partitions {
			b = binary.BigEndian.AppendUint32(b, uint32(p))
			b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfa, 0)
		}
		b = append(b, 0)
	}
	b = append(b, 0, 0, 0x75, 0x30, 0)
	codec.PutSize(b)
	return b
}

// wideAnswer is a broker's response to a lookup of such a request. Everything is uploaded in
// epoch 0 up to offset 9, and the leader's epoch is 2, so that four lookups and an epoch
// round are needed.
func wideAnswer(ask []byte) []byte {
	key := codec.RequestKey(ask)
	_, body, err := codec.RequestBody(ask, codec.Flexible)
	if err != nil {
		panic(err)
	}
	c := codec.NewCursor(ask, codec.Flexible)
	c.Skip(body + 4)
	row := 13
	if key == listOffsetsKey {
		c.Skip(1)
		row = 17
	}
	b := make([]byte, codec.ResponseFixedLen, 2*len(ask))
	b = append(b, 0, 0, 0, 0, 0)
	topics := c.ArrayLen(1)
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	for range topics {
		b = codec.AppendString(b, codec.Flexible, string(c.String()))
		rows := c.ArrayLen(1)
		b = codec.AppendArrayLen(b, codec.Flexible, rows)
		for range rows {
			r := c.Skip(row)
			if key == listOffsetsKey {
				p := point{0, 0}
				switch int64(binary.BigEndian.Uint64(r[8:])) {
				case latestTieredTimestamp:
					p = point{9, 0}
				case latestTimestamp:
					p = point{50, 2}
				}
				b = append(append(b, r[:4]...), 0, 0)
				b = binary.BigEndian.AppendUint64(b, ^uint64(0))
				b = binary.BigEndian.AppendUint64(b, uint64(p.offset))
				b = append(binary.BigEndian.AppendUint32(b, uint32(p.epoch)), 0)
				continue
			}
			e := binary.BigEndian.Uint32(r[8:])
			b = append(append(append(b, 0, 0), r[:4]...), r[8:12]...)
			b = append(binary.BigEndian.AppendUint64(b, uint64(10+20*e)), 0)
		}
		c.Tags()
		b = append(b, 0)
	}
	b = append(b, 0)
	codec.PutSize(b)
	return b
}

// BenchmarkMachine takes a whole exchange of four lookups and an epoch round apart: what each
// kind of call costs for a partition, the longest call, and the memory held after New and at
// the most.
func BenchmarkMachine(b *testing.B) {
	for _, shape := range []struct{ topics, partitions int }{{1, 100_000}, {1000, 100}, {100_000, 1}, {1, 1_000_000}} {
		n := shape.topics * shape.partitions
		b.Run(fmt.Sprintf("topics=%d/partitions=%d", shape.topics, shape.partitions), func(b *testing.B) {
			frame := wideRequest(shape.topics, shape.partitions)
			var spent [4]time.Duration
			var longest time.Duration
			timed := func(call int, f func()) {
				start := time.Now()
				f()
				d := time.Since(start)
				spent[call] += d
				longest = max(longest, d)
			}
			var answers [][]byte
			exchange := func(each func(m *Machine)) {
				var m *Machine
				timed(0, func() { m = begin(b, frame) })
				for i := 0; m.State() == AwaitAnswers; {
					var asks []Ask
					timed(1, func() { asks = ready(m) })
					each(m)
					for _, a := range asks {
						if len(answers) == i {
							answers = append(answers, wideAnswer(a.Frame))
						}
						timed(2, func() {
							if err := m.Step(answers[i]); err != nil {
								b.Fatal(err)
							}
						})
						each(m)
						i++
					}
				}
				if m.Report().Answered != n {
					b.Fatalf("report %+v", m.Report())
				}
				runtime.KeepAlive(m)
			}
			exchange(func(*Machine) {})
			var held []uint64
			base := heap()
			exchange(func(*Machine) { held = append(held, heap()-base) })
			spent, longest = [4]time.Duration{}, 0
			for b.Loop() {
				exchange(func(*Machine) {})
			}
			for i, name := range []string{"New", "Ready", "Step"} {
				b.ReportMetric(float64(spent[i].Nanoseconds())/float64(b.N*n), name+"-ns/part")
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			var most uint64
			for _, h := range held {
				most = max(most, h)
			}
			b.ReportMetric(float64(held[0])/float64(n), "B/part-sent")
			b.ReportMetric(float64(held[1])/float64(n), "B/part-1st")
			b.ReportMetric(float64(most)/float64(n), "B/part-most")
		})
	}
}

// heap is what the heap holds.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// begin returns a machine that asks for all four lookups.
func begin(t fataler, frame []byte) *Machine {
	t.Helper()
	m, err := newMachine(frame, 10, AllFour)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
