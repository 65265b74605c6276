// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// describeClusterAddresses walks a DescribeCluster response (key 60). With endpoint
// type 2 (KIP-919) the nodes are controllers, which a broker does not answer for:
// they would be mapped by their node ids all the same, so that nothing leaks.
// Source: DescribeClusterResponse.json.
func describeClusterAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	c.Int32()      // throttle time
	c.Int16()      // error code
	_ = c.String() // error message
	if version >= 1 {
		c.Int8() // endpoint type
	}
	_ = c.String() // cluster id
	a.controller(c)
	a.nodes(c, 11, func() {
		_ = c.String() // rack
		if version >= 2 {
			c.Int8() // is fenced
		}
	})
}
