// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
)

// oldBroker answers as a broker of Kafka 3.9 to 4.1 that leads some logs, and keeps what
// it was asked. Keys that it has no answer for it echoes.
type oldBroker struct {
	// max is the greatest version of ListOffsets.
	max  int16
	logs map[string][]*tierlog.Log
	// before is called before each answer with its number from 1; false hangs up.
	before func(n int) bool

	// answered counts bytes of answers.
	answered atomic.Int64

	mu   sync.Mutex
	seen []string
}

// asked returns what the broker was asked, one text a request.
func (b *oldBroker) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

func (b *oldBroker) note(format string, args ...any) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, fmt.Sprintf(format, args...))
	return len(b.seen)
}

func (b *oldBroker) serve(c *net.TCPConn) {
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		answer, n := b.answer(frame)
		if answer == nil || b.before != nil && !b.before(n) {
			return
		}
		b.answered.Add(int64(len(answer)))
		if _, err = c.Write(answer); err != nil {
			return
		}
	}
}

// answer returns the answer to a request and the request's number.
func (b *oldBroker) answer(frame []byte) ([]byte, int) {
	key, version, id := codec.RequestKey(frame), codec.RequestVersion(frame), codec.RequestCorrelationID(frame)
	enc := codec.Classic
	if first, ok := map[int16]int16{2: 6, 18: 3, 23: 4}[key]; ok {
		enc = codec.EncodingOf(version, first)
	}
	lookup := key == 3 && b.max == 8 // others ask for metadata to have it echoed
	if lookup {
		enc = codec.Flexible
	}
	clientID, off, err := codec.RequestBody(frame, enc)
	if err != nil {
		return nil, b.note("broken request %x", frame)
	}
	switch {
	case key == 2:
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = version
		if err = req.ReadFrom(frame[off:]); err != nil || version > b.max {
			return nil, b.note("impossible list_offsets v%d %x (%v)", version, frame, err)
		}
		n := b.note("list_offsets v%d #%d %q %s", version, id, clientID, timestampsOf(req))
		return answerFrame(id, b.listOffsets(req)), n
	case lookup:
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		if err = req.ReadFrom(frame[off:]); err != nil {
			return nil, b.note("impossible metadata v%d %x (%v)", version, frame, err)
		}
		return answerFrame(id, b.metadata(req)), b.note("metadata v%d #%d %q", version, id, clientID)
	case key == 18:
		return answerFrame(id, versionsAnswer(version, b.max)), b.note("api_versions v%d #%d %q", version, id, clientID)
	case key == 23:
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = version
		if err = req.ReadFrom(frame[off:]); err != nil {
			return nil, b.note("impossible offset_for_leader_epoch v%d %x (%v)", version, frame, err)
		}
		return answerFrame(id, b.epochEnds(req)), b.note("offset_for_leader_epoch v%d #%d %q", version, id, clientID)
	default:
		return response(id, frame[codec.RequestFixedLen:]...), b.note("key %d #%d", key, id)
	}
}

// timestampsOf lists the distinct timestamps of a request, in order.
func timestampsOf(req *kmsg.ListOffsetsRequest) string {
	var all []string
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			if s := fmt.Sprint(p.Timestamp); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return strings.Join(all, " ")
}

func (b *oldBroker) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	return offsetsAnswer(req, func(topic string, p kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
		return b.logs[topic][p.Partition].ListOffset(p.Timestamp, req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
	})
}

