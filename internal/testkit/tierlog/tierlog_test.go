// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tierlog

import (
	"testing"

	"tiergate/codec"
)

// TestVectors holds the model to what real brokers answered (the specification's table).
func TestVectors(t *testing.T) {
	for _, v := range Vectors() {
		t.Run(v.Name, func(t *testing.T) {
			l := v.Log()
			for _, look := range []struct {
				timestamp int64
				want      OffsetEpoch
			}{
				{codec.EarliestTimestamp, v.Start},
				{codec.EarliestLocalTimestamp, v.Local},
				{codec.LatestTieredTimestamp, v.Tier},
				{codec.LatestTimestamp, v.Last},
			} {
				want := Answer{Timestamp: -1, Offset: look.want.Offset, Epoch: look.want.Epoch}
				if got := l.ListOffset(look.timestamp, ReadUncommitted, ConsumerReplicaID, -1); got != want {
					t.Errorf("timestamp %d: got %+v, want %+v\nlog: %v", look.timestamp, got, want, l)
				}
			}
			for epoch, want := range v.Ends {
				if got := l.EpochEndOffset(epoch, -1); got != want {
					t.Errorf("epoch %d: got %+v, want %+v\nlog: %v", epoch, got, want, l)
				}
			}
			want := Answer{Timestamp: -1, Offset: v.PendingUpload.Offset, Epoch: v.PendingUpload.Epoch}
			if got := l.NativeEarliestPendingUpload(ReadUncommitted, ConsumerReplicaID, -1); got != want {
				t.Errorf("-6: got %+v, want %+v\nlog: %v", got, want, l)
			}
		})
	}
}

// look is a ListOffsets question and its answer.
type look struct {
	timestamp    int64
	isolation    int8
	replicaID    int32
	currentEpoch int32
	want         Answer
}

func at(offset int64, epoch int32) Answer { return Answer{Timestamp: -1, Offset: offset, Epoch: epoch} }

func ask(t *testing.T, l *Log, looks ...look) {
	t.Helper()
	for _, k := range looks {
		got := l.ListOffset(k.timestamp, k.isolation, k.replicaID, k.currentEpoch)
		if k.timestamp == codec.EarliestPendingUploadTimestamp {
			got = l.NativeEarliestPendingUpload(k.isolation, k.replicaID, k.currentEpoch)
		}
		if got != k.want {
			t.Errorf("timestamp %d isolation %d replica %d epoch %d: got %+v, want %+v\nlog: %v",
				k.timestamp, k.isolation, k.replicaID, k.currentEpoch, got, k.want, l)
		}
	}
}

// TestReaders: consumers read up to the high watermark or the last stable offset, all
// others up to the log end.
func TestReaders(t *testing.T) {
	l := newTiered(3)
	l.Append(10)
	l.SetLastStableOffset(10)
	l.Append(10)
	l.SetHighWatermark(20)
	l.Append(10)
	ask(t, l,
		look{codec.LatestTimestamp, ReadCommitted, ConsumerReplicaID, -1, at(10, 3)},
		look{codec.LatestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(20, 3)},
		look{codec.LatestTimestamp, ReadCommitted, 5, -1, at(30, 3)},
		look{codec.LatestTimestamp, ReadUncommitted, DebuggingReplicaID, -1, at(30, 3)},
		look{codec.MaxTimestamp, ReadUncommitted, 5, -1, Answer{Timestamp: 29, Offset: 29, Epoch: 3}},
		look{codec.MaxTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(-1, -1)},
		look{15, ReadUncommitted, ConsumerReplicaID, -1, Answer{Timestamp: 15, Offset: 15, Epoch: 3}},
		look{15, ReadCommitted, ConsumerReplicaID, -1, at(-1, -1)},
		look{99, ReadUncommitted, 5, -1, at(-1, -1)})
	// Only stable records are uploaded.
	l.Upload(25)
	ask(t, l,
		look{codec.LatestTieredTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(9, 3)},
		look{codec.EarliestPendingUploadTimestamp, ReadCommitted, ConsumerReplicaID, -1, at(-1, -1)},
		look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(10, 3)})
	l.ReleaseLastStableOffset()
	l.ReleaseHighWatermark()
	ask(t, l,
		look{codec.LatestTimestamp, ReadCommitted, ConsumerReplicaID, -1, at(30, 3)},
		look{codec.EarliestPendingUploadTimestamp, ReadCommitted, ConsumerReplicaID, -1, at(10, 3)})
}

// TestNewLeaderAwaitsHighWatermark: consumers get OFFSET_NOT_AVAILABLE for the end, and
// for what lies at the high watermark or above it.
func TestNewLeaderAwaitsHighWatermark(t *testing.T) {
	l := newTiered(0)
	l.Append(30)
	l.Upload(19)
	l.AwaitHighWatermark(4, 20)
	unavailable := failed(OffsetNotAvailable)
	ask(t, l,
		look{codec.LatestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, unavailable},
		look{codec.LatestTimestamp, ReadUncommitted, 5, -1, at(30, 4)},
		look{codec.EarliestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(0, 0)},
		look{codec.LatestTieredTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(19, 0)},
		look{codec.MaxTimestamp, ReadUncommitted, ConsumerReplicaID, -1, unavailable},
		look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, -1, unavailable})
	l.SetHighWatermark(21)
	ask(t, l, look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(20, 0)})
	l.AwaitHighWatermark(6, 10)
	ask(t, l, look{codec.LatestTieredTimestamp, ReadUncommitted, ConsumerReplicaID, -1, unavailable})
	l.ReleaseHighWatermark()
	ask(t, l, look{codec.LatestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(30, 6)})
}

