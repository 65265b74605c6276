// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import "errors"

// ErrShort says that what is wanted of a frame is not there whole yet.
var ErrShort = errors.New("more bytes of the frame are needed")

// MaxRequestHead is the most bytes of a request that any function of this package
// needs to see before it can tell what the request is: the fixed part, a client id
// and a transactional id of the greatest length (32,767 each), lengths and acks, and
// 1 KiB for a header's tag section, which no client fills today.
const MaxRequestHead = RequestFixedLen + 2*(2+32767) + 3 + 2 + 1024

// Versions of Produce at which the layout before the acks field changes.
// Source: ProduceRequest.json.
const (
	produceTransactionalID = 3
	produceFlexible        = 9
)

// ProduceKnown is the newest version of Produce whose layout ProduceAcks knows.
const ProduceKnown = 13

// ProduceAcks returns the acks field of a Produce request. head holds its first bytes,
// at least RequestFixedLen, and the size field says no less. A request with acks 0 is
// owed no response. ErrShort asks for more bytes; any other error means that the frame is
// no Produce request. Of a version above ProduceKnown the result is a guess: that its
// layout is that of ProduceKnown.
func ProduceAcks(head []byte) (acks int16, err error) {
	whole := len(head) >= SizeLen+int(Size(head))
	if whole {
		head = head[:SizeLen+int(Size(head))]
	}
	version := RequestVersion(head)
	enc := EncodingOf(version, produceFlexible)
	_, off, err := RequestBody(head, enc)
	if err == nil {
		c := NewCursor(head[off:], enc)
		if version >= produceTransactionalID {
			_ = c.String()
		}
		acks = c.Int16()
		err = c.Err()
	}
	if err != nil && !whole && len(head) < MaxRequestHead {
		return 0, ErrShort
	}
	return acks, err
}