// offsetsAnswer makes the answer to a request of what is answered for each partition.
func offsetsAnswer(req *kmsg.ListOffsetsRequest, of func(string, kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	for _, topic := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = topic.Topic
		for _, p := range topic.Partitions {
			a := of(topic.Topic, p)
			t.Partitions = append(t.Partitions, kmsg.ListOffsetsResponseTopicPartition{
				Partition: p.Partition, ErrorCode: a.ErrorCode, Timestamp: a.Timestamp, Offset: a.Offset, LeaderEpoch: a.Epoch,
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// metadata gives topics an id: their name.
func (b *oldBroker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	r := req.ResponseKind().(*kmsg.MetadataResponse)
	r.Version = req.Version
	for _, topic := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = topic.Topic
		copy(t.TopicID[:], *topic.Topic)
		r.Topics = append(r.Topics, t)
	}
	return r
}

func (b *oldBroker) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	for _, topic := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = topic.Topic
		for _, p := range topic.Partitions {
			end := b.logs[topic.Topic][p.Partition].EpochEndOffset(p.LeaderEpoch, p.CurrentLeaderEpoch)
			t.Partitions = append(t.Partitions, kmsg.OffsetForLeaderEpochResponseTopicPartition{
				ErrorCode: end.ErrorCode, Partition: p.Partition, LeaderEpoch: end.Epoch, EndOffset: end.EndOffset,
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// offsetsRequest asks a timestamp of every partition of the broker's topics, sorted.
func (b *oldBroker) offsetsRequest(version int16, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = version, -1, 30_000
	var names []string
	for name := range b.logs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		for i := range b.logs[name] {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = int32(i), timestamp
			topic.Partitions = append(topic.Partitions, p)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// native is the answer that a broker with -6 would give.
func (b *oldBroker) native(req *kmsg.ListOffsetsRequest, id int32) []byte {
	return answerFrame(id, offsetsAnswer(req, func(topic string, p kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
		return b.logs[topic][p.Partition].NativeEarliestPendingUpload(req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
	}))
}

// frameOfRequest is a request frame of client id "c".
func frameOfRequest(req kmsg.Request, id int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, id)
}

// fixedRemoteStorage know what a map says, in the cache or only when resolved.
type fixedRemoteStorage struct {
	cached, resolved map[string]bool
	// resolve, when set, is called by ResolveRemoteStorage first.
	resolve func(ctx context.Context, topics []string)

	mu       sync.Mutex
	observed []string
}

func (v *fixedRemoteStorage) CachedRemoteStorage(topic string) (enabled, known bool) {
	enabled, known = v.cached[topic]
	return enabled, known
}

func (v *fixedRemoteStorage) ResolveRemoteStorage(ctx context.Context, topics []string) map[string]bool {
	if v.resolve != nil {
		v.resolve(ctx, topics)
	}
	return v.resolved
}

func (v *fixedRemoteStorage) ObserveRemoteStorage(topics []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.observed = append(v.observed, topics...)
}

// tieredWithoutUploads is the log state in which the status decides: its answer is 0/0
// if remote storage is on, and -1/-1 if it is off or not known.
func tieredWithoutUploads() *tierlog.Log {
	l := tierlog.New(3)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Append(500)
	return l
}

// newOldBroker starts a broker with one topic "t" of one partition.
func newOldBroker(t *testing.T, max int16, l *tierlog.Log) (*oldBroker, *broker) {
	t.Helper()
	o := &oldBroker{max: max, logs: map[string][]*tierlog.Log{"t": {l}}}
	return o, newBroker(t, o.serve)
}

// remoteStorageFrom makes a server use v.
func remoteStorageFrom(v RemoteStorage) func(*Options) {
	return func(o *Options) { o.Endpoints[0].RemoteStorage = v }
}

// compare fails when two frames differ, and shows them.
func compare(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s:\n got %x\nwant %x", what, got, want)
	}
}

// compareLines fails when a broker was asked something else.
func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("the broker was asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// In every log state of the specification, before a broker that ends at 9 and one that
// ends at 10, the client gets what a native broker would answer, whether it has asked
// for the versions before or not. The look-ups are -4, -2, -5, -1, in this order, with
// correlation ids of our own and the client's client id.
func TestPendingUploadOfEveryLogState(t *testing.T) {
	for _, max := range []int16{9, 10} {
		for _, v := range tierlog.Vectors() {
			t.Run(fmt.Sprintf("%d/%s", max, v.Name), func(t *testing.T) {
				for _, asksVersions := range []string{"asks versions", "does not ask"} {
					old, b := newOldBroker(t, max, v.Log())
					enabled := v.Log().RemoteStorage() == codec.RemoteStorageEnabled
					statuses := &fixedRemoteStorage{cached: map[string]bool{"t": enabled}}
					s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses))
					c := connect(t, s)
					want := []string{`api_versions v4 #77 "c"`}
					if asksVersions == "asks versions" {
						mustWrite(t, c, frameOfRequest(&kmsg.ApiVersionsRequest{Version: 4}, 77))
						compare(t, "versions", mustRead(t, c), answerFrame(77, versionsAnswer(4, 11)))
					} else {
						want = []string{`api_versions v0 #1 "c"`}
					}
					req := old.offsetsRequest(11, -6)
					mustWrite(t, c, frameOfRequest(req, 5000))
					compare(t, asksVersions, mustRead(t, c), old.native(req, 5000))

					first := len(want) - strings.Count(want[0], "#77")
					for i, timestamp := range []int{-4, -2, -5, -1} {
						want = append(want, fmt.Sprintf(`list_offsets v%d #%d "c" %d`, max, first+i+1, timestamp))
					}
					got := old.asked()
					if rounds := len(got) - len(want); rounds == 1 {
						want = append(want, fmt.Sprintf(`offset_for_leader_epoch v4 #%d "c"`, first+5))
					}
					compareLines(t, got, want)
				}
			})
		}
	}
}

// Requests that are pipelined around -6 keep their order, on the wire to the broker and
// on the way back, although their correlation ids are those of our own asks, and whether
// they come in one segment or in many.
func TestPipelinedAroundPendingUpload(t *testing.T) {
	for _, max := range []int16{9, 10} {
		uploaded := tierlog.Vectors()[3].Log()
		old, b := newOldBroker(t, max, uploaded)
		statuses := &fixedRemoteStorage{cached: map[string]bool{}}
		s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses))
		pending := old.offsetsRequest(11, -6)
		var out, want []byte
		for _, id := range []int32{1, 2, 3, 4, 5, 6, 7} {
			switch id {
			case 3, 4, 6:
				out = append(out, frameOfRequest(pending, id)...)
				want = append(want, old.native(pending, id)...)
			default:
				out = append(out, request(3, 1, id, byte(id))...)
				want = append(want, response(id, 0, 1, 'c', byte(id))...)
			}
		}
		round := func(first int) []string {
			var asks []string
			for i, timestamp := range []int{-4, -2, -5, -1} {
				asks = append(asks, fmt.Sprintf(`list_offsets v%d #%d "c" %d`, max, first+i, timestamp))
			}
			return append(asks, fmt.Sprintf(`offset_for_leader_epoch v4 #%d "c"`, first+4))
		}
		wire := slices.Concat([]string{"key 3 #1", "key 3 #2", `api_versions v0 #1 "c"`}, round(2), round(7),
			[]string{"key 3 #5"}, round(12), []string{"key 3 #7"})
		for cut := 1; cut <= len(out); cut += 7 {
			before := len(old.asked())
			c := connect(t, s)
			mustWrite(t, c, out[:cut], out[cut:])
			_ = c.CloseWrite()
			got, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("cut at %d", cut), got, want)
			compareLines(t, old.asked()[before:], wire)
			c.Close()
		}
		awaitSessions(t, s, 0)
		if !slices.Contains(statuses.observed, "t") {
			t.Fatal("the topic was proved tiered, and nobody was told")
		}
	}
}

// A ListOffsets request above the broker's version and without -6 is lowered on the way
// through: nothing is asked besides, and the answer passes as it is.
func TestListOffsetsIsLowered(t *testing.T) {
	for _, c := range []struct{ max, version, want int16 }{{9, 11, 9}, {9, 10, 9}, {10, 11, 10}, {10, 10, 10}, {9, 9, 9}} {
		old, b := newOldBroker(t, c.max, tierlog.Vectors()[3].Log())
		s := newServer(t, b.dial, rewrite.Rules{})
		conn := connect(t, s)
		mustWrite(t, conn, frameOfRequest(&kmsg.ApiVersionsRequest{Version: 3}, 1))
		mustRead(t, conn)
		mustWrite(t, conn, frameOfRequest(old.offsetsRequest(c.version, -1), 2), request(3, 1, 3))
		want := answerFrame(2, old.listOffsets(old.offsetsRequest(c.want, -1)))
		compare(t, "answer", mustRead(t, conn), want)
		compare(t, "answer behind", mustRead(t, conn), response(3, 0, 1, 'c'))
		compareLines(t, old.asked(), []string{`api_versions v3 #1 "c"`, fmt.Sprintf(`list_offsets v%d #2 "c" -1`, c.want), "key 3 #3"})
	}
}

// Before a native broker nothing is touched.
func TestNativeBrokerIsLeftAlone(t *testing.T) {
	old := &oldBroker{max: 11, logs: map[string][]*tierlog.Log{"t": {tieredWithoutUploads()}}}
	native := newBroker(t, scripted(map[int16][]byte{18: answerFrame(0, versionsAnswer(3, 11))}))
	s := newServer(t, native.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(&kmsg.ApiVersionsRequest{Version: 3}, 1))
	compare(t, "versions", mustRead(t, c), answerFrame(1, versionsAnswer(3, 11)))
	frame := frameOfRequest(old.offsetsRequest(11, -6), 2)
	mustWrite(t, c, frame)
	compare(t, "the request, echoed", mustRead(t, c), response(2, frame[codec.RequestFixedLen:]...))
}

// RemoteStorage decide where nothing is uploaded: known at once, known later, not known.
func TestRemoteStorageStatuses(t *testing.T) {
	on, off := map[string]bool{"t": true}, map[string]bool{"t": false}
	start, none := tierlog.OffsetEpoch{Offset: 0, Epoch: 3}, tierlog.OffsetEpoch{Offset: -1, Epoch: -1}
	for _, c := range []struct {
		name     string
		statuses *fixedRemoteStorage
		want     tierlog.OffsetEpoch
	}{
		{"cached on", &fixedRemoteStorage{cached: on}, start},
		{"cached off", &fixedRemoteStorage{cached: off}, none},
		{"resolved on", &fixedRemoteStorage{resolved: on}, start},
		{"resolved off", &fixedRemoteStorage{resolved: off}, none},
		{"unknown", &fixedRemoteStorage{resolved: map[string]bool{"other": true}}, none},
		{"timeout", &fixedRemoteStorage{resolve: func(ctx context.Context, _ []string) { <-ctx.Done() }}, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, b := newOldBroker(t, 10, tieredWithoutUploads())
			s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(c.statuses), func(o *Options) { o.RemoteStorageTimeout = 5 * time.Millisecond })
			conn := connect(t, s)
			req := old.offsetsRequest(11, -6)
			mustWrite(t, conn, frameOfRequest(req, 9), request(3, 1, 10))
			want := offsetsAnswer(req, func(string, kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
				return tierlog.Answer{Timestamp: -1, Offset: c.want.Offset, Epoch: c.want.Epoch}
			})
			compare(t, "answer", mustRead(t, conn), answerFrame(9, want))
			compare(t, "answer behind", mustRead(t, conn), response(10, 0, 1, 'c'))
		})
	}
}

// While statuses are resolved the client is not read, the loop serves others, and what is
// asked for are the topics in doubt alone.
func TestSlowStatuses(t *testing.T) {
	asked, known := make(chan []string, 1), make(chan struct{})
	old, b := newOldBroker(t, 10, tieredWithoutUploads())
	old.logs["uploaded"] = []*tierlog.Log{tierlog.Vectors()[3].Log()}
	statuses := &fixedRemoteStorage{resolved: map[string]bool{"t": true}, resolve: func(_ context.Context, topics []string) {
		asked <- topics
		<-known
	}}
	s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses))
	lives := bystander(t, s)
	c := connect(t, s)
	req := old.offsetsRequest(11, -6)
	mustWrite(t, c, request(3, 1, 1), frameOfRequest(req, 2), request(3, 1, 3))
	compareLines(t, <-asked, []string{"t"})
	lives()
	compare(t, "before", mustRead(t, c), response(1, 0, 1, 'c'))
	if got := old.asked(); slices.Contains(got, "key 3 #3") {
		t.Fatalf("the request behind was sent before the answer was made: %q", got)
	}
	close(known)
	compare(t, "answer", mustRead(t, c), old.native(req, 2))
	compare(t, "behind", mustRead(t, c), response(3, 0, 1, 'c'))
}

