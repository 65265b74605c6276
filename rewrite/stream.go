// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tiergate/codec"
)

// Stream rewrites the node endpoints of a response that is too large to be held: Fetch
// from version 16 and ShareFetch. They stand at the very end of a frame whose length
// went out long before, and a rewritten address has another length. So the frame is
// announced Growth bytes longer than it came; its structure is walked while it passes
// (the records, which are nearly all of it, are not looked at); and the tail behind the
// last partition is held, rewritten, and filled up to the announced length with one
// tagged field that no client knows. Clients skip unknown tags (KIP-482).
//
// A Stream belongs to one response of one session. It holds none of the bytes.
type Stream struct {
	position
	layout  *streamLayout
	version int16
	rules   *Rules
	// cursor is Next's own: it lies here so that Next, which is called for every partition,
	// allocates nothing.
	cursor codec.Cursor
}

// position is where a walk is.
type position struct {
	at step
	// Elements still to come of the arrays that the walk is in.
	topics, partitions, items int
}

// step is the next piece of structure that Stream walks. Each is small; between them
// stand the records.
type step uint8

const (
	// stepHead: from the size field to the number of topics.
	stepHead step = iota
	// stepTopic: a topic's name or id, and its number of partitions.
	stepTopic
	// stepPartition: a partition's fixed fields.
	stepPartition
	// stepBefore: one element of the array before the records (aborted transactions).
	stepBefore
	// stepRecords: what stands before the records, and their length.
	stepRecords
	// stepAfterCount: the length of the array behind the records.
	stepAfterCount
	// stepAfter: one element of the array behind the records (acquired records).
	stepAfter
	// stepPartitionEnd: the tags of a partition.
	stepPartitionEnd
	// stepTopicEnd: the tags of a topic.
	stepTopicEnd
	// stepTail: all partitions are behind; the endpoints come.
	stepTail
)

// streamLayout is what differs between the two responses.
type streamLayout struct {
	// head reads what stands between the response header and the topics.
	head func(version int16, c *codec.Cursor)
	// topic reads a topic's name or id.
	topic func(version int16, c *codec.Cursor)
	// partition reads a partition's fields before its first array or its records.
	partition func(version int16, c *codec.Cursor)
	// beforeSize is the length of an element of the array before the records, without
	// tags; 0 when there is no such array.
	beforeSize int
	// beforeRecords is the length of the fields between that array and the records.
	beforeRecords int
	// afterSize is the same for the array behind the records.
	afterSize int
	// tail reads what follows the last topic, finds the endpoints in it, and returns the
	// offset of the last tag section.
	tail func(c *codec.Cursor, a *addressEdits) (tagsOff int)
}

// errNoLastTags: every structure, the response itself included, ends in a tag section.
var errNoLastTags = errors.New("the frame ends before the last tag section")

// Growth returns by how many bytes the frame must be announced longer than it came.
func (s *Stream) Growth() int { return s.rules.Addresses.Growth() + sizeGrowth + minPadding }

// Next walks the structure at the front of p, of which left bytes are still to come in
// the frame, p included. The first n bytes of p pass as they are; skip bytes of records
// follow them, in p and beyond. tail says that what follows the n bytes is the end of
// the frame, to be held whole and given to Tail. n and skip are 0 when p must be longer.
func (s *Stream) Next(p []byte, left int64) (n int, skip int64, tail bool, err error) {
	defer func() { s.cursor = codec.Cursor{} }()
	for s.at != stepTail {
		before := s.position
		s.cursor = codec.NewFrontCursor(p[n:], left-int64(len(p)), codec.Flexible)
		skip = s.walk(&s.cursor)
		if err := s.cursor.Err(); err != nil {
			s.position = before
			if errors.Is(err, codec.ErrShort) {
				return n, 0, false, nil
			}
			return 0, 0, false, fmt.Errorf("at step %d: %w", s.at, err)
		}
		n += s.cursor.Off()
		switch rest := left - int64(n); {
		case rest == 0:
			return 0, 0, false, errNoLastTags
		case skip >= rest:
			return 0, 0, false, fmt.Errorf("%d bytes of records and a tag section, %d left in the frame", skip, rest)
		case skip > 0:
			return n, skip, false, nil
		}
	}
	return n, 0, true, nil
}

// walk reads one step and says how many bytes of records follow it.
func (s *Stream) walk(c *codec.Cursor) (skip int64) {
	l := s.layout
	switch s.at {
	case stepHead:
		c.Skip(codec.ResponseFixedLen)
		c.Tags()
		l.head(s.version, c)
		s.topics = c.ArrayLen(1)
		s.at = s.afterTopic()
	case stepTopic:
		l.topic(s.version, c)
		s.partitions = c.ArrayLen(1)
		s.at = s.afterPartition()
	case stepPartition:
		l.partition(s.version, c)
		s.at = stepRecords
		if l.beforeSize > 0 {
			if s.items = c.ArrayLen(1); s.items > 0 {
				s.at = stepBefore
			}
		}
	case stepBefore:
		c.Skip(l.beforeSize)
		c.Tags()
		if s.items--; s.items == 0 {
			s.at = stepRecords
		}
	case stepRecords:
		c.Skip(l.beforeRecords)
		skip = max(0, int64(c.Uvarint())-1)
		s.at = stepPartitionEnd
		if l.afterSize > 0 {
			s.at = stepAfterCount
		}
	case stepAfterCount:
		s.at = stepPartitionEnd
		if s.items = c.ArrayLen(1); s.items > 0 {
			s.at = stepAfter
		}
	case stepAfter:
		c.Skip(l.afterSize)
		c.Tags()
		if s.items--; s.items == 0 {
			s.at = stepPartitionEnd
		}
	case stepPartitionEnd:
		c.Tags()
		s.partitions--
		s.at = s.afterPartition()
	case stepTopicEnd:
		c.Tags()
		s.topics--
		s.at = s.afterTopic()
	case stepTail:
	}
	return skip
}

