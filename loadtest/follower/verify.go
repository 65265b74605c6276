// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
)

// verify checks what a replica ended up with, against what was produced and against what
// the leader answers: every byte from its start to the end, the rest in remote storage, and
// the leader epochs.
func (t *Topic) verify(ctx context.Context, r *Replica, remote LocalRemote, storage Storage, leader Leader, epoch int32) error {
	if r.End() != t.End() || r.LogStart != t.LogStart {
		return fmt.Errorf("the replica is [%d, %d), the log [%d, %d)", r.LogStart, r.End(), t.LogStart, t.End())
	}
	if err := t.verifyBytes(r); err != nil {
		return err
	}
	if storage == Tiered {
		if err := t.verifyRemote(remote, r.Start()); err != nil {
			return err
		}
	} else if r.Start() > t.LogStart {
		return fmt.Errorf("the replica begins at %d, the log at %d, and there is no remote storage", r.Start(), t.LogStart)
	}
	return verifyEpochs(ctx, r, leader, epoch)
}

// verifyBytes compares the replica's log with what was produced.
func (t *Topic) verifyBytes(r *Replica) error {
	log := bufio.NewReaderSize(r.Reader(), 1<<20)
	var want []byte
	for _, w := range t.batches {
		if w.next() <= r.Start() {
			continue
		}
		want = w.appendTo(want[:0])
		got := make([]byte, len(want))
		if _, err := io.ReadFull(log, got); err != nil {
			return fmt.Errorf("the replica ends before the batch at %d: %w", w.first, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("batch at %d: the replica has\n%x\nnot\n%x", w.first, got[:batchHeader+16], want[:batchHeader+16])
		}
	}
	if n, err := io.Copy(io.Discard, log); err != nil || n != 0 {
		return fmt.Errorf("the replica has %d bytes more than was produced (%w)", n, err)
	}
	return nil
}

// verifyRemote checks that remote storage holds, as produced, everything from the log start
// to an offset.
func (t *Topic) verifyRemote(remote LocalRemote, end int64) error {
	segments, err := remote.segments()
	if err != nil {
		return err
	}
	at := t.LogStart
	var want []byte
	for _, s := range segments {
		err := eachBatch(s.path, func(got []byte, b batch) error {
			if b.last < at {
				return nil
			}
			if b.first > at {
				return fmt.Errorf("remote storage has a batch at %d where %d comes next", b.first, at)
			}
			w, ok := t.at(b.first)
			if want = w.appendTo(want[:0]); !ok || !bytes.Equal(got, want) {
				return fmt.Errorf("batch at %d: remote storage has\n%x\nnot\n%x", b.first, got[:batchHeader], want[:batchHeader])
			}
			at = b.last + 1
			return nil
		})
		if err != nil {
			return err
		}
	}
	if at < end {
		return fmt.Errorf("the replica begins at %d, and remote storage ends at %d", end, at)
	}
	return nil
}

// at returns the batch that begins at an offset. All have the same number of records.
func (t *Topic) at(offset int64) (written, bool) {
	i := int(offset) / t.Shape.BatchRecords
	if i >= len(t.batches) || t.batches[i].first != offset {
		return written{}, false
	}
	return t.batches[i], true
}

// verifyEpochs asks the leader for every epoch and compares with what the replica would
// answer if it led. The leader knows epochs without records too: they end where the log does.
func verifyEpochs(ctx context.Context, r *Replica, leader Leader, epoch int32) error {
	var all []int32
	for e := int32(0); e <= epoch; e++ {
		all = append(all, e)
	}
	ends, err := leader.EpochEnds(ctx, epoch, all)
	if err != nil {
		return err
	}
	for i, got := range ends {
		own := r.Epochs.EndOf(all[i], r.End())
		if all[i] > r.Epochs.Latest() {
			own = EpochEnd{Epoch: got.Epoch, Offset: r.End()}
		}
		if got != own {
			return fmt.Errorf("epoch %d: the leader answers %+v, and the replica, whose epochs are %v, would answer %+v", all[i], got, r.Epochs, own)
		}
	}
	return nil
}
