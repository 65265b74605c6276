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
		asking{"orders", 0, earliestPendingUploadTimestamp, 4}, asking{"orders", 1, latestTimestamp, -1},
		asking{"", 7, earliestPendingUploadTimestamp, -1}, asking{"payments", 2, 1700000000000, 0})
	req.Version = version
	req.TimeoutMillis = 0x01020304
	req.UnknownTags.Set(100, []byte("request"))
	req.Topics[0].UnknownTags.Set(3, nil)
	req.Topics[0].Partitions[1].UnknownTags.Set(0, []byte{0xff, 0xfa})
	return req
}

func TestInspect(t *testing.T) {
	for version := int16(6); version <= 11; version++ {
		frame := encodeRequest(sampleRequest(version), []byte("client"), 1)
		want := Inspection{Version: version, Partitions: 4, PendingUpload: 2, TimeoutOff: -1}
		if version >= 10 {
			// The timeout, and behind it one tag: count, number, size, 7 bytes.
			want.TimeoutOff = len(frame) - 10 - 4
		}
		got, err := Inspect(frame)
		if got != want || err != nil {
			t.Errorf("v%d: got %+v, %v, want %+v\nframe: %x", version, got, err, want, frame)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
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
		in, err := Inspect(c.frame)
		if err == nil || err.Error() != c.want || in != (Inspection{}) {
			t.Errorf("%s: got %+v, %v, want error %q\nframe: %x", name, in, err, c.want, c.frame)
		}
	}
	for cut := range good {
		short := slices.Clone(good[:cut])
		if cut >= codec.SizeLen {
			codec.PutSize(short)
		}
		if in, err := Inspect(short); err == nil {
			t.Errorf("cut at byte %d: got %+v and no error", cut, in)
		}
	}
}

// TestInspectNullTopics: a null array holds nothing. The broker says what it thinks of it.
func TestInspectNullTopics(t *testing.T) {
	frame := encodeRequest(listOffsetsRequest(0, -1), nil, 1)
	// Replica id and isolation level stand before the array, timeout and tags behind it.
	frame[len(frame)-timeoutLen-2] = 0
	want := Inspection{Version: 11, TimeoutOff: len(frame) - timeoutLen - 1}
	if got, err := Inspect(frame); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v\nframe: %x", got, err, want, frame)
	}
}

func TestLower(t *testing.T) {
	for _, c := range []struct{ from, to int16 }{{11, 10}, {11, 9}, {10, 9}, {10, 10}, {9, 9}} {
		req := sampleRequest(c.from)
		frame := encodeRequest(req, []byte("client"), 8)
		in, err := Inspect(frame)
		if err != nil {
			t.Fatal(err)
		}
		array := &frame[0]
		got := Lower(frame, in, c.to)
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
		in, err := Inspect(frame)
		if err != nil {
			t.Error(err)
		}
		Lower(frame, in, 9)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzInspect: what Inspect accepts kmsg reads too and counts the same, and Lower changes
// the version, the timeout and the size and nothing else.
func FuzzInspect(f *testing.F) {
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
		in, err := Inspect(frame)
		if !slices.Equal(frame, before) {
			t.Fatalf("Inspect changed\n%x to\n%x", before, frame)
		}
		if err != nil {
			return
		}
		_, body, err := codec.RequestBody(frame, codec.Flexible)
		if err != nil {
			t.Fatal(err)
		}
		if partitions, pending := countWithKmsg(t, frame, body); partitions != in.Partitions || pending != in.PendingUpload {
			t.Fatalf("kmsg counts %d partitions, %d with -6; Inspect says %+v\nframe: %x", partitions, pending, in, frame)
		}
		if in.Version < 10 {
			return
		}
		version, want := 9+int16(to%2), slices.Clone(before)
		if version == 9 {
			want = slices.Delete(want, in.TimeoutOff, in.TimeoutOff+4)
			codec.PutSize(want)
		}
		want[6], want[7] = 0, byte(version)
		if got := Lower(frame, in, version); !slices.Equal(got, want) {
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
			if p.Timestamp == earliestPendingUploadTimestamp {
				pending++
			}
		}
	}
	return partitions, pending
}
