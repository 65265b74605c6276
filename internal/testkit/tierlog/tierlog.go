// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package tierlog is a plain model of one partition's log with tiered storage, in
// memory. It answers ListOffsets as a broker of Kafka 3.9 to 4.1 does, the same
// question as a native broker of 4.2 or later does, and OffsetForLeaderEpoch. Tests
// compare with it, and the simulated broker answers from it.
//
// Nothing here is taken from the product, so that the two can disagree. Sources:
// Kafka's UnifiedLog.fetchOffsetByTimestamp and fetchEarliestPendingUploadOffset,
// Partition.fetchOffsetForTimestamp, ReplicaManager.fetchOffset and
// LeaderEpochFileCache.
//
// The model holds offsets and leader epochs only, no records. The record at offset o
// has timestamp o.
package tierlog

import (
	"fmt"
	"slices"

	"tiergate/codec"
)

// Isolation levels and replica ids of a ListOffsets request.
const (
	ReadUncommitted int8 = 0
	ReadCommitted   int8 = 1

	// ConsumerReplicaID reads up to the high watermark or the last stable offset. Every
	// other replica id reads up to the log end.
	ConsumerReplicaID int32 = -1
	// DebuggingReplicaID is answered by a broker that is not the leader too.
	DebuggingReplicaID int32 = -2
)

// Error codes that the model answers with.
const (
	None                int16 = 0
	NotLeaderOrFollower int16 = 6
	UnsupportedVersion  int16 = 35
	FencedLeaderEpoch   int16 = 74
	UnknownLeaderEpoch  int16 = 75
	OffsetNotAvailable  int16 = 78
)

// What Kafka writes where there is nothing to say. As the current leader epoch of a
// request, noEpoch means that the client does not check it.
const (
	noOffset    int64 = -1
	noEpoch     int32 = -1
	noTimestamp int64 = -1
)

// Answer is one partition of a ListOffsets response.
type Answer struct {
	ErrorCode int16
	Timestamp int64
	Offset    int64
	Epoch     int32
}

// EpochEnd is one partition of an OffsetForLeaderEpoch response.
type EpochEnd struct {
	ErrorCode int16
	Epoch     int32
	EndOffset int64
}

// entry of the leader epoch cache: the epoch's first offset.
type entry struct {
	epoch int32
	start int64
}

// unheld means that a watermark follows the log.
const unheld int64 = -1

// Log is the log of one partition on the broker that leads it. Methods that change it
// never leave the states that a broker can be in: an offset that a broker would refuse
// is moved to the nearest one that it would take. Not safe for concurrent use.
type Log struct {
	remote  codec.RemoteStorage
	copying bool

	logStart, localLogStart, logEnd int64
	heldWatermark, heldStable       int64

	// highestRemote is what the leader knows, -1 when nothing; uploaded is what the
	// remote storage holds. They differ between a restart and LearnRemote.
	highestRemote, uploaded int64

	leader           bool
	leaderEpoch      int32
	leaderEpochStart int64
	epochs           []entry

	// tiered has, of each epoch that ever uploaded, the highest offset; by epoch.
	tiered []EpochStart
}

// New returns an empty log whose broker has become leader with the given epoch, of a
// topic without remote storage.
func New(leaderEpoch int32) *Log {
	l := &Log{
		remote:        codec.RemoteStorageDisabled,
		copying:       true,
		heldWatermark: unheld,
		heldStable:    unheld,
		highestRemote: noOffset,
		uploaded:      noOffset,
	}
	l.NewLeaderEpoch(leaderEpoch)
	return l
}

// Clone returns a copy that shares nothing with l.
func (l *Log) Clone() *Log {
	c := *l
	c.epochs = slices.Clone(l.epochs)
	c.tiered = slices.Clone(l.tiered)
	return &c
}

// String tells the whole state in one line, for failure messages.
func (l *Log) String() string {
	return fmt.Sprintf("start %d local %d tier %d (uploaded %d) stable %d watermark %d end %d leader epoch %d from %d, epochs %v, remote storage %d, copying %t, leader %t",
		l.logStart, l.localLogStart, l.highestRemote, l.uploaded, l.LastStableOffset(), l.HighWatermark(), l.logEnd,
		l.leaderEpoch, l.leaderEpochStart, l.epochs, l.remote, l.copying, l.leader)
}

// LogStart is the log start offset.
func (l *Log) LogStart() int64 { return l.logStart }

