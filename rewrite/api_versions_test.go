// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// TestOffered prints what clients are told of ApiVersions. A script has the commands
//
//	broker
//	<key> <least version> <greatest version>
//		the rows of the broker's answer, in this order
//
//	offered pending=<mode> addresses=<kept|rewritten>
//		prints what differs for the client, which is the same in all versions of
//		ApiVersions, and what the session learns of its broker
func TestOffered(t *testing.T) {
	var rows []kmsg.ApiVersionsResponseApiKey
	datadriven.RunTest(t, "testdata/apiversions", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "broker" {
			rows = nil
			for line := range strings.Lines(d.Input) {
				var r kmsg.ApiVersionsResponseApiKey
				if _, err := fmt.Sscan(line, &r.ApiKey, &r.MinVersion, &r.MaxVersion); err != nil {
					d.Fatalf(t, "%q: %v", line, err)
				}
				rows = append(rows, r)
			}
			return ""
		}
		rules := rulesOf(t, d)
		said := ""
		for version := int16(0); version <= 5; version++ {
			in := newFiller(uint64(version)).response(t, codec.KeyApiVersions, version).(*kmsg.ApiVersionsResponse)
			in.ErrorCode, in.ApiKeys = 0, rows
			v := NewConversation(rules)
			got, _, err := v.Response(codec.KeyApiVersions, version, frameOf(in, codec.Classic))
			if err != nil {
				d.Fatalf(t, "v%d: %v", version, err)
			}
			now := differences(rows, decoded(t, codec.KeyApiVersions, version, got[codec.ResponseFixedLen:]).(*kmsg.ApiVersionsResponse).ApiKeys)
			now += fmt.Sprintf("broker: %s\n", v.Support())
			if version > 0 && now != said {
				d.Fatalf(t, "v%d says\n%s\nand v%d\n%s", version, now, version-1, said)
			}
			said = now
		}
		return said
	})
}

// differences lists rows that changed and rows that are gone.
func differences(came, told []kmsg.ApiVersionsResponseApiKey) string {
	var out strings.Builder
	for _, r := range came {
		i := slices.IndexFunc(told, func(o kmsg.ApiVersionsResponseApiKey) bool { return o.ApiKey == r.ApiKey })
		switch {
		case i < 0:
			fmt.Fprintf(&out, "%s: %d-%d is gone\n", KeyName(r.ApiKey), r.MinVersion, r.MaxVersion)
		case told[i].MinVersion != r.MinVersion || told[i].MaxVersion != r.MaxVersion:
			fmt.Fprintf(&out, "%s: %d-%d is now %d-%d\n", KeyName(r.ApiKey), r.MinVersion, r.MaxVersion, told[i].MinVersion, told[i].MaxVersion)
		}
	}
	return out.String()
}

// expectedRows is what offered rows should be, said in the plainest way.
func expectedRows(rows []kmsg.ApiVersionsResponseApiKey, rules *Rules, support Support) []kmsg.ApiVersionsResponseApiKey {
	var told []kmsg.ApiVersionsResponseApiKey
	for _, r := range rows {
		if r.ApiKey == 2 && rules.PendingUpload != PendingUploadOff && support == SupportSynthesised {
			r.MaxVersion = 11
		}
		for _, b := range AddressBearers() {
			if b.Key == r.ApiKey && rules.Addresses != nil {
				r.MaxVersion = min(r.MaxVersion, b.Known)
			}
		}
		if r.MaxVersion >= r.MinVersion || rules.Addresses == nil {
			told = append(told, r)
		}
	}
	return told
}

// randomRows has rows of real and of unknown keys, each once, in any order, with tags.
func randomRows(f filler) []kmsg.ApiVersionsResponseApiKey {
	var rows []kmsg.ApiVersionsResponseApiKey
	for _, key := range f.rnd.Perm(95)[:f.rnd.IntN(95)] {
		r := kmsg.NewApiVersionsResponseApiKey()
		r.ApiKey, r.MinVersion = int16(key), int16(f.rnd.IntN(4))
		r.MaxVersion = r.MinVersion + int16(f.rnd.IntN(16))
		if f.rnd.IntN(8) == 0 {
			r.UnknownTags.Set(f.rnd.Uint32N(50), f.bytes(3))
		}
		rows = append(rows, r)
	}
	return rows
}

