// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// topic is a topic with partitions that ask for -6: parts[first:end] of the machine.
type topic struct {
	// The name is names[nameOff:nameOff+nameLen].
	nameOff, nameLen int32
	first, end       int32
	// rows is the number of rows that the topic has in the lookup being built.
	rows int32
	// proven: an offset of -5 in this stage shows that remote storage is on. reported: the
	// topic is in Report.Tiered.
	proven, reported bool
}

const (
	topicSize = 24
	slotSize  = 4
)

// topics are the topics of a request, each once, in the order in which the request first
// names them. A request may name a million of them, so they are kept without pointers, and
// a hash table of four-byte slots finds them by name. The hash has a random seed: a client
// cannot choose names that collide.
type topics struct {
	list  []topic
	names []byte
	// slots hold a place in list, plus one; 0 is free. There is always a free one.
	slots []int32
	seed  maphash.Seed
	// last is the place of the topic that was found last.
	last int
}

// newTopics returns an empty set with room for n topics whose names have nameBytes in all.
func newTopics(n, nameBytes int) topics {
	return topics{
		list: make([]topic, 0, n), names: make([]byte, 0, nameBytes), slots: make([]int32, slotsFor(n)), seed: maphash.MakeSeed(),
	}
}

// slotsFor is the length of the hash table for n topics: the power of two above 4/3 n.
func slotsFor(n int) int { return 1 << bits.Len(uint(n+n/3)) }

// topicsSize is the number of bytes that newTopics allocates.
func topicsSize(n, nameBytes int) int64 {
	return int64(n)*topicSize + int64(nameBytes) + int64(slotsFor(n))*slotSize
}

// size is the number of bytes that the set holds.
func (ts *topics) size() int64 {
	return int64(cap(ts.list))*topicSize + int64(cap(ts.names)) + int64(cap(ts.slots))*slotSize
}

// name returns a topic's name; it points into the set.
func (ts *topics) name(t *topic) []byte { return ts.names[t.nameOff : t.nameOff+t.nameLen] }

// slot returns the slot that holds a name, or the free one where it belongs.
func (ts *topics) slot(name []byte) *int32 {
	mask := uint64(len(ts.slots) - 1)
	for h := maphash.Bytes(ts.seed, name); ; h++ {
		s := &ts.slots[h&mask]
		if *s == 0 || bytes.Equal(ts.name(&ts.list[*s-1]), name) {
			return s
		}
	}
}

// named returns the topic with a name, or nil when none of its partitions asked for -6. Frames
// mostly name the topics in the order of the request, so it tries the one after the last.
func (ts *topics) named(name []byte) *topic {
	if len(ts.list) == 0 {
		return nil
	}
	next := ts.last + 1
	if next >= len(ts.list) {
		next = 0
	}
	if !bytes.Equal(ts.name(&ts.list[next]), name) {
		s := *ts.slot(name)
		if s == 0 {
			return nil
		}
		next = int(s) - 1
	}
	ts.last = next
	return &ts.list[next]
}

// add returns the topic with a name, which is new or not.
func (ts *topics) add(name []byte) *topic {
	s := ts.slot(name)
	if *s == 0 {
		ts.list = append(ts.list, topic{nameOff: int32(len(ts.names)), nameLen: int32(len(name))})
		ts.names = append(ts.names, name...)
		*s = int32(len(ts.list))
	}
	return &ts.list[*s-1]
}
