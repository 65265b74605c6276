// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
)

// unhex decodes hexadecimal digits with spaces in between.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readings are the ways to read one field, by the names that the table of TestCursor uses.
func readings() map[string]func(c *Cursor) string {
	slice := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	return map[string]func(c *Cursor) string{
		"int8":    func(c *Cursor) string { return fmt.Sprint(c.Int8()) },
		"int16":   func(c *Cursor) string { return fmt.Sprint(c.Int16()) },
		"int32":   func(c *Cursor) string { return fmt.Sprint(c.Int32()) },
		"int64":   func(c *Cursor) string { return fmt.Sprint(c.Int64()) },
		"uvarint": func(c *Cursor) string { return fmt.Sprint(c.Uvarint()) },
		"string":  func(c *Cursor) string { return slice(c.String()) },
		"bytes":   func(c *Cursor) string { return slice(c.Bytes()) },
		"array 0": func(c *Cursor) string { return fmt.Sprint(c.ArrayLen(0)) },
		"array 1": func(c *Cursor) string { return fmt.Sprint(c.ArrayLen(1)) },
		"array 4": func(c *Cursor) string { return fmt.Sprint(c.ArrayLen(4)) },
		"skip 2":  func(c *Cursor) string { return slice(c.Skip(2)) },
		"skip 0":  func(c *Cursor) string { return slice(c.Skip(0)) },
		"skip -1": func(c *Cursor) string { return slice(c.Skip(-1)) },
		"tags": func(c *Cursor) string {
			out := "tags"
			c.EachTag(func(t Tag) { out += fmt.Sprintf(" %d@%d/%d:%x", t.Number, t.SizeOff, t.Off, t.Content) })
			return out
		},
	}
}