// A session begins with two look-ups where they would have decided about every partition
// of its last answer, and asks for the others when they do not any more.
func TestLookUpsFollowTheLastAnswer(t *testing.T) {
	old, b := newOldBroker(t, 10, tieredWithoutUploads())
	s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(&fixedRemoteStorage{cached: map[string]bool{"t": true}}))
	c := connect(t, s)
	asks := func(timestamps ...int) {
		t.Helper()
		before := len(old.asked())
		req := old.offsetsRequest(11, -6)
		mustWrite(t, c, frameOfRequest(req, 1))
		compare(t, fmt.Sprint(timestamps), mustRead(t, c), old.native(req, 1))
		var got []int
		for _, line := range old.asked()[before:] {
			var version, id, timestamp int
			if n, _ := fmt.Sscanf(line, `list_offsets v%d #%d "c" %d`, &version, &id, &timestamp); n == 3 {
				got = append(got, timestamp)
			}
		}
		if !slices.Equal(got, timestamps) {
			t.Errorf("asked for %v, want %v", got, timestamps)
		}
	}
	settled := tierlog.New(0)
	settled.SetRemoteStorage(codec.RemoteStorageEnabled)
	settled.Append(10)
	settled.Upload(5)
	asks(-4, -2, -5, -1)
	asks(-4, -2, -5, -1)
	old.logs["t"] = []*tierlog.Log{settled}
	asks(-4, -2, -5, -1)
	asks(-5, -1)
	asks(-5, -1)
	old.logs["t"] = []*tierlog.Log{tieredWithoutUploads()}
	asks(-5, -1, -4, -2, -5, -1)
	asks(-4, -2, -5, -1)
}

