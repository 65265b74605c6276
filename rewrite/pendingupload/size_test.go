// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"tiergate/codec"
)

// TestSizesOfElements: the constants of Size are the sizes that the compiler gives.
func TestSizesOfElements(t *testing.T) {
	for _, c := range []struct {
		element any
		want    uintptr
	}{{partition{}, partitionSize}, {topic{}, topicSize}, {int32(0), slotSize}, {"", stringSize}} {
		if got := reflect.TypeOf(c.element).Size(); got != c.want {
			t.Errorf("a %T takes %d bytes, want %d", c.element, got, c.want)
		}
	}
}

// TestSize compares Size with the bytes that the heap really holds for a machine, after each
// call, and MachineSize with Size after New.
func TestSize(t *testing.T) {
	for _, shape := range []struct{ topics, partitions int }{{1, 100_000}, {1000, 100}, {50_000, 1}} {
		t.Run(fmt.Sprintf("topics=%d/partitions=%d", shape.topics, shape.partitions), func(t *testing.T) {
			frame := wideRequest(shape.topics, shape.partitions)
			var answers [][]byte
			exchange(t, frame, uploadedInEpoch0(), &answers, func(_ string, f func()) { f() }, func(*Machine) {})
			call := 0
			base := heap()
			m := exchange(t, frame, uploadedInEpoch0(), &answers, func(_ string, f func()) { f() }, func(m *Machine) {
				held, said := heap()-base, m.Size()
				if call == 0 {
					r, err := ParseRequest(frame)
					if expected := r.MachineSize(); err != nil || !within(expected, said, 2) {
						t.Errorf("MachineSize says %d, Size %d after New", expected, said)
					}
				}
				if !within(said, held, 20) {
					t.Errorf("after call %d: Size says %d, the heap has grown by %d", call, said, held)
				}
				call++
			})
			if m.State() != Done || m.Report().Answered != shape.topics*shape.partitions {
				t.Errorf("%v, report %+v", m.State(), m.Report())
			}
			runtime.KeepAlive(answers)
		})
	}
}

// within says whether got is as large as want, give or take some percent.
func within(got, want, percent int64) bool {
	return got*100 >= want*(100-percent) && got*100 <= want*(100+percent)
}

// TestBytesPerPartition holds the numbers of the package documentation.
func TestBytesPerPartition(t *testing.T) {
	const n = 200_000
	frame := wideRequest(1, n)
	var answers [][]byte
	var got []int64
	exchange(t, frame, uploadedInEpoch0(), &answers, func(_ string, f func()) { f() }, func(m *Machine) {
		got = append(got, m.Size()/n)
	})
	// After New; after Ready and Step of each lookup: -4, -2, -5, -1 and the epoch round.
	want := []int64{12 + 17, 12, 12 + 24, 12 + 24, 12 + 24, 12 + 24, 12 + 24 + 27, 12 + 24 + 27, 12 + 24 + 27, 12 + 24 + 27, 27}
	if !slices.Equal(got, want) {
		t.Errorf("bytes per partition after each call:\n got %v\nwant %v", got, want)
	}
}

// TestOneLookupAtATime: lookups that are built and sent only once the one before is answered
// lead to the same response, and leave out partitions that failed meanwhile.
func TestOneLookupAtATime(t *testing.T) {
	b, req := manyPartitions(t, 20)
	askings := []asking{pending("missing", 0)}
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			askings = append(askings, pending(topic.Topic, p.Partition))
		}
	}
	frame := encodeRequest(listOffsetsRequest(0, -1, askings...), []byte("client"), 3)
	m, err := newMachine(frame, 10, AllFour)
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for m.State() == AwaitAnswers {
		a, ok := m.Ready()
		if !ok {
			t.Fatal("the machine waits for an answer to nothing")
		}
		lengths = append(lengths, len(a.Frame))
		if err := m.Step(b.answer(a.Frame)); err != nil {
			t.Fatal(err)
		}
	}
	native := &broker{t: t, maxVersion: 11, logs: b.logs}
	if want := native.answer(frame); !slices.Equal(m.Response(), want) {
		t.Errorf("got  %x\nwant %x", m.Response(), want)
	}
	// The topic that does not exist: its name and the length of that, an array of one
	// partition and tags.
	if gone := len("missing") + 1 + 1 + minRequestPartition + 1; len(lengths) != 5 || lengths[0]-lengths[1] != gone || lengths[1] != lengths[3] {
		t.Errorf("lookups of %v bytes", lengths)
	}
}