// Random answers of all versions come out byte for byte as kmsg encodes them with other
// rows. In direct mode the frame is changed in place, in the greatest version of ListOffsets
// alone.
func TestApiVersions(t *testing.T) {
	seen := map[string]int{}
	for i := range 3000 {
		f := newFiller(uint64(i))
		version := int16(i % 6)
		in := f.response(t, codec.KeyApiVersions, version).(*kmsg.ApiVersionsResponse)
		in.ErrorCode, in.ApiKeys = 0, randomRows(f)
		if version < 3 {
			for j := range in.ApiKeys {
				in.ApiKeys[j].UnknownTags = kmsg.Tags{}
			}
		}
		rules := &Rules{PendingUpload: PendingUpload(f.rnd.IntN(3))}
		if f.rnd.IntN(2) == 0 {
			rules.Addresses = fleet{host: "proxy"}
		}
		frame := frameOf(in, codec.Classic)
		came := bytes.Clone(frame)
		v := NewConversation(rules)
		got, unmapped, err := v.Response(codec.KeyApiVersions, version, frame)
		if err != nil || unmapped != nil {
			t.Fatalf("v%d: %v, %v\nframe: %x", version, unmapped, err, came)
		}
		in.ApiKeys = expectedRows(in.ApiKeys, rules, v.Support())
		if want := frameOf(in, codec.Classic); !bytes.Equal(got, want) {
			t.Fatalf("v%d, %+v, support %s\ncame %x\ngot  %x\nwant %x", version, rules, v.Support(), came, got, want)
		}
		if rules.Addresses == nil {
			if &got[0] != &frame[0] {
				t.Fatal("in direct mode the frame is not changed in place")
			}
			seen[fmt.Sprintf("%d bytes differ", differing(came, got))]++
		}
		seen[v.Support().String()]++
		if len(got) < len(came) {
			seen["rows cut"]++
		}
	}
	delete(seen, "unknown")
	// The upper byte of the greatest version is 0 in both.
	for _, kind := range []string{"0 bytes differ", "1 bytes differ", "synthesised", "native", "none", "rows cut"} {
		if seen[kind] < 20 {
			t.Errorf("%d times %s: the test lacks that", seen[kind], kind)
		}
		delete(seen, kind)
	}
	if len(seen) != 0 {
		t.Errorf("also seen: %v", seen)
	}
}

func differing(a, b []byte) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// An error answer is not touched and teaches nothing: a client that asks with a newer
// version gets error 35 in the form of version 0 (KIP-511), with rows or without.
func TestApiVersionsErrors(t *testing.T) {
	rows := []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 4}, {ApiKey: 2, MinVersion: 1, MaxVersion: 10}, {ApiKey: 3, MaxVersion: 77}, {ApiKey: 58}}
	for _, rows := range [][]kmsg.ApiVersionsResponseApiKey{nil, rows[:1], rows} {
		for version := int16(0); version <= 7; version++ {
			for _, code := range []int16{35, 129, -1} {
				form := int16(0)
				if code != 35 {
					form = min(version, 5)
				}
				in := kmsg.NewPtrApiVersionsResponse()
				in.Version, in.ErrorCode, in.ApiKeys = form, code, rows
				frame := frameOf(in, codec.Classic)
				came := bytes.Clone(frame)
				v := NewConversation(&Rules{PendingUpload: PendingUploadAlways, Addresses: fleet{host: "proxy"}})
				got, _, err := v.Response(codec.KeyApiVersions, version, frame)
				if err != nil || !bytes.Equal(got, came) || &got[0] != &frame[0] || v.Support() != SupportUnknown {
					t.Errorf("v%d, error %d, %d rows: support %s, %v\ngot  %x\nwant %x", version, code, len(rows), v.Support(), err, got, came)
				}
			}
		}
	}
}