// LocalLogStart is the first offset that is on the broker's own disk.
func (l *Log) LocalLogStart() int64 { return l.localLogStart }

// LogEnd is the offset of the next record.
func (l *Log) LogEnd() int64 { return l.logEnd }

// HighestRemote is the highest offset that the leader knows to be uploaded, or -1.
func (l *Log) HighestRemote() int64 { return l.highestRemote }

// LeaderEpoch is the current leader epoch.
func (l *Log) LeaderEpoch() int32 { return l.leaderEpoch }

// IsLeader says whether the broker leads the partition.
func (l *Log) IsLeader() bool { return l.leader }

// RemoteStorage is what remote.storage.enable says.
func (l *Log) RemoteStorage() codec.RemoteStorage { return l.remote }

// HighWatermark is the log end, unless it is held back.
func (l *Log) HighWatermark() int64 {
	if l.heldWatermark == unheld {
		return l.logEnd
	}
	return l.heldWatermark
}

// LastStableOffset is the high watermark, unless an open transaction holds it back.
func (l *Log) LastStableOffset() int64 {
	if l.heldStable == unheld {
		return l.HighWatermark()
	}
	return min(l.heldStable, l.HighWatermark())
}

// Append adds n records.
func (l *Log) Append(n int64) { l.logEnd += max(n, 0) }

// SetHighWatermark moves the high watermark up to offset, at most to the log end, and
// holds it there while records are appended.
func (l *Log) SetHighWatermark(offset int64) {
	l.heldWatermark = clamp(offset, l.HighWatermark(), l.logEnd)
}

// ReleaseHighWatermark lets the high watermark follow the log end again.
func (l *Log) ReleaseHighWatermark() { l.heldWatermark = unheld }

// AwaitHighWatermark makes the broker leader with a new epoch that does not know the
// high watermark yet: it is still at offset, between the log start and the log end.
// Until it reaches the start of the epoch (ReleaseHighWatermark, SetHighWatermark)
// consumers get OFFSET_NOT_AVAILABLE (KIP-207).
func (l *Log) AwaitHighWatermark(epoch int32, offset int64) {
	l.NewLeaderEpoch(epoch)
	l.heldWatermark = clamp(offset, l.logStart, l.logEnd)
}

// SetLastStableOffset moves the last stable offset up to offset, at most to the log end,
// and holds it there, as a transaction does whose first record is there. What is uploaded
// stays stable.
func (l *Log) SetLastStableOffset(offset int64) {
	l.heldStable = clamp(offset, max(l.LastStableOffset(), l.uploaded+1), l.logEnd)
}

// ReleaseLastStableOffset ends the transaction.
func (l *Log) ReleaseLastStableOffset() { l.heldStable = unheld }

// NewLeaderEpoch makes the broker leader with a new epoch from the log end on. An epoch
// that is not above the current one is raised by one.
func (l *Log) NewLeaderEpoch(epoch int32) {
	if n := len(l.epochs); n > 0 && epoch <= l.leaderEpoch {
		epoch = l.leaderEpoch + 1
	}
	// An epoch that got no record gives its place to the new one
	// (LeaderEpochFileCache.assign).
	for len(l.epochs) > 0 && l.epochs[len(l.epochs)-1].start >= l.logEnd {
		l.epochs = l.epochs[:len(l.epochs)-1]
	}
	l.epochs = append(l.epochs, entry{epoch, l.logEnd})
	l.leader, l.leaderEpoch, l.leaderEpochStart = true, epoch, l.logEnd
}

// Restart is a restart of the only replica: a new leader epoch, and the leader does not
// know what is uploaded until LearnRemote.
func (l *Log) Restart(epoch int32) {
	l.NewLeaderEpoch(epoch)
	l.highestRemote = noOffset
}

// LearnRemote is what RemoteLogManager's copy task does first: find the highest
// uploaded offset. It finds none when copying is off, and none when everything
// uploaded was deleted.
func (l *Log) LearnRemote() {
	if l.remote == codec.RemoteStorageEnabled && l.copying && l.uploaded >= l.logStart {
		l.highestRemote = max(l.highestRemote, l.uploaded)
	}
}

// Resign makes the broker a follower: it answers NOT_LEADER_OR_FOLLOWER. NewLeaderEpoch
// makes it leader again.
func (l *Log) Resign() { l.leader = false }

