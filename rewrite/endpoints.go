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
	a.nodes(c, 11, func() {
		_ = c.String() // rack
	})
	if a.drop == dropEndpoints && c.Err() == nil {
		a.edits = a.edits[:edits]
		a.replace(from, c.Off(), noEndpoints)
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
		a.unmapped, a.named = append(a.unmapped, inner.unmapped...), append(a.named, inner.named...)
		if len(inner.edits) == 0 {
			return
		}
		content := applyTo(t.Content, inner.edits)
		with := append(binary.AppendUvarint(nil, uint64(len(content))), content...)
		a.replace(t.SizeOff, t.Off+len(t.Content), with)
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