// leaving are the moments in which one side leaves a look-up: before the broker has
// answered the n-th request, or while statuses are resolved.
var leaving = []int{1, 2, 3, 4, 5, whileResolving}

const whileResolving = 99

// A client that leaves during a look-up ends its session, and the resolving of statuses
// with it.
func TestClientLeavesDuringALookUp(t *testing.T) {
	for _, leave := range []func(*net.TCPConn){func(c *net.TCPConn) { c.Close() }, reset} {
		for _, n := range leaving {
			old, b := newOldBroker(t, 10, tieredWithoutUploads())
			reached, left := make(chan struct{}), make(chan struct{})
			old.before = func(now int) bool {
				if now == n {
					close(reached)
					<-left
				}
				return true
			}
			statuses := &fixedRemoteStorage{resolve: func(ctx context.Context, _ []string) {
				if n == whileResolving {
					close(reached)
				}
				<-ctx.Done()
			}}
			s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses), func(o *Options) { o.RemoteStorageTimeout = 100 * time.Millisecond })
			c := connect(t, s)
			mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1), request(3, 1, 2))
			<-reached
			leave(c)
			close(left)
			awaitSessions(t, s, 0)
		}
	}
}

// A broker that leaves during a look-up ends the session: the client sees the end and
// nothing that looks like an answer.
func TestBrokerLeavesDuringALookUp(t *testing.T) {
	for _, n := range leaving[:5] {
		old, b := newOldBroker(t, 9, tieredWithoutUploads())
		old.before = func(now int) bool { return now != n }
		s := newServerWithoutTicks(t, b.dial, rewrite.Rules{})
		c := connect(t, s)
		mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1), request(3, 1, 2))
		_ = ending(t, c)
		c.Close()
		awaitSessions(t, s, 0)
	}
}

