// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"

	"tiergate/codec"
)

// describeQuorumAddresses walks a DescribeQuorum response (key 55) from version 2 on,
// which names the controllers' listeners (KIP-853). The port of a listener has two
// bytes. Source: DescribeQuorumResponse.json.
func describeQuorumAddresses(_ int16, c *codec.Cursor, a *addressEdits) {
	c.Int16()      // error
	_ = c.String() // error message
	for i, n := 0, c.ArrayLen(3); i < n && c.Err() == nil; i++ {
		_ = c.String() // topic
		for j, m := 0, c.ArrayLen(26); j < m && c.Err() == nil; j++ {
			quorumPartition(c)
		}
		c.Tags()
	}
	a.elements(c, 6, func() fate {
		f := fateKept
		nodeID := c.Int32()
		for j, m := 0, c.ArrayLen(5); j < m && c.Err() == nil; j++ {
			_ = c.String() // listener name
			f = max(f, quorumListener(c, nodeID, a))
			c.Tags()
		}
		c.Tags()
		return f
	})
}

// quorumPartition walks a partition: the metadata log.
func quorumPartition(c *codec.Cursor) {
	c.Skip(4 + 2)     // index, error
	_ = c.String()    // error message
	c.Skip(4 + 4 + 8) // leader id, leader epoch, high watermark
	for range 2 {     // voters, observers
		for i, n := 0, c.ArrayLen(45); i < n && c.Err() == nil; i++ {
			c.Skip(4 + 16 + 8 + 8 + 8) // id, directory id, end offset, two timestamps
			c.Tags()
		}
	}
	c.Tags()
}

// quorumListener replaces host and port of a controller's listener; an empty host stays.
func quorumListener(c *codec.Cursor, nodeID int32, a *addressEdits) fate {
	from := c.Off()
	host := c.String()
	c.Skip(2)
	if c.Err() != nil || len(host) == 0 {
		return fateKept
	}
	newHost, newPort, f := a.of(nodeID)
	if f == fateReplaced {
		a.replace(from, c.Off(), binary.BigEndian.AppendUint16(codec.AppendString(nil, codec.Flexible, newHost), uint16(newPort)))
	}
	return f
}
