// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiered

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tiergate/internal/testkit/tierlog"
)

// sources is the number of metadata partitions in these tests.
const sources = 3

// segment returns segment number n of a partition of topic t.
func segment(t byte, partition int32, n int, start, end int64, epochs ...tierlog.EpochStart) tierlog.RemoteSegment {
	return tierlog.RemoteSegment{
		Topic: "t", TopicID: UUID{15: t}, Partition: partition, ID: UUID{0: byte(n >> 8), 1: byte(n), 2: 1},
		Start: start, End: end, Epochs: epochs,
	}
}

func began(epoch int32, offset int64) tierlog.EpochStart {
	return tierlog.EpochStart{Epoch: epoch, Offset: offset}
}

// home is the metadata partition of a segment.
func home(s tierlog.RemoteSegment) int32 { return MetadataPartition(s.TopicID, s.Partition, sources) }

// apply gives events to an index.
func apply(t testing.TB, x *Index, events ...tierlog.RemoteEvent) {
	t.Helper()
	for _, e := range events {
		s := home(e.Segment)
		if err := x.Apply(s, x.Position(s), e.Value()); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
	}
}

// show writes what is known of a partition: "unknown", or epoch:offset from the newest on.
func show(x *Index, s tierlog.RemoteSegment) string {
	h, ok := x.Highest(s.TopicID, s.Partition)
	if !ok {
		return "unknown"
	}
	var words []string
	for _, e := range h.Epochs {
		words = append(words, fmt.Sprintf("%d:%d", e.Epoch, e.Offset))
	}
	if h.Cut {
		words = append(words, "cut")
	}
	return strings.Join(words, " ")
}

func events(s tierlog.RemoteSegment, states ...int8) []tierlog.RemoteEvent {
	var out []tierlog.RemoteEvent
	for _, state := range states {
		out = append(out, tierlog.RemoteEvent{Segment: s, State: state})
	}
	return out
}

func TestHighest(t *testing.T) {
	const started, finished, deleting, deleted = tierlog.CopySegmentStarted, tierlog.CopySegmentFinished, tierlog.DeleteSegmentStarted, tierlog.DeleteSegmentFinished
	first := segment(1, 0, 1, 0, 99, began(0, 0))
	second := segment(1, 0, 2, 100, 199, began(4, 150), began(0, 100)) // as from a hash map
	again := segment(1, 0, 3, 0, 99, began(0, 0))
	empty := segment(1, 0, 4, 100, 199, began(0, 100), began(2, 150), began(3, 150))
	for _, c := range []struct {
		name   string
		events []tierlog.RemoteEvent
		want   string
	}{
		{"nothing", nil, ""},
		{"begun", events(first, started), ""},
		{"finished", events(first, started, finished), "0:99"},
		{"two epochs", slices.Concat(events(first, started, finished), events(second, started, finished)), "4:199 0:149"},
		{"an epoch without records", events(empty, started, finished), "3:199 2:149 0:149"},
		{"deleted", slices.Concat(events(first, started, finished), events(second, started, finished, deleting, deleted), events(first, deleting, deleted)), "4:199 0:149"},
		{"copied anew", slices.Concat(events(first, started), events(again, started, finished)), "0:99"},
		{"copied anew, then the first copy is finished", slices.Concat(events(first, started), events(again, started, finished), events(first, finished)), "0:99"},
		{"deleted in flight", events(first, started, deleting, deleted, finished), ""},
		{"an update of a segment that was never begun", events(first, finished), ""},
		{"out of order", slices.Concat(events(second, started, finished), events(first, started, finished)), "4:199 0:149"},
	} {
		x := New(sources, Limits{})
		apply(t, x, c.events...)
		if got := show(x, first); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if got := show(x, segment(2, 0, 1, 0, 0)); got != "" {
			t.Errorf("%s: another topic id: got %q, want nothing", c.name, got)
		}
	}
}

