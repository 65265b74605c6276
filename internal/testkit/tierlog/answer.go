// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tierlog

import (
	"sort"

	"tiergate/codec"
)

// ListOffset answers as a broker of Kafka 3.9 to 4.1 answers ListOffsets version 9 or
// 10. isolation counts for ConsumerReplicaID only; currentLeaderEpoch -1 means that the
// client does not check it. -6 and below get UNSUPPORTED_VERSION.
func (l *Log) ListOffset(timestamp int64, isolation int8, replicaID, currentLeaderEpoch int32) Answer {
	if timestamp <= codec.EarliestPendingUploadTimestamp {
		return failed(UnsupportedVersion)
	}
	if code := l.refuse(replicaID, currentLeaderEpoch); code != None {
		return failed(code)
	}
	switch timestamp {
	case codec.LatestTimestamp:
		if code := l.lagging(replicaID); code != None {
			return failed(code)
		}
		return found(l.lastFetchable(isolation, replicaID), l.leaderEpoch)
	case codec.EarliestTimestamp:
		return found(l.logStart, l.startEpoch())
	case codec.EarliestLocalTimestamp:
		if l.remote == codec.RemoteStorageDisabled {
			return found(l.logStart, l.startEpoch())
		}
		return found(l.localLogStart, l.epochOf(l.localLogStart))
	case codec.LatestTieredTimestamp:
		if l.remote == codec.RemoteStorageDisabled {
			return l.fetchable(found(noOffset, noEpoch), isolation, replicaID)
		}
		return l.fetchable(found(l.highestRemote, l.epochOf(l.highestRemote)), isolation, replicaID)
	case codec.MaxTimestamp:
		return l.record(l.logEnd-1, isolation, replicaID)
	default:
		return l.record(max(timestamp, l.logStart), isolation, replicaID)
	}
}

// NativeEarliestPendingUpload answers -6 as a broker of Kafka 4.2 or later does.
func (l *Log) NativeEarliestPendingUpload(isolation int8, replicaID, currentLeaderEpoch int32) Answer {
	if code := l.refuse(replicaID, currentLeaderEpoch); code != None {
		return failed(code)
	}
	a := found(noOffset, noEpoch)
	switch {
	case l.remote == codec.RemoteStorageDisabled:
	case l.highestRemote >= 0:
		pending := max(l.highestRemote+1, l.logStart)
		a = found(pending, l.epochOf(pending))
	case l.localLogStart == l.logStart:
		a = found(l.logStart, l.startEpoch())
	}
	return l.fetchable(a, isolation, replicaID)
}

// EpochEndOffset answers one epoch of an OffsetForLeaderEpoch request as every broker
// does: the epoch's floor entry and where the next entry starts; the log end for the
// newest epoch; -1 and -1 for an epoch above it. For an epoch older than the first
// entry it is that epoch itself and the start of the first entry.
func (l *Log) EpochEndOffset(epoch, currentLeaderEpoch int32) EpochEnd {
	if code := l.refuse(ConsumerReplicaID, currentLeaderEpoch); code != None {
		return EpochEnd{ErrorCode: code, Epoch: noEpoch, EndOffset: noOffset}
	}
	above := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].epoch > epoch })
	newest := above == len(l.epochs)
	switch {
	case epoch < 0, newest && (above == 0 || l.epochs[above-1].epoch != epoch):
		return EpochEnd{Epoch: noEpoch, EndOffset: noOffset}
	case newest:
		return EpochEnd{Epoch: epoch, EndOffset: l.logEnd}
	case above == 0:
		return EpochEnd{Epoch: epoch, EndOffset: l.epochs[0].start}
	default:
		return EpochEnd{Epoch: l.epochs[above-1].epoch, EndOffset: l.epochs[above].start}
	}
}

// refuse returns the error that comes before any offset is looked at.
func (l *Log) refuse(replicaID, currentLeaderEpoch int32) int16 {
	switch {
	case currentLeaderEpoch != noEpoch && currentLeaderEpoch < l.leaderEpoch:
		return FencedLeaderEpoch
	case currentLeaderEpoch != noEpoch && currentLeaderEpoch > l.leaderEpoch:
		return UnknownLeaderEpoch
	case !l.leader && replicaID != DebuggingReplicaID:
		return NotLeaderOrFollower
	}
	return None
}

// lagging returns OFFSET_NOT_AVAILABLE for consumers of a new leader whose high
// watermark has not reached its epoch yet.
func (l *Log) lagging(replicaID int32) int16 {
	if replicaID == ConsumerReplicaID && l.leaderEpochStart > l.HighWatermark() {
		return OffsetNotAvailable
	}
	return None
}

// lastFetchable is the offset up to which a reader may read.
func (l *Log) lastFetchable(isolation int8, replicaID int32) int64 {
	switch {
	case replicaID != ConsumerReplicaID:
		return l.logEnd
	case isolation == ReadCommitted:
		return l.LastStableOffset()
	default:
		return l.HighWatermark()
	}
}

// fetchable lets an answer through only if the reader may read there.
func (l *Log) fetchable(a Answer, isolation int8, replicaID int32) Answer {
	if a.Offset < l.lastFetchable(isolation, replicaID) {
		return a
	}
	return failed(l.lagging(replicaID))
}

// record answers with a record, if the log has it.
func (l *Log) record(offset int64, isolation int8, replicaID int32) Answer {
	if offset < l.logStart || offset >= l.logEnd {
		return failed(l.lagging(replicaID))
	}
	a := found(offset, l.epochOf(offset))
	a.Timestamp = offset
	return l.fetchable(a, isolation, replicaID)
}

// startEpoch is the epoch of the log start, -1 when the cache starts later.
func (l *Log) startEpoch() int32 {
	if len(l.epochs) > 0 && l.epochs[0].start <= l.logStart {
		return l.epochs[0].epoch
	}
	return noEpoch
}

// epochOf is the epoch of an offset, -1 when the cache does not reach back to it.
func (l *Log) epochOf(offset int64) int32 {
	epoch := noEpoch
	for _, e := range l.epochs {
		if e.start <= offset {
			epoch = e.epoch
		}
	}
	return epoch
}

func found(offset int64, epoch int32) Answer {
	return Answer{Timestamp: noTimestamp, Offset: offset, Epoch: epoch}
}

func failed(code int16) Answer {
	return Answer{ErrorCode: code, Timestamp: noTimestamp, Offset: noOffset, Epoch: noEpoch}
}
