// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiered

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits bound the memory of an Index. Zero values mean the defaults.
type Limits struct {
	// Partitions with an uploaded or unfinished segment, those of deleted topics too.
	// Default 200,000, about 50 MB. A partition past it is unknown, and so is every one that
	// has no records from then on.
	Partitions int
	// Epochs of one partition; past it the oldest is forgotten. Default 128.
	Epochs int
	// InFlight segments of one partition; past it the oldest is evicted. Default 1,024: a
	// copy that fails leaves one behind on Kafka 3.6 to 3.9, each task interval (30 s).
	InFlight int
	// AllInFlight segments of all partitions. Default 100,000, about 20 MB.
	AllInFlight int
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		limit *int
		value int
	}{{&l.Partitions, 200_000}, {&l.Epochs, 128}, {&l.InFlight, 1024}, {&l.AllInFlight, 100_000}} {
		if *d.limit <= 0 {
			*d.limit = d.value
		}
	}
	return l
}

// Counts are what an Index holds now, and totals since its beginning.
type Counts struct {
	// Partitions that have records, and Unknown ones among them.
	Partitions, Unknown int
	// Epochs over all partitions.
	Epochs int
	// InFlight segments: begun, neither finished nor deleted.
	InFlight int
	// Records read, those refused among them, and segments evicted. A record is refused when
	// it is of a partition that finds no room.
	Records, Refused, Evictions uint64
}

// Highest is what is known of a partition.
type Highest struct {
	// Epochs have the highest tiered offset of each leader epoch that uploaded something,
	// newest epoch first.
	Epochs []EpochOffset
	// Cut says that there were more epochs, older than all of these.
	Cut bool
}

type partitionID struct {
	topic     UUID
	partition int32
}

// partition is what is remembered of a partition.
type partition struct {
	highest []EpochOffset // by epoch
	cut     bool          // older epochs were forgotten
	lost    bool          // unknown for good
	flights *flights      // nil: nothing in flight, nothing evicted
}

// flights are the segments in flight of a partition.
type flights struct {
	segments map[UUID]flight
	evicted  []EpochOffset // by epoch: the highest end of the segments that were evicted
}

// flight is a segment in flight: what it will add when it is finished.
type flight struct {
	begun   uint64 // number of the record
	highest []EpochOffset
}

// source is one partition of the metadata topic.
type source struct {
	position int64 // offset of the next record
	fault    error // why nothing can be known of its partitions
}

// Index derives highest tiered offsets. It is not safe for concurrent use.
type Index struct {
	limits     Limits
	sources    []source
	partitions map[partitionID]*partition
	full       bool // a partition found no room
	counts     Counts
	rec        record // of the last Apply, to use its memory again
}

// New returns an Index that has read nothing of a metadata topic of so many partitions.
func New(sources int, limits Limits) *Index {
	return &Index{limits: limits.withDefaults(), sources: make([]source, sources), partitions: make(map[partitionID]*partition)}
}

// Sources returns the number of partitions of the metadata topic.
func (x *Index) Sources() int { return len(x.sources) }

// Position returns the offset after the last record of a metadata partition; 0 at first.
func (x *Index) Position(source int32) int64 { return x.sources[source].position }

// Seek says that a metadata partition is read from an offset on, without those before it.
func (x *Index) Seek(source int32, offset int64) { x.sources[source].position = offset }

// Fail makes every partition unknown, for good, whose records are in a metadata partition.
// The first error stays.
func (x *Index) Fail(source int32, err error) {
	if s := &x.sources[source]; s.fault == nil {
		s.fault = err
	}
}

// Fault returns why nothing is known of the partitions whose records are in a metadata
// partition, or nil.
func (x *Index) Fault(source int32) error { return x.sources[source].fault }

// Apply takes the record at offset of a metadata partition; nil is the value of a
// tombstone. Records of one metadata partition must come in order. Of value nothing is
// kept. An error has made partitions unknown already (see Fault), and is for the log.
func (x *Index) Apply(source int32, offset int64, value []byte) error {
	x.sources[source].position = offset + 1
	x.counts.Records++
	if value == nil {
		return nil
	}
	r := &x.rec
	if err := parse(value, r); err != nil {
		x.Fail(source, fmt.Errorf("offset %d: %w", offset, err))
		return err
	}
	if r.key == keyPartitionDelete {
		return nil // no version of Kafka writes it; the id of a deleted topic is asked for no more
	}
	astray := MetadataPartition(r.topic, r.partition, len(x.sources)) != source
	p := x.partitions[partitionID{r.topic, r.partition}]
	if p == nil && (astray || r.key == keySegment) {
		p = x.add(partitionID{r.topic, r.partition})
	}
	switch {
	case p == nil: // no room, or an update of a segment that is not in flight
	case astray:
		p.lost = true // the order of its records is not known
	case r.key == keySegment:
		x.begin(p, r)
	default:
		x.update(p, r)
	}
	return nil
}

