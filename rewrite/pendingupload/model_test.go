// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// move is one thing that happens to a log.
type move struct {
	name string
	on   func(t *rapid.T, l *tierlog.Log)
}

// evenly draws from 0 to n-1, each as likely as the other: rapid itself prefers small
// numbers and the first ones of a list, which leaves rare log states out.
func evenly(t *rapid.T, n int, label string) int {
	return rapid.Custom(func(t *rapid.T) int {
		v := 0
		for range bits.Len(uint(n)) + 3 {
			v <<= 1
			if rapid.Bool().Draw(t, "bit") {
				v++
			}
		}
		return v % n
	}).Draw(t, label)
}

// oneOf draws one of the values, each as likely as the other.
func oneOf[V any](t *rapid.T, label string, values ...V) V {
	return values[evenly(t, len(values), label)]
}

// offsetIn draws an offset that lies in the log or a little beside it.
func offsetIn(t *rapid.T, l *tierlog.Log) int64 {
	return l.LogStart() - 1 + int64(evenly(t, int(l.LogEnd()-l.LogStart())+3, "offset"))
}

// nextEpoch draws an epoch above the current one: mostly close, as after a restart,
// sometimes far, as after many elections without a record.
func nextEpoch(t *rapid.T, l *tierlog.Log) int32 {
	return l.LeaderEpoch() + oneOf[int32](t, "step", 1, 1, 2, 2, 2, 3, 4, 30, 5000)
}

// growth are the moves that leave the leader in place: nothing goes back.
func growth() []move {
	return []move{
		{"append", func(t *rapid.T, l *tierlog.Log) { l.Append(1 + int64(evenly(t, 40, "records"))) }},
		{"append", func(t *rapid.T, l *tierlog.Log) { l.Append(1 + int64(evenly(t, 40, "records"))) }},
		{"upload", func(t *rapid.T, l *tierlog.Log) { l.Upload(offsetIn(t, l)) }},
		{"upload", func(t *rapid.T, l *tierlog.Log) { l.Upload(l.LogEnd() - 1) }},
		{"delete local", func(t *rapid.T, l *tierlog.Log) { l.DeleteLocal(offsetIn(t, l)) }},
		{"delete records", func(t *rapid.T, l *tierlog.Log) { l.DeleteRecords(offsetIn(t, l)) }},
		{"learn remote", func(_ *rapid.T, l *tierlog.Log) { l.LearnRemote() }},
		{"stop copying", func(_ *rapid.T, l *tierlog.Log) { l.StopCopying() }},
		{"resume copying", func(_ *rapid.T, l *tierlog.Log) { l.ResumeCopying() }},
		{"hold watermark", func(t *rapid.T, l *tierlog.Log) { l.SetHighWatermark(offsetIn(t, l)) }},
		{"release watermark", func(_ *rapid.T, l *tierlog.Log) { l.ReleaseHighWatermark() }},
		{"begin transaction", func(t *rapid.T, l *tierlog.Log) { l.SetLastStableOffset(offsetIn(t, l)) }},
		{"end transaction", func(_ *rapid.T, l *tierlog.Log) { l.ReleaseLastStableOffset() }},
	}
}

// election makes the broker leader of a new epoch.
func election() move {
	return move{"new epoch", func(t *rapid.T, l *tierlog.Log) { l.NewLeaderEpoch(nextEpoch(t, l)) }}
}

// upheaval are the moves that growth leaves out.
func upheaval() []move {
	return []move{
		{"restart", func(t *rapid.T, l *tierlog.Log) { l.Restart(nextEpoch(t, l)) }},
		{"lag", func(t *rapid.T, l *tierlog.Log) { l.AwaitHighWatermark(nextEpoch(t, l), offsetIn(t, l)) }},
		{"resign", func(_ *rapid.T, l *tierlog.Log) { l.Resign() }},
		{"remote storage off", func(_ *rapid.T, l *tierlog.Log) { l.SetRemoteStorage(codec.RemoteStorageDisabled) }},
		{"remote storage on", func(_ *rapid.T, l *tierlog.Log) { l.SetRemoteStorage(codec.RemoteStorageEnabled) }},
		{"lose epochs", func(t *rapid.T, l *tierlog.Log) {
			// A log that lost its epochs in epoch 0 is no other than one that never had any
			// before: no broker can be told apart there.
			if l.LeaderEpoch() > 0 && evenly(t, 4, "lose") == 0 {
				l.LoseEpochs()
			}
		}},
	}
}

