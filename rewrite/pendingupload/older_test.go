// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// uploads says what is uploaded of a partition; again is as Older.Wanted has it.
type uploads func(p Partition, again bool) Uploaded

// uploads are what the models have uploaded.
func (b *broker) uploads(p Partition, _ bool) Uploaded {
	logs := b.logs[p.Topic]
	if p.TopicID != topicID(p.Topic) || int(p.Partition) >= len(logs) {
		b.t.Fatalf("uploads of %+v", p)
	}
	u := Uploaded{Known: true}
	for _, e := range slices.Backward(logs[p.Partition].Tiered()) {
		u.Epochs = append(u.Epochs, EpochOffset(e))
	}
	return u
}

// runOlder drives a machine to its end against a broker without -5.
func runOlder(t fataler, frame []byte, b *broker, of uploads, before func(asked int)) ([]byte, *Older) {
	t.Helper()
	r, err := ParseRequest(frame)
	if err != nil {
		t.Fatalf("%v\nframe: %x", err, frame)
	}
	m, err := NewOlder(r)
	if err != nil {
		t.Fatalf("NewOlder: %v\nframe: %x", err, frame)
	}
	var queue []Ask
	for asked := 0; m.State() != Done; {
		for a, ok := m.Ready(); ok; a, ok = m.Ready() {
			queue = append(queue, a)
		}
		switch m.State() {
		case AwaitRemoteStorage:
			m.SetRemoteStorage(b.statuses)
		case AwaitUploaded:
			wanted, again := m.Wanted()
			var known []Uploaded
			for _, p := range wanted {
				known = append(known, of(p, again))
			}
			if err := m.Take(known); err != nil {
				t.Fatalf("Take: %v", err)
			}
		case AwaitAnswers:
			if len(queue) == 0 {
				t.Fatal("the machine waits for a response to nothing")
			}
			if before != nil {
				before(asked)
			}
			asked++
			answer := b.answer(queue[0].Frame)
			queue = queue[1:]
			if err := m.Step(answer); err != nil {
				t.Fatalf("Step: %v\nresponse: %x", err, answer)
			}
			for i := range answer {
				answer[i] = 0xee
			}
		case Done:
		}
	}
	if len(queue) > 0 {
		t.Fatalf("done with %d lookups without response", len(queue))
	}
	return m.Response(), m
}

// olderHistory is a history that a broker of Kafka 3.6 to 3.8 can have: remote storage and
// copying cannot be switched off there, and with a lost checkpoint of leader epochs a broker
// does not find what it uploaded.
func olderHistory(t *rapid.T, remote codec.RemoteStorage) *tierlog.Log {
	l := tierlog.New(int32(evenly(t, 4, "first epoch")))
	l.SetRemoteStorage(remote)
	moves := slices.Concat(growth(), growth(), upheaval(), slices.Repeat([]move{election()}, 4))
	moves = slices.DeleteFunc(moves, func(m move) bool {
		return slices.Contains([]string{"stop copying", "remote storage off", "remote storage on", "lose epochs"}, m.name)
	})
	for range evenly(t, 41, "moves") {
		oneOf(t, "move", moves...).on(t, l)
	}
	return l
}

// latestTieredOf is what -5 must be: what the leader has found, with the difference of
// nativeAnswer for consumers of a new leader.
func latestTieredOf(l *tierlog.Log, isolation int8, replicaID, currentEpoch int32) tierlog.Answer {
	learned := l.Clone()
	learned.LearnTiered()
	if last := learned.ListOffset(codec.LatestTimestamp, isolation, replicaID, currentEpoch); last.ErrorCode != 0 {
		return last
	}
	// Not limited to what the reader may read: the package documentation says why.
	return learned.ListOffset(codec.LatestTieredTimestamp, isolation, math.MaxInt32, currentEpoch)
}

