// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// eachStreamed runs a test for every version that is streamed.
func eachStreamed(t *testing.T, run func(t *testing.T, key, version int16)) {
	t.Helper()
	eachRewritten(t, func(t *testing.T, key, version int16) {
		if bearerOf(key).stream != nil {
			run(t, key, version)
		}
	})
}

// unpadded decodes a streamed response, takes the padding out, and encodes it again.
func unpadded(t *testing.T, key, version int16, frame []byte) []byte {
	t.Helper()
	off, err := codec.ResponseBody(frame, codec.Flexible)
	if err != nil {
		t.Fatal(err)
	}
	r := decoded(t, key, version, frame[off:])
	var padded bool
	switch r := r.(type) {
	case *kmsg.FetchResponse:
		padded = tagLess(&r.UnknownTags)
	case *kmsg.ShareFetchResponse:
		padded = tagLess(&r.UnknownTags)
	}
	if !padded {
		t.Fatalf("no padding in %x", frame)
	}
	out := r.AppendTo(bytes.Clone(frame[:off]))
	codec.PutSize(out)
	return out
}

// Random responses of every version, in random pieces, decode to what they were but for
// the addresses, and have the length that was announced.
func TestStreamEveryVersion(t *testing.T) {
	eachStreamed(t, func(t *testing.T, key, version int16) {
		f := newFiller(uint64(key)<<16 | uint64(version))
		for range 80 {
			in := f.response(t, key, version)
			frame := f.frame(in)
			nodes := fleet{host: "tiergate.example.com", growth: 140 * 40}
			v := NewConversation(&Rules{Addresses: nodes})
			s := v.Stream(key, version)
			growth := s.Growth()
			var cuts []int
			for at := f.rnd.IntN(60); at < len(frame); at += 1 + f.rnd.IntN(200) {
				cuts = append(cuts, at)
			}
			got, err := streamed(s, frame, cuts)
			if err != nil {
				t.Fatalf("%v\nframe: %x", err, frame)
			}
			header := len(frame) - len(in.AppendTo(nil))
			nodes.advertise(in)
			want := in.AppendTo(bytes.Clone(frame[:header]))
			codec.PutSize(want)
			if len(got) != len(frame)+growth || int(codec.Size(got)) != len(got)-codec.SizeLen || !bytes.Equal(unpadded(t, key, version, got), want) {
				t.Fatalf("came %x with growth %d\ngot  %x\nwant %x", frame, growth, got, want)
			}
		}
	})
}

// fixedFrame is a response with something of everything.
func fixedFrame(t testing.TB, key, version int16) []byte {
	t.Helper()
	f := newFiller(11)
	for {
		frame := f.frame(f.response(t, key, version))
		records := 0
		switch r := read(key, version, frame[bodyOf(t, frame):]).(type) {
		case *kmsg.FetchResponse:
			for _, topic := range r.Topics {
				for _, p := range topic.Partitions {
					records += min(1, len(p.RecordBatches)) * min(1, len(p.AbortedTransactions)) * len(r.Brokers)
				}
			}
		case *kmsg.ShareFetchResponse:
			for _, topic := range r.Topics {
				for _, p := range topic.Partitions {
					records += min(1, len(p.Records)) * min(1, len(p.AcquiredRecords)) * len(r.NodeEndpoints)
				}
			}
		}
		if records > 2 && len(frame) < 2500 {
			return frame
		}
	}
}

func bodyOf(t testing.TB, frame []byte) int {
	t.Helper()
	off, err := codec.ResponseBody(frame, codec.Flexible)
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// The same comes out wherever a frame is cut in two, and when it comes byte by byte.
func TestStreamCutAtEachByte(t *testing.T) {
	eachStreamed(t, func(t *testing.T, key, version int16) {
		frame := fixedFrame(t, key, version)
		v := NewConversation(&Rules{Addresses: fleet{host: "tiergate.example.com", growth: 900}})
		want, err := streamed(v.Stream(key, version), frame, nil)
		if err != nil {
			t.Fatal(err)
		}
		single := make([]int, len(frame))
		for n := range frame {
			single[n] = n
			got, err := streamed(v.Stream(key, version), frame, []int{n})
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("cut at %d: %v\ngot  %x\nwant %x", n, err, got, want)
			}
		}
		got, err := streamed(v.Stream(key, version), frame, single)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("byte by byte: %v\ngot  %x\nwant %x", err, got, want)
		}
	})
}

