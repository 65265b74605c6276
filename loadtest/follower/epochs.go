// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"fmt"
	"strings"

	"tiergate/loadtest/kafka"
)

// Epochs is a leader epoch cache: the epochs that have records, ascending, each with the
// offset that it begins at. Source: LeaderEpochFileCache.
type Epochs []kafka.Position

// EpochEnd is an answer of OffsetForLeaderEpoch: the largest epoch that is not above the
// one asked for, and the offset that it ends before. Both are -1 where there is none.
type EpochEnd struct {
	Epoch  int32
	Offset int64
}

// Latest is the newest epoch, -1 without one.
func (e Epochs) Latest() int32 {
	if len(e) == 0 {
		return -1
	}
	return e[len(e)-1].Epoch
}

// EndOf returns what a replica with this cache and this end offset answers for an epoch.
func (e Epochs) EndOf(epoch int32, end int64) EpochEnd {
	if epoch < 0 || epoch > e.Latest() {
		return EpochEnd{Epoch: -1, Offset: -1}
	}
	found := EpochEnd{Epoch: epoch, Offset: end} // older than the first entry: the epoch itself
	for i := len(e) - 1; i >= 0 && e[i].Epoch > epoch; i-- {
		found.Offset = e[i].Offset
	}
	for _, entry := range e {
		if entry.Epoch <= epoch {
			found.Epoch = entry.Epoch
		}
	}
	return found
}

// At returns the epoch of an offset, -1 before the first entry.
func (e Epochs) At(offset int64) int32 {
	epoch := int32(-1)
	for _, entry := range e {
		if entry.Offset <= offset {
			epoch = entry.Epoch
		}
	}
	return epoch
}

// Noted returns the cache after a batch of an epoch at an offset.
func (e Epochs) Noted(epoch int32, offset int64) Epochs {
	if epoch <= e.Latest() {
		return e
	}
	return append(e, kafka.Position{Offset: offset, Epoch: epoch})
}

// Before returns the entries that begin before an offset, where a log is truncated to it.
func (e Epochs) Before(offset int64) Epochs {
	for i, entry := range e {
		if entry.Offset >= offset {
			return e[:i:i]
		}
	}
	return e
}

// From returns what is left when the log starts at an offset: the epoch there begins there.
func (e Epochs) From(offset int64) Epochs {
	var left Epochs
	for i, entry := range e {
		if i+1 < len(e) && e[i+1].Offset <= offset {
			continue
		}
		left = append(left, kafka.Position{Offset: max(entry.Offset, offset), Epoch: entry.Epoch})
	}
	return left
}

// String is epoch@offset for every entry.
func (e Epochs) String() string {
	var entries []string
	for _, entry := range e {
		entries = append(entries, fmt.Sprintf("%d@%d", entry.Epoch, entry.Offset))
	}
	return strings.Join(entries, " ")
}