// afterPartition returns the step after a partition, or before the first.
func (s *Stream) afterPartition() step {
	if s.partitions > 0 {
		return stepPartition
	}
	return stepTopicEnd
}

// afterTopic returns the step after a topic, or before the first.
func (s *Stream) afterTopic() step {
	if s.topics > 0 {
		return stepTopic
	}
	return stepTail
}

// Tail returns the end of the frame with its endpoints rewritten: exactly Growth bytes
// longer than tail. When they do not fit, which takes more new addresses in one response
// than Addresses.Growth allows for, the endpoints are left out: they are a hint, and a
// client without them asks for metadata. unmapped is as in Conversation.Response.
func (s *Stream) Tail(tail []byte) (out []byte, unmapped []int32, err error) {
	a := addressEdits{rules: s.rules, drop: keepEndpoints}
	edited, err := s.edit(tail, &a)
	if err != nil {
		return nil, nil, err
	}
	a.observe()
	want := len(tail) + s.Growth()
	if len(edited)+minPadding > want {
		if edited, err = s.edit(tail, &addressEdits{rules: s.rules, drop: dropEndpoints}); err != nil {
			return nil, nil, err
		}
	}
	c := codec.NewCursor(edited, codec.Flexible)
	tagsOff := s.layout.tail(&c, &addressEdits{rules: &Rules{Addresses: s.rules.Addresses}})
	out, err = pad(edited, tagsOff, want)
	return out, a.unmapped, err
}

// edit returns a copy of tail with the edits that a collects.
func (s *Stream) edit(tail []byte, a *addressEdits) ([]byte, error) {
	c := codec.NewCursor(tail, codec.Flexible)
	s.layout.tail(&c, a)
	if c.Err() == nil && c.Left() > 0 {
		c.Fail("%d bytes left over", c.Left())
	}
	if c.Err() != nil {
		return nil, fmt.Errorf("end of the response: %w", c.Err())
	}
	return applyTo(tail, a.edits), nil
}

// whole returns a frame that is there whole with its endpoints rewritten, without
// padding; frame itself when it has none.
func (s *Stream) whole(frame []byte) (out []byte, unmapped []int32, err error) {
	off := 0
	for {
		n, skip, tail, err := s.Next(frame[off:], int64(len(frame)-off))
		if err != nil {
			return nil, nil, err
		}
		off += n + int(skip)
		if tail {
			break
		}
	}
	a := addressEdits{rules: s.rules}
	edited, err := s.edit(frame[off:], &a)
	if err != nil {
		return nil, nil, err
	}
	a.observe()
	if len(a.edits) == 0 {
		return frame, a.unmapped, nil
	}
	out = append(append(make([]byte, 0, off+len(edited)), frame[:off]...), edited...)
	codec.PutSize(out)
	return out, a.unmapped, nil
}

// sizeGrowth is what the length of the tag that the endpoints are in can grow by.
const sizeGrowth = 4

// minPadding is the least room that pad always manages with: a number of one to five
// bytes, a length of one to three, and what the count of tags may grow by.
const minPadding = 16

// paddingTags are tag numbers that no version of these responses uses, of one to five
// bytes each: of two neighbouring lengths of a field one cannot be had with a number of
// a given width, since the field's own length takes a byte more from 128 on. The number
// must be above those of the tags that are there (KIP-482).
var paddingTags = [...]uint64{100, 10_000, 1_000_000, 200_000_000, 2_000_000_000}

// pad appends one unknown tagged field to the tag section at off, which ends b, so that
// the result has want bytes.
func pad(b []byte, off, want int) ([]byte, error) {
	c := codec.NewCursor(b, codec.Flexible)
	c.Skip(off)
	tags := c.Uvarint()
	rest := b[c.Off():]
	last := int64(-1)
	c = codec.NewCursor(b, codec.Flexible)
	c.Skip(off)
	c.EachTag(func(t codec.Tag) { last = int64(t.Number) })
	if c.Err() != nil {
		return nil, c.Err()
	}
	out := append([]byte(nil), b[:off]...)
	out = binary.AppendUvarint(out, uint64(tags)+1)
	out = append(out, rest...)
	for _, number := range paddingTags {
		if int64(number) <= last {
			continue
		}
		field := binary.AppendUvarint(append([]byte(nil), out...), number)
		for size := 1; size <= 3; size++ {
			n := want - len(field) - size
			if n < 0 || n > math.MaxInt32 {
				continue
			}
			if width := binary.AppendUvarint(nil, uint64(n)); len(width) == size {
				return append(append(field, width...), make([]byte, n)...), nil
			}
		}
	}
	return nil, fmt.Errorf("no room for padding: %d bytes to be filled to %d", len(out), want)
}
