// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"slices"

	"tiergate/loadtest/kafka"
)

// epochsAtOnce bounds how many epochs one OffsetForLeaderEpoch request asks for.
const epochsAtOnce = 64

// tier is TierStateMachine: it gives the replica the state of all that is before an offset
// on the leader, from remote storage, and has it begin after the segment that holds the
// offset before: Kafka takes a segment's end, not the offset that it asked for.
//
// A broker reads the leader epochs out of that segment's checkpoint. Here they come from
// the leader, by OffsetForLeaderEpoch, since that works with any remote storage and shows
// what a proxy on the way answers; the checkpoint is what they are compared with.
func (f *Follower) tier(ctx context.Context, from, start kafka.Position) error {
	before, err := f.epochs(ctx, start, from.Offset)
	if err != nil {
		return err
	}
	segment, ok, err := f.Remote.Segment(from.Offset-1, before.At(from.Offset-1))
	if err != nil {
		return err
	}
	if !ok {
		return errNotReady{fmt.Sprintf("no remote segment with %d", from.Offset-1)}
	}
	next := segment.Last + 1
	epochs, err := f.epochs(ctx, start, next)
	if err != nil {
		return err
	}
	if witness := segment.Epochs.From(start.Offset).Before(next); !slices.Equal(epochs, witness) {
		return fmt.Errorf("the leader's epochs for [%d, %d) are %v, and the remote segment's checkpoint says %v", start.Offset, next, epochs, witness)
	}
	f.step("auxiliary state of [%d, %d): epochs %v", start.Offset, next, epochs)
	return f.Replica.Restore(next, start.Offset, epochs)
}

// epochs asks the leader for the epochs of [start, end). Kafka does not list them: the
// answer to an epoch that has no records is that of the one before.
//
// Where the log start lies within an uploaded segment and nothing before end is left, the
// epoch of the offset before end is still asked for: the segment is looked up by it.
func (f *Follower) epochs(ctx context.Context, start kafka.Position, end int64) (Epochs, error) {
	var found Epochs
	at := min(start.Offset, end-1)
	for first := max(start.Epoch-1, 0); ; first += epochsAtOnce {
		var asked []int32
		for e := first; e < first+epochsAtOnce && e <= f.epoch; e++ {
			asked = append(asked, e)
		}
		if len(asked) == 0 {
			return nil, fmt.Errorf("no leader epoch up to %d reaches offset %d", f.epoch, end)
		}
		ends, err := f.leader.EpochEnds(ctx, f.epoch, asked)
		if err != nil {
			return nil, err
		}
		for _, e := range ends {
			if e.Offset <= at {
				continue // an epoch that ends before the log starts, or has no records
			}
			found = found.Noted(e.Epoch, at)
			if at = e.Offset; at >= end {
				return found, nil
			}
		}
	}
}
