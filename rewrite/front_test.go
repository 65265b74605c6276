// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// eachFronted runs a test for every version whose response is treated as Front.
func eachFronted(t *testing.T, run func(t *testing.T, key, version int16)) {
	t.Helper()
	eachRewritten(t, func(t *testing.T, key, version int16) {
		if bearerOf(key).edits != nil {
			run(t, key, version)
		}
	})
}

// Whatever is there of a frame, Front asks for more, or what it returns and the rest of the
// frame together are what Response returns. Once a front is long enough, a longer one is
// too; and nodes are observed once it is, not before.
func TestFrontCutAtEachByte(t *testing.T) {
	eachFronted(t, func(t *testing.T, key, version int16) {
		f := newFiller(uint64(key)<<16 | uint64(version) + 3)
		for i := range 30 {
			frame := f.frame(f.response(t, key, version))
			if len(frame) > 3000 {
				continue
			}
			mode := Unmapped(i % 3)
			plain := NewConversation(&Rules{Addresses: fleet{host: "proxy.example.com"}, Unmapped: mode})
			want, wantUnmapped, err := plain.Response(key, version, bytes.Clone(frame))
			if err != nil {
				t.Fatal(err)
			}
			long := len(frame)
			for n := len(frame); n >= codec.ResponseFixedLen; n-- {
				var observed []string
				nodes := fleet{host: "proxy.example.com", observed: &observed}
				v := NewConversation(&Rules{Addresses: nodes, Unmapped: mode, Nodes: nodes})
				out, unmapped, err := v.Front(key, version, bytes.Clone(frame[:n]), int64(len(frame)-n))
				switch {
				case errors.Is(err, codec.ErrShort) && n < len(frame) && len(observed) == 0:
				case err != nil:
					t.Fatalf("the first %d bytes of %x: %v, observed %q", n, frame, err, observed)
				case n < long-1:
					t.Fatalf("%d bytes are enough, %d are not: %x", n, n+1, frame)
				default:
					long = n
					if got := append(bytes.Clone(out), frame[n:]...); !bytes.Equal(got, want) || fmt.Sprint(unmapped) != fmt.Sprint(wantUnmapped) {
						t.Fatalf("the first %d bytes of %x\ngive %x, unmapped %v\nwant %x, unmapped %v", n, frame, got, unmapped, want, wantUnmapped)
					}
				}
			}
		}
	})
}

// The front of a Metadata response ends with its brokers, or with the controller's id where
// nodes are hidden, however large the topics are.
func TestFrontOfMetadataEndsBeforeTopics(t *testing.T) {
	for version := int16(0); version <= bearerOf(codec.KeyMetadata).known; version++ {
		r := kmsg.NewPtrMetadataResponse()
		r.Version, r.ControllerID = version, 2
		r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: 2, Host: "b", Port: 9092})
		r.Topics = append(r.Topics, kmsg.NewMetadataResponseTopic())
		frame := frameOf(r, codec.EncodingOf(version, 9))
		for _, mode := range []Unmapped{UnmappedReject, UnmappedHide} {
			v := NewConversation(&Rules{Addresses: fleet{host: "proxy"}, Unmapped: mode})
			n := codec.ResponseFixedLen
			for ; n < len(frame); n++ {
				if _, _, err := v.Front(codec.KeyMetadata, version, frame[:n], math.MaxInt32-100); err == nil {
					break
				}
			}
			want := len(frame) - topicsLen(version)
			if mode == UnmappedReject {
				want -= afterBrokersLen(version)
			}
			if n != want {
				t.Errorf("v%d, mode %s: the front ends at byte %d, want %d: %x", version, mode, n, want, frame)
			}
		}
	}
}

