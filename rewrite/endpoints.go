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

// noEndpoints is an array of no endpoints.
var noEndpoints = []byte{1}

// endpoints reads an array of node endpoints (id, host, port, rack) and replaces the
// addresses; or the whole array by an empty one when a is to drop them.
func endpoints(c *codec.Cursor, a *addressEdits) {
	from, edits := c.Off(), len(a.edits)
	for i, n := 0, c.ArrayLen(11); i < n && c.Err() == nil; i++ {
		a.node(c)
		_ = c.String() // rack
		c.Tags()
	}
	if a.drop == dropEndpoints && c.Err() == nil {
		a.edits = append(a.edits[:edits], codec.Edit{From: a.base + from, To: a.base + c.Off(), With: noEndpoints})
	}
}

// tagsWithEndpoints reads a tag section whose tag 0 are node endpoints, and replaces
// their addresses. The size of the tag stands before its content and changes with it.
func tagsWithEndpoints(c *codec.Cursor, a *addressEdits) {
	c.EachTag(func(t codec.Tag) {
		if t.Number != nodeEndpointsTag {
			return
		}
		in := codec.NewCursor(t.Content, c.Encoding())
		inner := addressEdits{rules: a.rules, drop: a.drop}
		endpoints(&in, &inner)
		if in.Err() != nil {
			c.Fail("node endpoints: %v", in.Err())
			return
		}
		if len(inner.edits) == 0 {
			return
		}
		content := applyTo(t.Content, inner.edits)
		with := append(binary.AppendUvarint(nil, uint64(len(content))), content...)
		a.edits = append(a.edits, codec.Edit{From: a.base + t.SizeOff, To: a.base + t.Off + len(t.Content), With: with})
		a.unmapped = append(a.unmapped, inner.unmapped...)
	})
}

// applyTo returns a copy of b with the edits made; b has no size field.
func applyTo(b []byte, edits []codec.Edit) []byte {
	out := make([]byte, 0, len(b))
	from := 0
	for _, e := range edits {
		out = append(out, b[from:e.From]...)
		out = append(out, e.With...)
		from = e.To
	}
	return append(out, b[from:]...)
}
