// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// Error codes that the brokers of these tests answer with.
const (
	unknownTopicOrPartition  int16 = 3
	topicAuthorizationFailed int16 = 29
	invalidRequest           int16 = 42
)

// fataler is testing.TB or rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// broker answers from models of logs, decoding and encoding with kmsg, so that every
// exchange checks this package's bytes against a second implementation.
type broker struct {
	t fataler
	// maxVersion of ListOffsets: 9 or 10 for an old broker, 11 for a native one.
	maxVersion int16
	logs       map[string][]*tierlog.Log
	denied     map[string]bool
	// recreated topics have other ids.
	recreated bool
	// plan is what run's machine begins with.
	plan Plan
	// client, unless nil, is the client id that every request must carry.
	client []byte
	// throttle is put into every answer and then taken from the front.
	throttle []int32
	// requests counts what it answered, lagging the answers where nativeAnswer is not
	// what a native broker says.
	requests, lagging int
	// largest is the length of the largest frame, in or out.
	largest int
}

// answer returns the response frame to a request frame.
func (b *broker) answer(frame []byte) []byte {
	b.t.Helper()
	answer := b.respond(frame)
	b.largest = max(b.largest, len(frame), len(answer))
	return answer
}

func (b *broker) respond(frame []byte) []byte {
	b.requests++
	if clientID, _, err := codec.RequestBody(frame, codec.Flexible); b.client != nil && !slices.Equal(clientID, b.client) {
		b.t.Fatalf("client id %q, %v, want %q\nframe: %x", clientID, err, b.client, frame)
	}
	var throttle int32
	if len(b.throttle) > 0 {
		throttle, b.throttle = b.throttle[0], b.throttle[1:]
	}
	switch req := decodeRequest(b.t, frame).(type) {
	case *kmsg.ListOffsetsRequest:
		resp := b.listOffsets(req)
		resp.ThrottleMillis = throttle
		return encodeResponse(resp, codec.RequestCorrelationID(frame))
	case *kmsg.MetadataRequest:
		return encodeResponse(b.metadata(req), codec.RequestCorrelationID(frame))
	case *kmsg.OffsetForLeaderEpochRequest:
		resp := b.epochEnds(req)
		resp.ThrottleMillis = throttle
		return encodeResponse(resp, codec.RequestCorrelationID(frame))
	default:
		b.t.Fatalf("the broker was asked %T", req)
		return nil
	}
}

// listOffsets answers as KafkaApis and ReplicaManager.fetchOffset do: topics and
// partitions once, those named twice with INVALID_REQUEST; topics that the client may
// not describe at the end, as often as they were named.
func (b *broker) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	if req.Version > b.maxVersion {
		b.t.Fatalf("list_offsets v%d to a broker that knows up to %d", req.Version, b.maxVersion)
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	named := map[string]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			named[fmt.Sprint(t.Topic, "/", p.Partition)]++
		}
	}
	var denied []kmsg.ListOffsetsResponseTopic
	at := map[string]int{}
	for _, t := range req.Topics {
		if b.denied[t.Topic] {
			rt := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, answerOf(p.Partition, refused(topicAuthorizationFailed)))
			}
			denied = append(denied, rt)
			continue
		}
		for _, p := range t.Partitions {
			key := fmt.Sprint(t.Topic, "/", p.Partition)
			if named[key] < 0 {
				continue
			}
			a := refused(invalidRequest)
			if named[key] == 1 {
				a = b.offset(req, t.Topic, p)
			}
			named[key] = -1
			if _, ok := at[t.Topic]; !ok {
				at[t.Topic] = len(resp.Topics)
				resp.Topics = append(resp.Topics, kmsg.ListOffsetsResponseTopic{Topic: t.Topic})
			}
			rt := &resp.Topics[at[t.Topic]]
			rt.Partitions = append(rt.Partitions, answerOf(p.Partition, a))
		}
	}
	resp.Topics = append(resp.Topics, denied...)
	return resp
}

