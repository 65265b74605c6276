// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestFixedFields(t *testing.T) {
	request := unhex(t, "00000008 0002 000b 80000001")
	if got := fmt.Sprint(Size(request), RequestKey(request), RequestVersion(request), RequestCorrelationID(request)); got != "8 2 11 -2147483647" {
		t.Errorf("request: %s", got)
	}
	PutRequestVersion(request, -2)
	PutRequestCorrelationID(request, 0x01020304)
	request = append(request, 0xaa)
	PutSize(request)
	if want := unhex(t, "00000009 0002 fffe 01020304 aa"); !bytes.Equal(request, want) {
		t.Errorf("request: got %x, want %x", request, want)
	}
	response := unhex(t, "80000000 fffffffe")
	if Size(response) != -1<<31 || ResponseCorrelationID(response) != -2 {
		t.Errorf("response: size %d, correlation id %d", Size(response), ResponseCorrelationID(response))
	}
	PutResponseCorrelationID(response, 7)
	PutSize(response)
	if want := unhex(t, "00000004 00000007"); !bytes.Equal(response, want) {
		t.Errorf("response: got %x, want %x", response, want)
	}
}

// Request headers as franz-go writes them, in versions 1 and 2, cut at each byte.
func TestRequestBody(t *testing.T) {
	long := strings.Repeat("c", 32767)
	for _, client := range []*string{nil, kmsg.StringPtr(""), kmsg.StringPtr("client"), &long} {
		for _, version := range []int16{8, 9} { // Metadata: flexible from 9
			formatter := kmsg.NewRequestFormatter()
			if client != nil {
				formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*client))
			}
			req := kmsg.NewPtrMetadataRequest()
			req.Version = version
			body := req.AppendTo(nil)
			frame := formatter.AppendRequest(nil, req, 5)
			enc := EncodingOf(version, 9)
			got, off, err := RequestBody(frame, enc)
			if err != nil || !bytes.Equal(frame[off:], body) || (got == nil) != (client == nil) || client != nil && string(got) != *client {
				t.Errorf("version %d: client id %.20q, body at %d of %d, %v; want client id %.20q and a body of %d", version, got, off, len(frame), err, deref(client), len(body))
			}
			for n := RequestFixedLen; n < off; n += 1 + n/100 {
				if _, _, err := RequestBody(frame[:n], enc); err == nil {
					t.Fatalf("version %d: no fault in the first %d bytes of a header of %d", version, n, off)
				}
			}
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func TestRequestBodyTable(t *testing.T) {
	for _, c := range []struct {
		enc   Encoding
		bytes string // behind the fixed part
		want  string
	}{
		{Classic, "ffff aa", "null to 14"},
		{Classic, "0000 aa", `"" to 14`},
		{Classic, "0001 61 aa", `"a" to 15`},
		{Flexible, "ffff 00 aa", "null to 15"},
		{Flexible, "0001 61 01 00 02 6263 aa", `"a" to 20`}, // the length of the client id is never a varint
		{Flexible, "0001 61", "fault at byte 15: varint cut short"},
		{Flexible, "0001 61 01 00 05 6263", "fault at byte 18: 5 bytes wanted, 2 left"},
		{Classic, "fffe 61", "fault at byte 14: impossible length -2"},
		{Classic, "0002 61", "fault at byte 14: 2 bytes wanted, 1 left"},
		{Classic, "", "fault at byte 12: 2 bytes wanted, 0 left"},
	} {
		frame := append(make([]byte, RequestFixedLen), unhex(t, c.bytes)...)
		client, off, err := RequestBody(frame, c.enc)
		got := fmt.Sprintf("%q to %d", client, off)
		if client == nil {
			got = fmt.Sprintf("null to %d", off)
		}
		if err != nil {
			got = "fault " + err.Error()
		}
		if got != c.want {
			t.Errorf("encoding %d, %s: got %s, want %s", c.enc, c.bytes, got, c.want)
		}
	}
}

func TestResponseBody(t *testing.T) {
	for _, c := range []struct {
		enc   Encoding
		bytes string // behind size and correlation id
		want  string
	}{
		{Classic, "00 aa", "8"},
		{Classic, "", "8"},
		{Flexible, "00 aa", "9"},
		{Flexible, "02 05 01 61 07 00 aa", "14"},
		{Flexible, "", "fault at byte 8: varint cut short"},
		{Flexible, "01 05 02 61", "fault at byte 11: 2 bytes wanted, 1 left"},
		{Flexible, "ff", "fault at byte 8: varint cut short"},
	} {
		off, err := ResponseBody(append(make([]byte, ResponseFixedLen), unhex(t, c.bytes)...), c.enc)
		got := fmt.Sprint(off)
		if err != nil {
			got = "fault " + err.Error()
		}
		if got != c.want {
			t.Errorf("encoding %d, %s: got %s, want %s", c.enc, c.bytes, got, c.want)
		}
	}
	if _, err := ResponseBody([]byte{0, 0, 0, 3, 0, 0, 0}, Classic); err == nil {
		t.Error("a response without a whole correlation id has a body")
	}
}

func TestLimits(t *testing.T) {
	limits := Limits{Min: 8, Max: 100 << 20}
	for _, c := range []struct {
		size string
		is   error
		text string
	}{
		{"00000008", nil, ""},
		{"06400000", nil, ""},
		{"06400001", ErrFrameTooLarge, "frame too large: 104857601 bytes, the limit is 104857600"},
		{"7fffffff", ErrFrameTooLarge, "frame too large: 2147483647 bytes, the limit is 104857600"},
		{"00000007", ErrFrameImpossible, "impossible frame size: 7 bytes, at least 8 are needed"},
		{"00000000", ErrFrameImpossible, "impossible frame size: 0 bytes, at least 8 are needed"},
		{"ffffffff", ErrFrameImpossible, "impossible frame size: -1 bytes, at least 8 are needed"},
		{"80000000", ErrFrameImpossible, "impossible frame size: -2147483648 bytes, at least 8 are needed"},
	} {
		err := limits.Check(append(unhex(t, c.size), "not the size"...))
		if !errors.Is(err, c.is) || err != nil && err.Error() != c.text {
			t.Errorf("size %s: got %v, want %q", c.size, err, c.text)
		}
	}
}

func TestForeignBytes(t *testing.T) {
	for _, c := range []struct {
		first string
		is    error
		text  string
	}{
		{"\x16\x03\x01\x02\x00", ErrTLSBytes, "TLS bytes on a plaintext port: the first bytes are 16030102"},
		{"\x16\x03\x00\x00", ErrTLSBytes, "TLS bytes on a plaintext port: the first bytes are 16030000"},
		{"\x15\x03\x03\x00\x02", ErrTLSBytes, "TLS bytes on a plaintext port: the first bytes are 15030300"},
		{"\x15\x03\x04\x00", ErrTLSBytes, "TLS bytes on a plaintext port: the first bytes are 15030400"},
		{"GET / HTTP/1.1\r\n", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "GET "`},
		{"POST /", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "POST"`},
		{"HEAD /", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "HEAD"`},
		{"PUT /", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "PUT "`},
		{"HTTP/1.1 400", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "HTTP"`},
		{"PRI * HTTP/2.0", ErrHTTPBytes, `HTTP request on a Kafka port: the first bytes are "PRI "`},
		{"\x00\x00\x00\x20\x00\x12\x00\x04", nil, ""},
		{"\x16\x03\x05\x00", nil, ""}, // a frame of 369,296,640 bytes, so far as this tells
		{"\x16\x02\x01\x00", nil, ""},
		{"\x17\x03\x03\x00", nil, ""}, // application data never comes first
		{"GETX", nil, ""},
	} {
		if err := ForeignBytes([]byte(c.first)); !errors.Is(err, c.is) || err != nil && err.Error() != c.text {
			t.Errorf("%q: got %v, want %q", c.first, err, c.text)
		}
	}
	fine := []byte("\x00\x00\x00\x20\x00\x12")
	if n := testing.AllocsPerRun(100, func() { _ = ForeignBytes(fine) }); n != 0 {
		t.Errorf("%v allocations for a frame of Kafka's", n)
	}
}

// ApplyEdits is what it would be to build the frame anew, byte by byte.
func TestApplyEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := rapid.SliceOfN(rapid.Byte(), SizeLen, 60).Draw(t, "frame")
		PutSize(frame)
		front := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "front")
		var edits []Edit
		for at := SizeLen; at <= len(frame) && len(edits) < 6; {
			from := rapid.IntRange(at, len(frame)).Draw(t, "from")
			to := rapid.IntRange(from, len(frame)).Draw(t, "to")
			edits = append(edits, Edit{From: from, To: to, With: rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "with")})
			at = to + rapid.IntRange(0, 20).Draw(t, "gap")
		}
		want := []byte{}
		for i := SizeLen; i <= len(frame); i++ {
			for _, e := range edits {
				if e.From == i {
					want = append(want, e.With...)
				}
			}
			kept := i < len(frame) && !slices.ContainsFunc(edits, func(e Edit) bool { return e.From <= i && i < e.To })
			if kept {
				want = append(want, frame[i])
			}
		}
		want = append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)
		before := bytes.Clone(frame)
		got := ApplyEdits(bytes.Clone(front), frame, edits)
		if !bytes.Equal(got[:len(front)], front) || !bytes.Equal(got[len(front):], want) {
			t.Fatalf("frame %x with %+v behind %x:\ngot  %x\nwant %x", frame, edits, front, got, want)
		}
		if !bytes.Equal(frame, before) {
			t.Fatalf("the frame itself changed from %x to %x", before, frame)
		}
	})
}

// Without edits the frame is copied; with room in dst nothing is allocated.
func TestApplyEditsAllocates(t *testing.T) {
	frame := unhex(t, "00000006 000000070102")
	got := ApplyEdits(nil, frame, nil)
	if !bytes.Equal(got, frame) || &got[0] == &frame[0] {
		t.Errorf("got %x, the same bytes: %t", got, &got[0] == &frame[0])
	}
	dst := make([]byte, 0, 32)
	edits := []Edit{{From: 8, To: 9, With: []byte("new")}}
	if n := testing.AllocsPerRun(100, func() { dst = ApplyEdits(dst[:0], frame, edits) }); n != 0 || string(dst) != "\x00\x00\x00\x08\x00\x00\x00\x07new\x02" {
		t.Errorf("%v allocations, %q", n, dst)
	}
}
