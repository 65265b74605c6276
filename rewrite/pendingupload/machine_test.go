// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

func TestStateString(t *testing.T) {
	for s, want := range map[State]string{AwaitAnswers: "AwaitAnswers", AwaitRemoteStorage: "AwaitRemoteStorage", Done: "Done", 9: "State(9)"} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// uploadedLog has n epochs of 10 records each, uploaded in the middle of the one before
// the last.
func uploadedLog(n int) *tierlog.Log {
	l := tierlog.New(0)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	for range n - 1 {
		l.Append(10)
		l.NewLeaderEpoch(l.LeaderEpoch() + 2)
	}
	l.Append(10)
	l.Upload(l.LogEnd() - 15)
	return l
}

// manyPartitions is a broker with topics of 10 partitions each, and a request for all.
// The logs differ from partition to partition.
func manyPartitions(t fataler, topics int) (*broker, *kmsg.ListOffsetsRequest) {
	b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{}}
	var askings []asking
	for i := range topics {
		topic := fmt.Sprintf("topic-%03d", i)
		for p := range int32(10) {
			b.logs[topic] = append(b.logs[topic], uploadedLog(1+(i+int(p))%7))
			askings = append(askings, pending(topic, p))
		}
	}
	return b, listOffsetsRequest(0, -1, askings...)
}

// TestManyPartitions: 2,000 partitions of 200 topics cost 5 requests, and none of them
// nor their answers are large.
func TestManyPartitions(t *testing.T) {
	b, req := manyPartitions(t, 200)
	frame := encodeRequest(req, []byte("client"), 3)
	got, report := run(t, frame, 10, b, nil)
	native := &broker{t: t, maxVersion: 11, logs: b.logs}
	if want := native.answer(frame); !slices.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
	if b.requests != 5 || report.Asks != 5 || report.EpochRounds != 1 || report.Answered != 2000 || len(report.Tiered) != 200 {
		t.Errorf("%d requests, report %+v", b.requests, report)
	}
	if b.largest > 1<<20 {
		t.Errorf("a request or an answer of %d bytes", b.largest)
	}
}

// TestWideSearchOfManyPartitions: the budget of a round holds for 2,000 partitions whose
// epochs lie far apart.
func TestWideSearchOfManyPartitions(t *testing.T) {
	b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{}}
	var askings []asking
	for p := range int32(2000) {
		l := tierlog.New(0)
		l.SetRemoteStorage(codec.RemoteStorageEnabled)
		l.Append(10)
		l.Upload(9)
		l.NewLeaderEpoch(100 + p)
		l.Append(10)
		l.NewLeaderEpoch(10000)
		l.Append(10)
		b.logs["t"] = append(b.logs["t"], l)
		askings = append(askings, pending("t", p))
	}
	frame := encodeRequest(listOffsetsRequest(0, -1, askings...), []byte("client"), 3)
	got, report := run(t, frame, 10, b, nil)
	native := &broker{t: t, maxVersion: 11, logs: b.logs}
	if want := native.answer(frame); !slices.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
	if report.EpochRounds != 2 || b.largest > 1<<20 {
		t.Errorf("a request or an answer of %d bytes, report %+v", b.largest, report)
	}
}

