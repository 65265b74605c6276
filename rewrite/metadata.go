// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// metadataAddresses walks a Metadata response (key 3) as far as the brokers reach:
// they stand before the topics, so the cost does not depend on the number of
// partitions. Where nodes are hidden it goes on to the controller. Source:
// MetadataResponse.json.
func metadataAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	if version >= 3 {
		c.Int32() // throttle time
	}
	a.nodes(c, 10, func() {
		if version >= 1 {
			_ = c.String() // rack
		}
	})
	if version < 1 || a.rules.Unmapped != UnmappedHide {
		return
	}
	if version >= 2 {
		_ = c.String() // cluster id
	}
	a.controller(c)
}