// An answer that ends within its rows is an error and changes nothing; what follows the
// rows is not read.
func TestApiVersionsCutAtEachByte(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		in := newFiller(2).response(t, codec.KeyApiVersions, version).(*kmsg.ApiVersionsResponse)
		in.ErrorCode = 0
		in.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 2, MaxVersion: 10}, {ApiKey: 23, MaxVersion: 4}, {ApiKey: 58}}
		frame := frameOf(in, codec.Classic)
		in.ApiKeys = in.ApiKeys[:0]
		behind := len(frameOf(in, codec.Classic)) - codec.ResponseFixedLen - 2 - len(codec.AppendArrayLen(nil, codec.EncodingOf(version, 3), 0))
		rows := len(frame) - behind
		for n := codec.ResponseFixedLen; n <= len(frame); n++ {
			cut := bytes.Clone(frame[:n])
			codec.PutSize(cut)
			came := bytes.Clone(cut)
			v := NewConversation(&Rules{Addresses: fleet{host: "proxy"}})
			got, _, err := v.Response(codec.KeyApiVersions, version, cut)
			switch {
			case n < rows && (err == nil || !bytes.Equal(cut, came) || v.Support() != SupportUnknown):
				t.Fatalf("v%d: the first %d bytes of %x: %x, %v, support %s", version, n, frame, got, err, v.Support())
			case n >= rows && (err != nil || !bytes.Equal(got[len(got)-(n-rows):], came[rows:]) || v.Support() != SupportSynthesised):
				t.Fatalf("v%d: the first %d bytes of %x: %x, %v, support %s", version, n, frame, got, err, v.Support())
			}
		}
	}
}

// FuzzApiVersions: what kmsg reads, the walk reads; the rows are as expected, and all else
// is as it came.
func FuzzApiVersions(f *testing.F) {
	for version := int16(0); version <= 5; version++ {
		random := newFiller(uint64(version))
		in := random.response(f, codec.KeyApiVersions, version).(*kmsg.ApiVersionsResponse)
		in.ErrorCode, in.ApiKeys = 0, randomRows(random)
		f.Add(in.AppendTo(nil), version, true)
		f.Add(in.AppendTo(nil), version, false)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16, direct bool) {
		if version < 0 || version > 5 {
			return
		}
		rules := &Rules{Addresses: fleet{host: "proxy"}}
		if direct {
			rules.Addresses = nil
		}
		frame := append([]byte{0, 0, 0, 0, 0, 0, 0, 7}, body...)
		codec.PutSize(frame)
		v := NewConversation(rules)
		got, _, err := v.Response(codec.KeyApiVersions, version, bytes.Clone(frame))
		want, _ := read(codec.KeyApiVersions, version, body).(*kmsg.ApiVersionsResponse)
		switch {
		case want == nil:
			return
		case err != nil:
			if want.ErrorCode == 0 && !looseInKmsg(err) {
				t.Fatalf("%v; kmsg reads %+v\nframe: %x", err, want, frame)
			}
			return
		case want.ErrorCode != 0:
			if !bytes.Equal(got, frame) {
				t.Fatalf("an error answer changed from %x to %x", frame, got)
			}
			return
		}
		for i, r := range want.ApiKeys {
			if r.MinVersion > r.MaxVersion || r.MinVersion < 0 {
				return // no row that a broker sends
			}
			if slices.ContainsFunc(want.ApiKeys[:i], func(o kmsg.ApiVersionsResponseApiKey) bool { return o.ApiKey == r.ApiKey }) {
				return
			}
		}
		want.ApiKeys = expectedRows(want.ApiKeys, rules, v.Support())
		out, _ := read(codec.KeyApiVersions, version, got[codec.ResponseFixedLen:]).(*kmsg.ApiVersionsResponse)
		if out == nil || !bytes.Equal(out.AppendTo(nil), want.AppendTo(nil)) {
			t.Fatalf("frame: %x\ngot:   %x, that is\n%+v\nwant\n%+v", frame, got, out, want)
		}
	})
}
