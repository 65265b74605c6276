// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// findCoordinatorBatch is the first version that answers for many keys (KIP-699).
const findCoordinatorBatch = 4

// findCoordinatorAddresses walks a FindCoordinator response (key 10): groups,
// transactional ids and share partitions look the same. Source:
// FindCoordinatorResponse.json.
func findCoordinatorAddresses(version int16, c *codec.Cursor, a *addressEdits) {
	if version >= 1 {
		c.Int32() // throttle time
	}
	if version < findCoordinatorBatch {
		c.Int16() // error code
		if version >= 1 {
			_ = c.String() // error message
		}
		a.node(c)
		return
	}
	for i, n := 0, c.ArrayLen(14); i < n && c.Err() == nil; i++ {
		_ = c.String() // key
		a.node(c)
		c.Int16()      // error code
		_ = c.String() // error message
		c.Tags()
	}
}
