// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"

	"tiergate/codec"
)

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
		from := c.Off()
		c.Int16() // error code
		if version >= 1 {
			_ = c.String() // error message
		}
		if a.node(c) == fateHidden {
			a.replace(from, c.Off(), appendNoNode(appendUnavailable(nil, version, c.Encoding()), c.Encoding()))
		}
		return
	}
	for i, n := 0, c.ArrayLen(14); i < n && c.Err() == nil; i++ {
		_ = c.String() // key
		from := c.Off()
		f := a.node(c)
		c.Int16()      // error code
		_ = c.String() // error message
		if f == fateHidden {
			a.replace(from, c.Off(), appendUnavailable(appendNoNode(nil, c.Encoding()), version, c.Encoding()))
		}
		c.Tags()
	}
}

// coordinatorNotAvailable is COORDINATOR_NOT_AVAILABLE: clients ask again after a pause.
const coordinatorNotAvailable = 15

// hiddenCoordinator is the error message for a coordinator that is hidden.
const hiddenCoordinator = "the coordinator is a broker without an address at this listener of tiergate"

// appendUnavailable appends error code and message, which version 0 does not have.
func appendUnavailable(dst []byte, version int16, enc codec.Encoding) []byte {
	dst = binary.BigEndian.AppendUint16(dst, coordinatorNotAvailable)
	if version == 0 {
		return dst
	}
	return codec.AppendString(dst, enc, hiddenCoordinator)
}

// appendNoNode appends the node that stands beside an error: -1 at ":-1", which is
// Node.noNode of Kafka.
func appendNoNode(dst []byte, enc codec.Encoding) []byte {
	none := uint32(1<<32 - 1)
	dst = binary.BigEndian.AppendUint32(dst, none)
	dst = codec.AppendString(dst, enc, "")
	return binary.BigEndian.AppendUint32(dst, none)
}
