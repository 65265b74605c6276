// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// endpointsOfControllers is an endpoint type: the nodes are controllers (KIP-919).
const endpointsOfControllers = 2

// describeClusterAddresses walks a DescribeCluster response (key 60). Where the nodes are
// controllers, which only a controller's listener answers for, they stay as they are, as
// table.go says of all addresses of controllers. Source: DescribeClusterResponse.json.
func describeClusterAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	c.Int32()      // throttle time
	c.Int16()      // error code
	_ = c.String() // error message
	if version >= 1 && c.Int8() == endpointsOfControllers {
		return
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