// TestRefusals: the errors that come before any offset.
func TestRefusals(t *testing.T) {
	l := newTiered(4)
	l.Append(5)
	ask(t, l,
		look{codec.LatestTimestamp, ReadUncommitted, ConsumerReplicaID, 4, at(5, 4)},
		look{codec.LatestTimestamp, ReadUncommitted, ConsumerReplicaID, 3, failed(FencedLeaderEpoch)},
		look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, 3, failed(FencedLeaderEpoch)},
		look{codec.EarliestLocalTimestamp, ReadUncommitted, 5, 5, failed(UnknownLeaderEpoch)},
		look{-7, ReadUncommitted, 5, -1, failed(UnsupportedVersion)})
	if got, want := l.ListOffset(-6, ReadUncommitted, ConsumerReplicaID, -1), failed(UnsupportedVersion); got != want {
		t.Errorf("-6 asked of an old broker: got %+v, want %+v", got, want)
	}
	if got, want := l.EpochEndOffset(4, 3), (EpochEnd{FencedLeaderEpoch, -1, -1}); got != want {
		t.Errorf("epoch end: got %+v, want %+v", got, want)
	}
	l.Resign()
	ask(t, l,
		look{codec.EarliestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, failed(NotLeaderOrFollower)},
		look{codec.EarliestTimestamp, ReadUncommitted, DebuggingReplicaID, -1, at(0, 4)})
	if l.IsLeader() {
		t.Error("the leader has resigned")
	}
}

// TestEpochEnds: floor entry and start of the next, the log end for the newest epoch,
// nothing above it, and the epoch itself below the first entry.
func TestEpochEnds(t *testing.T) {
	l := New(2)
	l.Append(10)
	l.NewLeaderEpoch(5)
	// No record in epoch 6: epoch 8 takes its place.
	l.Append(10)
	l.NewLeaderEpoch(6)
	l.NewLeaderEpoch(8)
	l.Append(10)
	l.DeleteRecords(4)
	for epoch, want := range map[int32]EpochEnd{
		-1: {Epoch: -1, EndOffset: -1}, 1: {Epoch: 1, EndOffset: 4}, 2: {Epoch: 2, EndOffset: 10}, 4: {Epoch: 2, EndOffset: 10},
		5: {Epoch: 5, EndOffset: 20}, 6: {Epoch: 5, EndOffset: 20}, 8: {Epoch: 8, EndOffset: 30}, 9: {Epoch: -1, EndOffset: -1},
	} {
		if got := l.EpochEndOffset(epoch, -1); got != want {
			t.Errorf("epoch %d: got %+v, want %+v\nlog: %v", epoch, got, want, l)
		}
	}
	l.LoseEpochs()
	l.Append(5)
	ask(t, l,
		look{codec.EarliestTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(4, -1)},
		look{29, ReadUncommitted, ConsumerReplicaID, -1, Answer{Timestamp: 29, Offset: 29, Epoch: -1}},
		look{30, ReadUncommitted, ConsumerReplicaID, -1, Answer{Timestamp: 30, Offset: 30, Epoch: 8}})
}

// TestRefusedMoves: what a broker would not do changes nothing, or as much as it would.
func TestRefusedMoves(t *testing.T) {
	l := New(0)
	l.Append(30)
	l.Upload(9)
	if got := l.HighestRemote(); got != -1 {
		t.Errorf("uploaded up to %d without remote storage", got)
	}
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Upload(9)
	l.DeleteLocal(20)
	if got := l.LocalLogStart(); got != 10 {
		t.Errorf("local log starts at %d, uploaded up to 9", got)
	}
	l.DeleteRecords(5)
	l.DeleteRecords(2)
	if got := l.LogStart(); got != 5 {
		t.Errorf("log starts at %d", got)
	}
	l.StopCopying()
	l.Upload(19)
	if got := l.HighestRemote(); got != 9 {
		t.Errorf("uploaded up to %d with copying off", got)
	}
	l.ResumeCopying()
	l.Restart(0)
	if got := l.LeaderEpoch(); got != 1 {
		t.Errorf("leader epoch %d after a restart with an old one", got)
	}
	ask(t, l, look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(-1, -1)})
	l.LearnRemote()
	ask(t, l, look{codec.EarliestPendingUploadTimestamp, ReadUncommitted, ConsumerReplicaID, -1, at(10, 0)})
	l.SetRemoteStorage(codec.RemoteStorageDisabled)
	if got := l.LogStart(); got != 10 {
		t.Errorf("log starts at %d, the local log at 10, and the remote part is gone", got)
	}
	if got := l.LogEnd(); got != 30 {
		t.Errorf("log ends at %d", got)
	}
}

// TestClone: a clone and its original go their own ways.
func TestClone(t *testing.T) {
	l := uploaded()
	before := l.String()
	c := l.Clone()
	c.Append(5)
	c.Restart(9)
	c.Append(5)
	c.DeleteRecords(9000)
	if got := l.String(); got != before {
		t.Errorf("got  %s\nwant %s", got, before)
	}
	if c.LogEnd() != 10010 || c.RemoteStorage() != codec.RemoteStorageEnabled {
		t.Errorf("clone: %v", c)
	}
}
