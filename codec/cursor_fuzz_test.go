// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
)

// step reads one field with a Cursor and with kbin, the reader of franz-go, and returns
// what both say. A null and what follows a fault are "null". loose is true for lengths
// that kbin takes for null (any negative one) or as they wrap, and that Cursor refuses.
func step(op byte, enc Encoding, c *Cursor, k *kbin.Reader) (got, want string, loose bool) {
	flexible := enc == Flexible
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	shown := func(s *string) string {
		if s == nil {
			return "null"
		}
		return fmt.Sprintf("%q", *s)
	}
	switch op % 8 {
	case 0:
		return fmt.Sprint(c.Int8()), fmt.Sprint(k.Int8()), false
	case 1:
		return fmt.Sprint(c.Int16()), fmt.Sprint(k.Int16()), false
	case 2:
		return fmt.Sprint(c.Int32()), fmt.Sprint(k.Int32()), false
	case 3:
		return fmt.Sprint(c.Int64()), fmt.Sprint(k.Int64()), false
	case 4:
		return fmt.Sprint(c.Uvarint()), fmt.Sprint(k.Uvarint()), false
	case 5:
		if flexible {
			return show(c.String()), shown(k.CompactNullableString()), true
		}
		return show(c.String()), shown(k.NullableString()), true
	case 6:
		if flexible {
			return show(c.Bytes()), show(k.CompactNullableBytes()), true
		}
		return show(c.Bytes()), show(k.NullableBytes()), true
	default:
		if flexible {
			return fmt.Sprint(c.ArrayLen(1)), fmt.Sprint(k.CompactArrayLen()), true
		}
		return fmt.Sprint(c.ArrayLen(1)), fmt.Sprint(k.ArrayLen()), true
	}
}

// FuzzCursor reads any bytes in any order of fields: the same as kbin reads, or a fault
// where that finds one, and never outside of the bytes.
func FuzzCursor(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7}, []byte("\x01\x00\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04\x80\x01\x03ab\x03cd\x02aa"), true)
	f.Add([]byte{5, 5, 6, 7}, []byte("\xff\xff\x00\x02ab\x00\x00\x00\x01c\x00\x00\x00\x01"), false)
	f.Add([]byte{5, 4}, []byte{0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x1f}, false)
	f.Add([]byte{7, 4}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}, true)
	f.Fuzz(func(t *testing.T, ops, buf []byte, flexible bool) {
		enc := Classic
		if flexible {
			enc = Flexible
		}
		before := bytes.Clone(buf)
		c, k := NewCursor(buf, enc), kbin.Reader{Src: buf}
		for i, op := range ops {
			at := c.Off()
			got, want, loose := step(op, enc, &c, &k)
			where := fmt.Sprintf("read %d (%d) at %d of %x", i, op%8, at, buf)
			switch {
			case c.Off() < at || c.Off()+c.Left() != len(buf):
				t.Fatalf("%s: went to %d with %d left", where, c.Off(), c.Left())
			case c.Err() != nil && k.Ok() && !loose:
				t.Fatalf("%s: %v, kbin read %s", where, c.Err(), want)
			case c.Err() == nil && !k.Ok():
				t.Fatalf("%s: got %s, kbin finds a fault", where, got)
			case c.Err() != nil:
				return
			case got != want || c.Left() != len(k.Src):
				t.Fatalf("%s: got %s with %d left, kbin %s with %d left", where, got, c.Left(), want, len(k.Src))
			}
		}
		if !bytes.Equal(buf, before) {
			t.Fatalf("the bytes changed from %x to %x", before, buf)
		}
	})
}

// FuzzTags walks any bytes as a tag section: what the tags say of their places is so, and
// the section put together again from them has the same tags.
func FuzzTags(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 'a', 'b', 'c'})
	f.Add([]byte{1, 5, 0x81, 0x00, 'x'})
	f.Fuzz(func(t *testing.T, buf []byte) {
		c := NewCursor(buf, Flexible)
		var section []byte
		n, end := 0, 0
		c.EachTag(func(tag Tag) {
			size := NewCursor(buf[tag.SizeOff:], Flexible)
			if int(size.Uvarint()) != len(tag.Content) || tag.SizeOff+size.Off() != tag.Off || tag.SizeOff <= end {
				t.Fatalf("%x: tag %+v", buf, tag)
			}
			if !bytes.Equal(buf[tag.Off:tag.Off+len(tag.Content)], tag.Content) {
				t.Fatalf("%x: content of %+v is not at its offset", buf, tag)
			}
			n, end = n+1, tag.Off+len(tag.Content)
			section = kbin.AppendUvarint(section, tag.Number)
			section = append(kbin.AppendUvarint(section, uint32(len(tag.Content))), tag.Content...)
		})
		if c.Err() != nil {
			return
		}
		if n > 0 && end != c.Off() {
			t.Fatalf("%x: the last tag ends at %d, the section at %d", buf, end, c.Off())
		}
		again := NewCursor(append(kbin.AppendUvarint(nil, uint32(n)), section...), Flexible)
		var got []byte
		again.EachTag(func(tag Tag) {
			got = kbin.AppendUvarint(got, tag.Number)
			got = append(kbin.AppendUvarint(got, uint32(len(tag.Content))), tag.Content...)
		})
		if again.Err() != nil || again.Left() != 0 || !bytes.Equal(got, section) {
			t.Fatalf("%x: again %x, want %x (%v)", buf, got, section, again.Err())
		}
	})
}