func (b *broker) offset(req *kmsg.ListOffsetsRequest, topic string, p kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
	logs := b.logs[topic]
	if req.Version == olderVersion && p.Timestamp <= codec.LatestTieredTimestamp {
		b.t.Fatalf("timestamp %d to a broker that takes it for a time", p.Timestamp)
	}
	if p.Timestamp < codec.EarliestPendingUploadTimestamp { // comes before the partition is looked for
		return refused(unsupportedVersion)
	}
	if p.Partition < 0 || int(p.Partition) >= len(logs) {
		return refused(unknownTopicOrPartition)
	}
	l := logs[p.Partition]
	if p.Timestamp == codec.EarliestPendingUploadTimestamp && req.Version >= 11 {
		a := nativeAnswer(l, req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
		if a != l.NativeEarliestPendingUpload(req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch) {
			b.lagging++
		}
		return a
	}
	return l.ListOffset(p.Timestamp, req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
}

// topicID is the id of a topic that exists.
func topicID(topic string) (id [16]byte) {
	copy(id[:], "id of "+topic)
	return id
}

// metadata answers with brokers and partitions that nobody asked for.
func (b *broker) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "a", Port: 9}, {NodeID: 2, Host: "bc", Port: 9, Rack: kmsg.StringPtr("rack")}}
	resp.ClusterID = kmsg.StringPtr("cluster")
	if req.AllowAutoTopicCreation {
		b.t.Fatal("a lookup that may create topics")
	}
	for _, t := range req.Topics {
		rt := kmsg.MetadataResponseTopic{Topic: t.Topic, ErrorCode: unknownTopicOrPartition}
		if b.denied[*t.Topic] {
			rt.ErrorCode = topicAuthorizationFailed
		}
		if logs, ok := b.logs[*t.Topic]; ok {
			rt.ErrorCode, rt.TopicID = 0, topicID(*t.Topic)
			if b.recreated {
				rt.TopicID[15]++
			}
			for i := range logs {
				rt.Partitions = append(rt.Partitions, kmsg.MetadataResponseTopicPartition{Partition: int32(i), Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1}, OfflineReplicas: []int32{2}})
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// epochEnds answers as ReplicaManager.lastOffsetForLeaderEpoch does: every partition as
// often as it is named, in order. Kafka keeps the topics of this request in a set.
func (b *broker) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	if req.ReplicaID != -1 {
		b.t.Fatalf("offset_for_leader_epoch with replica id %d", req.ReplicaID)
	}
	named := map[string]bool{}
	for _, t := range req.Topics {
		if named[t.Topic] {
			b.t.Fatalf("offset_for_leader_epoch names topic %q twice", t.Topic)
		}
		named[t.Topic] = true
		rt := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			end := tierlog.EpochEnd{ErrorCode: unknownTopicOrPartition, Epoch: -1, EndOffset: -1}
			if logs := b.logs[t.Topic]; int(p.Partition) < len(logs) {
				end = logs[p.Partition].EpochEndOffset(p.LeaderEpoch, p.CurrentLeaderEpoch)
			}
			rt.Partitions = append(rt.Partitions, kmsg.OffsetForLeaderEpochResponseTopicPartition{
				ErrorCode: end.ErrorCode, Partition: p.Partition, LeaderEpoch: end.Epoch, EndOffset: end.EndOffset,
			})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func answerOf(partition int32, a tierlog.Answer) kmsg.ListOffsetsResponseTopicPartition {
	return kmsg.ListOffsetsResponseTopicPartition{
		Partition: partition, ErrorCode: a.ErrorCode, Timestamp: a.Timestamp, Offset: a.Offset, LeaderEpoch: a.Epoch,
	}
}

func refused(code int16) tierlog.Answer {
	return tierlog.Answer{ErrorCode: code, Timestamp: -1, Offset: -1, Epoch: -1}
}

// statuses tells what the models' topics are.
func (b *broker) statuses(topic string) codec.RemoteStorage {
	if b.logs[topic][0].RemoteStorage() == codec.RemoteStorageEnabled {
		return codec.RemoteStorageEnabled
	}
	return codec.RemoteStorageDisabled
}

// run drives a machine to its end against a broker. before is called before each
// request is answered; nil means nothing happens.
func run(t fataler, frame []byte, lookupVersion int16, b *broker, before func()) ([]byte, Report) {
	t.Helper()
	m, err := newMachine(frame, lookupVersion, b.plan)
	if err != nil {
		t.Fatalf("New: %v\nframe: %x", err, frame)
	}
	var queue []Ask
	for m.State() != Done {
		queue = append(queue, ready(m)...)
		if m.State() == AwaitRemoteStorage {
			m.SetRemoteStorage(b.statuses)
			continue
		}
		if len(queue) == 0 {
			t.Fatal("the machine waits for an answer to nothing")
		}
		if before != nil {
			before()
		}
		answer := b.answer(queue[0].Frame)
		queue = queue[1:]
		if err := m.Step(answer); err != nil {
			t.Fatalf("Step: %v\nanswer: %x", err, answer)
		}
		// The bytes are ours again: nothing of them may be in use.
		for i := range answer {
			answer[i] = 0xee
		}
	}
	return m.Response(), m.Report()
}

// decodeRequest decodes a request frame with kmsg and checks that encoding it again
// gives the same bytes.
func decodeRequest(t fataler, frame []byte) kmsg.Request {
	t.Helper()
	req := kmsg.RequestForKey(codec.RequestKey(frame))
	req.SetVersion(codec.RequestVersion(frame))
	clientID, body, err := codec.RequestBody(frame, codec.Flexible)
	if err != nil {
		t.Fatalf("request header: %v\nframe: %x", err, frame)
	}
	if err := req.ReadFrom(frame[body:]); err != nil {
		t.Fatalf("request body: %v\nframe: %x", err, frame)
	}
	if again := encodeRequest(req, clientID, codec.RequestCorrelationID(frame)); !slices.Equal(again, frame) {
		t.Fatalf("kmsg writes the request in another way:\n got %x\nkmsg %x", frame, again)
	}
	return req
}

// encodeRequest returns a request frame; a nil client id is null.
func encodeRequest(req kmsg.Request, clientID []byte, correlationID int32) []byte {
	b := []byte{0, 0, 0, 0, 0, byte(req.Key()), 0, byte(req.GetVersion()), 0, 0, 0, 0}
	codec.PutRequestCorrelationID(b, correlationID)
	b = codec.AppendNullableString(b, codec.Classic, clientID)
	b = codec.AppendNoTags(b, codec.Flexible)
	b = req.AppendTo(b)
	codec.PutSize(b)
	return b
}

// encodeResponse returns a response frame.
func encodeResponse(resp kmsg.Response, correlationID int32) []byte {
	b := make([]byte, codec.ResponseFixedLen)
	codec.PutResponseCorrelationID(b, correlationID)
	b = codec.AppendNoTags(b, codec.Flexible)
	b = resp.AppendTo(b)
	codec.PutSize(b)
	return b
}

// decodeListOffsets decodes a ListOffsets response frame with kmsg.
func decodeListOffsets(t fataler, frame []byte, version int16) *kmsg.ListOffsetsResponse {
	t.Helper()
	body, err := codec.ResponseBody(frame, codec.Flexible)
	if err != nil {
		t.Fatalf("response header: %v\nframe: %x", err, frame)
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = version
	if err := resp.ReadFrom(frame[body:]); err != nil {
		t.Fatalf("response body: %v\nframe: %x", err, frame)
	}
	return resp
}

// asking is a partition of a request in these tests.
type asking struct {
	topic        string
	partition    int32
	timestamp    int64
	currentEpoch int32
}

// listOffsetsRequest makes a request of version 11.
func listOffsetsRequest(isolation int8, replicaID int32, askings ...asking) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 11
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = replicaID, isolation, 30000
	for _, a := range askings {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != a.topic {
			req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: a.topic})
		}
		rt := &req.Topics[len(req.Topics)-1]
		rt.Partitions = append(rt.Partitions, kmsg.ListOffsetsRequestTopicPartition{
			Partition: a.partition, Timestamp: a.timestamp, CurrentLeaderEpoch: a.currentEpoch,
		})
	}
	return req
}

// pending asks for -6 without a leader epoch.
func pending(topic string, partition int32) asking {
	return asking{topic, partition, codec.EarliestPendingUploadTimestamp, -1}
}

// newMachine parses a request and returns a machine for it.
func newMachine(frame []byte, lookupVersion int16, plan Plan) (*Machine, error) {
	r, err := ParseRequest(frame)
	if err != nil {
		return nil, err
	}
	return New(r, lookupVersion, plan)
}

// ready returns all lookups that must be sent now.
func ready(m Exchange) []Ask {
	var asks []Ask
	for a, ok := m.Ready(); ok; a, ok = m.Ready() {
		asks = append(asks, a)
	}
	return asks
}
