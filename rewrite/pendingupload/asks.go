// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"tiergate/codec"
)

const (
	offsetForLeaderEpochKey int16 = 23
	// offsetForLeaderEpochVersion is the first flexible version; every broker from 2.8
	// on has it, and it is the highest there is.
	offsetForLeaderEpochVersion int16 = 4
	// epochCandidateLen is partition, current leader epoch, leader epoch, no tags.
	epochCandidateLen = 13
)

// header is what the asks repeat of the client's request.
type header struct {
	correlationID int32
	// clientID is nil for null.
	clientID []byte
	// replicaAndIsolation and timeout are the client's bytes.
	replicaAndIsolation, timeout []byte
}

// topic is a topic with partitions that ask for -6: parts[first:end] of the machine.
type topic struct {
	name       string
	first, end int
	// proved: an offset of -5 showed that remote storage is on.
	proved bool
	// found is the partition that an answer named last.
	found int
}

// wish is one partition of the client's request that asks for -6.
type wish struct {
	topic               int
	index, currentEpoch int32
}

// collect fills the machine's topics and partitions from the client's request and
// replaces -6 by -5 in frame, which is the machine's own copy.
func (m *Machine) collect(frame []byte, pending int) error {
	wishes := make([]wish, 0, pending)
	m.byName = make(map[string]int)
	last := -1
	r, err := walkRequest(frame, func(name []byte, off int) {
		if timestampAt(frame, off) != earliestPendingUploadTimestamp {
			return
		}
		putTimestampAt(frame, off, latestTieredTimestamp)
		if last < 0 || m.topics[last].name != string(name) {
			last = m.addTopic(name)
		}
		wishes = append(wishes, wish{last, int32At(frame, off+requestIndex), int32At(frame, off+requestCurrentEpoch)})
	})
	if err != nil {
		return err
	}
	m.header = header{
		correlationID:       codec.RequestCorrelationID(frame),
		clientID:            slices.Clone(r.clientID),
		replicaAndIsolation: slices.Clone(frame[r.body : r.body+replicaAndIsolation]),
		timeout:             slices.Clone(frame[r.timeoutOff : r.timeoutOff+timeoutLen]),
	}
	m.arrange(wishes)
	return nil
}

// addTopic returns the place of a topic. A request may name one several times.
func (m *Machine) addTopic(name []byte) int {
	if i, ok := m.byName[string(name)]; ok {
		return i
	}
	m.topics = append(m.topics, topic{name: string(name)})
	m.byName[m.topics[len(m.topics)-1].name] = len(m.topics) - 1
	return len(m.topics) - 1
}

