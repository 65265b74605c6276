// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"fmt"
	"slices"

	"tiergate/codec"
)

// Source of the layout: ListOffsetsRequest.json, versions 6 to 11.
const (
	// firstFlexible is the first version with compact lengths and tags.
	firstFlexible = 6
	// timeoutLen is the length of TimeoutMs.
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
	// replicaAndIsolation is the length of the fields between the header and the topics.
	replicaAndIsolation = 5
)

// Request is a ListOffsets request of version 6 to 11 that ParseRequest has checked. It
// refers to the frame and is of use as long as the frame is.
type Request struct {
	// Version is the request's version.
	Version int16
	// Partitions is the number of partitions, each as often as it is named.
	Partitions int
	// PendingUpload is the number of those that ask for timestamp -6.
	PendingUpload int

	frame []byte
	// clientID points into frame; nil for null.
	clientID []byte
	// body is the offset of the replica id; the isolation level and the topics follow it.
	body int
	// timeoutOff is the offset of TimeoutMs, -1 below version 10.
	timeoutOff int
	// topics is the number of topics with a partition that asks for -6, each as often as
	// it is named, and nameBytes is the length of their names.
	topics, nameBytes int
}

// ParseRequest checks a whole ListOffsets request frame of version 6 to 11. It changes
// nothing and allocates only for an error. An error means that the frame is not such a
// request; a broker would refuse it too. A null array counts as empty. Bytes after the
// closing tag section are left to the broker to accept or refuse.
func ParseRequest(frame []byte) (Request, error) {
	if len(frame) < codec.RequestFixedLen || int(codec.Size(frame)) != len(frame)-codec.SizeLen {
		return Request{}, fmt.Errorf("list_offsets request: a frame of %d bytes that is not whole", len(frame))
	}
	r := Request{Version: codec.RequestVersion(frame), frame: frame, timeoutOff: -1}
	if key := codec.RequestKey(frame); key != codec.KeyListOffsets {
		return Request{}, fmt.Errorf("list_offsets request: API key %d", key)
	}
	if r.Version < firstFlexible || r.Version > codec.ListOffsetsPendingUpload {
		return Request{}, fmt.Errorf("list_offsets request: version %d is not one of %d to %d", r.Version, firstFlexible, codec.ListOffsetsPendingUpload)
	}
	var err error
	if r.clientID, r.body, err = codec.RequestBody(frame, codec.Flexible); err != nil {
		return Request{}, fmt.Errorf("list_offsets request v%d %w", r.Version, err)
	}
	var name []byte
	before := 0
	c := r.eachPartition(func(topic []byte) {
		name, before = topic, r.PendingUpload
	}, func(off int) {
		r.Partitions++
		if timestampAt(frame, off) != codec.EarliestPendingUploadTimestamp {
			return
		}
		if r.PendingUpload == before {
			r.topics++
			r.nameBytes += len(name)
		}
		r.PendingUpload++
	})
	if r.Version >= codec.ListOffsetsTimeout {
		r.timeoutOff = c.Off()
		c.Skip(timeoutLen)
	}
	c.Tags()
	if err := c.Err(); err != nil {
		return Request{}, fmt.Errorf("list_offsets request v%d %w", r.Version, err)
	}
	return r, nil
}

// eachPartition calls topic with each topic's name and partition with the offset of each of
// its partitions, in the order of the frame. The name points into the frame. The cursor that
// it returns is after the topics, or at the first fault.
func (r *Request) eachPartition(topic func(name []byte), partition func(off int)) codec.Cursor {
	c := codec.NewCursor(r.frame, codec.Flexible)
	c.Skip(r.body + replicaAndIsolation)
	l := layout{tags: requestTags}
	followTopics(&c, l.arrayLen(&c, minTopicLen), l, topic, partition)
	return c
}

// Lower changes the request in place to version, which is 8 to 10 and not above its own.
// Below version 10, which has no TimeoutMs, those four bytes are cut out and the size field is
// corrected. It returns the frame, maybe shorter, in the same array; all other bytes stay.
// The request is of no further use.
func (r *Request) Lower(version int16) []byte {
	frame := r.frame
	codec.PutRequestVersion(frame, version)
	if version >= codec.ListOffsetsTimeout || r.timeoutOff < 0 {
		return frame
	}
	frame = slices.Delete(frame, r.timeoutOff, r.timeoutOff+timeoutLen)
	codec.PutSize(frame)
	return frame
}

// AsksTiered says whether a partition asks for a timestamp that brokers whose ListOffsets
// ends at version 8 would take for a time: -5 and below.
func (r *Request) AsksTiered() bool {
	tiered := false
	r.eachPartition(func([]byte) {}, func(off int) {
		tiered = tiered || timestampAt(r.frame, off) <= codec.LatestTieredTimestamp
	})
	return tiered
}

// MachineSize returns the number of bytes that a machine for this request holds once New has
// returned. See the package documentation for what is added later.
func (r *Request) MachineSize() int64 {
	return int64(len(r.frame)+len(r.clientID)) + int64(r.PendingUpload)*partitionSize + topicsSize(r.topics, r.nameBytes)
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