// TestPartitionsInAnyOrder: partitions of topics named again and again in any order, some
// named twice, stand in the lookups as a stable sort would have them.
func TestPartitionsInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var askings []asking
		first := map[[2]any]asking{}
		var order []string
		for range 1 + r.IntN(60) {
			a := asking{fmt.Sprint("t", r.IntN(3)), r.Int32N(20) - 3, codec.EarliestPendingUploadTimestamp, r.Int32N(5) - 1}
			if _, ok := first[[2]any{a.topic, a.partition}]; !ok {
				first[[2]any{a.topic, a.partition}] = a
			}
			if !slices.Contains(order, a.topic) {
				order = append(order, a.topic)
			}
			askings = append(askings, a)
		}
		var sorted []asking
		for _, topic := range order {
			for i := int32(-3); i < 20; i++ {
				if a, ok := first[[2]any{topic, i}]; ok {
					a.timestamp = codec.LatestTimestamp
					sorted = append(sorted, a)
				}
			}
		}
		m, err := newMachine(encodeRequest(listOffsetsRequest(0, -1, askings...), nil, 3), 10, TwoFirst)
		if err != nil {
			t.Fatal(err)
		}
		want := listOffsetsRequest(0, -1, sorted...)
		want.Version = 10
		if got, want := ready(m)[1].Frame, encodeRequest(want, nil, 0); !slices.Equal(got, want) {
			t.Fatalf("asked for %v\n got %x\nwant %x", askings, got, want)
		}
	}
}

// rowsResponse is a ListOffsets response of topics with the same rows each.
func rowsResponse(topics []string, indices []int32, at point) []byte {
	b := append(make([]byte, codec.ResponseFixedLen), 0, 0, 0, 0, 0)
	b = codec.AppendArrayLen(b, codec.Flexible, len(topics))
	for _, topic := range topics {
		b = codec.AppendString(b, codec.Flexible, topic)
		b = codec.AppendArrayLen(b, codec.Flexible, len(indices))
		for _, index := range indices {
			b = appendOffset(b, index, at)
		}
		b = append(b, 0)
	}
	b = append(b, 0)
	codec.PutSize(b)
	return b
}

// TestHostileResponses: responses of 50,000 rows to lookups of one partition. The machine
// allocates for them no more than the one copy of the response to the client's own request,
// and the partition gets what the first row says, or an error.
func TestHostileResponses(t *testing.T) {
	const many = 50_000
	same, others := make([]int32, many), make([]int32, many)
	topics := make([]string, many)
	for i := range others {
		others[i] = int32(i - many/2)
		topics[i] = fmt.Sprintf("other-%07d", i)
	}
	frame := encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), nil, 5)
	for name, response := range map[string]func(p point) []byte{
		"one partition again and again": func(p point) []byte { return rowsResponse([]string{"t"}, same, p) },
		"partitions never asked for":    func(p point) []byte { return rowsResponse([]string{"t"}, others, p) },
		"topics never asked for":        func(p point) []byte { return rowsResponse(append(topics, "t"), []int32{0}, p) },
		"one topic again and again":     func(p point) []byte { return rowsResponse(slices.Repeat([]string{"t"}, many), []int32{0}, p) },
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newMachine(frame, 10, AllFour)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []point{{0, 0}, {0, 0}, {9, 2}, {50, 2}} {
				m.Ready()
				r := response(p)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := m.Step(r)
				runtime.ReadMemStats(&after)
				if err != nil {
					t.Fatal(err)
				}
				allowed := int64(64 << 10)
				if p.offset == 9 {
					allowed += int64(len(r)) * 11 / 10
				}
				if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > allowed {
					t.Errorf("%d bytes allocated for a response of %d", grown, len(r))
				}
				if held := m.Size(); held > int64(len(r))*11/10+1024 {
					t.Errorf("%d bytes held after a response of %d", held, len(r))
				}
			}
			r := m.Report()
			if m.State() != Done || r.Answered != 1 || r.Tiered[0] != "t" {
				t.Errorf("%v, report %+v", m.State(), r)
			}
		})
	}
}

// TestEpochSearchEnds: whatever epoch a broker has in mind for each of thousands of
// partitions, between 0 and the highest that there is, a search ends after some rounds, and
// no lookup takes more than four times what the client's request does.
func TestEpochSearchEnds(t *testing.T) {
	for _, c := range []struct{ partitions, rounds int }{{1, 8}, {100, 8}, {10_000, 31}} {
		frame := wideRequest(1, c.partitions)
		w := uploadedInEpoch0()
		look := w.look
		w.look = func(timestamp int64) point {
			at := look(timestamp)
			if timestamp == codec.LatestTimestamp {
				at.epoch = 1<<31 - 1
			}
			return at
		}
		w.end = func(index, epoch int32) epochEnd {
			if secret := int32(uint32(index+1) * 2654435761 >> 1); epoch < secret {
				return epochEnd{epoch, 10}
			}
			return epochEnd{epoch, 50 + int64(epoch)}
		}
		m := begin(t, frame)
		for m.State() == AwaitAnswers {
			for _, a := range ready(m) {
				if len(a.Frame) > 4*len(frame)+maxCandidates*epochCandidateLen*100 {
					t.Errorf("%d partitions: a lookup of %d bytes for a request of %d", c.partitions, len(a.Frame), len(frame))
				}
				if err := m.Step(w.answer(a.Frame)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r := m.Report(); r.Answered != c.partitions || r.EpochRounds > c.rounds {
			t.Errorf("%d partitions: report %+v", c.partitions, r)
		}
		for i := range c.partitions {
			row := m.Response()[len(m.Response())-2-minAnswer*(c.partitions-i):]
			want := int32(uint32(i+1) * 2654435761 >> 1)
			if got := int32(binary.BigEndian.Uint32(row[answerEpoch:])); got != want {
				t.Fatalf("partition %d: epoch %d, want %d", i, got, want)
			}
		}
	}
}
