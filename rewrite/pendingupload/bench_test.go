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

// wideBroker answers such requests. Its answers do not depend on the topic.
type wideBroker struct {
	look func(timestamp int64) point
	// end is the answer to a leader epoch of a partition.
	end func(index, epoch int32) epochEnd
}

// uploadedInEpoch0: offset 9 of epoch 0 is uploaded and the leader's epoch is 2, so that four
// lookups and an epoch round are needed.
func uploadedInEpoch0() wideBroker {
	return wideBroker{
		look: func(timestamp int64) point {
			switch timestamp {
			case codec.LatestTieredTimestamp:
				return point{9, 0}
			case codec.LatestTimestamp:
				return point{50, 2}
			default:
				return point{0, 0}
			}
		},
		end: func(_, epoch int32) epochEnd { return epochEnd{epoch, 10 + 20*int64(epoch)} },
	}
}

// answer returns the response to a lookup.
func (w wideBroker) answer(ask []byte) []byte {
	_, body, err := codec.RequestBody(ask, codec.Flexible)
	if err != nil {
		panic(err)
	}
	c := codec.NewCursor(ask, codec.Flexible)
	fixed, row := body+replicaAndIsolation, w.offsetRow
	if codec.RequestKey(ask) == codec.KeyOffsetForLeaderEpoch {
		fixed, row = body+4, w.epochRow
	}
	c.Skip(fixed)
	b := append(make([]byte, codec.ResponseFixedLen, 2*len(ask)), 0, 0, 0, 0, 0)
	topics := c.ArrayLen(1)
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	for range topics {
		b = codec.AppendString(b, codec.Flexible, string(c.String()))
		rows := c.ArrayLen(1)
		b = codec.AppendArrayLen(b, codec.Flexible, rows)
		for range rows {
			b = row(b, &c)
		}
		c.Tags()
		b = append(b, 0)
	}
	b = append(b, 0)
	codec.PutSize(b)
	return b
}

func (w wideBroker) offsetRow(b []byte, c *codec.Cursor) []byte {
	asked := c.Skip(requestTags)
	c.Tags()
	return appendOffset(b, int32At(asked, requestIndex), w.look(int64At(asked, requestTimestamp)))
}

// appendOffset appends a partition of a ListOffsets response.
func appendOffset(b []byte, index int32, at point) []byte {
	var row [minAnswer]byte
	putInt32At(row[:], answerIndex, index)
	putInt64At(row[:], answerTimestamp, -1)
	putInt64At(row[:], answerOffset, at.offset)
	putInt32At(row[:], answerEpoch, at.epoch)
	return append(b, row[:]...)
}

func (w wideBroker) epochRow(b []byte, c *codec.Cursor) []byte {
	index, _, epoch := c.Int32(), c.Int32(), c.Int32()
	c.Tags()
	e := w.end(index, epoch)
	var row [minEnd]byte
	putInt32At(row[:], endIndex, index)
	putInt32At(row[:], endEpoch, e.epoch)
	putInt64At(row[:], endEndOffset, e.endOffset)
	return append(b, row[:]...)
}

// exchange runs a machine to its end against a broker and returns it. The responses are made
// once and kept in answers. call is called around each call of the machine, after, with the
// machine's memory as it is then, after each.
func exchange(t fataler, frame []byte, w wideBroker, answers *[][]byte, call func(name string, f func()), after func(m *Machine)) *Machine {
	t.Helper()
	var m *Machine
	call("New", func() { m = begin(t, frame) })
	after(m)
	for sent, received := 0, 0; m.State() == AwaitAnswers; received++ {
		for more := true; more; {
			var a Ask
			call("Ready", func() { a, more = m.Ready() })
			if more && len(*answers) == sent {
				*answers = append(*answers, w.answer(a.Frame))
			}
			sent++
		}
		sent--
		after(m)
		call("Step", func() {
			if err := m.Step((*answers)[received]); err != nil {
				t.Fatal(err)
			}
		})
		after(m)
	}
	return m
}

// BenchmarkMachine takes a whole exchange of four lookups and an epoch round apart: what each
// kind of call costs for a partition, the longest call, and the bytes held for a partition
// after New and at the most.
func BenchmarkMachine(b *testing.B) {
	for _, shape := range []struct{ topics, partitions int }{{1, 100_000}, {1000, 100}, {100_000, 1}, {1, 1_000_000}} {
		n := shape.topics * shape.partitions
		b.Run(fmt.Sprintf("topics=%d/partitions=%d", shape.topics, shape.partitions), func(b *testing.B) {
			frame := wideRequest(shape.topics, shape.partitions)
			spent, longest := map[string]time.Duration{}, time.Duration(0)
			timed := func(name string, f func()) {
				start := time.Now()
				f()
				d := time.Since(start)
				spent[name] += d
				longest = max(longest, d)
			}
			var answers [][]byte
			var first, most int64
			exchange(b, frame, uploadedInEpoch0(), &answers, func(_ string, f func()) { f() }, func(m *Machine) {
				most = max(most, m.Size())
				if first == 0 {
					first = m.Size()
				}
			})
			for b.Loop() {
				exchange(b, frame, uploadedInEpoch0(), &answers, timed, func(*Machine) {})
			}
			for name, d := range spent {
				b.ReportMetric(float64(d.Nanoseconds())/float64(b.N*n), name+"-ns/part")
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(first)/float64(n), "B/part-New")
			b.ReportMetric(float64(most)/float64(n), "B/part-most")
		})
	}
}

// heap is the number of bytes that the heap holds.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