// A frame that ends too early is an error, wherever that is, and never a panic. Cut in the
// bytes of records it is one too: they are said to be longer than the frame.
func TestStreamOfCutFrames(t *testing.T) {
	eachStreamed(t, func(t *testing.T, key, version int16) {
		frame := fixedFrame(t, key, version)
		v := NewConversation(&Rules{Addresses: fleet{host: "tiergate.example.com", growth: 900}})
		for n := codec.ResponseFixedLen; n < len(frame); n++ {
			cut := bytes.Clone(frame[:n])
			codec.PutSize(cut)
			if got, err := streamed(v.Stream(key, version), cut, []int{n / 2}); err == nil {
				t.Fatalf("the first %d bytes of %x: %x", n, frame, got)
			}
		}
	})
}

// Next takes nothing in that it does not understand whole: it asks for more bytes, again
// and again, and is where it was.
func TestStreamWaits(t *testing.T) {
	frame := fixedFrame(t, codec.KeyFetch, 17)
	v := NewConversation(&Rules{Addresses: fleet{host: "p"}})
	s := v.Stream(codec.KeyFetch, 17)
	head := bodyOf(t, frame) + 4 + 2 + 4 + 1 // the number of topics takes one byte
	for n := range head {
		before := s.position
		if got, skip, tail, err := s.Next(frame[:n], int64(len(frame))); got != 0 || skip != 0 || tail || err != nil || s.position != before {
			t.Fatalf("%d bytes of a head of %d: %d, %d, %t, %v, %+v", n, head, got, skip, tail, err, s.position)
		}
	}
	if got, skip, tail, err := s.Next(frame[:head], int64(len(frame))); got != head || skip != 0 || tail || err != nil {
		t.Fatalf("the whole head of %d bytes: %d, %d, %t, %v", head, got, skip, tail, err)
	}
}

// A count that the frame cannot hold is an error as soon as the frame is there as far as it
// can be, and costs nothing: nothing is reserved for it.
func TestStreamLyingCounts(t *testing.T) {
	for _, c := range []struct {
		name         string
		key, version int16
		body         string
		want         string
	}{
		{"topics", 1, 16, "00000000 0000 00000001 ffffffff0f 00", "at step 0: at byte 24: impossible length 4294967294"},
		{"topics by one", 1, 18, "00000000 0000 00000001 03 00", "at step 0: at byte 20: array of 2 elements in 1 bytes"},
		{"topics by less", 1, 18, "00000000 0000 00000001 02 00", "at step 1: at byte 0: 16 bytes wanted, 1 left"},
		{"partitions", 1, 17, "00000000 0000 00000001 02" + strings.Repeat("ab", 16) + "ff7f 00", "at step 1: at byte 18: array of 16382 elements in 1 bytes"},
		{"aborted transactions", 1, 17, "00000000 0000 00000001 02" + strings.Repeat("ab", 16) + "02" + strings.Repeat("00", 30) + "ff7f 00", "at step 2: at byte 32: array of 16382 elements in 1 bytes"},
		{"records", 1, 17, "00000000 0000 00000001 02" + strings.Repeat("ab", 16) + "02" + strings.Repeat("00", 30) + "01 ffffffff ffffffff0f 00", "4294967294 bytes of records and a tag section, 1 left in the frame"},
		{"acquired records", 78, 1, "00000000 0000 00 00000000 02" + strings.Repeat("ab", 16) + "02 00000000 0000 00 0000 00 00000000 00000000 00 00 ffff7f 00", "at step 5: at byte 3: array of 2097150 elements in 1 bytes"},
	} {
		frame := append([]byte{0, 0, 0, 0, 0, 0, 0, 7, 0}, unhex(t, c.body)...)
		codec.PutSize(frame)
		for cut := range frame {
			v := NewConversation(&Rules{Addresses: fleet{host: "p"}})
			if got, err := streamed(v.Stream(c.key, c.version), frame, []int{cut}); err == nil || err.Error() != c.want {
				t.Fatalf("%s, cut at %d: %x, %v, want %s", c.name, cut, got, err, c.want)
			}
		}
	}
}

