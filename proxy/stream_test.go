// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite"
)

// largeFetch is a Fetch answer of about 8 MiB: partitions with records, small and large,
// between partitions that have moved, and the endpoints of their new leaders.
func largeFetch(host string, port int32) *kmsg.FetchResponse {
	r := kmsg.NewPtrFetchResponse()
	r.Version = 17
	for i := range 8 {
		topic := kmsg.NewFetchResponseTopic()
		topic.TopicID[0] = byte(i)
		for j, size := range []int{0, 100, 0, 60_000, 1 << 20, 0} {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.RecordBatches = int32(j), bytes.Repeat([]byte{byte(i), byte(j)}, size/2)
			if size == 0 {
				p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 1, 4
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	b := kmsg.NewFetchResponseBroker()
	b.NodeID, b.Host, b.Port = 1, host, port
	r.Brokers = append(r.Brokers, b)
	return r
}

// A Fetch answer far too large to be held reaches the client with the endpoints at its
// end rewritten, and an opaque answer behind it untouched.
func TestLargeFetchEndpoints(t *testing.T) {
	answer := response(5, append([]byte{0}, largeFetch("broker-1.internal", 9092).AppendTo(nil)...)...)
	opaque := make([]byte, 300_000)
	_, _ = rand.Read(opaque)
	b := newBroker(t, func(c *net.TCPConn) {
		for _, out := range [][]byte{answer, response(6, opaque...)} {
			if _, err := readFrame(c); err != nil {
				t.Error(err)
			}
			_, _ = c.Write(out)
		}
	})
	addresses := rewrite.PortRange{Host: "proxy.example.com", FirstPort: 9200, Count: 3}
	s := newServer(t, b.dial, rewrite.Rules{Addresses: addresses})
	c := connect(t, s)
	if _, err := c.Write(append(request(1, 17, 5), request(4711, 0, 6)...)); err != nil {
		t.Fatal(err)
	}
	got, err := readFrame(c)
	if err != nil {
		t.Fatal(err)
	}
	decoded := kmsg.NewPtrFetchResponse()
	decoded.Version = 17
	if err = decoded.ReadFrom(got[codec.ResponseFixedLen+1:]); err != nil {
		t.Fatal(err)
	}
	if decoded.UnknownTags.Len() != 1 {
		t.Errorf("%d unknown tags, want the padding alone", decoded.UnknownTags.Len())
	}
	decoded.UnknownTags = kmsg.Tags{}
	want := largeFetch("proxy.example.com", 9201).AppendTo(nil)
	if out := decoded.AppendTo(nil); !bytes.Equal(out, want) {
		t.Fatalf("the answer differs at byte %d of %d", firstDifference(out, want), len(want))
	}
	after := make([]byte, codec.ResponseFixedLen+len(opaque))
	if _, err = io.ReadFull(c, after); err != nil || !bytes.Equal(after, response(6, opaque...)) {
		t.Fatalf("the answer behind it differs at byte %d (%v)", firstDifference(after, response(6, opaque...)), err)
	}
}
