// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"fmt"

	"tiergate/codec"
)

// Places in a ListOffsets response's partition, the same in versions 9, 10 and 11.
// Source: ListOffsetsResponse.json.
const (
	answerIndex     = 0
	answerError     = 4
	answerTimestamp = 6
	answerOffset    = 14
	answerEpoch     = 22
	answerTags      = 26
	minAnswer       = answerTags + 1
)

// Places in an OffsetForLeaderEpoch response's partition, version 4. Source:
// OffsetForLeaderEpochResponse.json.
const (
	endError     = 0
	endIndex     = 2
	endEpoch     = 6
	endEndOffset = 10
	endTags      = 18
	minEnd       = endTags + 1
)

// layout describes a partition whose fixed-width fields are followed by tags.
type layout struct {
	name string
	// tags is the length of the fixed fields, index the offset of the partition's index.
	tags, index int
	// null arrays are a fault.
	noNull bool
}

func listOffsetsLayout() layout {
	return layout{name: "list_offsets response", tags: answerTags, index: answerIndex, noNull: true}
}

func epochEndLayout() layout {
	return layout{name: "offset_for_leader_epoch response", tags: endTags, index: endIndex, noNull: true}
}

// answer is where the parts of a response stand.
type answer struct {
	// throttleOff is the offset of the throttle time.
	throttleOff int
	// topicsOff is the offset of the number of topics, firstTopicOff of the first topic,
	// topicsEnd of the first byte behind the last one.
	topicsOff, firstTopicOff, topicsEnd int
	topics                              int
}

// followAnswer follows a whole response frame: a throttle time and topics of partitions. topic
// is called with each topic's name and partition with the offset of each of its partitions;
// the name points into the frame. The frame must hold the response and nothing else.
func followAnswer(frame []byte, l layout, topic func(name []byte), partition func(off int)) (answer, error) {
	if len(frame) < codec.ResponseFixedLen || int(codec.Size(frame)) != len(frame)-codec.SizeLen {
		return answer{}, fmt.Errorf("%s: a frame of %d bytes that is not whole", l.name, len(frame))
	}
	var a answer
	var err error
	if a.throttleOff, err = codec.ResponseBody(frame, codec.Flexible); err != nil {
		return answer{}, fmt.Errorf("%s %w", l.name, err)
	}
	c := codec.NewCursor(frame, codec.Flexible)
	c.Skip(a.throttleOff)
	c.Int32()
	a.topicsOff = c.Off()
	a.topics = l.arrayLen(&c, minTopicLen)
	a.firstTopicOff = c.Off()
	followTopics(&c, a.topics, l, topic, partition)
	a.topicsEnd = c.Off()
	c.Tags()
	if c.Err() == nil && c.Left() > 0 {
		c.Fail("%d bytes left over", c.Left())
	}
	if err := c.Err(); err != nil {
		return answer{}, fmt.Errorf("%s %w", l.name, err)
	}
	return a, nil
}

// followTopics follows the n topics of a request or response. It stops at the first fault.
func followTopics(c *codec.Cursor, n int, l layout, topic func(name []byte), partition func(off int)) {
	for ; n > 0 && c.Err() == nil; n-- {
		name := topicName(c)
		if c.Err() != nil {
			return
		}
		topic(name)
		for partitions := l.arrayLen(c, l.tags+1); partitions > 0; partitions-- {
			off := c.Off()
			c.Skip(l.tags)
			c.Tags()
			if c.Err() != nil {
				return
			}
			partition(off)
		}
		c.Tags()
	}
}

// arrayLen reads the length of an array of the layout.
func (l layout) arrayLen(c *codec.Cursor, minSize int) int {
	n := c.ArrayLen(minSize)
	if n < 0 && l.noNull {
		c.Fail("null array")
	}
	return n
}

func int16At(b []byte, off int) int16 { return int16(binary.BigEndian.Uint16(b[off:])) }
func int32At(b []byte, off int) int32 { return int32(binary.BigEndian.Uint32(b[off:])) }
func int64At(b []byte, off int) int64 { return int64(binary.BigEndian.Uint64(b[off:])) }

func putInt16At(b []byte, off int, v int16) { binary.BigEndian.PutUint16(b[off:], uint16(v)) }
func putInt32At(b []byte, off int, v int32) { binary.BigEndian.PutUint32(b[off:], uint32(v)) }
func putInt64At(b []byte, off int, v int64) { binary.BigEndian.PutUint64(b[off:], uint64(v)) }