// Every field, null, empty, as long as it may be, and impossible. The bytes that a row has
// after what is read show that no more is taken.
func TestCursor(t *testing.T) {
	for _, c := range []struct {
		enc     Encoding
		reading string
		bytes   string
		want    string // what is read, and the offset behind it; or the fault
	}{
		{Classic, "int8", "80 aa", "-128 to 1"},
		{Classic, "int8", "", "fault at byte 0: 1 bytes wanted, 0 left"},
		{Classic, "int16", "fffe aa", "-2 to 2"},
		{Classic, "int16", "ff", "fault at byte 0: 2 bytes wanted, 1 left"},
		{Classic, "int32", "80000000 aa", "-2147483648 to 4"},
		{Classic, "int32", "800000", "fault at byte 0: 4 bytes wanted, 3 left"},
		{Classic, "int64", "7fffffffffffffff aa", "9223372036854775807 to 8"},
		{Classic, "int64", "7fffffffffffff", "fault at byte 0: 8 bytes wanted, 7 left"},
		{Classic, "skip 2", "6162 63", `"ab" to 2`},
		{Classic, "skip 0", "", `"" to 0`},
		{Classic, "skip -1", "6162", "fault at byte 0: -1 bytes wanted, 2 left"},

		// Both encodings read varints alike: 7 bits a byte, the lowest first, 32 bits in all.
		{Classic, "uvarint", "00 aa", "0 to 1"},
		{Classic, "uvarint", "7f aa", "127 to 1"},
		{Classic, "uvarint", "8001 aa", "128 to 2"},
		{Classic, "uvarint", "ff7f aa", "16383 to 2"},
		{Classic, "uvarint", "808001 aa", "16384 to 3"},
		{Classic, "uvarint", "ffffff7f aa", "268435455 to 4"},
		{Classic, "uvarint", "8080808001 aa", "268435456 to 5"},
		{Classic, "uvarint", "ffffffff07 aa", "2147483647 to 5"},
		{Classic, "uvarint", "ffffffff0f aa", "4294967295 to 5"},
		{Classic, "uvarint", "8080808010 aa", "fault at byte 0: varint of more than 32 bits"},
		{Classic, "uvarint", "ffffffff7f aa", "fault at byte 0: varint of more than 32 bits"},
		{Classic, "uvarint", "8080808080 00", "fault at byte 0: varint of more than 32 bits"},
		{Classic, "uvarint", "8080808080 8000", "fault at byte 0: varint of more than 32 bits"},
		{Classic, "uvarint", "8000 aa", "0 to 2"}, // longer than needed, as Java takes it
		{Classic, "uvarint", "8080808000 aa", "0 to 5"},
		{Classic, "uvarint", "", "fault at byte 0: varint cut short"},
		{Classic, "uvarint", "ffffffff", "fault at byte 0: varint cut short"},

		{Classic, "string", "ffff aa", "null to 2"},
		{Classic, "string", "0000 aa", `"" to 2`},
		{Classic, "string", "0002 6162 aa", `"ab" to 4`},
		{Classic, "string", "0002 61", "fault at byte 2: 2 bytes wanted, 1 left"},
		{Classic, "string", "7fff 61", "fault at byte 2: 32767 bytes wanted, 1 left"},
		{Classic, "string", "fffe 61", "fault at byte 2: impossible length -2"},
		{Classic, "string", "8000 61", "fault at byte 2: impossible length -32768"},
		{Classic, "string", "00", "fault at byte 0: 2 bytes wanted, 1 left"},
		{Flexible, "string", "00 aa", "null to 1"},
		{Flexible, "string", "01 aa", `"" to 1`},
		{Flexible, "string", "03 6162 aa", `"ab" to 3`},
		{Flexible, "string", "03 61", "fault at byte 1: 2 bytes wanted, 1 left"},
		{Flexible, "string", "8080808008 61", "fault at byte 5: 2147483647 bytes wanted, 1 left"},
		{Flexible, "string", "8180808008 61", "fault at byte 5: impossible length 2147483648"},
		{Flexible, "string", "ffffffff0f 61", "fault at byte 5: impossible length 4294967294"},
		{Flexible, "string", "ffffffffff 61", "fault at byte 0: varint of more than 32 bits"},
		{Flexible, "string", "", "fault at byte 0: varint cut short"},

		{Classic, "bytes", "ffffffff aa", "null to 4"},
		{Classic, "bytes", "00000000 aa", `"" to 4`},
		{Classic, "bytes", "00000002 6162 aa", `"ab" to 6`},
		{Classic, "bytes", "7fffffff 61", "fault at byte 4: 2147483647 bytes wanted, 1 left"},
		{Classic, "bytes", "fffffffe 61", "fault at byte 4: impossible length -2"},
		{Classic, "bytes", "80000000 61", "fault at byte 4: impossible length -2147483648"},
		{Classic, "bytes", "000000", "fault at byte 0: 4 bytes wanted, 3 left"},
		{Flexible, "bytes", "00 aa", "null to 1"},
		{Flexible, "bytes", "01 aa", `"" to 1`},
		{Flexible, "bytes", "03 6162 aa", `"ab" to 3`},
		{Flexible, "bytes", "ffffffff0f 61", "fault at byte 5: impossible length 4294967294"},

		{Classic, "array 1", "ffffffff", "-1 to 4"},
		{Classic, "array 1", "00000000", "0 to 4"},
		{Classic, "array 1", "00000002 aaaa", "2 to 4"},
		{Classic, "array 1", "00000003 aaaa", "fault at byte 4: array of 3 elements in 2 bytes"},
		{Classic, "array 0", "00000003 aaaa", "fault at byte 4: array of 3 elements in 2 bytes"},
		{Classic, "array 1", "7fffffff aaaa", "fault at byte 4: array of 2147483647 elements in 2 bytes"},
		{Classic, "array 1", "fffffffe aaaa", "fault at byte 4: impossible length -2"},
		{Classic, "array 4", "00000002 aaaaaaaa aaaaaaaa", "2 to 4"},
		{Classic, "array 4", "00000002 aaaaaaaa aaaaaa", "fault at byte 4: array of 2 elements in 7 bytes"},
		{Flexible, "array 1", "00", "-1 to 1"},
		{Flexible, "array 1", "01", "0 to 1"},
		{Flexible, "array 1", "03 aaaa", "2 to 1"},
		{Flexible, "array 1", "04 aaaa", "fault at byte 1: array of 3 elements in 2 bytes"},
		{Flexible, "array 1", "8080808008 aaaa", "fault at byte 5: array of 2147483647 elements in 2 bytes"},
		{Flexible, "array 1", "ffffffff0f aaaa", "fault at byte 5: impossible length 4294967294"},
		{Flexible, "array 4", "03 aaaaaaaa aaaaaaaa", "2 to 1"},

		{Classic, "tags", "01 05 01 aa", "tags to 0"}, // there are none
		{Flexible, "tags", "00 aa", "tags to 1"},
		{Flexible, "tags", "01 05 01 aa bb", "tags 5@2/3:aa to 4"},
		{Flexible, "tags", "02 00 00 ffffffff0f 02 aabb cc", "tags 0@2/3: 4294967295@8/9:aabb to 11"},
		{Flexible, "tags", "02 03 00 03 00", "tags 3@2/3: 3@4/5: to 5"}, // twice: the reader's affair
		{Flexible, "tags", "01 05 02 aa", "fault at byte 3: 2 bytes wanted, 1 left"},
		{Flexible, "tags", "01 05 ffffffff0f aa", "fault at byte 7: 4294967295 bytes wanted, 1 left"},
		{Flexible, "tags", "02 05 00", "fault at byte 1: 2 tags in 2 bytes"},
		{Flexible, "tags", "ffffffff0f 05 00", "fault at byte 5: 4294967295 tags in 2 bytes"},
		{Flexible, "tags", "01 05", "fault at byte 1: 1 tags in 1 bytes"},
		{Flexible, "tags", "02 05 01 aa 06", "fault at byte 5: varint cut short"},
		{Flexible, "tags", "", "fault at byte 0: varint cut short"},
	} {
		cursor := NewCursor(unhex(t, c.bytes), c.enc)
		read := readings()[c.reading](&cursor)
		got := fmt.Sprintf("%s to %d", read, cursor.Off())
		if cursor.Err() != nil {
			got = "fault " + cursor.Err().Error()
		}
		if got != c.want {
			t.Errorf("%s of %q, encoding %d: got %s, want %s", c.reading, c.bytes, c.enc, got, c.want)
		}
	}
}