// A broker that leaves while statuses are resolved: the same, and late statuses find
// nobody.
func TestBrokerLeavesWhileStatusesAreResolved(t *testing.T) {
	old, b := newOldBroker(t, 10, tieredWithoutUploads())
	asked, known := make(chan struct{}), make(chan struct{})
	statuses := &fixedRemoteStorage{resolve: func(context.Context, []string) {
		close(asked)
		<-known
	}}
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses))
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
	<-asked
	b.cut()
	_ = ending(t, c)
	c.Close()
	awaitSessions(t, s, 0)
	close(known)
}

// Errors of the broker come out as the native broker's would: here it has lost the
// leadership.
func TestPendingUploadErrors(t *testing.T) {
	l := tierlog.Vectors()[3].Log()
	l.Resign()
	old, b := newOldBroker(t, 10, l)
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	req := old.offsetsRequest(11, -6)
	mustWrite(t, c, frameOfRequest(req, 1))
	compare(t, "answer", mustRead(t, c), answerFrame(1, offsetsAnswer(req, func(string, kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
		return tierlog.Answer{ErrorCode: tierlog.NotLeaderOrFollower, Timestamp: -1, Offset: -1, Epoch: -1}
	})))
}

// An answer to an ask that is cut short or is no answer closes the session; the client
// never sees a part of it.
func TestBrokenAnswerToAnAsk(t *testing.T) {
	j := &journal{}
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		_, _ = c.Write(answerFrame(1, versionsAnswer(0, 10)))
		_, _ = readFrame(c)
		_, _ = c.Write(response(2, 0, 0, 0, 0, 0, 9))
		silence(c)
	})
	old := &oldBroker{logs: map[string][]*tierlog.Log{"t": {tieredWithoutUploads()}}}
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
	_ = ending(t, c)
	oneLine(t, j, sentenceMalformed, "from the broker: lookup ListOffsets v10")
	awaitSessions(t, s, 0)
}