// TestTopicNamedTwice: every topic stands once in our own look-ups, and the client gets
// what the broker makes of its request.
func TestTopicNamedTwice(t *testing.T) {
	b := &broker{t: t, maxVersion: 9, logs: map[string][]*tierlog.Log{
		"a": {uploadedLog(3), uploadedLog(4)}, "b": {uploadedLog(5)},
	}}
	frame := encodeRequest(listOffsetsRequest(0, -1, pending("a", 1), pending("b", 0), pending("a", 0)), nil, 3)
	m, err := newMachine(frame, 9, TwoFirst)
	if err != nil {
		t.Fatal(err)
	}
	req := decodeRequest(t, ready(m)[1].Frame).(*kmsg.ListOffsetsRequest)
	want := listOffsetsRequest(0, -1,
		asking{"a", 0, codec.LatestTimestamp, -1}, asking{"a", 1, codec.LatestTimestamp, -1}, asking{"b", 0, codec.LatestTimestamp, -1})
	want.Version = 9
	if got, want := encodeRequest(req, nil, 0), encodeRequest(want, nil, 0); !slices.Equal(got, want) {
		t.Errorf("-1 look-up:\n got %x\nwant %x", got, want)
	}
	got, _ := run(t, frame, 9, b, nil)
	native := &broker{t: t, maxVersion: 11, logs: b.logs}
	if want := native.answer(frame); !slices.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestUnknownTagsSurvive: the client's tags reach the broker in the -5 look-up, and the
// broker's tags in the answer to it reach the client.
func TestUnknownTagsSurvive(t *testing.T) {
	frame := encodeRequest(sampleRequest(11), []byte("client"), 77)
	m, err := newMachine(frame, 10, TwoFirst)
	if err != nil {
		t.Fatal(err)
	}
	asks := ready(m)
	tier := sampleRequest(10)
	tier.Topics[0].Partitions[0].Timestamp, tier.Topics[1].Partitions[0].Timestamp = -5, -5
	if want := encodeRequest(tier, []byte("client"), 0); !slices.Equal(asks[0].Frame, want) {
		t.Errorf("-5 look-up:\n got %x\nwant %x", asks[0].Frame, want)
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = 10
	resp.UnknownTags.Set(9, []byte("response"))
	resp.Topics = []kmsg.ListOffsetsResponseTopic{
		{Topic: "", Partitions: []kmsg.ListOffsetsResponseTopicPartition{answerOf(7, tierlog.Answer{Timestamp: -1, Offset: 30, Epoch: 2})}},
		{Topic: "payments", Partitions: []kmsg.ListOffsetsResponseTopicPartition{answerOf(2, tierlog.Answer{Timestamp: 5, Offset: 6, Epoch: 7})}},
		{Topic: "orders", Partitions: []kmsg.ListOffsetsResponseTopicPartition{
			answerOf(1, tierlog.Answer{Timestamp: -1, Offset: 90, Epoch: 4}), answerOf(0, refused(unknownTopicOrPartition)),
		}},
	}
	resp.Topics[0].UnknownTags.Set(1, []byte("topic"))
	resp.Topics[0].Partitions[0].UnknownTags.Set(2, []byte("partition"))
	resp.Topics[2].Partitions[1].UnknownTags.Set(3, []byte("failed partition"))
	withHeaderTag := func(correlationID int32) []byte {
		b := make([]byte, codec.ResponseFixedLen)
		codec.PutResponseCorrelationID(b, correlationID)
		b = resp.AppendTo(append(b, 1, 5, 1, 0xaa))
		codec.PutSize(b)
		return b
	}
	last := func(offset int64) []byte {
		b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{}}
		r := b.listOffsets(decodeRequest(t, asks[1].Frame).(*kmsg.ListOffsetsRequest))
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				p := &r.Topics[i].Partitions[j]
				p.ErrorCode, p.Offset, p.LeaderEpoch = 0, offset, 2
			}
		}
		return encodeResponse(r, 1)
	}
	for _, answer := range [][]byte{withHeaderTag(1), last(100)} {
		if err := m.Step(answer); err != nil {
			t.Fatalf("%v\nanswer: %x", err, answer)
		}
	}
	resp.Topics[0].Partitions[0].Offset = 31
	if got, want := m.Response(), withHeaderTag(77); m.State() != Done || !slices.Equal(got, want) {
		t.Errorf("%v\n got %x\nwant %x", m.State(), got, want)
	}
}

// TestPlans: what goes out first. A follower answers the debugging replica id, so two
// look-ups do not do for that.
func TestPlans(t *testing.T) {
	for _, c := range []struct {
		plan      Plan
		replicaID int32
		want      int
	}{{AllFour, -1, 4}, {TwoFirst, -1, 2}, {TwoFirst, 3, 2}, {TwoFirst, tierlog.DebuggingReplicaID, 4}} {
		m, err := newMachine(encodeRequest(listOffsetsRequest(0, c.replicaID, pending("t", 0)), nil, 5), 10, c.plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(ready(m)); got != c.want {
			t.Errorf("plan %d, replica id %d: %d look-ups, want %d", c.plan, c.replicaID, got, c.want)
		}
	}
}

// TestDebuggingReplicaAtFollower: the difference that the package documentation names.
func TestDebuggingReplicaAtFollower(t *testing.T) {
	l := uploadedLog(3)
	l.Resign()
	b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{"t": {l}}}
	frame := encodeRequest(listOffsetsRequest(0, tierlog.DebuggingReplicaID, pending("t", 0)), nil, 5)
	got, _ := run(t, frame, 10, b, nil)
	if want := encodeResponse(answerWith(refused(tierlog.NotLeaderOrFollower)), 5); !slices.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	native := tierlog.Answer{Timestamp: -1, Offset: 16, Epoch: 2}
	if got := l.NativeEarliestPendingUpload(0, tierlog.DebuggingReplicaID, -1); got != native {
		t.Errorf("native: got %+v, want %+v", got, native)
	}
}