// topicsLen is the length of the one empty topic of the test above and of what follows it.
func topicsLen(version int16) int {
	n := 4 + 2 + 4 // number of topics, error, number of partitions
	switch {
	case version == 0:
		return n + 2 // name
	case version < 8:
		return n + 2 + 1 // is internal
	case version < 9:
		return n + 2 + 1 + 4 + 4 // authorized operations of topic and cluster
	}
	n = 1 + 2 + 1 + 1 + 1 + 4 + 1 // compact: count, error, name, is internal, partitions, operations, tags
	if version >= 10 {
		n += 16 // topic id
	}
	switch {
	case version < 11:
		n += 4 // authorized operations of the cluster
	case version >= 13:
		n += 2 // error
	}
	return n + 1
}

// afterBrokersLen is the length of cluster id and controller id.
func afterBrokersLen(version int16) int {
	switch {
	case version == 0:
		return 0
	case version == 1:
		return 4
	case version < 9:
		return 2 + 4
	}
	return 1 + 4
}

// What no frame of its size can hold is an error as soon as it is there, and not once the
// whole frame came.
func TestFrontRefusesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name         string
		key, version int16
		front        string
		more         int64
		want         string
	}{
		{"brokers", 3, 12, "00 00000000 ffffffff07", 1000, "Metadata v12 response: at byte 18: array of 2147483646 elements in 1000 bytes"},
		{"a host", 3, 12, "00 00000000 02 00000001 ff7f 62", 1000, "Metadata v12 response: at byte 20: 16382 bytes wanted, 1001 left"},
		{"tags", 3, 12, "00 00000000 02 00000001 02 62 00002384 00 ff7f", 1000, "Metadata v12 response: at byte 27: 16383 tags in 1000 bytes"},
	} {
		v := NewConversation(&Rules{Addresses: fleet{host: "proxy"}})
		front := append([]byte{0, 0, 0, 0, 0, 0, 0, 7}, unhex(t, c.front)...)
		if _, _, err := v.Front(c.key, c.version, front, c.more); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// A frame that is nearly as large as frames can be has no room for longer addresses.
func TestFrontWithoutRoom(t *testing.T) {
	front := append([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 7}, unhex(t, "00 00000000 02 00000001 02 62 00002384 00 00")...)
	for _, host := range []string{"p", "proxy"} {
		v := NewConversation(&Rules{Addresses: fleet{host: host}})
		out, _, err := v.Front(codec.KeyMetadata, 12, front, math.MaxInt32+codec.SizeLen-int64(len(front)))
		switch {
		case host == "p" && (err != nil || codec.Size(out) != math.MaxInt32):
			t.Errorf("with a host as long as before: %v, %x", err, out)
		case host == "proxy" && !errors.Is(err, codec.ErrFrameTooLarge):
			t.Errorf("with a longer host: %v, want %v", err, codec.ErrFrameTooLarge)
		}
	}
}

// BenchmarkFront rewrites the first bytes that a session reads of a Metadata response of a
// million partitions, 48 MB, and of one of 20,000 brokers, of which the front is nearly all.
func BenchmarkFront(b *testing.B) {
	large := metadataOf(6, 1_000_000)
	for _, c := range []struct {
		name  string
		front []byte
		more  int
	}{
		{"a million partitions", large[:64<<10], len(large) - 64<<10},
		{"20000 brokers", metadataOf(20_000, 1), 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			v := NewConversation(&Rules{Addresses: PortRange{Host: "tiergate.example.com", FirstPort: 9200, Count: 30_000}})
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Front(codec.KeyMetadata, 13, c.front, int64(c.more)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// metadataOf is a Metadata response v13.
func metadataOf(brokers int32, partitions int) []byte {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = 13
	for i := range brokers {
		r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: i, Host: strings.Repeat("b", 20), Port: 9092, Rack: kmsg.StringPtr("rack")})
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic = kmsg.StringPtr("orders")
	for i := range partitions {
		topic.Partitions = append(topic.Partitions, kmsg.MetadataResponseTopicPartition{
			Partition: int32(i), Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3},
		})
	}
	r.Topics = append(r.Topics, topic)
	return frameOf(r, codec.Flexible)
}
