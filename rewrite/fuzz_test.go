// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// FuzzProduce and those that follow read any bytes as a response body of any version that
// the table says is rewritten: what kmsg accepts, the walk accepts, and it comes out as
// kmsg would read it with the addresses replaced, and nodes without one hidden or passed
// through. Fetch and ShareFetch are streamed too, in pieces.
func FuzzProduce(f *testing.F)          { fuzzWalk(f, codec.KeyProduce) }
func FuzzFetch(f *testing.F)            { fuzzWalk(f, codec.KeyFetch) }
func FuzzMetadata(f *testing.F)         { fuzzWalk(f, codec.KeyMetadata) }
func FuzzFindCoordinator(f *testing.F)  { fuzzWalk(f, codec.KeyFindCoordinator) }
func FuzzDescribeCluster(f *testing.F)  { fuzzWalk(f, codec.KeyDescribeCluster) }
func FuzzShareFetch(f *testing.F)       { fuzzWalk(f, codec.KeyShareFetch) }
func FuzzShareAcknowledge(f *testing.F) { fuzzWalk(f, codec.KeyShareAcknowledge) }

func fuzzWalk(f *testing.F, key int16) {
	b := bearerOf(key)
	for version := b.firstWith; version <= b.known; version++ {
		random := newFiller(uint64(version))
		seeds := 0
		for seeds < 4 {
			if body := random.response(f, key, version).AppendTo(nil); len(body) < 1500 {
				f.Add(body, version, uint16(len(body)/2+seeds))
				seeds++
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16, cut uint16) {
		if version < b.firstWith || version > b.known {
			return
		}
		header := codec.AppendNoTags([]byte{0, 0, 0, 0, 0, 0, 0, 7}, codec.EncodingOf(version, b.firstFlexible))
		checkWalk(t, key, version, Unmapped(cut%3), header, body)
		if b.stream != nil {
			checkStream(t, key, version, header, body, int(cut))
		}
	})
}

// looseInKmsg is a fault that kmsg does not see: it takes any negative length for null,
// int32 overflow included, and leaves what follows the end alone.
func looseInKmsg(err error) bool {
	if strings.Contains(err.Error(), "impossible length") || strings.Contains(err.Error(), "left over") {
		return true
	}
	huge := regexp.MustCompile(`array of (\d+) elements`).FindStringSubmatch(err.Error())
	if huge == nil {
		return false
	}
	n, _ := strconv.ParseInt(huge[1], 10, 64)
	return n >= 1<<31-1
}

// read returns what kmsg reads from a body, or nil.
func read(key, version int16, body []byte) kmsg.Response {
	r := kmsg.ResponseForKey(key)
	r.SetVersion(version)
	if r.ReadFrom(body) != nil {
		return nil
	}
	return r
}

func checkWalk(t *testing.T, key, version int16, mode Unmapped, header, body []byte) {
	t.Helper()
	frame := append(bytes.Clone(header), body...)
	codec.PutSize(frame)
	nodes := fleet{host: "proxy.example.com", growth: 300}
	v := NewConversation(&Rules{Addresses: nodes, Unmapped: mode})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, unmapped, err := v.Response(key, version, bytes.Clone(frame))
	runtime.ReadMemStats(&after)
	// A node takes 10 bytes at the least and gives an edit, grown by doubling, and a host.
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<16+64*uint64(len(frame)) {
		t.Fatalf("%d bytes allocated for %d: %x", grown, len(frame), frame)
	}
	want := read(key, version, body)
	switch {
	case want == nil && err != nil:
		return
	case want == nil: // what is wrong with it is behind what is walked
		if int(codec.Size(got)) != len(got)-codec.SizeLen {
			t.Fatalf("size field %d of %d bytes: %x", codec.Size(got), len(got), got)
		}
		return
	case err != nil:
		if !looseInKmsg(err) {
			t.Fatalf("%v; kmsg reads %+v\nframe: %x", err, want, frame)
		}
		return
	}
	var named []int32 // nodes without an address of their own
	switch mode {
	case UnmappedReject:
		named = nodes.advertise(want).unmapped
	case UnmappedHide:
		named = nodes.hideIn(want)
	case UnmappedPassthrough:
		named = nodes.keepIn(want)
	}
	out := read(key, version, got[len(header):])
	if out == nil || !bytes.Equal(out.AppendTo(nil), want.AppendTo(nil)) || int(codec.Size(got)) != len(got)-codec.SizeLen {
		t.Fatalf("frame: %x\ngot:   %x, that is\n%+v\nwant\n%+v", frame, got, out, want)
	}
	// Of a tag that comes twice kmsg tells the last only.
	if !slices.Equal(unmapped, named) && len(unmapped) <= len(named) {
		t.Fatalf("unmapped %v, want %v: %x", unmapped, named, frame)
	}
}

// checkStream passes the frame through a Stream in two pieces and compares: the structure
// is that of the whole frame, or its endpoints are left out, and padding is all there is
// more.
func checkStream(t *testing.T, key, version int16, header, body []byte, cut int) {
	t.Helper()
	frame := append(bytes.Clone(header), body...)
	codec.PutSize(frame)
	nodes := fleet{host: "proxy.example.com", growth: 300}
	v := NewConversation(&Rules{Addresses: nodes})
	got, err := streamed(v.Stream(key, version), frame, []int{min(cut, len(frame))})
	want := read(key, version, body)
	if err != nil {
		if want != nil && !looseInKmsg(err) && !highTags(body) {
			t.Fatalf("%v; kmsg reads %+v\nframe: %x", err, want, frame)
		}
		return
	}
	growth := v.Stream(key, version).Growth()
	if len(got) != len(frame)+growth || int(codec.Size(got)) != len(got)-codec.SizeLen {
		t.Fatalf("%d bytes of %d with growth %d, size field %d\nframe: %x\ngot:   %x", len(got), len(frame), growth, codec.Size(got), frame, got)
	}
	if want == nil {
		return
	}
	out := read(key, version, got[len(header):])
	if out == nil {
		t.Fatalf("kmsg does not read it\nframe: %x\ngot:   %x", frame, got)
	}
	nodes.advertise(want)
	switch r := out.(type) {
	case *kmsg.FetchResponse:
		was := want.(*kmsg.FetchResponse)
		tagsBelow(&r.UnknownTags, &was.UnknownTags)
		if len(r.Brokers) == 0 {
			was.Brokers = nil
		}
	case *kmsg.ShareFetchResponse:
		was := want.(*kmsg.ShareFetchResponse)
		tagsBelow(&r.UnknownTags, &was.UnknownTags)
		if len(r.NodeEndpoints) == 0 {
			was.NodeEndpoints = nil
		}
	}
	if !bytes.Equal(out.AppendTo(nil), want.AppendTo(nil)) {
		t.Fatalf("frame: %x\ngot:   %x, that is\n%+v\nwant\n%+v", frame, got, out, want)
	}
}

// tagsBelow takes the padding out of the first: all tags that the second does not have.
func tagsBelow(tags, came *kmsg.Tags) {
	was := map[uint32]bool{}
	came.Each(func(n uint32, _ []byte) { was[n] = true })
	kept := kmsg.Tags{}
	tags.Each(func(n uint32, b []byte) {
		if was[n] {
			kept.Set(n, b)
		}
	})
	*tags = kept
}

// highTags says whether a body may have a tag above all numbers of padding: five bytes
// that read as a varint of more than 28 bits. No room is left above such a tag.
func highTags(body []byte) bool {
	for i := range body {
		if v, n := binary.Uvarint(body[i:]); n == 5 && v >= paddingTags[len(paddingTags)-2] {
			return true
		}
	}
	return false
}
