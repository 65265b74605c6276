// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"math/bits"
	"slices"

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

// header is what the lookups repeat of the client's request.
type header struct {
	correlationID int32
	// clientID is nil for null.
	clientID []byte
	// These are the client's bytes.
	replicaAndIsolation [replicaAndIsolation]byte
	timeout             [timeoutLen]byte
}

// headerOf returns a copy of what the lookups repeat of a request.
func headerOf(r *Request) header {
	h := header{correlationID: codec.RequestCorrelationID(r.frame), clientID: slices.Clone(r.clientID)}
	copy(h.replicaAndIsolation[:], r.frame[r.body:])
	copy(h.timeout[:], r.frame[r.timeoutOff:])
	return h
}

// ownAsk makes the client's own request, in which collect has replaced -6, the lookup of the
// highest remote offsets.
func (m *Machine) ownAsk() Ask {
	codec.PutRequestCorrelationID(m.own.frame, 0)
	frame := m.own.Lower(m.version)
	m.own = Request{}
	return Ask{Key: listOffsetsKey, Version: m.version, Frame: frame}
}

// lookup returns a ListOffsets request for the undecided partitions.
func (m *Machine) lookup(timestamp int64) Ask {
	undecidedOnes := func(i int) int { return bit(m.parts[i].outcome == undecided) }
	topics, size := m.countRows(minRequestPartition, undecidedOnes)
	b := m.beginAsk(listOffsetsKey, m.version, size)
	b = append(b, m.header.replicaAndIsolation[:]...)
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	b = m.appendRows(b, undecidedOnes, func(b []byte, i int) []byte {
		b = binary.BigEndian.AppendUint32(b, uint32(m.parts[i].index))
		b = binary.BigEndian.AppendUint32(b, uint32(m.parts[i].currentEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(timestamp))
		return codec.AppendNoTags(b, codec.Flexible)
	})
	if m.version >= firstTimeout {
		b = append(b, m.header.timeout[:]...)
	}
	return endAsk(listOffsetsKey, m.version, b)
}

// epochAsk returns an OffsetForLeaderEpoch request with the candidates of the round. Its
// replica id is -1, so that DESCRIBE on the topic suffices.
func (m *Machine) epochAsk() Ask {
	candidates := func(i int) int {
		if m.parts[i].outcome != searching {
			return 0
		}
		return m.boundsOf(i).candidates(m.width)
	}
	// Each topic once: the broker keeps topics of this request in a set.
	topics, size := m.countRows(epochCandidateLen, candidates)
	b := m.beginAsk(offsetForLeaderEpochKey, offsetForLeaderEpochVersion, size)
	b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	b = m.appendRows(b, candidates, func(b []byte, i int) []byte {
		p, s := m.parts[i], m.boundsOf(i)
		for k := range s.candidates(m.width) {
			b = binary.BigEndian.AppendUint32(b, uint32(p.index))
			b = binary.BigEndian.AppendUint32(b, uint32(p.currentEpoch))
			b = binary.BigEndian.AppendUint32(b, uint32(s.candidate(k, m.width)))
			b = codec.AppendNoTags(b, codec.Flexible)
		}
		return b
	})
	return endAsk(offsetForLeaderEpochKey, offsetForLeaderEpochVersion, b)
}

// countRows counts the rows that each topic has in a frame, where rows is their number for a
// partition, and returns the number of topics that have any and the length of these topics
// in the frame.
func (m *Machine) countRows(rowLen int, rows func(i int) int) (topics, size int) {
	for i := range m.topics.list {
		t := &m.topics.list[i]
		n := 0
		for i := int(t.first); i < int(t.end); i++ {
			n += rows(i)
		}
		if t.rows = int32(n); n > 0 {
			topics++
			size += uvarintLen(int(t.nameLen)+1) + int(t.nameLen) + uvarintLen(n+1) + n*rowLen + 1
		}
	}
	return topics, size
}

// appendRows appends the topics that countRows has counted: name, array of rows, no tags.
func (m *Machine) appendRows(b []byte, rows func(i int) int, row func(b []byte, i int) []byte) []byte {
	for i := range m.topics.list {
		t := &m.topics.list[i]
		if t.rows == 0 {
			continue
		}
		b = codec.AppendString(b, codec.Flexible, string(m.topics.name(t)))
		b = codec.AppendArrayLen(b, codec.Flexible, int(t.rows))
		for i := int(t.first); i < int(t.end); i++ {
			if rows(i) > 0 {
				b = row(b, i)
			}
		}
		b = codec.AppendNoTags(b, codec.Flexible)
	}
	return b
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
}

// uvarintLen is the length of an unsigned varint.
func uvarintLen(n int) int { return max(1, (bits.Len(uint(n))+6)/7) }

// maxAroundTopics is what a request frame has besides the client id and the topics: the fixed
// part of the header, the length of the client id and tags; replica id, isolation level, the
// number of topics, timeout and tags.
const maxAroundTopics = codec.RequestFixedLen + 2 + 1 + replicaAndIsolation + 5 + timeoutLen + 1

// beginAsk starts a request frame: header version 2 with the client's client id,
// correlation id 0 and no tags. topics is the length of the topics that follow.
func (m *Machine) beginAsk(key, version int16, topics int) []byte {
	b := make([]byte, codec.SizeLen, maxAroundTopics+len(m.header.clientID)+topics)
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