// TestOlderModelAgreesWithNative asks models of brokers without -5 through the machine, and
// models of native brokers, which have found what is uploaded, directly.
func TestOlderModelAgreesWithNative(t *testing.T) {
	compared, with := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		logs, learned := map[string][]*tierlog.Log{}, map[string][]*tierlog.Log{}
		for _, topic := range []string{"a", "b", "c"} {
			remote := codec.RemoteStorageEnabled
			if evenly(t, 5, "remote storage") == 0 {
				remote = codec.RemoteStorageDisabled
			}
			for range 1 + evenly(t, 4, "partitions") {
				l := olderHistory(t, remote)
				if l.IsLeader() { // a model finds out for itself that a follower has no more to tell
					c := l.Clone()
					c.LearnTiered()
					learned[topic] = append(learned[topic], c)
				} else {
					learned[topic] = append(learned[topic], l)
				}
				logs[topic] = append(logs[topic], l)
			}
		}
		old := &broker{t: t, maxVersion: olderVersion, logs: logs, denied: map[string]bool{"denied": true}}
		native := &olderNative{&broker{t: t, maxVersion: 11, logs: learned, denied: old.denied}}
		for range 20 {
			req := drawRequest(t, logs)
			if req.ReplicaID == tierlog.DebuggingReplicaID {
				req.ReplicaID = 3 // followers tell it, but not their epochs
			}
			if evenly(t, 3, "only -5") == 0 {
				for i := range req.Topics {
					for j := range req.Topics[i].Partitions {
						req.Topics[i].Partitions[j].Timestamp = codec.LatestTieredTimestamp
					}
				}
			}
			frame := encodeRequest(req, oneOf(t, "client id", nil, []byte{}, []byte("client")), rapid.Int32().Draw(t, "correlation id"))
			got, _ := runOlder(t, frame, old, old.uploads, nil)
			want := native.answer(frame)
			if !slices.Equal(got, want) {
				t.Fatalf("request %+v\n got %x\nwant %x\n got %+v\nwant %+v\nlogs %v", req, got, want,
					decodeListOffsets(t, got, 11), decodeListOffsets(t, want, 11), logs)
			}
			for _, rt := range decodeListOffsets(t, got, 11).Topics {
				for _, p := range rt.Partitions {
					compared++
					if p.ErrorCode == 0 && p.Offset >= 0 {
						with++
					}
				}
			}
		}
	})
	t.Logf("%d partitions compared, 0 different, %d with an offset", compared, with)
	if compared < 1000 {
		t.Errorf("only %d comparisons", compared)
	}
}

// olderNative is a native broker, except that -5 is what latestTieredOf says.
type olderNative struct{ *broker }

func (b *olderNative) answer(frame []byte) []byte {
	req := decodeRequest(b.t, frame).(*kmsg.ListOffsetsRequest)
	resp := b.listOffsets(req)
	asked := map[[2]any]kmsg.ListOffsetsRequestTopicPartition{}
	for _, rt := range req.Topics {
		for _, p := range rt.Partitions {
			asked[[2]any{rt.Topic, p.Partition}] = p
		}
	}
	for i, rt := range resp.Topics {
		for j, p := range rt.Partitions {
			a, logs := asked[[2]any{rt.Topic, p.Partition}], b.logs[rt.Topic]
			if a.Timestamp != codec.LatestTieredTimestamp || p.ErrorCode == invalidRequest || int(p.Partition) >= len(logs) || b.denied[rt.Topic] {
				continue
			}
			resp.Topics[i].Partitions[j] = answerOf(p.Partition, latestTieredOf(logs[p.Partition], req.IsolationLevel, req.ReplicaID, a.CurrentLeaderEpoch))
		}
	}
	return encodeResponse(resp, int32At(frame, 8))
}

