// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// produceTopicID is the first version that names topics by id (KIP-516).
const produceTopicID = 13

// produceAddresses walks a Produce response (key 0) of version 10 or later to its last
// tag section, where the node endpoints stand when a leader has moved. Source:
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
	tagsWithEndpoints(c, a)
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
