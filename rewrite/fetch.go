// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// fetchTopicID is the first version that names topics by id (KIP-516).
const fetchTopicID = 13

// fetchLayout is a Fetch response (key 1) from version 16 on, which has node endpoints
// as tag 0 of its last tag section (KIP-951). Source: FetchResponse.json.
var fetchLayout = streamLayout{
	head: func(_ int16, c *codec.Cursor) {
		c.Skip(4 + 2 + 4) // throttle time, error, session id
	},
	topic: func(version int16, c *codec.Cursor) {
		if version >= fetchTopicID {
			c.Skip(16)
		} else {
			_ = c.String()
		}
	},
	partition: func(_ int16, c *codec.Cursor) {
		c.Skip(4 + 2 + 8 + 8 + 8) // index, error, high watermark, last stable, log start
	},
	beforeSize:    8 + 8, // aborted transactions: producer id, first offset
	beforeRecords: 4,     // preferred read replica
	tail: func(c *codec.Cursor, a *addressEdits) int {
		tagsOff := c.Off()
		tagsWithEndpoints(c, a)
		return tagsOff
	},
}
