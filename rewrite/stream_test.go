// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// testNodes advertises every node at one host, and grows by what it is told.
type testNodes struct {
	host   string
	growth int
}

func (n testNodes) Advertised(nodeID int32) (string, int32, bool) { return n.host, 9200 + nodeID, true }
func (n testNodes) Growth() int                                   { return n.growth }

// frameOf encodes a response with correlation id 7; flexible says how its header ends.
func frameOf(r kmsg.Response, enc codec.Encoding) []byte {
	b := codec.AppendNoTags([]byte{0, 0, 0, 0, 0, 0, 0, 7}, enc)
	b = r.AppendTo(b)
	codec.PutSize(b)
	return b
}

// randomFetch makes a Fetch response with every optional field now and then.
func randomFetch(rnd *rand.Rand, version int16, nodes int) *kmsg.FetchResponse {
	r := kmsg.NewPtrFetchResponse()
	r.Version = version
	r.SessionID = rnd.Int32()
	for range rnd.IntN(4) {
		t := kmsg.NewFetchResponseTopic()
		_, _ = rand.NewChaCha8([32]byte{byte(rnd.Int())}).Read(t.TopicID[:])
		for range rnd.IntN(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark = rnd.Int32(), rnd.Int64()
			p.RecordBatches = make([]byte, rnd.IntN(400))
			if rnd.IntN(2) == 0 {
				p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 2, 9
				p.RecordBatches = nil
			}
			for range rnd.IntN(3) {
				p.AbortedTransactions = append(p.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: rnd.Int64()})
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	for i := range nodes {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i), "broker.internal.example", 9092
		b.Rack = kmsg.StringPtr("rack-1")
		r.Brokers = append(r.Brokers, b)
	}
	if rnd.IntN(2) == 0 {
		r.UnknownTags.Set(41, []byte("kept"))
	}
	return r
}

// randomShareFetch is the same for ShareFetch.
func randomShareFetch(rnd *rand.Rand, version int16, nodes int) *kmsg.ShareFetchResponse {
	r := kmsg.NewPtrShareFetchResponse()
	r.Version = version
	for range rnd.IntN(4) {
		t := kmsg.NewShareFetchResponseTopic()
		for range rnd.IntN(4) {
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.Partition = rnd.Int32()
			p.Records = make([]byte, rnd.IntN(400))
			if rnd.IntN(2) == 0 {
				p.ErrorMessage = kmsg.StringPtr("not leader")
			}
			for range rnd.IntN(3) {
				p.AcquiredRecords = append(p.AcquiredRecords, kmsg.ShareFetchResponseTopicPartitionAcquiredRecord{FirstOffset: rnd.Int64()})
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	for i := range nodes {
		r.NodeEndpoints = append(r.NodeEndpoints, kmsg.ShareFetchResponseNodeEndpoint{NodeID: int32(i), Host: "b", Port: 9092})
	}
	return r
}

// stream passes a frame through a Stream in pieces of at most size bytes, as a session
// does, and returns what comes out.
func stream(t *testing.T, s *Stream, frame []byte, size int) []byte {
	t.Helper()
	var cuts []int
	for at := size; at < len(frame); at += size {
		cuts = append(cuts, at)
	}
	out, err := streamed(s, frame, cuts)
	if err != nil {
		t.Fatalf("%v\nframe: %x", err, frame)
	}
	return out
}

// streamed passes a frame through a Stream, cut at the given places, as a session does.
// It fails also when the Stream does not move on while the whole frame is there.
func streamed(s *Stream, frame []byte, cuts []int) (out []byte, err error) {
	frame = bytes.Clone(frame)
	binary.BigEndian.PutUint32(frame, uint32(codec.Size(frame))+uint32(s.Growth()))
	at, skip := 0, 0 // what has passed, and what passes next without being looked at
	for _, end := range append(slices.Clone(cuts), len(frame)) {
		for {
			n := min(skip, end-at)
			at, skip = at+n, skip-n
			if skip > 0 {
				break // more bytes are needed
			}
			n, more, tail, err := s.Next(frame[at:end], int64(len(frame)-at))
			if err != nil {
				return nil, err
			}
			at, skip = at+n, int(more)
			if at+skip >= len(frame) {
				return nil, nil // no byte follows, so a session would wait for ever
			}
			if tail {
				last, _, err := s.Tail(bytes.Clone(frame[at:]))
				return append(frame[:at:at], last...), err
			}
			if n == 0 && more == 0 {
				break
			}
		}
	}
	return nil, fmt.Errorf("the walk stands still at byte %d of %d", at, len(frame))
}

// tagLess takes the padding out of decoded tags and says whether there was any.
func tagLess(tags *kmsg.Tags) (found bool) {
	kept := kmsg.Tags{}
	tags.Each(func(n uint32, b []byte) {
		if uint64(n) < paddingTags[0] {
			kept.Set(n, b)
		} else {
			found = true
		}
	})
	*tags = kept
	return found
}

// A streamed response decodes to what came, but for hosts and ports, whatever the pieces
// it came in and however the addresses' lengths compare; the frame has the length that
// was announced.
func TestStreamFetch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		version := int16(16 + i%3)
		nodes := testNodes{host: "proxy.example.com"[:1+rnd.IntN(16)], growth: rnd.IntN(300)}
		in := randomFetch(rnd, version, rnd.IntN(4))
		frame := frameOf(in, codec.Flexible)
		v := NewConversation(&Rules{Addresses: nodes})
		got := stream(t, v.Stream(codec.KeyFetch, version), frame, 1+rnd.IntN(200))
		if len(got) != len(frame)+nodes.growth+sizeGrowth+minPadding || int(codec.Size(got)) != len(got)-codec.SizeLen {
			t.Fatalf("length %d, size field %d, came as %d with growth %d", len(got), codec.Size(got), len(frame), nodes.growth)
		}
		out := kmsg.NewPtrFetchResponse()
		out.Version = version
		if err := out.ReadFrom(got[9:]); err != nil {
			t.Fatalf("%v: %x", err, got)
		}
		if !tagLess(&out.UnknownTags) {
			t.Fatalf("no padding in %x", got)
		}
		for j := range in.Brokers {
			in.Brokers[j].Host, in.Brokers[j].Port = nodes.host, 9200+in.Brokers[j].NodeID
		}
		if !bytes.Equal(frameOf(in, codec.Flexible), frameOf(out, codec.Flexible)) {
			t.Fatalf("got %+v\nwant %+v", out, in)
		}
	}
}

// The same for ShareFetch, whose endpoints are an array of their own. Hosts of one
// letter grow, and where there is no room for them the endpoints are left out.
func TestStreamShareFetch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	dropped := 0
	for i := range 400 {
		version := int16(i % 3)
		nodes := testNodes{host: "proxy.example.com", growth: rnd.IntN(40)}
		in := randomShareFetch(rnd, version, rnd.IntN(4))
		frame := frameOf(in, codec.Flexible)
		v := NewConversation(&Rules{Addresses: nodes})
		got := stream(t, v.Stream(codec.KeyShareFetch, version), frame, 1+rnd.IntN(200))
		if len(got) != len(frame)+nodes.growth+sizeGrowth+minPadding {
			t.Fatalf("length %d, came as %d with growth %d", len(got), len(frame), nodes.growth)
		}
		out := kmsg.NewPtrShareFetchResponse()
		out.Version = version
		if err := out.ReadFrom(got[9:]); err != nil {
			t.Fatalf("%v: %x", err, got)
		}
		tagLess(&out.UnknownTags)
		if len(in.NodeEndpoints)*(len(nodes.host)-1) > nodes.growth+sizeGrowth {
			dropped++
			in.NodeEndpoints = nil
		}
		for j := range in.NodeEndpoints {
			in.NodeEndpoints[j].Host, in.NodeEndpoints[j].Port = nodes.host, 9200+in.NodeEndpoints[j].NodeID
		}
		if !bytes.Equal(frameOf(in, codec.Flexible), frameOf(out, codec.Flexible)) {
			t.Fatalf("got %+v\nwant %+v", out, in)
		}
	}
	if dropped == 0 {
		t.Fatal("no response had to drop its endpoints: the test does not test that")
	}
}

// A response that is there whole gets no padding, and none without endpoints is changed.
func TestWholeFetch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	nodes := testNodes{host: "p", growth: 100}
	for i := range 100 {
		in := randomFetch(rnd, 17, i%3)
		frame := frameOf(in, codec.Flexible)
		v := NewConversation(&Rules{Addresses: nodes})
		got, _, err := v.Response(codec.KeyFetch, 17, bytes.Clone(frame))
		if err != nil {
			t.Fatal(err)
		}
		for j := range in.Brokers {
			in.Brokers[j].Host, in.Brokers[j].Port = nodes.host, 9200+in.Brokers[j].NodeID
		}
		if want := frameOf(in, codec.Flexible); !bytes.Equal(got, want) {
			t.Fatalf("got %x\nwant %x", got, want)
		}
	}
}

// pad fills to every length from the least on, exactly.
func TestPadEveryLength(t *testing.T) {
	section := []byte{1, 5, 2, 'a', 'b'}
	for want := len(section) + minPadding; want < 40_000; want++ {
		out, err := pad(section, 0, want)
		if err != nil {
			t.Fatal(err)
		}
		c := codec.NewCursor(out, codec.Flexible)
		var numbers []uint32
		c.EachTag(func(tag codec.Tag) { numbers = append(numbers, tag.Number) })
		if len(out) != want || c.Err() != nil || c.Left() != 0 || len(numbers) != 2 || !reflect.DeepEqual(out[1:5], section[1:5]) {
			t.Fatalf("want %d: got %d bytes, tags %v, left %d, %v", want, len(out), numbers, c.Left(), c.Err())
		}
	}
}
