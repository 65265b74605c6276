// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// sampleRequest is a request of any flexible version with every kind of field in it,
// unknown tags included.
func sampleRequest(version int16) *kmsg.ListOffsetsRequest {
	req := listOffsetsRequest(1, 3,
		asking{"orders", 0, codec.EarliestPendingUploadTimestamp, 4}, asking{"orders", 1, codec.LatestTimestamp, -1},
		asking{"", 7, codec.EarliestPendingUploadTimestamp, -1}, asking{"payments", 2, 1700000000000, 0})
	req.Version = version
	req.TimeoutMillis = 0x01020304
	req.UnknownTags.Set(100, []byte("request"))
	req.Topics[0].UnknownTags.Set(3, nil)
	req.Topics[0].Partitions[1].UnknownTags.Set(0, []byte{0xff, 0xfa})
	return req
}

// found is what ParseRequest found.
type found struct {
	version                               int16
	partitions, pendingUpload, timeoutOff int
}

func foundIn(r Request) found { return found{r.Version, r.Partitions, r.PendingUpload, r.timeoutOff} }

func TestParseRequest(t *testing.T) {
	for version := int16(6); version <= 11; version++ {
		frame := encodeRequest(sampleRequest(version), []byte("client"), 1)
		want := found{version: version, partitions: 4, pendingUpload: 2, timeoutOff: -1}
		if version >= 10 {
			// The timeout, and behind it one tag: count, number, size, 7 bytes.
			want.timeoutOff = len(frame) - 10 - 4
		}
		r, err := ParseRequest(frame)
		if got := foundIn(r); got != want || err != nil {
			t.Errorf("v%d: got %+v, %v, want %+v\nframe: %x", version, got, err, want, frame)
		}
	}
}

func TestParseRequestRefuses(t *testing.T) {
	req := sampleRequest(11)
	good := encodeRequest(req, nil, 1)
	other := func(change func(b []byte)) []byte {
		b := slices.Clone(good)
		change(b)
		return b
	}
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"nothing":         {nil, "list_offsets request: a frame of 0 bytes that is not whole"},
		"another size":    {other(func(b []byte) { b[3]++ }), "list_offsets request: a frame of 132 bytes that is not whole"},
		"another API":     {other(func(b []byte) { b[5] = 3 }), "list_offsets request: API key 3"},
		"classic":         {other(func(b []byte) { b[7] = 5 }), "list_offsets request: version 5 is not one of 6 to 11"},
		"unknown version": {other(func(b []byte) { b[7] = 12 }), "list_offsets request: version 12 is not one of 6 to 11"},
		"header":          {other(func(b []byte) { codec.PutSize(b[:13]) })[:13], "list_offsets request v11 at byte 12: 2 bytes wanted, 1 left"},
		"too many topics": {other(func(b []byte) { b[20] = 0x7f }), "list_offsets request v11 at byte 21: array of 126 elements in 111 bytes"},
		"null topic name": {other(func(b []byte) { b[21] = 0 }), "list_offsets request v11 at byte 22: null topic name"},
	} {
		r, err := ParseRequest(c.frame)
		if err == nil || err.Error() != c.want || foundIn(r) != (found{}) {
			t.Errorf("%s: got %+v, %v, want error %q\nframe: %x", name, r, err, c.want, c.frame)
		}
	}
	for cut := range good {
		short := slices.Clone(good[:cut])
		if cut >= codec.SizeLen {
			codec.PutSize(short)
		}
		if r, err := ParseRequest(short); err == nil {
			t.Errorf("cut at byte %d: got %+v and no error", cut, r)
		}
	}
}

// TestParseRequestNullTopics: a null array holds nothing. The broker says what it thinks of it.
func TestParseRequestNullTopics(t *testing.T) {
	frame := encodeRequest(listOffsetsRequest(0, -1), nil, 1)
	// Replica id and isolation level stand before the array, timeout and tags behind it.
	frame[len(frame)-timeoutLen-2] = 0
	want := found{version: 11, timeoutOff: len(frame) - timeoutLen - 1}
	if r, err := ParseRequest(frame); foundIn(r) != want || err != nil {
		t.Errorf("got %+v, %v, want %+v\nframe: %x", r, err, want, frame)
	}
}

func TestLower(t *testing.T) {
	for _, c := range []struct{ from, to int16 }{{11, 10}, {11, 9}, {10, 9}, {10, 10}, {9, 9}} {
		req := sampleRequest(c.from)
		frame := encodeRequest(req, []byte("client"), 8)
		r, err := ParseRequest(frame)
		if err != nil {
			t.Fatal(err)
		}
		array := &frame[0]
		got := r.Lower(c.to)
		req.Version = c.to
		if want := encodeRequest(req, []byte("client"), 8); !slices.Equal(got, want) {
			t.Errorf("v%d to v%d:\n got %x\nwant %x", c.from, c.to, got, want)
		}
		if &got[0] != array {
			t.Errorf("v%d to v%d: another array", c.from, c.to)
		}
	}
}

// TestLowerAllocatesNothing: this is done for every ListOffsets that passes through.
func TestLowerAllocatesNothing(t *testing.T) {
	good := encodeRequest(sampleRequest(11), []byte("client"), 8)
	frame := make([]byte, len(good))
	allocs := testing.AllocsPerRun(100, func() {
		copy(frame, good)
		r, err := ParseRequest(frame)
		if err != nil {
			t.Error(err)
		}
		r.Lower(9)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzParseRequest: what ParseRequest accepts kmsg reads too and counts the same, and Lower changes
// the version, the timeout and the size and nothing else.
func FuzzParseRequest(f *testing.F) {
	for version := int16(6); version <= 11; version++ {
		frame := encodeRequest(sampleRequest(version), []byte("client"), 1)
		f.Add(frame, uint8(10))
		f.Add(append(frame, "left over"...), uint8(9))
	}
	f.Fuzz(func(t *testing.T, frame []byte, to uint8) {
		if len(frame) >= codec.SizeLen {
			codec.PutSize(frame)
		}
		before := slices.Clone(frame)
		r, err := ParseRequest(frame)
		if !slices.Equal(frame, before) {
			t.Fatalf("ParseRequest changed\n%x to\n%x", before, frame)
		}
		if err != nil {
			return
		}
		_, body, err := codec.RequestBody(frame, codec.Flexible)
		if err != nil {
			t.Fatal(err)
		}
		if partitions, pending := countWithKmsg(t, frame, body); partitions != r.Partitions || pending != r.PendingUpload {
			t.Fatalf("kmsg counts %d partitions, %d with -6; ParseRequest says %+v\nframe: %x", partitions, pending, r, frame)
		}
		if r.Version < 10 {
			return
		}
		version, want := 9+int16(to%2), slices.Clone(before)
		if version == 9 {
			want = slices.Delete(want, r.timeoutOff, r.timeoutOff+4)
			codec.PutSize(want)
		}
		want[6], want[7] = 0, byte(version)
		if got := r.Lower(version); !slices.Equal(got, want) {
			t.Fatalf("Lower to v%d:\n got %x\nwant %x\nfrom %x", version, got, want, before)
		}
		countWithKmsg(t, want, body)
	})
}

func countWithKmsg(t *testing.T, frame []byte, body int) (partitions, pending int) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = codec.RequestVersion(frame)
	if err := req.ReadFrom(frame[body:]); err != nil {
		t.Fatalf("kmsg: %v\nframe: %x", err, frame)
	}
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			partitions++
			if p.Timestamp == codec.EarliestPendingUploadTimestamp {
				pending++
			}
		}
	}
	return partitions, pending
}