// 200 endpoints: with room for all, all are rewritten; with the room that a port range
// gives, which is bounded, they are left out, and no address of a broker gets through.
func TestStreamOf200Endpoints(t *testing.T) {
	eachStreamed(t, func(t *testing.T, key, version int16) {
		const count = 200
		in := kmsg.ResponseForKey(key)
		in.SetVersion(version)
		switch r := in.(type) {
		case *kmsg.FetchResponse:
			r.UnknownTags.Set(30, []byte("kept"))
			for i := range int32(count) {
				r.Brokers = append(r.Brokers, kmsg.FetchResponseBroker{NodeID: i, Host: "b", Port: 9092, Rack: kmsg.StringPtr("r")})
			}
		case *kmsg.ShareFetchResponse:
			r.UnknownTags.Set(30, []byte("kept"))
			for i := range int32(count) {
				r.NodeEndpoints = append(r.NodeEndpoints, kmsg.ShareFetchResponseNodeEndpoint{NodeID: i, Host: "b", Port: 9092})
			}
		}
		frame := frameOf(in, codec.Flexible)
		ports := PortRange{Host: "tiergate.example.com", FirstPort: 9200, Count: count}
		roomy := fleet{host: ports.Host, growth: count * len(ports.Host)}
		for _, c := range []struct {
			addresses Addresses
			kept      int
		}{{ports, 0}, {roomy, count}} {
			v := NewConversation(&Rules{Addresses: c.addresses})
			got, err := streamed(v.Stream(key, version), frame, []int{9, len(frame) / 2})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(frame)+c.addresses.Growth()+sizeGrowth+minPadding {
				t.Fatalf("%d bytes became %d", len(frame), len(got))
			}
			switch r := decoded(t, key, version, got[9:]).(type) {
			case *kmsg.FetchResponse:
				if len(r.Brokers) != c.kept {
					t.Fatalf("%d endpoints, want %d", len(r.Brokers), c.kept)
				}
			case *kmsg.ShareFetchResponse:
				if len(r.NodeEndpoints) != c.kept {
					t.Fatalf("%d endpoints, want %d", len(r.NodeEndpoints), c.kept)
				}
			}
			if strings.Contains(string(got), "\x02b\x00\x00\x23\x84") {
				t.Fatalf("a broker's own address is in %x", got)
			}
			if c.kept == 0 {
				continue
			}
			roomy.advertise(in)
			if want := frameOf(in, codec.Flexible); !bytes.Equal(unpadded(t, key, version, got), want) {
				t.Fatalf("got  %x\nwant %x", got, want)
			}
		}
	})
}

// Growth is room for every node of the range, each once, whatever the length of the host,
// until it is maxGrowth.
func TestPortRangeGrowth(t *testing.T) {
	for _, c := range []struct {
		r    PortRange
		want int
	}{
		{PortRange{Host: "h", Count: 1}, 1},
		{PortRange{Host: "tiergate.example.com", Count: 3}, 60},
		{PortRange{Host: "tiergate.example.com", Count: 51}, 1020},
		{PortRange{Host: "tiergate.example.com", Count: 52}, 1024},
		{PortRange{Host: strings.Repeat("h", 255), Count: 65535}, 1024},
		{PortRange{Host: strings.Repeat("h", 255), Count: math.MaxInt32}, 1024},
		{PortRange{Host: "h", Count: 0}, 0},
	} {
		if got := c.r.Growth(); got != c.want {
			t.Errorf("%d nodes at a host of %d letters: got %d, want %d", c.r.Count, len(c.r.Host), got, c.want)
		}
	}
	for _, length := range []int{1, 17, 100, 126, 127, 128, 129, 255} {
		for count := int32(1); int(count)*length < maxGrowth; count += 1 + count/8 {
			r := PortRange{Host: strings.Repeat("h", length), FirstPort: 9200, Count: count}
			in := kmsg.NewPtrFetchResponse()
			in.Version = 18
			for i := range count {
				in.Brokers = append(in.Brokers, kmsg.FetchResponseBroker{NodeID: i, Host: "b", Port: 9092})
			}
			frame := frameOf(in, codec.Flexible)
			v := NewConversation(&Rules{Addresses: r})
			got, err := streamed(v.Stream(codec.KeyFetch, 18), frame, nil)
			if err != nil {
				t.Fatal(err)
			}
			if out := decoded(t, codec.KeyFetch, 18, got[9:]).(*kmsg.FetchResponse); len(out.Brokers) != int(count) {
				t.Fatalf("%d nodes at a host of %d letters: %d of them fit", count, length, len(out.Brokers))
			}
		}
	}
}