// After a fault everything reads as zero, nothing moves, and the first fault stays.
func TestCursorStopsAtTheFirstFault(t *testing.T) {
	for _, enc := range []Encoding{Classic, Flexible} {
		c := NewCursor([]byte{1, 2, 3, 4, 5, 6, 7, 8}, enc)
		c.Skip(2)
		c.Fail("leader %d", 7)
		c.Fail("another")
		for name, read := range readings() {
			got := read(&c)
			want := map[string]string{
				"string": "null", "bytes": "null", "skip 0": "null", "skip 2": "null", "skip -1": "null",
				"array 0": "-1", "array 1": "-1", "array 4": "-1", "tags": "tags",
			}[name]
			if want == "" {
				want = "0"
			}
			if got != want {
				t.Errorf("%s after a fault, encoding %d: got %s, want %s", name, enc, got, want)
			}
		}
		if c.Err() == nil || c.Err().Error() != "at byte 2: leader 7" || c.Off() != 2 || c.Left() != 6 || c.Encoding() != enc {
			t.Errorf("encoding %d: %v, at %d with %d left", enc, c.Err(), c.Off(), c.Left())
		}
	}
}

// What is read points into the buffer, and appending to it does not write there.
func TestCursorSlices(t *testing.T) {
	buf := []byte{3, 'a', 'b', 3, 'c', 'd', 1, 9, 1, 'e', 'f', 'g'}
	c := NewCursor(buf, Flexible)
	s, b := c.String(), c.Bytes()
	var tag []byte
	c.EachTag(func(t Tag) { tag = t.Content })
	skipped := c.Skip(2)
	want := bytes.Clone(buf)
	for _, part := range [][]byte{s, b, tag, skipped} {
		if cap(part) != len(part) {
			t.Errorf("%q has a capacity of %d", part, cap(part))
		}
		_ = append(part, '!')
	}
	if !bytes.Equal(buf, want) {
		t.Fatalf("buffer is now %q", buf)
	}
	buf[1], buf[4], buf[9], buf[10] = 'A', 'C', 'E', 'F'
	if got := fmt.Sprintf("%s %s %s %s", s, b, tag, skipped); got != "Ab Cd E Fg" {
		t.Fatalf("%s: these are copies", got)
	}
}