// arrange makes the partitions: sorted by topic and index, so that answers find theirs
// without a map, and only the first of those named twice.
func (m *Machine) arrange(wishes []wish) {
	slices.SortStableFunc(wishes, func(a, b wish) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
	wishes = slices.CompactFunc(wishes, func(a, b wish) bool { return a.topic == b.topic && a.index == b.index })
	m.parts = make([]partition, len(wishes))
	for i, w := range wishes {
		p := &m.parts[i]
		p.wish = w
		p.forget()
		t := &m.topics[w.topic]
		if t.end == 0 {
			t.first = i
		}
		t.end = i + 1
	}
}

// find returns the partition of a topic with an index, or nil when it was not asked for
// -6. Answers mostly come in the order of the ask, so it tries the last one found (an
// epoch round names a partition several times) and the one after it first.
func (m *Machine) find(t *topic, index int32) *partition {
	for i := t.found; i < min(t.found+2, t.end); i++ {
		if m.parts[i].index == index {
			t.found = i
			return &m.parts[i]
		}
	}
	off, ok := sort.Find(t.end-t.first, func(i int) int { return cmp.Compare(index, m.parts[t.first+i].index) })
	if !ok {
		return nil
	}
	t.found = t.first + off
	return &m.parts[t.found]
}

// topicOf returns the topic with a name, ready to find partitions, or nil when none of
// its partitions was asked for -6.
func (m *Machine) topicOf(name []byte) *topic {
	i, ok := m.byName[string(name)]
	if !ok {
		return nil
	}
	t := &m.topics[i]
	t.found = t.first
	return t
}

// tierAsk makes the client's own request, in which collect has replaced -6, the look-up
// of the highest remote offsets.
func (m *Machine) tierAsk(frame []byte, in Inspection) Ask {
	codec.PutRequestCorrelationID(frame, 0)
	return Ask{Key: listOffsetsKey, Version: m.version, Frame: Lower(frame, in, m.version)}
}

// lookup returns a ListOffsets request for the undecided partitions.
func (m *Machine) lookup(timestamp int64) Ask {
	b := m.beginAsk(listOffsetsKey, m.version, len(m.parts)*minRequestPartition)
	b = append(b, m.header.replicaAndIsolation...)
	b = codec.AppendArrayLen(b, codec.Flexible, m.topicsWith(m.undecided))
	for _, t := range m.topics {
		n := m.undecided(t)
		if n == 0 {
			continue
		}
		b = codec.AppendString(b, codec.Flexible, t.name)
		b = codec.AppendArrayLen(b, codec.Flexible, n)
		for _, p := range m.parts[t.first:t.end] {
			if p.outcome != undecided {
				continue
			}
			b = binary.BigEndian.AppendUint32(b, uint32(p.index))
			b = binary.BigEndian.AppendUint32(b, uint32(p.currentEpoch))
			b = binary.BigEndian.AppendUint64(b, uint64(timestamp))
			b = codec.AppendNoTags(b, codec.Flexible)
		}
		b = codec.AppendNoTags(b, codec.Flexible)
	}
	if m.version >= firstTimeout {
		b = append(b, m.header.timeout...)
	}
	return endAsk(listOffsetsKey, m.version, b)
}

// undecided is the number of undecided partitions of a topic.
func (m *Machine) undecided(t topic) int {
	n := 0
	for _, p := range m.parts[t.first:t.end] {
		if p.outcome == undecided {
			n++
		}
	}
	return n
}

// topicsWith is the number of topics for which a count is above 0.
func (m *Machine) topicsWith(count func(topic) int) int {
	n := 0
	for _, t := range m.topics {
		if count(t) > 0 {
			n++
		}
	}
	return n
}

// epochAsk returns an OffsetForLeaderEpoch request with the candidates of the round. Its
// replica id is -1, so that DESCRIBE on the topic suffices.
func (m *Machine) epochAsk() Ask {
	b := m.beginAsk(offsetForLeaderEpochKey, offsetForLeaderEpochVersion, len(m.candidates)*epochCandidateLen)
	b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	// Each topic once: the broker keeps topics of this request in a set.
	b = codec.AppendArrayLen(b, codec.Flexible, m.topicsWith(m.searched))
	for _, t := range m.topics {
		n := m.searched(t)
		if n == 0 {
			continue
		}
		b = codec.AppendString(b, codec.Flexible, t.name)
		b = codec.AppendArrayLen(b, codec.Flexible, n)
		for _, p := range m.parts[t.first:t.end] {
			for _, candidate := range m.candidates[p.search.first:p.search.end] {
				b = binary.BigEndian.AppendUint32(b, uint32(p.index))
				b = binary.BigEndian.AppendUint32(b, uint32(p.currentEpoch))
				b = binary.BigEndian.AppendUint32(b, uint32(candidate.asked))
				b = codec.AppendNoTags(b, codec.Flexible)
			}
		}
		b = codec.AppendNoTags(b, codec.Flexible)
	}
	return endAsk(offsetForLeaderEpochKey, offsetForLeaderEpochVersion, b)
}

// searched is the number of candidates of a topic in this round.
func (m *Machine) searched(t topic) int {
	n := 0
	for _, p := range m.parts[t.first:t.end] {
		n += p.search.end - p.search.first
	}
	return n
}

// beginAsk starts a request frame: header version 2 with the client's client id,
// correlation id 0 and no tags. body is a guess of what follows besides topic names.
func (m *Machine) beginAsk(key, version int16, body int) []byte {
	size := codec.RequestFixedLen + len(m.header.clientID) + body + 64
	for _, t := range m.topics {
		size += len(t.name) + 8
	}
	b := make([]byte, codec.SizeLen, size)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = codec.AppendNullableString(b, codec.Classic, m.header.clientID)
	return codec.AppendNoTags(b, codec.Flexible)
}

// endAsk closes a request frame.
func endAsk(key, version int16, b []byte) Ask {
	b = codec.AppendNoTags(b, codec.Flexible)
	codec.PutSize(b)
	return Ask{Key: key, Version: version, Frame: b}
}
