// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiered

import (
	"cmp"
	"fmt"
	"slices"

	"tiergate/codec"
)

// The head of a record's value, from AbstractApiMessageSerde and RemoteLogMetadataSerde:
// three unsigned varints, the frame version, the API key and the message version. The
// body follows, which is flexible from version 0 on.
const (
	frameVersion   = 1
	messageVersion = 0
)

// API keys of the bodies, the "apiKey" of their message JSON.
const (
	keySegment         = 0 // RemoteLogSegmentMetadataRecord
	keySegmentUpdate   = 1 // RemoteLogSegmentMetadataUpdateRecord
	keyPartitionDelete = 2 // RemotePartitionDeleteMetadataRecord
)

// States of a segment, RemoteLogSegmentState.
const (
	copyStarted    = 0
	copyFinished   = 1
	deleteStarted  = 2
	deleteFinished = 3
)

// minEpochLen is the least length of a SegmentLeaderEpochs element: LeaderEpoch, Offset
// and an empty tag section.
const minEpochLen = 4 + 8 + 1

// UUID is a Kafka Uuid, most significant byte first.
type UUID = [16]byte

// EpochOffset is a leader epoch and an offset.
type EpochOffset struct {
	Epoch  int32
	Offset int64
}

// record is what a record's value says, as far as it matters here.
type record struct {
	key       int8
	topic     UUID
	partition int32
	segment   UUID
	state     int8
	// highest is, of a record that begins a segment, the last offset that the segment has
	// of each of its epochs, by epoch.
	highest []EpochOffset
}

// parse reads the value of a record. The slice of r is used again.
func parse(value []byte, r *record) error {
	c := codec.NewCursor(value, codec.Flexible)
	frame, key, version := c.Uvarint(), c.Uvarint(), c.Uvarint()
	switch {
	case c.Err() != nil:
		return fmt.Errorf("remote log metadata record: head: %w", c.Err())
	case frame != frameVersion:
		return fmt.Errorf("remote log metadata record: frame version %d, want %d", frame, frameVersion)
	case key > keyPartitionDelete || version != messageVersion:
		return fmt.Errorf("remote log metadata record: unknown API key %d, version %d", key, version)
	}
	*r = record{key: int8(key), highest: r.highest[:0]}
	switch r.key {
	case keySegment:
		r.readSegment(&c)
	case keySegmentUpdate:
		r.readUpdate(&c)
	case keyPartitionDelete:
		r.readPartitionDelete(&c)
	}
	if c.Err() == nil && c.Left() > 0 {
		c.Fail("%d bytes too many", c.Left())
	}
	if c.Err() != nil {
		return fmt.Errorf("remote log metadata record: API key %d: %w", key, c.Err())
	}
	return nil
}

// readSegment reads a RemoteLogSegmentMetadataRecord.
func (r *record) readSegment(c *codec.Cursor) {
	r.readSegmentID(c)
	start, end := c.Int64(), c.Int64()
	c.Skip(4 + 8 + 8) // BrokerId, MaxTimestampMs, EventTimestampMs
	for n := c.ArrayLen(minEpochLen); n > 0 && c.Err() == nil; n-- {
		r.highest = append(r.highest, EpochOffset{Epoch: c.Int32(), Offset: c.Int64()})
		c.Tags()
	}
	c.Skip(4) // SegmentSizeInBytes
	c.Bytes() // CustomMetadata
	r.state = c.Int8()
	c.Tags()
	// What RemoteLogSegmentMetadata and RemoteLogMetadataCache refuse too.
	switch {
	case c.Err() != nil:
	case r.state != copyStarted:
		c.Fail("segment begins in state %d", r.state)
	case start < 0 || end < start:
		c.Fail("segment from offset %d to %d", start, end)
	case len(r.highest) == 0:
		c.Fail("segment without leader epoch")
	default:
		r.highest = ends(r.highest, end)
	}
}

// ends turns the start of each epoch into the last offset of it: the one before the
// start of the next higher epoch, and end for the last
// (RemoteLogMetadataCache.highestOffsetForEpoch). Epochs come in the order of a hash map.
func ends(starts []EpochOffset, end int64) []EpochOffset {
	slices.SortStableFunc(starts, func(a, b EpochOffset) int { return cmp.Compare(a.Epoch, b.Epoch) })
	out := starts[:0]
	for i, e := range starts {
		switch {
		case i+1 == len(starts):
			e.Offset = end
		case starts[i+1].Epoch == e.Epoch:
			continue // the later of two counts, as in a map
		default:
			e.Offset = starts[i+1].Offset - 1
		}
		out = append(out, e)
	}
	return out
}

// readUpdate reads a RemoteLogSegmentMetadataUpdateRecord.
func (r *record) readUpdate(c *codec.Cursor) {
	r.readSegmentID(c)
	c.Skip(4 + 8) // BrokerId, EventTimestampMs
	c.Bytes()     // CustomMetadata
	r.state = c.Int8()
	c.Tags()
	if c.Err() == nil && (r.state < copyFinished || r.state > deleteFinished) {
		c.Fail("segment goes to state %d", r.state)
	}
}

// readPartitionDelete reads a RemotePartitionDeleteMetadataRecord.
func (r *record) readPartitionDelete(c *codec.Cursor) {
	r.readPartition(c)
	c.Skip(4 + 8) // BrokerId, EventTimestampMs
	r.state = c.Int8()
	c.Tags()
}

// readSegmentID reads a RemoteLogSegmentIdEntry.
func (r *record) readSegmentID(c *codec.Cursor) {
	r.readPartition(c)
	copy(r.segment[:], c.Skip(len(r.segment)))
	c.Tags()
}

// readPartition reads a TopicIdPartitionEntry.
func (r *record) readPartition(c *codec.Cursor) {
	if c.String() == nil {
		c.Fail("null topic name")
	}
	copy(r.topic[:], c.Skip(len(r.topic)))
	r.partition = c.Int32()
	c.Tags()
}