// history draws a log with a past.
func history(t *rapid.T) *tierlog.Log {
	l := tierlog.New(int32(evenly(t, 4, "first epoch")))
	if evenly(t, 5, "remote storage") > 0 {
		l.SetRemoteStorage(codec.RemoteStorageEnabled)
	}
	// Growth counts twice, so that a log grows between upheavals.
	moves := slices.Concat(growth(), growth(), upheaval(), slices.Repeat([]move{election()}, 4))
	for range evenly(t, 41, "moves") {
		oneOf(t, "move", moves...).on(t, l)
	}
	return l
}

// nativeAnswer is what the machine must answer: the native answer, with the one
// difference that the package documentation names. While the high watermark has not
// reached the leader epoch, consumers get OFFSET_NOT_AVAILABLE at every offset.
func nativeAnswer(l *tierlog.Log, isolation int8, replicaID, currentEpoch int32) tierlog.Answer {
	last := l.ListOffset(codec.LatestTimestamp, isolation, replicaID, currentEpoch)
	if last.ErrorCode == tierlog.OffsetNotAvailable {
		return last
	}
	return l.NativeEarliestPendingUpload(isolation, replicaID, currentEpoch)
}

// TestModelAgreesWithNative asks a model of an old broker through the machine and the
// model of a native broker directly, about the same logs, and compares the response
// frames byte by byte: random histories, mixes of timestamps, topics and partitions that
// do not exist, are denied or named twice, both isolation levels, several replica ids,
// right and wrong leader epochs.
func TestModelAgreesWithNative(t *testing.T) {
	frames, lagging, rounds := 0, 0, map[int]int{}
	var total Report
	rapid.Check(t, func(t *rapid.T) {
		logs := map[string][]*tierlog.Log{}
		for _, topic := range []string{"a", "b", "c"} {
			// Remote storage belongs to the topic, so one partition's log says it for all.
			enabled := evenly(t, 4, "enabled") > 0
			for range 1 + evenly(t, 4, "partitions") {
				l := history(t)
				if enabled {
					l.SetRemoteStorage(codec.RemoteStorageEnabled)
				} else {
					l.SetRemoteStorage(codec.RemoteStorageDisabled)
				}
				logs[topic] = append(logs[topic], l)
			}
		}
		version := oneOf[int16](t, "version", 9, 10)
		old := &broker{t: t, maxVersion: version, logs: logs, denied: map[string]bool{"denied": true}}
		native := &broker{t: t, maxVersion: 11, logs: logs, denied: old.denied}
		for range 20 {
			req := drawRequest(t, logs)
			frame := encodeRequest(req, oneOf(t, "client id", nil, []byte{}, []byte("client")), rapid.Int32().Draw(t, "correlation id"))
			throttle := rapid.SliceOfN(rapid.Int32Range(0, 9), 7, 7).Draw(t, "throttle")
			old.throttle, old.plan = throttle, oneOf(t, "plan", TwoFirst, AllFour)
			got, report := run(t, frame, version, old, nil)
			native.throttle = []int32{slices.Max(throttle[:len(throttle)-len(old.throttle)])}
			want := native.answer(frame)
			if !slices.Equal(got, want) {
				t.Fatalf("request %+v\n got %x\nwant %x\n got %+v\nwant %+v\nlogs %v", req, got, want,
					decodeListOffsets(t, got, 11), decodeListOffsets(t, want, 11), logs)
			}
			frames++
			total.Answered += report.Answered
			total.Empty += report.Empty
			total.Errors += report.Errors
			rounds[report.EpochRounds]++
			lagging += native.lagging
			native.lagging = 0
		}
	})
	comparisons := total.Answered + total.Empty + total.Errors
	t.Logf("%d partitions in %d frames compared, 0 different: %d with an offset, %d without, %d errors", comparisons, frames, total.Answered, total.Empty, total.Errors)
	t.Logf("%d of the errors are OFFSET_NOT_AVAILABLE at a new leader where a native broker has an offset below its high watermark; frames by epoch rounds: %v", lagging, rounds)
	if comparisons < 1000 {
		t.Errorf("only %d comparisons", comparisons)
	}
	if more := frames - rounds[0] - rounds[1]; more*20 > frames {
		t.Errorf("%d of %d frames took more than one epoch round: %v", more, frames, rounds)
	}
}