// Upload makes endOffset, the last offset of a segment, the highest remote offset. Only
// stable records that the log still holds are uploaded.
func (l *Log) Upload(endOffset int64) {
	l.LearnRemote()
	endOffset = min(endOffset, l.LastStableOffset()-1)
	if l.remote != codec.RemoteStorageEnabled || !l.copying || endOffset < l.logStart || endOffset <= l.highestRemote {
		return
	}
	for i, e := range l.epochs {
		last := endOffset
		if i+1 < len(l.epochs) {
			last = min(last, l.epochs[i+1].start-1)
		}
		if e.start <= last && last > l.uploaded {
			l.noteTiered(e.epoch, last)
		}
	}
	l.highestRemote = endOffset
	l.uploaded = max(l.uploaded, endOffset)
}

// noteTiered keeps the highest offset that an epoch uploaded.
func (l *Log) noteTiered(epoch int32, last int64) {
	for i := range l.tiered {
		if l.tiered[i].Epoch == epoch {
			l.tiered[i].Offset = max(l.tiered[i].Offset, last)
			return
		}
	}
	l.tiered = append(l.tiered, EpochStart{Epoch: epoch, Offset: last})
}

// Tiered returns, of each epoch that ever uploaded something, the highest offset, by
// epoch: what the topic __remote_log_metadata holds of the log.
func (l *Log) Tiered() []EpochStart { return slices.Clone(l.tiered) }

// LearnTiered makes the leader know what RemoteLogManager.findHighestRemoteOffset of Kafka
// 3.7 to 4.3 finds in the remote log metadata: the highest offset of the newest epoch of its
// own log that uploaded something, at most the last one of that epoch.
func (l *Log) LearnTiered() {
	l.highestRemote = noOffset
	for i := len(l.epochs) - 1; i >= 0; i-- {
		for _, up := range l.tiered {
			if up.Epoch != l.epochs[i].epoch {
				continue
			}
			last := l.logEnd - 1
			if i+1 < len(l.epochs) {
				last = l.epochs[i+1].start - 1
			}
			l.highestRemote = min(up.Offset, last)
			return
		}
	}
}

// StopCopying is remote.log.copy.disable=true: nothing more is uploaded, and after a
// restart the leader knows of nothing uploaded.
func (l *Log) StopCopying() { l.copying = false }

// ResumeCopying is remote.log.copy.disable=false.
func (l *Log) ResumeCopying() { l.copying = true }

// DeleteLocal deletes what lies below upTo from the broker's disk: only what is known
// to be uploaded. It stays readable from the remote storage.
func (l *Log) DeleteLocal(upTo int64) {
	l.localLogStart = max(l.localLogStart, min(upTo, l.highestRemote+1))
}

// DeleteRecords moves the log start to upTo, at most to the high watermark. Remote
// retention does the same.
func (l *Log) DeleteRecords(upTo int64) {
	upTo = min(upTo, l.HighWatermark())
	if upTo <= l.logStart {
		return
	}
	l.logStart = upTo
	l.localLogStart = max(l.localLogStart, upTo)
	if l.heldStable != unheld {
		l.heldStable = max(l.heldStable, upTo)
	}
	l.truncateEpochs(upTo)
}

// truncateEpochs is LeaderEpochFileCache.truncateFromStart: the epoch of the first
// offset stays and starts there.
func (l *Log) truncateEpochs(start int64) {
	first := -1
	for i, e := range l.epochs {
		if e.start <= start {
			first = i
		}
	}
	if first >= 0 {
		l.epochs = slices.Clone(l.epochs[first:])
		l.epochs[0].start = start
	}
}

// LoseEpochs is a leader epoch checkpoint that got lost: the cache knows the current
// leader epoch only, from the log end on.
func (l *Log) LoseEpochs() {
	l.epochs = []entry{{l.leaderEpoch, l.logEnd}}
}

// SetRemoteStorage is remote.storage.enable. Switching it off deletes the remote part
// (remote.log.delete.on.disable=true), so the log starts where the local log does.
func (l *Log) SetRemoteStorage(s codec.RemoteStorage) {
	l.remote = s
	if s == codec.RemoteStorageDisabled {
		l.highestRemote, l.uploaded = noOffset, noOffset
		if l.localLogStart > l.logStart {
			l.logStart = l.localLogStart
			l.truncateEpochs(l.logStart)
		}
	}
}

// clamp moves v into [lo, hi].
func clamp(v, lo, hi int64) int64 { return max(lo, min(v, hi)) }
