// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"cmp"
	"slices"
	"sort"

	"tiergate/codec"
)

// outcome says how far a partition is.
type outcome uint8

const (
	// undecided partitions wait for lookups.
	undecided outcome = iota
	// searching partitions know their offset and search its epoch.
	searching
	// doubtful partitions wait for the remote storage status of their topic.
	doubtful
	// answered partitions have an offset.
	answered
	// empty partitions have nothing that waits for an upload.
	empty
	// failed partitions have an error code.
	failed
)

// flags are facts about a partition. The low bits are the lookups of this stage whose
// responses have it: 1<<localStart to 1<<lastFetchable, or 1<<epochEnds.
type flags uint8

const (
	// placed: the response to the client's own request has the partition.
	placed flags = 1 << (iota + lookups)
	// open: -5 and -1 do not decide.
	open
	// exact: the broker gave the epoch of the result.
	exact
	// moved: the local log starts above the log start, so something was uploaded.
	moved

	seenTwo  flags = 1<<highestRemote | 1<<lastFetchable
	seenFour flags = 1<<lookups - 1
	// seenEnds is the flag of an epoch round, where no other lookup is in flight.
	seenEnds flags = 1
)

// partition is one partition that asked for -6. Its offsets are in the machine's columns.
type partition struct {
	index, currentEpoch int32
	errorCode           int16
	outcome             outcome
	flags               flags
}

const partitionSize = 12

// fail gives a partition an error code, unless it has one.
func (p *partition) fail(code int16) {
	if p.outcome != failed {
		p.outcome, p.errorCode = failed, code
	}
}

// point is an offset and the leader epoch of its record, -1 when not known.
type point struct {
	offset int64
	epoch  int32
}

// column is a point for each partition, without the padding that a slice of points has.
type column struct {
	offsets []int64
	epochs  []int32
}

const pointSize = 12

func newColumn(n int) column { return column{offsets: make([]int64, n), epochs: make([]int32, n)} }

func (c column) at(i int) point { return point{c.offsets[i], c.epochs[i]} }

func (c column) put(i int, p point) { c.offsets[i], c.epochs[i] = p.offset, p.epoch }

func (c column) size() int64 { return int64(cap(c.offsets)) * pointSize }

// choice says what becomes of a partition that asks for a timestamp: whether it gets a place
// in the table, how it begins there, and what the lookup asks for in its stead.
type choice func(timestamp int64) (p partition, instead int64, ok bool)

// pendingUploads chooses the partitions that ask for -6.
func pendingUploads(timestamp int64) (partition, int64, bool) {
	return partition{}, codec.LatestTieredTimestamp, timestamp == codec.EarliestPendingUploadTimestamp
}

// collect fills the machine's topics and partitions from the client's request and replaces
// timestamps in it; r is the machine's own copy.
func (m *Machine) collect(r *Request, of choice) {
	var name []byte
	var t *topic
	r.eachPartition(func(topic []byte) { name, t = topic, nil }, func(off int) {
		if _, _, ok := of(timestampAt(r.frame, off)); !ok {
			return
		}
		if t == nil {
			t = m.topics.add(name)
		}
		t.rows++
	})
	next := int32(0)
	for i := range m.topics.list {
		t := &m.topics.list[i]
		t.first, t.end = next, next
		next += t.rows
	}
	m.parts = make([]partition, next)
	r.eachPartition(func(topic []byte) { t = m.topics.named(topic) }, func(off int) {
		p, instead, ok := of(timestampAt(r.frame, off))
		if !ok {
			return
		}
		putTimestampAt(r.frame, off, instead)
		p.index, p.currentEpoch = int32At(r.frame, off+requestIndex), int32At(r.frame, off+requestCurrentEpoch)
		m.parts[t.end] = p
		t.end++
	})
	m.arrange()
}

// arrange sorts each topic's partitions by index, so that responses find theirs without a
// map, and keeps only the first of those named twice.
func (m *Machine) arrange() {
	all := m.parts
	m.parts = m.parts[:0]
	for i := range m.topics.list {
		t := &m.topics.list[i]
		parts := all[t.first:t.end]
		if !ascending(parts) {
			parts = ordered(parts)
		}
		t.first = int32(len(m.parts))
		m.parts = append(m.parts, parts...)
		t.end = int32(len(m.parts))
	}
}

// ascending says whether the partitions are sorted by index and each is there once, as
// clients mostly send them.
func ascending(parts []partition) bool {
	for i := 1; i < len(parts); i++ {
		if parts[i-1].index >= parts[i].index {
			return false
		}
	}
	return true
}

// ordered returns the partitions sorted by index, each once, the first of those named twice.
func ordered(parts []partition) []partition {
	// The index, with its sign flipped so that -1 is below 0, and the place.
	keys := make([]uint64, len(parts))
	for i, p := range parts {
		keys[i] = uint64(uint32(p.index)^1<<31)<<32 | uint64(i)
	}
	slices.Sort(keys)
	sorted := make([]partition, 0, len(parts))
	for _, key := range keys {
		p := parts[uint32(key)]
		if n := len(sorted); n == 0 || sorted[n-1].index != p.index {
			sorted = append(sorted, p)
		}
	}
	return sorted
}

// find returns the place of a topic's partition with an index, -1 when it did not ask for
// -6. Responses mostly come in the order of the lookup, so it tries last, where it found the
// partition before (an epoch round names a partition several times), and the one after it.
func (m *Machine) find(t *topic, last int, index int32) int {
	for i := last; i < min(last+2, int(t.end)); i++ {
		if m.parts[i].index == index {
			return i
		}
	}
	// A partition is at most as far from the first one as their indices are apart, and in a
	// request for all partitions of a topic just as far.
	parts := m.parts[t.first:t.end]
	far := int64(index) - int64(parts[0].index)
	switch {
	case far < 0:
		return -1
	case far >= int64(len(parts)):
		far = int64(len(parts)) - 1
	}
	if parts[far].index == index {
		return int(t.first) + int(far)
	}
	if i, ok := sort.Find(int(far), func(i int) int { return cmp.Compare(index, parts[i].index) }); ok {
		return int(t.first) + i
	}
	return -1
}