// drawRequest draws a request of version 11 with -6 in it.
func drawRequest(t *rapid.T, logs map[string][]*tierlog.Log) *kmsg.ListOffsetsRequest {
	askings := []asking{pending("a", 0)}
	for _, topic := range []string{"b", "c", "a"} {
		for i := range logs[topic] {
			if askings[0] != pending(topic, int32(i)) && evenly(t, 3, "asked") > 0 {
				askings = append(askings, drawAsking(t, logs, topic, int32(i)))
			}
		}
	}
	switch evenly(t, 12, "oddity") {
	case 0:
		askings = append(askings, pending("unknown", 0))
	case 1:
		askings = append(askings, pending("denied", 0), pending("denied", 0))
	case 2:
		askings = append(askings, drawAsking(t, logs, "b", 9))
	case 3:
		again := oneOf(t, "again", askings...)
		askings = append(askings, drawAsking(t, logs, again.topic, again.partition))
	}
	replicaIDs := []int32{-1, -1, -2, 3}
	for _, a := range askings {
		// See TestDebuggingReplicaAtFollower.
		if int(a.partition) < len(logs[a.topic]) && !logs[a.topic][a.partition].IsLeader() {
			replicaIDs = []int32{-1, -1, 3}
		}
	}
	return listOffsetsRequest(oneOf[int8](t, "isolation", 0, 1), oneOf(t, "replica id", replicaIDs...), askings...)
}

// drawAsking draws what is asked of a partition, which may not exist.
func drawAsking(t *rapid.T, logs map[string][]*tierlog.Log, topic string, partition int32) asking {
	a := pending(topic, partition)
	if evenly(t, 4, "other timestamp") == 0 {
		a.timestamp = oneOf[int64](t, "timestamp", -1, -2, -3, -4, -5, -7, 0, 30)
	}
	if int(partition) < len(logs[topic]) {
		current := logs[topic][partition].LeaderEpoch()
		a.currentEpoch = oneOf(t, "current epoch", -1, -1, -1, -1, current, current, current, current, current-1, current+1)
	}
	return a
}

// answerWith is the response with one partition, t/0.
func answerWith(a tierlog.Answer) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = 11
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{
		Topic:      "t",
		Partitions: []kmsg.ListOffsetsResponseTopicPartition{answerOf(0, a)},
	}}
	return resp
}

// TestModelAgreesOnEpochs holds the epoch search alone to logs of many epochs.
func TestModelAgreesOnEpochs(t *testing.T) {
	for name, history := range map[string]struct {
		steps  []int32
		rounds int
	}{
		// A restart adds 2, an election 1; some leave no record.
		"restarts and elections": {steps: []int32{1, 1, 2, 2, 2, 2, 3, 4}, rounds: 1},
		// What is left shrinks by maxCandidates/4 at least.
		"wide gaps": {steps: []int32{1, 2, 100, 1 << 10, 1 << 20}, rounds: 7},
	} {
		t.Run(name, func(t *testing.T) {
			searches, rounds := 0, map[int]int{}
			rapid.Check(t, func(t *rapid.T) {
				l := tierlog.New(int32(evenly(t, 4, "first epoch")))
				l.SetRemoteStorage(codec.RemoteStorageEnabled)
				for range 1 + evenly(t, 100, "epochs") {
					l.Append(1 + int64(evenly(t, 5, "records")))
					l.NewLeaderEpoch(l.LeaderEpoch() + oneOf(t, "step", history.steps...))
				}
				l.Append(5)
				l.Upload(int64(evenly(t, int(l.LogEnd()-1), "uploaded")))
				if evenly(t, 2, "retention") == 0 {
					l.DeleteRecords(int64(evenly(t, int(l.LogEnd()), "deleted")))
				}
				b := &broker{t: t, maxVersion: 10, plan: oneOf(t, "plan", TwoFirst, AllFour), logs: map[string][]*tierlog.Log{"t": {l}}}
				got, report := run(t, encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), nil, 5), 10, b, nil)
				want := encodeResponse(answerWith(l.NativeEarliestPendingUpload(0, -1, -1)), 5)
				if !slices.Equal(got, want) {
					t.Fatalf("got  %x\nwant %x\nlog: %v", got, want, l)
				}
				if report.EpochRounds > history.rounds {
					t.Fatalf("%d epoch rounds, log: %v", report.EpochRounds, l)
				}
				searches++
				rounds[report.EpochRounds]++
			})
			t.Logf("%d comparisons, 0 different; searches by epoch rounds: %v", searches, rounds)
		})
	}
}
