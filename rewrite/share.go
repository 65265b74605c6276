// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// Responses of share groups (KIP-932) carry their node endpoints in an array of their
// own before the last tag section, in every version.

// shareFetchLayout is a ShareFetch response (key 78). Source: ShareFetchResponse.json.
var shareFetchLayout = streamLayout{
	head: func(version int16, c *codec.Cursor) {
		c.Skip(4 + 2)  // throttle time, error
		_ = c.String() // error message
		if version >= 1 {
			c.Int32() // acquisition lock timeout
		}
	},
	topic: func(_ int16, c *codec.Cursor) { c.Skip(16) },
	partition: func(_ int16, c *codec.Cursor) {
		c.Skip(4 + 2)  // index, error
		_ = c.String() // error message
		c.Int16()      // acknowledge error
		_ = c.String() // acknowledge error message
		c.Skip(4 + 4)  // current leader: id, epoch
		c.Tags()
	},
	afterSize: 8 + 8 + 2, // acquired records: first offset, last offset, delivery count
	tail: func(c *codec.Cursor, a *addressEdits) int {
		endpoints(c, a)
		tagsOff := c.Off()
		c.Tags()
		return tagsOff
	},
}

// shareAcknowledgeAddresses walks a ShareAcknowledge response (key 79). Source:
// ShareAcknowledgeResponse.json.
func shareAcknowledgeAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	c.Skip(4 + 2)  // throttle time, error
	_ = c.String() // error message
	if version >= 2 {
		c.Int32() // acquisition lock timeout
	}
	for i, n := 0, c.ArrayLen(18); i < n && c.Err() == nil; i++ {
		c.Skip(16) // topic id
		for j, m := 0, c.ArrayLen(17); j < m && c.Err() == nil; j++ {
			c.Skip(4 + 2)  // index, error
			_ = c.String() // error message
			c.Skip(4 + 4)  // current leader: id, epoch
			c.Tags()
			c.Tags()
		}
		c.Tags()
	}
	endpoints(c, a)
}
