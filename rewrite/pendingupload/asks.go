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
	// Places in a partition of this request. Source: OffsetForLeaderEpochRequest.json.
	candidateIndex        = 0
	candidateCurrentEpoch = 4
	candidateEpoch        = 8
	epochCandidateLen     = 13
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
	return Ask{Key: codec.KeyListOffsets, Version: m.version, Frame: frame}
}

// lookup returns a ListOffsets request for the undecided partitions.
func (m *Machine) lookup(timestamp int64) Ask {
	topics, size := m.countRows(minRequestPartition, func(p *partition, _ int) int { return bit(p.outcome == undecided) })
	b := m.beginAsk(codec.KeyListOffsets, m.version, size)
	b = append(b, m.header.replicaAndIsolation[:]...)
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	// The last byte of a row says that it has no tags.
	var row [minRequestPartition]byte
	putInt64At(row[:], requestTimestamp, timestamp)
	b = m.appendTopics(b, func(b []byte, t *topic) []byte {
		for i := t.first; i < t.end; i++ {
			if p := &m.parts[i]; p.outcome == undecided {
				putInt32At(row[:], requestIndex, p.index)
				putInt32At(row[:], requestCurrentEpoch, p.currentEpoch)
				b = append(b, row[:]...)
			}
		}
		return b
	})
	if m.version >= codec.ListOffsetsTimeout {
		b = append(b, m.header.timeout[:]...)
	}
	return endAsk(codec.KeyListOffsets, m.version, b)
}

// epochAsk returns an OffsetForLeaderEpoch request with the candidates of the round. Its
// replica id is -1, so that DESCRIBE on the topic suffices.
func (m *Machine) epochAsk() Ask {
	// Each topic once: the broker keeps topics of this request in a set.
	topics, size := m.countRows(epochCandidateLen, func(p *partition, i int) int {
		if p.outcome != searching {
			return 0
		}
		return m.boundsOf(i).candidates(m.width)
	})
	b := m.beginAsk(codec.KeyOffsetForLeaderEpoch, codec.OffsetForLeaderEpochLookup, size)
	b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	b = m.appendTopics(b, func(b []byte, t *topic) []byte {
		for i := int(t.first); i < int(t.end); i++ {
			if m.parts[i].outcome == searching {
				b = m.appendCandidates(b, i)
			}
		}
		return b
	})
	return endAsk(codec.KeyOffsetForLeaderEpoch, codec.OffsetForLeaderEpochLookup, b)
}

// appendCandidates appends the rows of a partition in an epoch round.
func (m *Machine) appendCandidates(b []byte, i int) []byte {
	// The last byte of a row says that it has no tags.
	var row [epochCandidateLen]byte
	p, s := &m.parts[i], m.boundsOf(i)
	putInt32At(row[:], candidateIndex, p.index)
	putInt32At(row[:], candidateCurrentEpoch, p.currentEpoch)
	for k := range s.candidates(m.width) {
		putInt32At(row[:], candidateEpoch, s.candidate(k, m.width))
		b = append(b, row[:]...)
	}
	return b
}

// countRows counts the rows that each topic has in a frame, where rows is their number for a
// partition and its place, and returns the number of topics that have any and the length of
// these topics in the frame.
func (m *Machine) countRows(rowLen int, rows func(p *partition, i int) int) (topics, size int) {
	for i := range m.topics.list {
		t := &m.topics.list[i]
		n := 0
		for i := int(t.first); i < int(t.end); i++ {
			n += rows(&m.parts[i], i)
		}
		if t.rows = int32(n); n > 0 {
			topics++
			size += uvarintLen(int(t.nameLen)+1) + int(t.nameLen) + uvarintLen(n+1) + n*rowLen + 1
		}
	}
	return topics, size
}

// appendTopics appends the topics that countRows found rows of: name, array of rows, no tags.
func (m *Machine) appendTopics(b []byte, rows func(b []byte, t *topic) []byte) []byte {
	for i := range m.topics.list {
		t := &m.topics.list[i]
		if t.rows == 0 {
			continue
		}
		b = codec.AppendString(b, codec.Flexible, string(m.topics.name(t)))
		b = codec.AppendArrayLen(b, codec.Flexible, int(t.rows))
		b = codec.AppendNoTags(rows(b, t), codec.Flexible)
	}
	return b
}

// bit is a bool as a number.
func bit(set bool) int { //nolint:revive // it controls nothing
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