// olderLog is a log of three epochs whose first two are uploaded to 149 and deleted locally
// up to there.
func olderLog() *tierlog.Log {
	l := tierlog.New(0)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Append(100)
	l.NewLeaderEpoch(2)
	l.Append(100)
	l.Upload(149)
	l.DeleteLocal(150)
	l.NewLeaderEpoch(4)
	l.Append(10)
	return l
}

// olderAnswer asks for one timestamp of t/0 and returns what comes back.
func olderAnswer(t *testing.T, b *broker, timestamp int64, of uploads, before func(int)) (tierlog.Answer, *Older) {
	t.Helper()
	frame := encodeRequest(listOffsetsRequest(0, -1, asking{"t", 0, timestamp, -1}), []byte("client"), 5)
	got, m := runOlder(t, frame, b, of, before)
	p := decodeListOffsets(t, got, 11).Topics[0].Partitions[0]
	return tierlog.Answer{ErrorCode: p.ErrorCode, Timestamp: p.Timestamp, Offset: p.Offset, Epoch: p.LeaderEpoch}, m
}

func olderBroker(t fataler, l *tierlog.Log) *broker {
	return &broker{t: t, maxVersion: olderVersion, logs: map[string][]*tierlog.Log{"t": {l}}, client: []byte("client")}
}

func at(offset int64, epoch int32) tierlog.Answer {
	return tierlog.Answer{Timestamp: -1, Offset: offset, Epoch: epoch}
}

func TestOlderAnswers(t *testing.T) {
	epochs := func(e ...EpochOffset) uploads {
		return func(Partition, bool) Uploaded { return Uploaded{Known: true, Epochs: e} }
	}
	unclean := tierlog.New(1) // epoch 1 has 0 to 29, epoch 2 the rest
	unclean.SetRemoteStorage(codec.RemoteStorageEnabled)
	unclean.Append(30)
	unclean.NewLeaderEpoch(2)
	unclean.Append(30)
	for _, c := range []struct {
		name            string
		log             *tierlog.Log
		of              uploads
		latest, pending tierlog.Answer
		asks            int // of -5
	}{
		{"uploaded", olderLog(), epochs(EpochOffset{2, 149}, EpochOffset{0, 99}), at(149, 2), at(150, 2), 6},
		{"epochs of another lineage first", olderLog(), epochs(EpochOffset{7, 900}, EpochOffset{3, 800}, EpochOffset{2, 149}), at(149, 2), at(150, 2), 6},
		{"the fourth epoch", olderLog(), epochs(EpochOffset{9, 1}, EpochOffset{8, 1}, EpochOffset{7, 1}, EpochOffset{2, 149}), at(149, 2), at(150, 2), 8},
		{"beyond the epoch's end", olderLog(), epochs(EpochOffset{2, 5000}), at(199, 2), at(200, 4), 6},
		{"below the epoch's start", unclean, epochs(EpochOffset{2, 10}), at(10, 1), at(11, 1), 7},
		{"nothing", unclean, epochs(), at(-1, -1), at(0, 1), 4},
		{"not known", unclean, func(Partition, bool) Uploaded { return Uploaded{} }, at(-1, -1), at(-1, -1), 4},
		{"older epochs are not known", unclean, func(Partition, bool) Uploaded {
			return Uploaded{Known: true, Cut: true, Epochs: []EpochOffset{{9, 1}}}
		}, at(-1, -1), at(-1, -1), 6},
	} {
		b := olderBroker(t, c.log)
		got, m := olderAnswer(t, b, codec.LatestTieredTimestamp, c.of, nil)
		if got != c.latest || m.Report().Asks != c.asks || b.requests != c.asks {
			t.Errorf("%s: -5 is %+v after %d lookups, %d sent; want %+v after %d", c.name, got, m.Report().Asks, b.requests, c.latest, c.asks)
		}
		b.requests = 0
		if got, m := olderAnswer(t, b, codec.EarliestPendingUploadTimestamp, c.of, nil); got != c.pending || b.requests != m.Report().Asks {
			t.Errorf("%s: -6 is %+v after %d lookups, %d sent; want %+v", c.name, got, m.Report().Asks, b.requests, c.pending)
		}
	}
}

