// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"

	"pgregory.net/rapid"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/report"
)

// stateOf asks a model as snapshots ask brokers.
func stateOf(l *tierlog.Log) state {
	ask := func(timestamp int64) position {
		a := l.ListOffset(timestamp, tierlog.ReadUncommitted, tierlog.ConsumerReplicaID, -1)
		return position{a.Offset, a.Epoch}
	}
	return state{
		local: ask(codec.EarliestLocalTimestamp), start: ask(codec.EarliestTimestamp), tier: ask(codec.LatestTieredTimestamp), last: ask(codec.LatestTimestamp),
	}
}

// Where nothing moves, one answer is right, and every other one is wrong.
func TestStillLogsAllowOneAnswer(t *testing.T) {
	for _, v := range tierlog.Vectors() {
		log := v.Log()
		s, tiered := stateOf(log), log.RemoteStorage() == codec.RemoteStorageEnabled
		right := log.NativeEarliestPendingUpload(tierlog.ReadUncommitted, tierlog.ConsumerReplicaID, -1)
		if got := s.pending(tiered); got != right.Offset {
			t.Errorf("%s: the rules say %d, a native broker %d", v.Name, got, right.Offset)
		}
		for _, off := range []int64{-1, 0, right.Offset - 1, right.Offset, right.Offset + 1, s.tier.offset, s.last.offset} {
			a := &answers{}
			epoch := right.Epoch
			if off != right.Offset {
				epoch = max(s.start.epoch, 0)
			}
			a.add(off, epoch)
			why := a.check(s, s, tiered, undisturbed)
			if (off == right.Offset) != (why == "") && off >= -1 {
				t.Errorf("%s: answer %d where %d is right: %q", v.Name, off, right.Offset, why)
			}
		}
	}
}

// A log that moves while it is asked: answers of any moment in between are right.
func TestMovingLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := tierlog.New(0)
		tiered := rapid.Bool().Draw(t, "tiered")
		if tiered {
			log.SetRemoteStorage(codec.RemoteStorageEnabled)
		}
		judge := newTruth(tiered)
		judge.snapshot([]state{stateOf(log)}, undisturbed)
		count := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "snapshots") {
			for range rapid.IntRange(0, 6).Draw(t, "moves") {
				n := int64(rapid.IntRange(1, 20).Draw(t, "n"))
				switch rapid.SampledFrom([]string{"append", "upload", "delete locally", "delete", "new leader", "restart"}).Draw(t, "move") {
				case "append":
					log.Append(n)
				case "upload":
					log.Upload(log.LogEnd() - n)
				case "delete locally":
					log.DeleteLocal(log.LogEnd() - n)
				case "delete":
					log.DeleteRecords(log.LogStart() + n)
				case "new leader":
					log.NewLeaderEpoch(log.LeaderEpoch() + 1)
				case "restart":
					log.Restart(log.LeaderEpoch() + 1)
					if rapid.Bool().Draw(t, "learn") {
						log.LearnRemote()
					}
				}
				a := log.NativeEarliestPendingUpload(tierlog.ReadUncommitted, tierlog.ConsumerReplicaID, -1)
				judge.answers(judge.latest, judge.latest+1, 1)[0].add(a.Offset, a.Epoch)
				count++
			}
			judge.snapshot([]state{stateOf(log)}, undisturbed)
		}
		if want := (report.Counts{Answers: count}); judge.counts != want {
			t.Fatalf("%+v, want %+v: %v\n%v", judge.counts, want, judge.notes, log)
		}
	})
}

// Planted wrong answers while a log moves from one state to another.
func TestWrongAnswersBetweenTwoStates(t *testing.T) {
	log := tierlog.New(0)
	log.SetRemoteStorage(codec.RemoteStorageEnabled)
	log.Append(100)
	log.Upload(49)
	log.DeleteLocal(40)
	before := stateOf(log) // -6 is 50
	log.Append(100)
	log.Upload(119)
	after := stateOf(log) // -6 is 120

	f := func(offset int64, epoch int32, want string) {
		t.Helper()
		judge := newTruth(true)
		judge.snapshot([]state{before}, undisturbed)
		judge.answers(0, 1, 1)[0].add(50, 0)
		judge.answers(0, 1, 1)[0].add(offset, epoch)
		judge.answers(0, 1, 1)[0].add(120, 0)
		judge.snapshot([]state{after}, undisturbed)
		got := ""
		if len(judge.notes) > 0 {
			got = judge.notes[0]
		}
		full := ""
		if want != "" {
			full = "partition 0, 3 answers between two snapshots of the broker: " + want +
				"; before {start:{offset:0 epoch:0} local:{offset:40 epoch:0} tier:{offset:49 epoch:0} last:{offset:100 epoch:0}}" +
				", after {start:{offset:0 epoch:0} local:{offset:40 epoch:0} tier:{offset:119 epoch:0} last:{offset:200 epoch:0}}"
		}
		if got != full {
			t.Errorf("%d/%d: got  %s\nwant %s", offset, epoch, got, full)
		}
	}
	f(50, 0, "")
	f(77, 0, "")
	f(120, 0, "")
	f(49, 0, "offsets from 49 to 120, and the broker allows 50 to 120, below 200")
	f(0, 0, "offsets from 0 to 120, and the broker allows 50 to 120, below 200")
	f(121, 0, "offsets from 50 to 121, and the broker allows 50 to 120, below 200")
	f(100, 1, "leader epochs from 0 to 1, and the broker has up to 0")
	f(-1, -1, "") // all 100 records can have been uploaded before the next ones came
	log.Append(1)
	still := stateOf(log)
	a := &answers{}
	a.add(-1, -1)
	if got, want := a.check(still, still, true, undisturbed), "no offset, and the broker has 120 to upload"; got != want {
		t.Errorf("-1 where there is something: %q, want %q", got, want)
	}
}
