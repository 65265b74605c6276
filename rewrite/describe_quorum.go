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
	for i, n := 0, c.ArrayLen(6); i < n && c.Err() == nil; i++ {
		nodeID := c.Int32()
		for j, m := 0, c.ArrayLen(5); j < m && c.Err() == nil; j++ {
			_ = c.String() // listener name
			quorumListener(c, nodeID, a)
			c.Tags()
		}
		c.Tags()
	}
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
func quorumListener(c *codec.Cursor, nodeID int32, a *addressEdits) {
	from := c.Off()
	host := c.String()
	c.Skip(2)
	if c.Err() != nil || len(host) == 0 {
		return
	}
	newHost, newPort, mapped := a.rules.Addresses.Advertised(nodeID)
	if !mapped {
		a.unmapped = append(a.unmapped, nodeID)
	}
	with := binary.BigEndian.AppendUint16(codec.AppendString(nil, codec.Flexible, newHost), uint16(newPort))
	a.edits = append(a.edits, codec.Edit{From: a.base + from, To: a.base + c.Off(), With: with})
}