// TestNewKeepsNothing: the client's frame is the caller's again after New.
func TestNewKeepsNothing(t *testing.T) {
	b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{"t": {uploadedLog(3)}}, client: []byte("client")}
	frame := encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), []byte("client"), 5)
	before := slices.Clone(frame)
	m, err := newMachine(frame, 10, TwoFirst)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(frame, before) {
		t.Fatalf("New changed the frame to\n%x from\n%x", frame, before)
	}
	clear(frame)
	for m.State() == AwaitAnswers {
		for _, a := range ready(m) {
			answer := b.answer(a.Frame)
			clear(a.Frame)
			if err := m.Step(answer); err != nil {
				t.Fatal(err)
			}
			clear(answer)
		}
	}
	want := encodeResponse(answerWith(tierlog.Answer{Timestamp: -1, Offset: 16, Epoch: 2}), 5)
	if got := m.Response(); !slices.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestCallsOutOfPlace: before Done there is no response, in other states than
// AwaitRemoteStorage no topic is in doubt and a status changes nothing.
func TestCallsOutOfPlace(t *testing.T) {
	m, err := newMachine(encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), nil, 5), 10, TwoFirst)
	if err != nil {
		t.Fatal(err)
	}
	m.SetRemoteStorage(func(topic string) codec.RemoteStorage {
		t.Errorf("asked about %q", topic)
		return codec.RemoteStorageEnabled
	})
	if got := m.Topics(); m.State() != AwaitAnswers || m.Response() != nil || got != nil {
		t.Errorf("%v, response %x, topics %q", m.State(), m.Response(), got)
	}
	if ready(m); ready(m) != nil {
		t.Error("the asks were handed out twice")
	}
}

// TestAnswersCutShort: an answer that ends early is an error, wherever it ends.
func TestAnswersCutShort(t *testing.T) {
	// The second partition, without anything uploaded, takes the second stage.
	b := &broker{t: t, maxVersion: 10, logs: map[string][]*tierlog.Log{"t": {uploadedLog(5), uploadedLog(1)}}}
	frame := encodeRequest(listOffsetsRequest(0, -1, pending("t", 0), pending("t", 1)), nil, 5)
	for answered := range 7 {
		for cut := 0; ; cut++ {
			m, err := newMachine(frame, 10, TwoFirst)
			if err != nil {
				t.Fatal(err)
			}
			queue := ready(m)
			for range answered {
				if err := m.Step(b.answer(queue[0].Frame)); err != nil {
					t.Fatal(err)
				}
				queue = append(queue[1:], ready(m)...)
			}
			whole := b.answer(queue[0].Frame)
			if cut == len(whole) {
				break
			}
			short := slices.Clone(whole[:cut])
			if cut >= codec.SizeLen {
				codec.PutSize(short)
			}
			if err := m.Step(short); err == nil {
				t.Errorf("answer %d cut at byte %d: no error\nanswer: %x", answered+1, cut, short)
			}
		}
	}
}

func BenchmarkThousandPartitions(b *testing.B) {
	brk, req := manyPartitions(b, 100)
	frame := encodeRequest(req, []byte("client"), 3)
	// The answers do not change, so they are made once.
	m, err := newMachine(frame, 10, TwoFirst)
	if err != nil {
		b.Fatal(err)
	}
	var answers [][]byte
	for m.State() == AwaitAnswers {
		for _, a := range ready(m) {
			answers = append(answers, brk.answer(a.Frame))
			if err := m.Step(answers[len(answers)-1]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		m, err := newMachine(frame, 10, TwoFirst)
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range answers {
			ready(m)
			if err := m.Step(a); err != nil {
				b.Fatal(err)
			}
		}
		m.SetRemoteStorage(brk.statuses)
		if m.State() != Done {
			b.Fatal(m.State())
		}
	}
}

// BenchmarkParseAndLower is what a version 11 request of a thousand partitions without
// -6 costs on its way through.
func BenchmarkParseAndLower(b *testing.B) {
	_, req := manyPartitions(b, 100)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			req.Topics[i].Partitions[j].Timestamp = codec.LatestTimestamp
		}
	}
	good := encodeRequest(req, []byte("client"), 3)
	frame := make([]byte, len(good))
	b.ReportAllocs()
	for b.Loop() {
		copy(frame, good)
		r, err := ParseRequest(frame)
		if err != nil {
			b.Fatal(err)
		}
		r.Lower(9)
	}
}