// Reading allocates nothing, whatever the lengths say.
func TestCursorAllocatesNothing(t *testing.T) {
	flexible := unhex(t, "03 6162 03 6364 04 010203 02 05 01 aa 06 00 ffffffff0f")
	classic := unhex(t, "0002 6162 00000002 6364 00000003 010203")
	for _, enc := range []Encoding{Classic, Flexible} {
		buf := classic
		if enc == Flexible {
			buf = flexible
		}
		tags := 0
		allocs := testing.AllocsPerRun(100, func() {
			c := NewCursor(buf, enc)
			_, _, _ = c.String(), c.Bytes(), c.ArrayLen(1)
			_, _ = c.Int8(), c.Int16()
			c.EachTag(func(Tag) { tags++ })
			_ = c.Err()
		})
		if allocs != 0 {
			t.Errorf("encoding %d: %v allocations", enc, allocs)
		}
	}
}

// What the Append functions write is what a Cursor reads, in both encodings.
func TestAppend(t *testing.T) {
	for _, enc := range []Encoding{Classic, Flexible} {
		for _, s := range []string{"", "b", strings.Repeat("x", 126), strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 16383), strings.Repeat("x", math.MaxInt16)} {
			b := AppendString([]byte("front"), enc, s)
			b = AppendNullableString(b, enc, []byte(s))
			b = AppendNullableString(b, enc, nil)
			b = AppendArrayLen(b, enc, len(s))
			b = append(AppendNoTags(b, enc), s...)
			c := NewCursor(b, enc)
			front, first, second, null := c.Skip(5), c.String(), c.String(), c.String()
			n := c.ArrayLen(1)
			c.Tags()
			if string(front) != "front" || string(first) != s || second == nil || string(second) != s || null != nil || n != len(s) || c.Left() != len(s) || c.Err() != nil {
				t.Errorf("encoding %d, length %d: %q %d %d %v array of %d, %d left, %v", enc, len(s), front, len(first), len(second), null, n, c.Left(), c.Err())
			}
		}
	}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendString(nil, Classic, ""), "0000"},
		{AppendString(nil, Flexible, ""), "01"},
		{AppendNullableString(nil, Classic, nil), "ffff"},
		{AppendNullableString(nil, Flexible, nil), "00"},
		{AppendNullableString(nil, Classic, []byte{}), "0000"},
		{AppendNullableString(nil, Flexible, []byte{}), "01"},
		{AppendArrayLen(nil, Classic, 0), "00000000"},
		{AppendArrayLen(nil, Flexible, 0), "01"},
		{AppendArrayLen(nil, Flexible, 127), "8001"},
		{AppendNoTags(nil, Classic), ""},
		{AppendNoTags(nil, Flexible), "00"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestEncodingOf(t *testing.T) {
	for _, c := range []struct {
		version, firstFlexible int16
		want                   Encoding
	}{{0, 0, Flexible}, {8, 9, Classic}, {9, 9, Flexible}, {math.MaxInt16, 9, Flexible}, {-1, 0, Classic}} {
		if got := EncodingOf(c.version, c.firstFlexible); got != c.want {
			t.Errorf("version %d, flexible from %d: got %d, want %d", c.version, c.firstFlexible, got, c.want)
		}
	}
}
