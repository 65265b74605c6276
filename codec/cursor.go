// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/binary"
	"fmt"
)

// Encoding says how lengths are written in a message version.
//
// Source: KIP-482. A message version is either flexible as a whole or not at all;
// the "flexibleVersions" line of its JSON definition tells from which version on.
type Encoding uint8

const (
	// Classic lengths are int16 (strings) and int32 (arrays, bytes), -1 means null,
	// and there are no tag sections.
	Classic Encoding = iota
	// Flexible lengths are unsigned varints of length+1, 0 means null, and every
	// structure ends in a tag section.
	Flexible
)

// EncodingOf returns the encoding of a message version whose first flexible
// version is firstFlexible.
func EncodingOf(version, firstFlexible int16) Encoding {
	if version >= firstFlexible {
		return Flexible
	}
	return Classic
}

// Cursor reads a message body from front to back. The first impossible read stops
// it: from then on every read returns zero values and Err returns the fault with
// the offset at which it happened. A loop bounded by ArrayLen therefore ends early
// when it also tests Err, and is bounded by the input in any case.
//
// A Cursor is a value for one goroutine. It never allocates, except for the error.
type Cursor struct {
	buf []byte
	off int
	enc Encoding
	// more is how many bytes of the message follow buf.
	more int64
	err  error
}

// NewCursor returns a cursor at the first byte of buf. The cursor reads buf and
// never writes to it.
func NewCursor(buf []byte, enc Encoding) Cursor {
	return Cursor{buf: buf, enc: enc}
}

// NewFrontCursor returns a cursor over the front of a message of which more bytes are
// still to come. A read beyond buf that the whole message has room for is the fault
// ErrShort; what the whole message cannot hold is another fault at once.
func NewFrontCursor(buf []byte, more int64, enc Encoding) Cursor {
	return Cursor{buf: buf, enc: enc, more: more}
}

// Off returns the offset of the next unread byte.
func (c *Cursor) Off() int { return c.off }

// Left returns the number of unread bytes that are there.
func (c *Cursor) Left() int { return len(c.buf) - c.off }

// toCome returns the number of unread bytes of the whole message.
func (c *Cursor) toCome() int64 { return int64(c.Left()) + c.more }

// Encoding returns the encoding that String, Bytes, ArrayLen and Tags use.
func (c *Cursor) Encoding() Encoding { return c.enc }

// Err returns the first fault, or nil. It is ErrShort itself where more bytes of the message
// are needed.
func (c *Cursor) Err() error { return c.err }

// Fail records a fault that the caller found at the current offset. It has no
// effect after an earlier fault.
func (c *Cursor) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: %s", c.off, fmt.Sprintf(format, args...))
	}
}

// Skip passes over n bytes and returns them.
func (c *Cursor) Skip(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 || n > c.Left() {
		c.beyond(int64(n))
		return nil
	}
	b := c.buf[c.off : c.off+n : c.off+n]
	c.off += n
	return b
}

// beyond records that n bytes were wanted where fewer are left.
func (c *Cursor) beyond(n int64) {
	if n >= 0 && n <= c.toCome() {
		c.err = ErrShort
		return
	}
	c.Fail("%d bytes wanted, %d left", n, c.toCome())
}