// The first bytes of an answer to an ask are not the client's either, when the broker
// leaves behind them.
func TestBrokerEndsInTheMiddleOfAnAnswerToAnAsk(t *testing.T) {
	answer := answerFrame(1, versionsAnswer(0, 10))
	for cut := range answer {
		b := newBroker(t, func(c *net.TCPConn) {
			_, _ = readFrame(c)
			_, _ = c.Write(answer[:cut])
		})
		old := &oldBroker{logs: map[string][]*tierlog.Log{"t": {tieredWithoutUploads()}}}
		s := newServerWithoutTicks(t, b.dial, rewrite.Rules{})
		c := connect(t, s)
		mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
		_ = ending(t, c)
		c.Close()
		awaitSessions(t, s, 0)
	}
}

// A request with 2,000 partitions of 200 topics, all of them -6, costs six broker
// requests at the most.
func TestPendingUploadOfManyPartitions(t *testing.T) {
	old := &oldBroker{max: 10, logs: map[string][]*tierlog.Log{}}
	statuses := &fixedRemoteStorage{resolved: map[string]bool{}}
	vectors := tierlog.Vectors()
	for i := range 200 {
		// One state per topic, since the status is the topic's.
		topic, v := fmt.Sprintf("topic-%03d", i), vectors[i%len(vectors)]
		for range 10 {
			old.logs[topic] = append(old.logs[topic], v.Log())
		}
		statuses.resolved[topic] = v.Log().RemoteStorage() == codec.RemoteStorageEnabled
	}
	s := newServer(t, newBroker(t, old.serve).dial, rewrite.Rules{}, remoteStorageFrom(statuses))
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(&kmsg.ApiVersionsRequest{Version: 3}, 1))
	mustRead(t, c)
	req := old.offsetsRequest(11, -6)
	mustWrite(t, c, frameOfRequest(req, 2))
	if got, want := mustRead(t, c), old.native(req, 2); !bytes.Equal(got, want) {
		t.Fatalf("the answer differs at byte %d of %d", firstDifference(got, want), len(want))
	}
	if n := len(old.asked()) - 1; n > 6 {
		t.Fatalf("%d broker requests for one client request", n)
	}
}

// Drain waits for a look-up like for any exchange; Close does not, and its client gets no
// answer that was never looked up.
func TestDrainAndCloseDuringALookUp(t *testing.T) {
	for _, end := range []string{"drain", "close"} {
		old, b := newOldBroker(t, 10, tieredWithoutUploads())
		asked, known := make(chan struct{}), make(chan struct{})
		statuses := &fixedRemoteStorage{resolved: map[string]bool{"t": true}, resolve: func(ctx context.Context, _ []string) {
			close(asked)
			select {
			case <-known:
			case <-ctx.Done():
			}
		}}
		j := &journal{}
		s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses), loggingTo(j))
		c := connect(t, s)
		req := old.offsetsRequest(11, -6)
		mustWrite(t, c, frameOfRequest(req, 1))
		<-asked
		if end == "close" {
			_ = s.Close()
			_ = ending(t, c)
			j.awaitLine(t, "DEBUG session ended", "reason=shutdown")
			continue
		}
		drained := draining(s, context.Background())
		awaitOnLoop(t, s, "the loop drains", func(l *loop) bool { return l.draining })
		close(known)
		compare(t, "answer", mustRead(t, c), old.native(req, 1))
		if err := ending(t, c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
	}
}

// A defect in what resolves statuses costs its session.
func TestPanicInRemoteStorage(t *testing.T) {
	old, b := newOldBroker(t, 10, tieredWithoutUploads())
	statuses := &fixedRemoteStorage{resolve: func(context.Context, []string) { panic("a defect in ResolveRemoteStorage") }}
	j := &journal{}
	s := newServer(t, b.dial, rewrite.Rules{}, remoteStorageFrom(statuses), loggingTo(j))
	lives := bystander(t, s)
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
	_ = ending(t, c)
	j.awaitLine(t, "WARN session closed: a defect of the proxy", "a defect in ResolveRemoteStorage")
	lives()
}