// add returns a new partition; nil when there is no room.
func (x *Index) add(id partitionID) *partition {
	if len(x.partitions) >= x.limits.Partitions {
		x.full = true
		x.counts.Refused++
		return nil
	}
	p := &partition{}
	x.partitions[id] = p
	return p
}

// begin takes a segment into flight, unless it can add nothing any more.
func (x *Index) begin(p *partition, r *record) {
	if reached(p.highest, r.highest) {
		return
	}
	if p.flights == nil {
		p.flights = &flights{segments: make(map[UUID]flight, 1)}
	}
	segments := p.flights.segments
	if _, again := segments[r.segment]; !again {
		x.counts.InFlight++
	}
	segments[r.segment] = flight{begun: x.counts.Records, highest: slices.Clone(r.highest)}
	if len(segments) > x.limits.InFlight || x.counts.InFlight > x.limits.AllInFlight {
		x.evict(p)
	}
}

// evict forgets the segment that has been in flight for longest, except for what it
// would add.
func (x *Index) evict(p *partition) {
	var oldest UUID
	var found flight
	for id, f := range p.flights.segments {
		if found.begun == 0 || f.begun < found.begun {
			oldest, found = id, f
		}
	}
	for _, e := range found.highest {
		p.flights.evicted = raise(p.flights.evicted, e)
	}
	if n := len(p.flights.evicted) - x.limits.Epochs; n > 0 {
		p.flights.evicted, p.lost = slices.Delete(p.flights.evicted, 0, n), true
	}
	x.counts.Evictions++
	x.land(p, oldest)
}

// update takes a segment that is finished or to be deleted out of flight. One that is
// not in flight adds nothing: RemotePartitionMetadataStore ignores it too.
func (x *Index) update(p *partition, r *record) {
	if p.flights == nil {
		return
	}
	f, ok := p.flights.segments[r.segment]
	if !ok {
		return
	}
	x.land(p, r.segment)
	if r.state == copyFinished {
		x.finish(p, f)
	}
}

// land forgets a segment in flight.
func (x *Index) land(p *partition, segment UUID) {
	delete(p.flights.segments, segment)
	x.counts.InFlight--
	p.settle()
}

// finish adds what a segment has, and forgets those that can add nothing any more:
// segments whose copy failed, and what was evicted.
func (x *Index) finish(p *partition, f flight) {
	before := len(p.highest)
	for _, e := range f.highest {
		p.highest = raise(p.highest, e)
	}
	if n := len(p.highest) - x.limits.Epochs; n > 0 {
		p.highest, p.cut = slices.Delete(p.highest, 0, n), true
	}
	x.counts.Epochs += len(p.highest) - before
	if p.flights == nil {
		return
	}
	for id, other := range p.flights.segments {
		if reached(p.highest, other.highest) {
			delete(p.flights.segments, id)
			x.counts.InFlight--
		}
	}
	if reached(p.highest, p.flights.evicted) {
		p.flights.evicted = nil
	}
	p.settle()
}

// settle frees the flights that are none.
func (p *partition) settle() {
	if len(p.flights.segments) == 0 && len(p.flights.evicted) == 0 {
		p.flights = nil
	}
}

// known says whether the offsets of p can be relied on.
func (p *partition) known() bool {
	return !p.lost && (p.flights == nil || len(p.flights.evicted) == 0)
}

// Highest returns what is known of a partition. A partition without an uploaded segment
// is known too, and has no epochs. The slice is the caller's.
func (x *Index) Highest(topic UUID, number int32) (Highest, bool) {
	if len(x.sources) == 0 || x.sources[MetadataPartition(topic, number, len(x.sources))].fault != nil {
		return Highest{}, false
	}
	p := x.partitions[partitionID{topic, number}]
	if p == nil {
		return Highest{}, !x.full
	}
	if !p.known() {
		return Highest{}, false
	}
	epochs := slices.Clone(p.highest)
	slices.Reverse(epochs)
	return Highest{Epochs: epochs, Cut: p.cut}, true
}

// Counts returns what the Index holds. It looks at every partition.
func (x *Index) Counts() Counts {
	n := x.counts
	n.Partitions = len(x.partitions)
	for id, p := range x.partitions {
		if !p.known() || x.sources[MetadataPartition(id.topic, id.partition, len(x.sources))].fault != nil {
			n.Unknown++
		}
	}
	return n
}

// search finds the place of an epoch.
func search(in []EpochOffset, epoch int32) (int, bool) {
	return slices.BinarySearchFunc(in, epoch, func(e EpochOffset, epoch int32) int { return cmp.Compare(e.Epoch, epoch) })
}

// raise sets the offset of an epoch unless it is as high already.
func raise(in []EpochOffset, e EpochOffset) []EpochOffset {
	i, found := search(in, e.Epoch)
	if !found {
		return slices.Insert(in, i, e)
	}
	in[i].Offset = max(in[i].Offset, e.Offset)
	return in
}

// reached says whether every epoch of want is as high in have.
func reached(have, want []EpochOffset) bool {
	for _, e := range want {
		if i, found := search(have, e.Epoch); !found || have[i].Offset < e.Offset {
			return false
		}
	}
	return true
}
