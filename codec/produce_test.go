// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceFrame is a Produce request as franz-go writes it, and where its acks end.
func produceFrame(version int16, client, transactional *string, acks int16) (frame []byte, end int) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = version, transactional, acks, 30_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "orders"
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = []byte("records")
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	formatter := kmsg.NewRequestFormatter()
	if client != nil {
		formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*client))
	}
	frame = formatter.AppendRequest(nil, req, 9)
	rest := len(req.AppendTo(nil)) // from acks on, when the transactional id is taken off
	switch {
	case version < 3: // has none
	case version < 9:
		rest -= len(AppendNullableString(nil, Classic, bytesOf(transactional)))
	default:
		rest -= len(AppendNullableString(nil, Flexible, bytesOf(transactional)))
	}
	return frame, len(frame) - rest + 2
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// Versions 0 to 13 with ids that are null, empty, and as long as they may be, cut at each
// byte: more bytes are asked for until acks are there, and never after.
func TestProduceAcks(t *testing.T) {
	long := strings.Repeat("x", 32767)
	ids := []*string{nil, kmsg.StringPtr(""), kmsg.StringPtr("id-1"), kmsg.StringPtr(long[:200]), &long}
	for version := int16(0); version <= 13; version++ {
		for i, client := range ids {
			for j, transactional := range ids {
				acks := int16((i+j)%3 - 1)
				frame, end := produceFrame(version, client, transactional, acks)
				step := 1
				if len(frame) > 1000 {
					step = 997
				}
				for n := RequestFixedLen; n < end; n += step {
					if got, err := ProduceAcks(frame[:n]); !errors.Is(err, ErrShort) {
						t.Fatalf("v%d, ids %d and %d: acks %d (%v) in %d bytes, they end at %d", version, i, j, got, err, n, end)
					}
				}
				for n := max(end-3, RequestFixedLen); n <= len(frame); n++ {
					got, err := ProduceAcks(frame[:n])
					if n < end && !errors.Is(err, ErrShort) || n >= end && (got != acks || err != nil) {
						t.Fatalf("v%d, ids %d and %d: acks %d (%v) in %d bytes; they are %d and end at %d", version, i, j, got, err, n, acks, end)
					}
				}
				if end > MaxRequestHead {
					t.Fatalf("v%d: acks end at %d, beyond MaxRequestHead", version, end)
				}
			}
		}
	}
}

// A frame that is whole, or a head as long as any is, is never too short: it is wrong.
func TestProduceAcksFaults(t *testing.T) {
	frame := func(version int16, rest string) []byte {
		b := append(unhex(t, fmt.Sprintf("00000000 0000 %04x 00000001", version)), unhex(t, rest)...)
		PutSize(b)
		return b
	}
	// The tags of the header alone take more than MaxRequestHead.
	tags := frame(9, "ffff 01 05 808008")
	tags = append(tags, make([]byte, 0x20000)...)
	PutSize(tags)
	for _, c := range []struct {
		name string
		head []byte
		want string
	}{
		{"acks cut", frame(2, "ffff ff"), "at byte 0: 2 bytes wanted, 1 left"},
		{"no acks", frame(3, "ffff ffff"), "at byte 2: 2 bytes wanted, 0 left"},
		{"no transactional id", frame(9, "ffff 00"), "at byte 0: varint cut short"},
		{"client id beyond the frame", append(frame(3, "0009 61"), "the next frame, whatever it holds"...), "at byte 14: 9 bytes wanted, 1 left"},
		{"client id of a length below null", frame(3, "fffe ffff 0001"), "at byte 14: impossible length -2"},
		{"transactional id of an impossible length", frame(9, "ffff 00 ffffffff0f 0001"), "at byte 5: impossible length 4294967294"},
		{"tags as long as the head may be", tags[:MaxRequestHead], "at byte 19: 131072 bytes wanted, 66560 left"},
	} {
		if _, err := ProduceAcks(c.head); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := ProduceAcks(tags[:MaxRequestHead-1]); !errors.Is(err, ErrShort) {
		t.Errorf("one byte less than the greatest head: %v", err)
	}
	// The next frame in the buffer is none of this one's.
	if acks, err := ProduceAcks(append(frame(2, "ffff 0001"), 0xff, 0xff)); acks != 1 || err != nil {
		t.Errorf("acks %d, %v", acks, err)
	}
}

func TestProduceAcksAllocatesNothing(t *testing.T) {
	frame, _ := produceFrame(9, kmsg.StringPtr("client"), kmsg.StringPtr("transaction"), 1)
	if n := testing.AllocsPerRun(100, func() { _, _ = ProduceAcks(frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzProduceAcks: what kmsg reads from a whole request, and no panic for any other head.
func FuzzProduceAcks(f *testing.F) {
	for _, version := range []int16{0, 3, 8, 9, 13} {
		frame, end := produceFrame(version, kmsg.StringPtr("client"), kmsg.StringPtr("t"), -1)
		f.Add(frame, uint16(end))
	}
	f.Fuzz(func(t *testing.T, frame []byte, cut uint16) {
		if len(frame) < RequestFixedLen {
			return
		}
		PutSize(frame)
		acks, err := ProduceAcks(frame)
		if errors.Is(err, ErrShort) {
			t.Fatalf("a whole frame is short: %x", frame)
		}
		if head := frame[:min(len(frame), RequestFixedLen+int(cut))]; len(head) < len(frame) {
			switch got, cutErr := ProduceAcks(head); {
			case cutErr == nil && (got != acks || err != nil):
				t.Fatalf("acks %d in %x, %d (%v) in %x", got, head, acks, err, frame)
			case cutErr != nil && !errors.Is(cutErr, ErrShort) && err == nil:
				t.Fatalf("%v in %x, acks %d in %x", cutErr, head, acks, frame)
			}
		}
		version := RequestVersion(frame)
		if version < 0 || version > 13 || err != nil {
			return
		}
		_, off, _ := RequestBody(frame, EncodingOf(version, produceFlexible))
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		if req.ReadFrom(frame[off:]) == nil && req.Acks != acks {
			t.Fatalf("acks %d, kmsg reads %d: %x", acks, req.Acks, frame)
		}
	})
}