// What was found out cannot be, as the broker has deleted more locally than that: it is asked
// for once more.
func TestOlderReaderThatLags(t *testing.T) {
	for _, c := range []struct {
		name    string
		second  Uploaded
		latest  tierlog.Answer
		pending tierlog.Answer
		unknown int
	}{
		{"and then does not", Uploaded{Known: true, Epochs: []EpochOffset{{2, 149}, {0, 99}}}, at(149, 2), at(150, 2), 0},
		{"and still does", Uploaded{Known: true, Epochs: []EpochOffset{{0, 99}}}, at(-1, -1), at(-1, -1), 1},
		{"and is gone", Uploaded{}, at(-1, -1), at(-1, -1), 1},
	} {
		for timestamp, want := range map[int64]tierlog.Answer{codec.LatestTieredTimestamp: c.latest, codec.EarliestPendingUploadTimestamp: c.pending} {
			for _, first := range []Uploaded{{Known: true}, {Known: true, Epochs: []EpochOffset{{0, 99}}}} {
				calls := 0
				got, m := olderAnswer(t, olderBroker(t, olderLog()), timestamp, func(_ Partition, again bool) Uploaded {
					calls++
					if again != (calls == 2) {
						t.Errorf("%s: call %d, again %t", c.name, calls, again)
					}
					if again {
						return c.second
					}
					return first
				}, nil)
				if got != want || calls != 2 || m.UnknownUploads() != c.unknown {
					t.Errorf("%s: timestamp %d is %+v after %d calls, %d unknown; want %+v, %d", c.name, timestamp, got, calls, m.UnknownUploads(), want, c.unknown)
				}
			}
		}
	}
}

// A topic that is deleted and created again while it is asked for has another id.
func TestOlderTopicCreatedAnew(t *testing.T) {
	for timestamp, confirmed := range map[int64]int{codec.LatestTieredTimestamp: 5, codec.EarliestPendingUploadTimestamp: 7} {
		b := olderBroker(t, olderLog())
		got, m := olderAnswer(t, b, timestamp, b.uploads, func(asked int) { b.recreated = asked >= confirmed })
		if got != at(-1, -1) || m.UnknownUploads() != 1 {
			t.Errorf("timestamp %d: %+v, %d unknown; want none, 1", timestamp, got, m.UnknownUploads())
		}
	}
}

// A response that is cut short anywhere is an error, and never anything else.
func TestOlderResponsesCutAtEachByte(t *testing.T) {
	frame := encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), []byte("client"), 5)
	for cut := range 8 {
		for n := 0; ; n++ {
			b := olderBroker(t, olderLog())
			r, err := ParseRequest(frame)
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewOlder(r)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := playOlder(b, m, cut, n)
			if whole {
				break
			}
			if err == nil {
				t.Fatalf("response %d cut to %d bytes is accepted", cut, n)
			}
		}
	}
}

// playOlder plays until the response number cut, of which it gives n bytes; whole says that
// there are no more.
func playOlder(b *broker, m *Older, cut, n int) (whole bool, err error) {
	var queue []Ask
	for i := 0; ; {
		for a, ok := m.Ready(); ok; a, ok = m.Ready() {
			queue = append(queue, a)
		}
		if m.State() == AwaitUploaded {
			wanted, again := m.Wanted()
			if err := m.Take([]Uploaded{b.uploads(wanted[0], again)}); err != nil {
				return false, err
			}
			continue
		}
		response := b.answer(queue[0].Frame)
		queue = queue[1:]
		if i == cut {
			if n >= len(response) {
				return true, nil
			}
			short := slices.Clone(response[:n])
			if n >= 4 {
				putInt32At(short, 0, int32(n-4))
			}
			return false, m.Step(short)
		}
		if err := m.Step(response); err != nil {
			return false, err
		}
		i++
	}
}

