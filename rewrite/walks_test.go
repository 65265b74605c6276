// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tiergate/codec"
)

// eachRewritten runs a test for every key and version that the table says is rewritten.
func eachRewritten(t *testing.T, run func(t *testing.T, key, version int16)) {
	t.Helper()
	for _, b := range AddressBearers() {
		for version := b.FirstWith; b.Rewritten && version <= b.Known; version++ {
			t.Run(fmt.Sprintf("%s v%d", KeyName(b.Key), version), func(t *testing.T) { run(t, b.Key, version) })
		}
	}
}

// The table itself: what it says is rewritten is what the issue names.
func TestEachRewritten(t *testing.T) {
	var got []string
	for _, b := range AddressBearers() {
		if b.Rewritten {
			got = append(got, fmt.Sprintf("%s %d-%d", KeyName(b.Key), b.FirstWith, b.Known))
		}
	}
	want := []string{
		"Produce 10-13", "Fetch 16-18", "Metadata 0-13", "FindCoordinator 0-6", "DescribeCluster 0-2", "ShareFetch 0-2", "ShareAcknowledge 0-2",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// advertisedHosts are what operators have their proxies advertise.
func advertisedHosts() []string {
	return []string{"p", "tiergate.example.com", "2001:db8::5:1", strings.Repeat("proxy.", 40)}
}

// Random responses of every version come out byte for byte as kmsg encodes them with the
// addresses replaced; nodes without a port are reported, in their order, and all are told
// to Nodes with their own addresses.
func TestWalks(t *testing.T) {
	eachRewritten(t, func(t *testing.T, key, version int16) {
		f := newFiller(uint64(key)<<16 | uint64(version))
		addressless, addressed := 0, 0
		for i := range 150 {
			in := f.response(t, key, version)
			frame := f.frame(in)
			var observed []string
			nodes := fleet{host: advertisedHosts()[i%len(advertisedHosts())], observed: &observed}
			v := NewConversation(&Rules{Addresses: nodes, Nodes: nodes})
			got, unmapped, err := v.Response(key, version, bytes.Clone(frame))
			if err != nil {
				t.Fatalf("%v\nframe: %x", err, frame)
			}
			header := len(frame) - len(in.AppendTo(nil))
			done := nodes.advertise(in)
			want := in.AppendTo(bytes.Clone(frame[:header]))
			codec.PutSize(want)
			if !bytes.Equal(got, want) {
				t.Fatalf("%+v\nframe: %x\ngot:   %x\nwant:  %x", in, frame, got, want)
			}
			if !slices.Equal(unmapped, done.unmapped) || !slices.Equal(observed, done.observed) {
				t.Fatalf("unmapped %v, observed %q\nwant     %v and %q", unmapped, observed, done.unmapped, done.observed)
			}
			if bytes.Equal(got, frame) {
				addressless++
			} else {
				addressed++
			}
		}
		if addressless == 0 || addressed == 0 {
			t.Fatalf("%d responses without addresses, %d with: the test lacks one kind", addressless, addressed)
		}
	})
}

// A response without an address is handed back as it is: the same bytes, in the same
// place, also where it is written in a way that kmsg would not write it.
func TestAddresslessIsUntouched(t *testing.T) {
	for _, c := range []struct {
		name         string
		key, version int16
		body         string
	}{
		{"Produce without topics or tags", 0, 12, "01 00000005 00"},
		{"Produce with an empty array of endpoints", 0, 13, "01 00000005 01 00 01 01"},
		{"Produce with a tag whose length is longer than it need be", 0, 13, "01 00000005 01 00 8100 01"},
		{"Produce with a null array of endpoints", 0, 10, "00 00000005 01 00 01 00"},
		{"Fetch without endpoints", 1, 17, "00000000 0000 00000001 01 00"},
		{"Fetch with an empty array of endpoints", 1, 17, "00000000 0000 00000001 01 01 00 8100 01"},
		{"Metadata without brokers", 3, 0, "00000000 00000000"},
		{"Metadata with null brokers", 3, 8, "00000000 ffffffff ffff 00000000 00000000 00000000"},
		{"FindCoordinator with an error", 10, 2, "00000000 000f ffff ffffffff 0000 ffffffff"},
		{"FindCoordinator of several, with errors", 10, 6, "00000000 02 02 67 ffffffff 01 ffffffff 000f 00 00 00"},
		{"FindCoordinator with a null host", 10, 3, "00000000 000f 00 ffffffff 00 ffffffff 00"},
		{"DescribeCluster with an error", 60, 2, "00000000 0023 01 01 01 ffffffff 01 80000000 00"},
		{"DescribeCluster of controllers", 60, 1, "00000000 0000 00 02 01 00000001 02 00000001 02 62 00002384 00 00 80000000 00"},
		{"ShareFetch without endpoints", 78, 1, "00000000 0000 00 00007530 01 01 00"},
		{"ShareAcknowledge without endpoints", 79, 1, "00000000 0000 00 01 01 00"},
	} {
		enc := codec.EncodingOf(c.version, bearerOf(c.key).firstFlexible)
		frame := append(codec.AppendNoTags([]byte{0, 0, 0, 0, 0, 0, 0, 7}, enc), unhex(t, c.body)...)
		codec.PutSize(frame)
		want := bytes.Clone(frame)
		v := NewConversation(&Rules{Addresses: fleet{host: "proxy"}})
		got, unmapped, err := v.Response(c.key, c.version, frame)
		if err != nil || !bytes.Equal(got, want) || &got[0] != &frame[0] || unmapped != nil {
			t.Errorf("%s: %v, %v\ngot  %x\nwant %x", c.name, unmapped, err, got, want)
		}
	}
}

// What stands behind the last field that the walk of an API reads.
func unread(key, version int16) string {
	switch key {
	case codec.KeyMetadata:
		return "topics"
	case codec.KeyFindCoordinator:
		if version >= 3 {
			return "tags"
		}
		return "nothing"
	case codec.KeyDescribeCluster:
		return "operations and tags"
	case codec.KeyShareAcknowledge:
		return "tags"
	}
	return "nothing"
}

// A response that ends anywhere within what is walked is an error; what is behind that is
// passed as it comes.
func TestWalksCutAtEachByte(t *testing.T) {
	eachRewritten(t, func(t *testing.T, key, version int16) {
		f := newFiller(uint64(key)<<16 | uint64(version) + 99)
		v := NewConversation(&Rules{Addresses: fleet{host: "proxy.example.com"}})
		whole := 0
		for range 40 {
			in := f.response(t, key, version)
			frame := f.frame(in)
			if len(frame) > 3000 || ofControllers(reflect.ValueOf(in).Elem()) {
				continue
			}
			whole++
			out, _, err := v.Response(key, version, bytes.Clone(frame))
			if err != nil {
				t.Fatal(err)
			}
			walked := len(frame) // where the walk ends
			for n := len(frame) - 1; n >= codec.ResponseFixedLen; n-- {
				cut := bytes.Clone(frame[:n])
				codec.PutSize(cut)
				got, _, err := v.Response(key, version, cut)
				switch {
				case err == nil && n+1 != walked:
					t.Fatalf("no error for the first %d bytes, but one for the first %d of %x", n, n+1, frame)
				case err == nil && !bytes.Equal(got[codec.SizeLen:], out[codec.SizeLen:len(out)-(len(frame)-n)]):
					t.Fatalf("the first %d bytes of %x\ngive     %x\nthe whole %x", n, frame, got, out)
				case err == nil:
					walked = n
				}
			}
			behind := len(frame) - walked
			switch unread(key, version) {
			case "nothing":
				if behind != 0 {
					t.Fatalf("%d bytes at the end are not read: %x", behind, frame)
				}
			case "tags", "operations and tags":
				c := codec.NewCursor(frame[walked:], codec.Flexible)
				if unread(key, version) != "tags" {
					c.Int32() // operations that the client may do on the cluster
				}
				c.Tags()
				if c.Err() != nil || c.Left() != 0 {
					t.Fatalf("%x at the end is not read and no tag section (%v): %x", frame[walked:], c.Err(), frame)
				}
			case "topics":
				if behind < 4 && version < 9 || behind < 2 {
					t.Fatalf("%d bytes at the end are not read: %x", behind, frame)
				}
			}
		}
		if whole < 10 {
			t.Fatalf("%d frames are small enough for the test", whole)
		}
	})
}

// Lengths that the frame cannot hold are errors, wherever they stand.
func TestWalksRefuseImpossibleLengths(t *testing.T) {
	for _, c := range []struct {
		name         string
		key, version int16
		body         string
		want         string
	}{
		{"brokers", 3, 1, "7fffffff", "Metadata v1 response: at byte 12: array of 2147483647 elements in 0 bytes"},
		{"brokers", 3, 12, "00000000 ffffffff0f", "Metadata v12 response: at byte 18: impossible length 4294967294"},
		{"brokers", 3, 0, "fffffffe", "Metadata v0 response: at byte 12: impossible length -2"},
		{"host", 3, 12, "00000000 02 00000001 ffffffff07 0000000000000000000000", "Metadata v12 response: at byte 23: 2147483646 bytes wanted, 11 left"},
		{"coordinators", 10, 4, "00000000 8001", "FindCoordinator v4 response: at byte 15: array of 127 elements in 0 bytes"},
		{"topics", 0, 13, "8001", "Produce v13 response: at byte 11: array of 127 elements in 0 bytes"},
		{"endpoints", 0, 13, "01 00000000 01 00 01 09", "Produce v13 response: at byte 18: node endpoints: at byte 1: array of 8 elements in 0 bytes"},
		{"endpoints", 1, 17, "00000000 0000 00000001 01 01 00 01 09", "Fetch v17 response: end of the response: at byte 4: node endpoints: at byte 1: array of 8 elements in 0 bytes"},
		{"records", 1, 17, "00000000 0000 00000001 02 " + strings.Repeat("00", 16) + "02" + strings.Repeat("00", 30) + "00 00000000 ff7f 00", "Fetch v17 response: 16382 bytes of records and a tag section, 1 left in the frame"},
		{"topics", 1, 17, "00000000 0000 00000001 8001 00", "Fetch v17 response: at step 0: at byte 21: array of 127 elements in 1 bytes"},
		{"what follows the end", 1, 17, "00000000 0000 00000001 01 00 00", "Fetch v17 response: end of the response: at byte 1: 1 bytes left over"},
		{"what follows the end", 78, 2, "00000000 0000 00 00000000 01 01 00 00", "ShareFetch v2 response: end of the response: at byte 2: 1 bytes left over"},
		{"header tags", 60, 0, "", "DescribeCluster v0 response: at byte 8: varint cut short"},
	} {
		enc := codec.EncodingOf(c.version, bearerOf(c.key).firstFlexible)
		frame := []byte{0, 0, 0, 0, 0, 0, 0, 7}
		if c.body != "" {
			frame = append(codec.AppendNoTags(frame, enc), unhex(t, c.body)...)
		}
		codec.PutSize(frame)
		v := NewConversation(&Rules{Addresses: fleet{host: "proxy"}})
		if _, _, err := v.Response(c.key, c.version, frame); err == nil || err.Error() != c.want {
			t.Errorf("%s of %s v%d, %x:\ngot  %v\nwant %s", c.name, KeyName(c.key), c.version, frame, err, c.want)
		}
	}
}