// A segment whose copy failed, and which others have made superfluous, is forgotten.
func TestCopiesThatFailedAreForgotten(t *testing.T) {
	x := New(sources, Limits{})
	for n := range 30 {
		apply(t, x, events(segment(1, 0, n, 0, 99, began(0, 0)), tierlog.CopySegmentStarted)...)
	}
	if got := x.Counts().InFlight; got != 30 {
		t.Errorf("%d segments in flight, want 30", got)
	}
	last := segment(1, 0, 30, 0, 99, began(0, 0))
	apply(t, x, events(last, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
	if got := x.Counts(); got.InFlight != 0 || got.Evictions != 0 {
		t.Errorf("after a copy that succeeded: %+v, want nothing in flight and no eviction", got)
	}
	apply(t, x, events(segment(1, 0, 31, 0, 99, began(0, 0)), tierlog.CopySegmentStarted)...)
	if got := x.Counts().InFlight; got != 0 {
		t.Errorf("%d segments in flight of those that can add nothing, want 0", got)
	}
}

func TestAnEvictionMakesItsPartitionUnknown(t *testing.T) {
	x := New(sources, Limits{InFlight: 2})
	part := segment(1, 0, 0, 0, 0)
	other := segment(1, 1, 100, 0, 9, began(0, 0))
	apply(t, x, events(other, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
	segments := []tierlog.RemoteSegment{
		segment(1, 0, 1, 0, 99, began(0, 0)),
		segment(1, 0, 2, 100, 199, began(0, 100)),
		segment(1, 0, 3, 200, 299, began(0, 200)),
	}
	for i, want := range []string{"", "", "unknown"} {
		apply(t, x, events(segments[i], tierlog.CopySegmentStarted)...)
		if got := show(x, part); got != want {
			t.Errorf("%d segments in flight: got %q, want %q", i+1, got, want)
		}
	}
	// The evicted one ends at 99: once the epoch is there by another, nothing is missing.
	for i, want := range []string{"unknown", "0:199", "0:299"} {
		apply(t, x, events(segments[i], tierlog.CopySegmentFinished)...)
		if got := show(x, part); got != want {
			t.Errorf("after %d finished: got %q, want %q", i+1, got, want)
		}
	}
	if got := show(x, other); got != "0:9" {
		t.Errorf("the other partition: got %q, want 0:9", got)
	}
	if got := x.Counts(); got.Evictions != 1 || got.InFlight != 0 || got.Unknown != 0 {
		t.Errorf("counts %+v, want 1 eviction, nothing in flight, none unknown", got)
	}
}

func TestLimits(t *testing.T) {
	x := New(sources, Limits{Partitions: 2, Epochs: 3, AllInFlight: 2})
	a, b, c := segment(1, 0, 1, 0, 9, began(0, 0)), segment(2, 0, 2, 0, 9, began(0, 0)), segment(3, 0, 3, 0, 9, began(0, 0))
	for _, s := range []tierlog.RemoteSegment{a, b, c} {
		apply(t, x, events(s, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
	}
	if got := show(x, a) + "|" + show(x, b) + "|" + show(x, c) + "|" + show(x, segment(4, 0, 0, 0, 0)); got != "0:9|0:9|unknown|unknown" {
		t.Errorf("two partitions of room: got %q", got)
	}
	for epoch := range int32(5) {
		s := segment(1, 0, 10+int(epoch), 10, 19, began(epoch, 10))
		apply(t, x, events(s, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
	}
	if got := show(x, a); got != "4:19 3:19 2:19 cut" {
		t.Errorf("three epochs of room: got %q", got)
	}
	for n := range 2 {
		apply(t, x, events(segment(1, 0, 20+n, 20, 29, began(4, 20)), tierlog.CopySegmentStarted)...)
	}
	apply(t, x, events(segment(2, 0, 30, 20, 29, began(0, 20)), tierlog.CopySegmentStarted)...)
	if got := show(x, a) + "|" + show(x, b); got != "4:19 3:19 2:19 cut|unknown" {
		t.Errorf("two segments in flight of room: got %q", got)
	}
	if got := x.Counts(); got.InFlight != 2 || got.Evictions != 1 || got.Unknown != 1 || got.Partitions != 2 || got.Refused != 1 {
		t.Errorf("counts %+v", got)
	}
}

func TestWhatIsNotUnderstoodIsUnknown(t *testing.T) {
	s := segment(1, 0, 1, 0, 9, began(0, 0))
	value := s.Record()
	with := func(at int, b byte) []byte { v := slices.Clone(value); v[at] = b; return v }
	wrongState := slices.Clone(value)
	wrongState[len(value)-2] = 1
	for _, c := range []struct {
		name  string
		value []byte
		want  string
	}{
		{"frame version", with(0, 2), "remote log metadata record: frame version 2, want 1"},
		{"API key", with(1, 3), "remote log metadata record: unknown API key 3, version 0"},
		{"message version", with(2, 1), "remote log metadata record: unknown API key 0, version 1"},
		{"empty", []byte{}, "remote log metadata record: head: at byte 0: varint cut short"},
		{"too long", append(slices.Clone(value), 0), "remote log metadata record: API key 0: at byte 100: 1 bytes too many"},
		{"begins in another state", wrongState, "remote log metadata record: API key 0: at byte 100: segment begins in state 1"},
		{"no epoch", segment(1, 0, 1, 0, 9).Record(), "remote log metadata record: API key 0: at byte 87: segment without leader epoch"},
		{"ends before it begins", segment(1, 0, 1, 9, 8, began(0, 0)).Record(), "remote log metadata record: API key 0: at byte 100: segment from offset 9 to 8"},
		{"update to the state of the beginning", s.Update(0), "remote log metadata record: API key 1: at byte 58: segment goes to state 0"},
		{"update to an unknown state", s.Update(4), "remote log metadata record: API key 1: at byte 58: segment goes to state 4"},
	} {
		x := New(sources, Limits{})
		apply(t, x, events(s, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
		source := home(s)
		err := x.Apply(source, 2, c.value)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v\nwant %s", c.name, err, c.want)
		}
		if got := show(x, s); got != "unknown" || x.Fault(source) == nil || x.Position(source) != 3 || x.Counts().Unknown != 1 {
			t.Errorf("%s: %q, fault %v, position %d, %+v", c.name, got, x.Fault(source), x.Position(source), x.Counts())
		}
		for partition := range int32(20) { // partitions of other metadata partitions stay known
			p := segment(1, partition, 0, 0, 0)
			if want := home(p) == source; (show(x, p) == "unknown") != want {
				t.Errorf("%s: partition %d of metadata partition %d: %q", c.name, partition, home(p), show(x, p))
			}
		}
	}
}

func TestTombstonesAndPartitionDeletesSayNothing(t *testing.T) {
	s := segment(1, 0, 1, 0, 9, began(0, 0))
	x := New(sources, Limits{})
	apply(t, x, events(s, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
	remove := append([]byte{1, 2, 0, 2, 't'}, s.TopicID[:]...)
	remove = append(remove, 0, 0, 0, 0, 0) // partition 0
	remove = append(remove, 0, 0, 0, 1)    // broker
	remove = append(remove, make([]byte, 8)...)
	remove = append(remove, 0, 0) // marked
	for _, value := range [][]byte{nil, remove} {
		if err := x.Apply(home(s), x.Position(home(s)), value); err != nil {
			t.Errorf("%x: %v", value, err)
		}
	}
	if got := show(x, s); got != "0:9" || x.Position(home(s)) != 4 {
		t.Errorf("got %q at position %d, want 0:9 at 4", got, x.Position(home(s)))
	}
}

func TestARecordInAForeignMetadataPartition(t *testing.T) {
	s := segment(1, 0, 1, 0, 9, began(0, 0))
	for _, value := range [][]byte{s.Record(), s.Update(1)} {
		x := New(sources, Limits{})
		if err := x.Apply((home(s)+1)%sources, 0, value); err != nil {
			t.Fatal(err)
		}
		apply(t, x, events(s, tierlog.CopySegmentStarted, tierlog.CopySegmentFinished)...)
		if got := show(x, s); got != "unknown" {
			t.Errorf("%x: got %q, want unknown", value, got)
		}
	}
}

// A record that is cut short anywhere is refused, and never anything but an error.
func TestRecordsCutAtEachByte(t *testing.T) {
	s := segment(1, 7, 1, 0, 99, began(5, 50), began(0, 0))
	s.Custom, s.TxnIdxEmpty = []byte("where it is"), true
	for _, whole := range [][]byte{s.Record(), s.Update(1), s.Update(3)} {
		var r record
		if err := parse(whole, &r); err != nil || r.partition != 7 || r.topic != s.TopicID || r.segment != s.ID {
			t.Fatalf("%x: %+v, %v", whole, r, err)
		}
		for n := range whole {
			if err := parse(whole[:n:n], &r); err == nil {
				t.Errorf("%d of %d bytes are taken for a record: %x", n, len(whole), whole[:n])
			}
		}
	}
}

// Random histories: what the index says is what the plain model says, if it says
// anything, and without evictions it says something.
func TestIndexIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{InFlight: rapid.SampledFrom([]int{1, 2, 5, 1000}).Draw(t, "in flight")}
		x := New(sources, limits)
		var history []tierlog.RemoteEvent
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			e := drawEvent(t)
			if e.State != tierlog.CopySegmentStarted {
				// What the segment is stands in the record that began it.
				for _, old := range slices.Backward(history) {
					if old.Segment.ID == e.Segment.ID && old.State == tierlog.CopySegmentStarted {
						e.Segment = old.Segment
						break
					}
				}
			}
			history = append(history, e)
			s := home(e.Segment)
			if err := x.Apply(s, x.Position(s), e.Value()); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			for topic := range byte(2) {
				for partition := range int32(2) {
					compare(t, x, history, segment(topic, partition, 0, 0, 0))
				}
			}
		}
	})
}

func drawEvent(t *rapid.T) tierlog.RemoteEvent {
	topic, partition, number := rapid.IntRange(0, 1).Draw(t, "topic"), rapid.Int32Range(0, 1).Draw(t, "partition"), rapid.IntRange(0, 5).Draw(t, "number")
	id := number + 10*topic + 20*int(partition)
	start := rapid.Int64Range(0, 30).Draw(t, "start")
	s := segment(byte(topic), partition, id, start, start+rapid.Int64Range(0, 30).Draw(t, "length"))
	for _, epoch := range rapid.SliceOfNDistinct(rapid.Int32Range(0, 6), 1, 4, rapid.ID[int32]).Draw(t, "epochs") {
		s.Epochs = append(s.Epochs, began(epoch, rapid.Int64Range(0, 60).Draw(t, "offset")))
	}
	states := []int8{tierlog.CopySegmentStarted, tierlog.CopySegmentFinished, tierlog.DeleteSegmentStarted, tierlog.DeleteSegmentFinished}
	return tierlog.RemoteEvent{Segment: s, State: rapid.SampledFrom(states).Draw(t, "state")}
}

func compare(t *rapid.T, x *Index, history []tierlog.RemoteEvent, s tierlog.RemoteSegment) {
	want := tierlog.HighestTiered(history, s.TopicID, s.Partition)
	got, ok := x.Highest(s.TopicID, s.Partition)
	if !ok && x.Counts().Evictions > 0 {
		return
	}
	slices.Reverse(got.Epochs)
	same := ok && len(got.Epochs) == len(want)
	for i := range want {
		same = same && got.Epochs[i] == EpochOffset(want[i])
	}
	if !same {
		t.Fatalf("partition %d of topic %v: got %v (known %v), want %v", s.Partition, s.TopicID[15], got.Epochs, ok, want)
	}
}

// FuzzApply reads any bytes as a record: no panic, no memory beyond a multiple of the
// input, and a partition is never known after bytes that are no record.
func FuzzApply(f *testing.F) {
	s := segment(1, 0, 1, 0, 99, began(5, 50), began(0, 0))
	f.Add(s.Record(), s.Update(1))
	s.Custom, s.TxnIdxEmpty = []byte("custom"), true
	f.Add(s.Record(), s.Update(2))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		x := New(1, Limits{})
		failed := false
		for i, value := range [][]byte{first, second} {
			err := x.Apply(0, int64(i), value)
			failed = failed || err != nil
			if cap(x.rec.highest)*minEpochLen > 2*(len(first)+len(second))+64 {
				t.Fatalf("memory for %d epochs from %d bytes", cap(x.rec.highest), len(value))
			}
		}
		for id := range x.partitions {
			if _, known := x.Highest(id.topic, id.partition); known && failed {
				t.Fatalf("known after a record that was not understood: %x %x", first, second)
			}
		}
		if (x.Fault(0) != nil) != failed {
			t.Fatalf("fault %v, failed %v", x.Fault(0), failed)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	x := New(50, Limits{})
	values := make([][]byte, 0, 2000)
	var to []int32
	for n := range 1000 {
		s := segment(byte(n%100), int32(n%10), n, int64(n), int64(n), began(int32(n%4), int64(n)))
		values = append(values, s.Record(), s.Update(1))
		m := MetadataPartition(s.TopicID, s.Partition, 50)
		to = append(to, m, m)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := x.Apply(to[i%2000], int64(i), values[i%2000]); err != nil {
			b.Fatal(err)
		}
	}
}
