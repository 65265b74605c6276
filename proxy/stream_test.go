// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
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

// cutStreamed makes a response of a streamed API that has everything: 70 KB of records, so
// that it is not there whole with the first read, and structure in front of and behind it.
func cutStreamed(key, version int16) []byte {
	switch key {
	case 1:
		r := largeFetch("broker-1.internal", 9092)
		r.Version, r.Topics = version, r.Topics[:1]
		r.Topics[0].Partitions = r.Topics[0].Partitions[:4]
		for i := range r.Topics[0].Partitions {
			p := &r.Topics[0].Partitions[i]
			p.AbortedTransactions = append(p.AbortedTransactions, kmsg.NewFetchResponseTopicPartitionAbortedTransaction())
		}
		last := kmsg.NewFetchResponseTopicPartition()
		last.AbortedTransactions = append(last.AbortedTransactions, kmsg.NewFetchResponseTopicPartitionAbortedTransaction())
		last.RecordBatches = []byte("records")
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, last)
		return answerFrame(1, r)
	case 78:
		r := kmsg.NewPtrShareFetchResponse()
		r.Version = version
		topic := kmsg.NewShareFetchResponseTopic()
		for _, size := range []int{0, 100, 70_000, 5} {
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.Records = make([]byte, size)
			p.AcquiredRecords = append(p.AcquiredRecords, kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord())
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
		r.NodeEndpoints = append(r.NodeEndpoints, kmsg.ShareFetchResponseNodeEndpoint{NodeID: 1, Host: "broker-1.internal", Port: 9092})
		return answerFrame(1, r)
	}
	panic(key)
}

// A response that ends within its structure, its size field consistent, ends its session
// with a sentence, wherever that is: none hangs, and none is taken for complete.
func TestCutStreamedResponses(t *testing.T) {
	for _, api := range [][2]int16{{1, 16}, {1, 17}, {1, 18}, {78, 0}, {78, 1}, {78, 2}} {
		frame := cutStreamed(api[0], api[1])
		cut := make(chan int, 1)
		b := newBroker(t, func(c *net.TCPConn) {
			if _, err := readFrame(c); err != nil {
				return
			}
			short := bytes.Clone(frame[:<-cut])
			codec.PutSize(short)
			_, _ = c.Write(short)
			silence(c)
		})
		j := &journal{}
		s := newServer(t, b.dial, rewrite.Rules{Addresses: proxied}, loggingTo(j))
		n := 0
		for at := codec.ResponseFixedLen; at < len(frame); at++ {
			if at > 400 && at < len(frame)-300 {
				continue // within the records
			}
			n++
			cut <- at
			c := connect(t, s)
			mustWrite(t, c, request(api[0], api[1], 1))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("key %d v%d, the first %d of %d bytes: the session does not end", api[0], api[1], at, len(frame))
			}
			c.Close()
		}
		await(t, "all sessions ended as malformed", func() bool { return testutil.ToFloat64(s.metrics.ended.WithLabelValues("malformed")) == float64(n) })
		if lines := j.with("WARN session closed: a frame cannot be understood", "from the broker: "); len(lines) == 0 {
			t.Error("no line says why")
		}
	}
}
