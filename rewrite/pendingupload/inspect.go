// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"fmt"

	"tiergate/codec"
)

// Source of the layout: ListOffsetsRequest.json, versions 6 to 11.
const (
	listOffsetsKey int16 = 2
	// firstFlexible is the first version with compact lengths and tags.
	firstFlexible int16 = 6
	// firstTimeout is the first version with TimeoutMs (KIP-1075).
	firstTimeout int16 = 10
	// pendingUploadVersion is the only version that knows -6, and the highest there is.
	pendingUploadVersion int16 = 11

	timeoutLen = 4
	// minTopicLen is an empty name, an empty array and no tags.
	minTopicLen = 3
)

// Places in a request's partition, whose fields have fixed widths.
const (
	requestIndex        = 0
	requestCurrentEpoch = 4
	requestTimestamp    = 8
	requestTags         = 16
	minRequestPartition = requestTags + 1
	// replicaAndIsolation is the length of what stands before the topics.
	replicaAndIsolation = 5
)

// Timestamps with a meaning of their own.
const (
	latestTimestamp                int64 = -1
	earliestTimestamp              int64 = -2
	earliestLocalTimestamp         int64 = -4
	latestTieredTimestamp          int64 = -5
	earliestPendingUploadTimestamp int64 = -6
)

// Inspection is what Inspect found in a ListOffsets request.
type Inspection struct {
	// Version is the request's version, 6 to 11.
	Version int16
	// Partitions is the number of partitions, each as often as it is named.
	Partitions int
	// PendingUpload is the number of those that ask for timestamp -6.
	PendingUpload int
	// TimeoutOff is the offset of TimeoutMs in the frame, -1 below version 10.
	TimeoutOff int
}

// Inspect walks a whole ListOffsets request frame of version 6 to 11. It changes
// nothing, keeps nothing and allocates only for an error. An error means that the frame
// is no such request; a broker would refuse it too.
func Inspect(frame []byte) (Inspection, error) {
	var in Inspection
	r, err := walkRequest(frame, func(_ []byte, off int) {
		in.Partitions++
		if timestampAt(frame, off) == earliestPendingUploadTimestamp {
			in.PendingUpload++
		}
	})
	if err != nil {
		return Inspection{}, err
	}
	in.Version, in.TimeoutOff = r.version, r.timeoutOff
	return in, nil
}

// Lower changes a ListOffsets request frame in place to version, which is 9 or 10 and
// not above the frame's own. in is what Inspect said of this frame. For version 9,
// which has no TimeoutMs, those four bytes are cut out and the size field is corrected.
// It returns the frame, maybe shorter, in the same array; all other bytes stay.
func Lower(frame []byte, in Inspection, version int16) []byte {
	codec.PutRequestVersion(frame, version)
	if version >= firstTimeout || in.TimeoutOff < 0 {
		return frame
	}
	rest := copy(frame[in.TimeoutOff:], frame[in.TimeoutOff+timeoutLen:])
	frame = frame[:in.TimeoutOff+rest]
	codec.PutSize(frame)
	return frame
}

// request is where the parts of a ListOffsets request stand.
type request struct {
	version int16
	// clientID points into the frame; nil for null.
	clientID []byte
	// body is the offset of the replica id; the isolation level follows it.
	body int
	// timeoutOff is the offset of TimeoutMs, -1 below version 10.
	timeoutOff int
}

// walkRequest walks a request frame and calls visit with the topic's name and the
// offset of each partition, in the order of the frame. The name points into the frame.
// A null array counts as empty. Bytes behind the closing tag section are left to the
// broker's judgement.
func walkRequest(frame []byte, visit func(topic []byte, off int)) (request, error) {
	if len(frame) < codec.RequestFixedLen || int(codec.Size(frame)) != len(frame)-codec.SizeLen {
		return request{}, fmt.Errorf("list_offsets request: a frame of %d bytes that is not whole", len(frame))
	}
	r := request{version: codec.RequestVersion(frame), timeoutOff: -1}
	if key := codec.RequestKey(frame); key != listOffsetsKey {
		return request{}, fmt.Errorf("list_offsets request: API key %d", key)
	}
	if r.version < firstFlexible || r.version > pendingUploadVersion {
		return request{}, fmt.Errorf("list_offsets request: version %d is not one of %d to %d", r.version, firstFlexible, pendingUploadVersion)
	}
	var err error
	if r.clientID, r.body, err = codec.RequestBody(frame, codec.Flexible); err != nil {
		return request{}, fmt.Errorf("list_offsets request v%d %w", r.version, err)
	}
	c := codec.NewCursor(frame, codec.Flexible)
	c.Skip(r.body + replicaAndIsolation)
	for topics := c.ArrayLen(minTopicLen); topics > 0 && c.Err() == nil; topics-- {
		topic := topicName(&c)
		for partitions := c.ArrayLen(minRequestPartition); partitions > 0 && c.Err() == nil; partitions-- {
			off := c.Off()
			c.Skip(requestTags)
			c.Tags()
			if c.Err() == nil {
				visit(topic, off)
			}
		}
		c.Tags()
	}
	if r.version >= firstTimeout {
		r.timeoutOff = c.Off()
		c.Skip(timeoutLen)
	}
	c.Tags()
	if err := c.Err(); err != nil {
		return request{}, fmt.Errorf("list_offsets request v%d %w", r.version, err)
	}
	return r, nil
}

// topicName reads a topic's name, which is never null.
func topicName(c *codec.Cursor) []byte {
	name := c.String()
	if name == nil {
		c.Fail("null topic name")
	}
	return name
}

func timestampAt(frame []byte, off int) int64 {
	return int64(binary.BigEndian.Uint64(frame[off+requestTimestamp:]))
}

func putTimestampAt(frame []byte, off int, timestamp int64) {
	binary.BigEndian.PutUint64(frame[off+requestTimestamp:], uint64(timestamp))
}
