// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tierlog

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// States of an uploaded segment, as Kafka's RemoteLogSegmentState has them.
const (
	CopySegmentStarted    int8 = 0
	CopySegmentFinished   int8 = 1
	DeleteSegmentStarted  int8 = 2
	DeleteSegmentFinished int8 = 3
)

// EpochStart is a leader epoch and the offset that it begins at.
type EpochStart struct {
	Epoch  int32
	Offset int64
}

// RemoteSegment is an uploaded segment as the topic __remote_log_metadata describes it.
// Sources: RemoteLogSegmentMetadataRecord.json and
// RemoteLogSegmentMetadataUpdateRecord.json of Kafka's storage module.
type RemoteSegment struct {
	Topic       string
	TopicID     [16]byte
	Partition   int32
	ID          [16]byte
	Start, End  int64 // both included
	Epochs      []EpochStart
	Custom      []byte // CustomMetadata; nil is null
	TxnIdxEmpty bool   // the tagged field 0 that Kafka 4.1 adds
}

// Record returns the value of the record that begins the segment.
func (s RemoteSegment) Record() []byte {
	b := s.head(0)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Start))
	b = binary.BigEndian.AppendUint64(b, uint64(s.End))
	b = binary.BigEndian.AppendUint32(b, 1)             // BrokerId
	b = binary.BigEndian.AppendUint64(b, 1_700_000_000) // MaxTimestampMs
	b = binary.BigEndian.AppendUint64(b, 1_700_000_001) // EventTimestampMs
	b = binary.AppendUvarint(b, uint64(len(s.Epochs))+1)
	for _, e := range s.Epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Offset))
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint32(b, 1<<20) // SegmentSizeInBytes
	b = s.appendCustom(b)
	b = append(b, byte(CopySegmentStarted))
	if s.TxnIdxEmpty {
		return append(b, 1, 0, 1, 1)
	}
	return append(b, 0)
}

// Update returns the value of a record that says what became of the segment.
func (s RemoteSegment) Update(state int8) []byte {
	b := s.head(1)
	b = binary.BigEndian.AppendUint32(b, 1)             // BrokerId
	b = binary.BigEndian.AppendUint64(b, 1_700_000_002) // EventTimestampMs
	b = s.appendCustom(b)
	return append(b, byte(state), 0)
}

// head is everything up to the segment's id: frame version 1, the API key, version 0.
func (s RemoteSegment) head(key byte) []byte {
	b := []byte{1, key, 0}
	b = append(binary.AppendUvarint(b, uint64(len(s.Topic))+1), s.Topic...)
	b = append(b, s.TopicID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Partition))
	b = append(b, 0)
	b = append(b, s.ID[:]...)
	return append(b, 0)
}

func (s RemoteSegment) appendCustom(b []byte) []byte {
	if s.Custom == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(s.Custom))+1), s.Custom...)
}

// RemoteEvent says what became of a segment.
type RemoteEvent struct {
	Segment RemoteSegment
	State   int8
}

// Value is the record's.
func (e RemoteEvent) Value() []byte {
	if e.State == CopySegmentStarted {
		return e.Segment.Record()
	}
	return e.Segment.Update(e.State)
}

// HighestTiered returns the highest uploaded offset of each leader epoch of a partition
// after events, by epoch, as RemoteLogMetadataCache has them: the events are gone through
// from the start, and nothing is forgotten.
func HighestTiered(events []RemoteEvent, topicID [16]byte, partition int32) []EpochStart {
	state := map[[16]byte]int8{}
	segment := map[[16]byte]RemoteSegment{}
	highest := map[int32]int64{}
	for _, e := range events {
		if e.Segment.TopicID != topicID || e.Segment.Partition != partition {
			continue
		}
		id := e.Segment.ID
		was, exists := state[id]
		switch {
		case e.State == CopySegmentStarted:
			segment[id], state[id] = e.Segment, e.State
		case exists:
			state[id] = e.State
			if was == CopySegmentStarted && e.State == CopySegmentFinished {
				addHighest(highest, segment[id])
			}
		}
	}
	var out []EpochStart
	for epoch, offset := range highest {
		out = append(out, EpochStart{Epoch: epoch, Offset: offset})
	}
	slices.SortFunc(out, func(a, b EpochStart) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return out
}

// addHighest is RemoteLogMetadataCache.highestOffsetForEpoch for each epoch of a segment.
func addHighest(highest map[int32]int64, s RemoteSegment) {
	for _, e := range s.Epochs {
		next := EpochStart{Epoch: -1, Offset: s.End + 1}
		for _, other := range s.Epochs {
			if other.Epoch > e.Epoch && (next.Epoch < 0 || other.Epoch < next.Epoch) {
				next = other
			}
		}
		if old, ok := highest[e.Epoch]; !ok || next.Offset-1 > old {
			highest[e.Epoch] = next.Offset - 1
		}
	}
}
