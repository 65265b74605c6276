// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// metadataAddresses walks a Metadata response (key 3) as far as the brokers reach:
// they stand before the topics, so the cost does not depend on the number of
// partitions. Source: MetadataResponse.json.
func metadataAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	if version >= 3 {
		c.Int32() // throttle time
	}
	for i, n := 0, c.ArrayLen(10); i < n && c.Err() == nil; i++ {
		a.node(c)
		if version >= 1 {
			_ = c.String() // rack
		}
		c.Tags()
	}
}