// FuzzOlder plays any bytes as the client's request and the broker's responses.
func FuzzOlder(f *testing.F) {
	b := olderBroker(f, olderLog())
	for _, timestamp := range []int64{codec.LatestTieredTimestamp, codec.EarliestPendingUploadTimestamp, -7} {
		frame := encodeRequest(listOffsetsRequest(0, -1, asking{"t", 0, timestamp, -1}), []byte("client"), 5)
		r, err := ParseRequest(frame)
		if err != nil {
			f.Fatal(err)
		}
		m, err := NewOlder(r)
		if err != nil {
			f.Fatal(err)
		}
		var answers [9][]byte
		var queue []Ask
		for i := 0; m.State() != Done; {
			for a, ok := m.Ready(); ok; a, ok = m.Ready() {
				queue = append(queue, a)
			}
			if wanted, again := m.Wanted(); m.State() == AwaitUploaded {
				if err := m.Take([]Uploaded{b.uploads(wanted[0], again)}); err != nil {
					f.Fatal(err)
				}
				continue
			}
			answers[i] = b.answer(queue[0].Frame)
			queue = queue[1:]
			if err := m.Step(answers[i]); err != nil {
				f.Fatal(err)
			}
			i++
		}
		f.Add(frame, answers[0], answers[1], answers[2], answers[3], answers[4], answers[5], answers[6], answers[7], answers[8])
	}
	f.Fuzz(func(t *testing.T, request, a0, a1, a2, a3, a4, a5, a6, a7, a8 []byte) {
		r, err := ParseRequest(request)
		if err != nil {
			return
		}
		m, err := NewOlder(r)
		if err != nil {
			return
		}
		answers := [][]byte{a0, a1, a2, a3, a4, a5, a6, a7, a8}
		for i := 0; i < len(answers) && m.State() != Done; {
			for ok := true; ok; {
				_, ok = m.Ready()
			}
			if m.Size() > 1<<20+400*int64(len(request)+len(a0)+len(a1)+len(a2)+len(a3)+len(a4)+len(a5)+len(a6)+len(a7)+len(a8)) {
				t.Fatalf("%d bytes held", m.Size())
			}
			switch m.State() {
			case AwaitRemoteStorage:
				m.SetRemoteStorage(func(string) codec.RemoteStorage { return codec.RemoteStorageEnabled })
			case AwaitUploaded:
				wanted, _ := m.Wanted()
				known := make([]Uploaded, len(wanted))
				for i := range known {
					known[i] = Uploaded{Known: true, Epochs: []EpochOffset{{2, 149}, {0, 99}}}
				}
				if err := m.Take(known); err != nil {
					return
				}
			case AwaitAnswers:
				if len(answers[i]) >= 4 {
					putInt32At(answers[i], 0, int32(len(answers[i])-4))
				}
				if err := m.Step(answers[i]); err != nil {
					return
				}
				i++
			case Done:
			}
		}
		if m.State() == Done && m.Response() == nil {
			t.Fatal("done without a response")
		}
	})
}

// tierPartSize is what the account of memory counts.
func TestTierPartSize(t *testing.T) {
	if got := unsafe.Sizeof(tierPart{}); got != tierPartSize {
		t.Errorf("a tierPart has %d bytes, tierPartSize is %d", got, tierPartSize)
	}
}

// Sessions do not make a machine for such a request; that it is refused must not hang on them.
func TestOlderWithoutTieredTimestamp(t *testing.T) {
	for version := int16(9); version <= 11; version++ {
		req := listOffsetsRequest(0, -1, asking{"t", 0, codec.LatestTimestamp, -1})
		req.Version = version
		r, err := ParseRequest(encodeRequest(req, []byte("client"), 5))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewOlder(r); err == nil {
			t.Errorf("v%d: a machine for a request without -5", version)
		}
	}
}
