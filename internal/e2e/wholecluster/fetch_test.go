// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/loadtest/kafka"
)

const (
	bulkTopic     = "bulk"
	bulkOwn       = 4                      // partitions 0 to 3 are led by node 1, 4 and 5 by the others
	fetchBytes    = 50 << 20               // of a whole answer
	ownBytes      = fetchBytes/bulkOwn + 1 // of a partition's part of it
	maxHeldBytes  = 32 << 20               // tiergate's limits.max_held_bytes, the default
	notLeaderCode = 6
)

// testFetch asks node 1, directly and through tiergate, for 50 MB of partitions that it
// leads and of some that it does not lead. Both answers must be equal but for the addresses
// of the leaders: they stand at the very end, long after the first bytes went out.
func testFetch(t *testing.T, ctx context.Context, w *whole) {
	id := w.createBulk(t, ctx)
	direct := dial(t, ctx, w.cluster.Node(1).ListenerAddress(clients))
	through := dial(t, ctx, w.nodeAddrs[1])
	for version := int16(16); version <= 18; version++ {
		// A whole fetch without a session, then a session: everything, and what is new.
		var session [2]int32
		for _, epoch := range []int32{-1, 0, 1} {
			what := fmt.Sprintf("Fetch v%d, session epoch %d", version, epoch)
			want, _ := fetch(t, ctx, direct, bulkRequest(version, id, session[0], epoch))
			got, size := fetch(t, ctx, through, bulkRequest(version, id, session[1], epoch))
			session = [2]int32{want.SessionID, got.SessionID}
			if epoch <= 0 && size < maxHeldBytes {
				t.Errorf("%s: %d bytes, which tiergate could have held", what, size)
			}
			w.compareFetch(t, what, got, want)
		}
	}
}

// createBulk creates the topic, with records in what node 1 leads.
func (w *whole) createBulk(t *testing.T, ctx context.Context) (id [16]byte) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = bulkTopic, -1, -1
	for p := range int32(bulkOwn + 2) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, []int32{max(1, p-bulkOwn+2)}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	minISR := kmsg.NewCreateTopicsRequestTopicConfig()
	minISR.Name, minISR.Value = "min.insync.replicas", kmsg.StringPtr("1")
	topic.Configs = append(topic.Configs, minISR)
	req.Topics = append(req.Topics, topic)
	cl, err := w.cluster.Client()
	must(t, err)
	defer cl.Close()
	resp, err := req.RequestWith(ctx, cl)
	must(t, err)
	must(t, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	value := make([]byte, 256<<10)
	for range (ownBytes + 2<<20) / len(value) {
		var batch []*kgo.Record
		for p := range int32(bulkOwn + 2) {
			batch = append(batch, &kgo.Record{Topic: bulkTopic, Partition: p, Value: value})
		}
		must(t, cl.ProduceSync(ctx, batch...).FirstErr())
	}
	return resp.Topics[0].TopicID
}

func bulkRequest(version int16, id [16]byte, session, epoch int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.ReplicaState.ID = version, -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 1, fetchBytes
	req.SessionID, req.SessionEpoch = session, epoch
	if epoch > 0 {
		return req // the same partitions from the same offsets
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = id
	for p := range int32(bulkOwn + 2) {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.PartitionMaxBytes, fp.ReplicaDirectoryID = p, ownBytes, [16]byte{}
		topic.Partitions = append(topic.Partitions, fp)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// fetch returns the answer to a Fetch, and how many bytes it took on the wire.
func fetch(t *testing.T, ctx context.Context, conn *kafka.Conn, req *kmsg.FetchRequest) (resp *kmsg.FetchResponse, size int) {
	t.Helper()
	_, err := conn.Send(ctx, req)
	must(t, err)
	frame, err := conn.Receive(ctx)
	must(t, err)
	decoded, err := kafka.DecodeResponse(req.Key(), req.Version, frame)
	must(t, err)
	return decoded.(*kmsg.FetchResponse), len(frame)
}

// compareFetch compares an answer through tiergate with the broker's own. got is changed.
func (w *whole) compareFetch(t *testing.T, what string, got, want *kmsg.FetchResponse) {
	t.Helper()
	bytes, elsewhere := 0, 0
	for _, topic := range want.Topics {
		for _, p := range topic.Partitions {
			bytes += len(p.RecordBatches)
			if p.ErrorCode == notLeaderCode {
				elsewhere++
			}
		}
	}
	t.Logf("%s: %d bytes of records, %d partitions led elsewhere, endpoints %v", what, bytes, elsewhere, got.Brokers)
	if want.ErrorCode != 0 || bytes < fetchBytes*9/10 || elsewhere != 2 || len(want.Brokers) != 2 {
		t.Fatalf("%s, directly: error code %d, %d bytes of records, %d partitions led elsewhere, endpoints %v; want 50 MB, 2 and 2",
			what, want.ErrorCode, bytes, elsewhere, want.Brokers)
	}
	for i, b := range got.Brokers {
		if addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))); addr != w.nodeAddrs[b.NodeID] {
			t.Errorf("%s: node %d is at %s, want %s", what, b.NodeID, addr, w.nodeAddrs[b.NodeID])
		}
		if i < len(want.Brokers) {
			got.Brokers[i].Host, got.Brokers[i].Port = want.Brokers[i].Host, want.Brokers[i].Port
		}
	}
	if want.UnknownTags.Len() != 0 || got.UnknownTags.Len() > 1 {
		t.Errorf("%s: %d and %d unknown tags; want none of the broker, and one of tiergate, its padding", what, want.UnknownTags.Len(), got.UnknownTags.Len())
	}
	got.UnknownTags, got.SessionID = want.UnknownTags, want.SessionID
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: answers differ:\nthrough tiergate %s\ndirectly         %s", what, brief(got), brief(want))
	}
}

// brief shows an answer without its records.
func brief(resp *kmsg.FetchResponse) string {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.RecordBatches = fmt.Appendf(nil, "%d bytes", len(p.RecordBatches))
		}
	}
	return fmt.Sprintf("%+v", resp)
}

// dial opens a raw connection for the length of a test.
func dial(t *testing.T, ctx context.Context, addr string) *kafka.Conn {
	t.Helper()
	c, err := kafka.Dial(ctx, addr, "wholecluster")
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