// Padding goes behind the tags that are there, whatever their numbers, as long as there is
// a number above.
func TestPadBehindTags(t *testing.T) {
	for _, c := range []struct {
		last uint32
		ok   bool
	}{
		{0, true},
		{99, true},
		{100, true},
		{9_999, true},
		{10_000, true},
		{1_000_000, true},
		{199_999_999, true},
		{200_000_000, true},
		{1_999_999_999, true},
		{2_000_000_000, false},
		{math.MaxUint32, false},
	} {
		var tags kmsg.Tags
		tags.Set(c.last, []byte("x"))
		section := tags.AppendEach([]byte("front\x01"))
		for want := len(section) + minPadding; want < len(section)+400; want++ {
			out, err := pad(section, 5, want)
			if !c.ok {
				if text := fmt.Sprintf("no room for padding: %d bytes to be filled to %d", len(section), want); err == nil || err.Error() != text {
					t.Fatalf("behind tag %d: %x, %v, want %s", c.last, out, err, text)
				}
				continue
			}
			// Where one number is left, some lengths cannot be had; see paddingTags.
			if err != nil && c.last >= 200_000_000 {
				continue
			}
			cursor := codec.NewCursor(out, codec.Flexible)
			front := cursor.Skip(5)
			var numbers []uint32
			cursor.EachTag(func(tag codec.Tag) { numbers = append(numbers, tag.Number) })
			if err != nil || len(out) != want || string(front) != "front" || cursor.Err() != nil || cursor.Left() != 0 || len(numbers) != 2 || numbers[0] != c.last || numbers[1] <= c.last {
				t.Fatalf("behind tag %d to %d bytes: %v, %d bytes, tags %v: %x", c.last, want, err, len(out), numbers, out)
			}
		}
	}
	var many kmsg.Tags
	for i := range uint32(127) {
		many.Set(i, nil)
	}
	section := many.AppendEach([]byte{127})
	for want := len(section) + minPadding; want < len(section)+400; want++ {
		out, err := pad(section, 0, want)
		if err != nil || len(out) != want || !bytes.Equal(out[:2], []byte{0x80, 1}) || !bytes.Equal(out[2:len(section)+1], section[1:]) {
			t.Fatalf("behind 127 tags to %d bytes: %v, %x", want, err, out)
		}
	}
}

// Walking a frame allocates nothing.
func TestStreamNextAllocatesNothing(t *testing.T) {
	frame := bigFetch(4, 100)
	v := NewConversation(&Rules{Addresses: fleet{host: "p"}})
	s := v.Stream(codec.KeyFetch, 17)
	fresh := s.position
	if n := testing.AllocsPerRun(20, func() { s.position = fresh; walkAll(t, s, frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// walkAll goes through a frame to its tail, whose length it returns.
func walkAll(t testing.TB, s *Stream, frame []byte) int {
	off := 0
	for {
		n, skip, tail, err := s.Next(frame[off:], int64(len(frame)-off))
		if err != nil {
			t.Fatal(err)
		}
		off += n + int(skip)
		if tail {
			return len(frame) - off
		}
	}
}

// bigFetch is a Fetch response v17 of so many KiB of records a partition, and endpoints.
func bigFetch(kib, partitions int) []byte {
	r := kmsg.NewPtrFetchResponse()
	r.Version = 17
	topic := kmsg.NewFetchResponseTopic()
	for i := range partitions {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.RecordBatches = int32(i), make([]byte, kib<<10)
		if i%10 == 0 {
			p.ErrorCode, p.CurrentLeader.LeaderID, p.RecordBatches = 6, 2, nil
		}
		topic.Partitions = append(topic.Partitions, p)
	}
	r.Topics = append(r.Topics, topic)
	for i := range int32(3) {
		r.Brokers = append(r.Brokers, kmsg.FetchResponseBroker{NodeID: i, Host: "broker-1.kafka.internal", Port: 9092})
	}
	return frameOf(r, codec.Flexible)
}