// Int8 reads one byte.
func (c *Cursor) Int8() int8 {
	if b := c.Skip(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// Int16 reads two bytes.
func (c *Cursor) Int16() int16 {
	if b := c.Skip(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

// Int32 reads four bytes.
func (c *Cursor) Int32() int32 {
	if b := c.Skip(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// Int64 reads eight bytes.
func (c *Cursor) Int64() int64 {
	if b := c.Skip(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// maxUvarintLen is the most bytes of an unsigned varint that Kafka accepts: 32
// bits in groups of seven (org.apache.kafka.common.protocol.types / ByteUtils).
const maxUvarintLen = 5

// Uvarint reads an unsigned varint of at most 32 bits.
func (c *Cursor) Uvarint() uint32 {
	if c.err != nil {
		return 0
	}
	var v uint64
	for i := 0; i < maxUvarintLen; i++ {
		if c.off+i >= len(c.buf) {
			if c.more > 0 {
				c.err = ErrShort
			} else {
				c.Fail("varint cut short")
			}
			return 0
		}
		b := c.buf[c.off+i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if v > 0xffffffff {
				break
			}
			c.off += i + 1
			return uint32(v)
		}
	}
	c.Fail("varint of more than 32 bits")
	return 0
}

// length reads the length of a string, byte or array field; -1 means null. A
// length below -1 or beyond the largest int32 is a fault.
func (c *Cursor) length(classic func() int) int {
	n := -1
	if c.enc == Flexible {
		n = int(int64(c.Uvarint()) - 1)
	} else {
		n = classic()
	}
	if c.err != nil {
		return -1
	}
	if n < -1 || n > 0x7fffffff {
		c.Fail("impossible length %d", n)
		return -1
	}
	return n
}

// String reads a string or nullable string; null comes back as nil, and the empty
// string as an empty slice that is not nil.
func (c *Cursor) String() []byte {
	n := c.length(func() int { return int(c.Int16()) })
	if n < 0 {
		return nil
	}
	return c.Skip(n)
}

// Bytes reads bytes or nullable bytes (records among them); null comes back as nil.
func (c *Cursor) Bytes() []byte {
	n := c.length(func() int { return int(c.Int32()) })
	if n < 0 {
		return nil
	}
	return c.Skip(n)
}

// ArrayLen reads the length of an array whose elements take at least minSize bytes
// each (1 or more); null comes back as -1. A length that the rest of the message cannot
// hold is a fault, so the result may size an allocation (but not of a NewFrontCursor).
func (c *Cursor) ArrayLen(minSize int) int {
	n := c.length(func() int { return int(c.Int32()) })
	if n > 0 && int64(n) > c.toCome()/int64(max(minSize, 1)) {
		c.Fail("array of %d elements in %d bytes", n, c.toCome())
		return -1
	}
	return n
}

// Tags passes over a tag section; in Classic encoding there is none.
func (c *Cursor) Tags() {
	// Nearly every tag section is empty: one byte.
	if c.enc == Flexible && c.err == nil && c.off < len(c.buf) && c.buf[c.off] == 0 {
		c.off++
		return
	}
	c.EachTag(func(Tag) {})
}

// Tag is one tagged field of a tag section.
type Tag struct {
	// Number is the tag as the message JSON gives it.
	Number uint32
	// SizeOff is the offset of the varint that says how long Content is.
	SizeOff int
	// Off is the offset of Content.
	Off int
	// Content points into the cursor's bytes.
	Content []byte
}

// EachTag walks a tag section and calls f with each tag; in Classic encoding there
// is none.
func (c *Cursor) EachTag(f func(Tag)) {
	if c.enc != Flexible {
		return
	}
	// A tag takes at least two bytes: number and size.
	n := int(c.Uvarint())
	if c.err == nil && int64(n) > c.toCome()/2 {
		c.Fail("%d tags in %d bytes", n, c.toCome())
	}
	for i := 0; i < n && c.err == nil; i++ {
		t := Tag{Number: c.Uvarint(), SizeOff: c.off}
		size := int(c.Uvarint())
		t.Off = c.off
		t.Content = c.Skip(size)
		if c.err == nil {
			f(t)
		}
	}
}

// AppendString appends s in the given encoding and returns the extended slice. Like
// the Kafka encoders it writes an empty string, never null.
func AppendString(dst []byte, enc Encoding, s string) []byte {
	if enc == Flexible {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

// AppendNullableString appends s, or null where s is nil.
func AppendNullableString(dst []byte, enc Encoding, s []byte) []byte {
	switch {
	case s != nil:
		return AppendString(dst, enc, string(s))
	case enc == Flexible:
		return append(dst, 0)
	default:
		return append(dst, 0xff, 0xff)
	}
}

// AppendArrayLen appends the length of an array that is not null.
func AppendArrayLen(dst []byte, enc Encoding, n int) []byte {
	if enc == Flexible {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// AppendNoTags appends an empty tag section; in Classic encoding nothing.
func AppendNoTags(dst []byte, enc Encoding) []byte {
	if enc == Flexible {
		return append(dst, 0)
	}
	return dst
}
