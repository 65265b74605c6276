// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"

	"tiergate/codec"
)

// nodeEndpointsTag is the tag of the node endpoints in Produce (from version 10) and
// Fetch (from version 16) responses (KIP-951).
const nodeEndpointsTag = 0

// produceTopicID is the first version that names topics by id (KIP-516).
const produceTopicID = 13

// produceAddresses walks a Produce response (key 0) of version 10 or later to its
// last tag section, where the node endpoints stand when a leader has moved. Source:
// ProduceResponse.json.
func produceAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	for i, n := 0, c.ArrayLen(3); i < n && c.Err() == nil; i++ {
		if version >= produceTopicID {
			c.Skip(16) // topic id
		} else {
			_ = c.String() // topic
		}
		for j, m := 0, c.ArrayLen(33); j < m && c.Err() == nil; j++ {
			producePartition(c)
		}
		c.Tags()
	}
	c.Int32() // throttle time
	c.EachTag(func(t codec.Tag) {
		if t.Number == nodeEndpointsTag {
			endpointsTag(c, t, a)
		}
	})
}

// producePartition walks the answer for one partition.
func producePartition(c *codec.Cursor) {
	c.Skip(4 + 2 + 8 + 8 + 8) // index, error, base offset, append time, log start
	for i, n := 0, c.ArrayLen(6); i < n && c.Err() == nil; i++ {
		c.Int32()      // batch index
		_ = c.String() // message
		c.Tags()
	}
	_ = c.String() // error message
	c.Tags()       // current leader: ids only
}

// endpointsTag replaces the content of a node endpoints tag, and its size, which
// stands before the content and changes with it.
func endpointsTag(c *codec.Cursor, t codec.Tag, a *addressEdits) {
	in := codec.NewCursor(t.Content, c.Encoding())
	inner := addressEdits{rules: a.rules}
	for i, n := 0, in.ArrayLen(11); i < n && in.Err() == nil; i++ {
		inner.node(&in)
		_ = in.String() // rack
		in.Tags()
	}
	if in.Err() != nil {
		c.Fail("node endpoints: %v", in.Err())
		return
	}
	content := applyTo(t.Content, inner.edits)
	with := append(binary.AppendUvarint(nil, uint64(len(content))), content...)
	a.edits = append(a.edits, codec.Edit{From: a.base + t.SizeOff, To: a.base + t.Off + len(t.Content), With: with})
	a.unmapped = append(a.unmapped, inner.unmapped...)
}

// applyTo returns a copy of b with the edits made; b has no size field.
func applyTo(b []byte, edits []codec.Edit) []byte {
	var out []byte
	from := 0
	for _, e := range edits {
		out = append(out, b[from:e.From]...)
		out = append(out, e.With...)
		from = e.To
	}
	return append(out, b[from:]...)
}
