// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// Replica is the log that a follower has on its disk: one file of record batches as they
// came from the leader, where Kafka has segments, and the leader epoch cache. One goroutine
// may use it.
type Replica struct {
	// Epochs is the leader epoch cache, of what is in the file and, after Restore, of what
	// is in remote storage only.
	Epochs Epochs
	// LogStart is the leader's log start offset as far as the replica knows.
	LogStart int64

	file    *os.File
	batches []placed
	next    int64 // the log end offset
}

// placed is a batch and where it stands in the file.
type placed struct {
	batch
	at int64
}

// NewReplica makes an empty replica whose file is path.
func NewReplica(path string) (*Replica, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("log of the replica: %w", err)
	}
	return &Replica{file: file}, nil
}

// Close closes and removes the file.
func (r *Replica) Close() error {
	return errors.Join(r.file.Close(), os.Remove(r.file.Name()))
}

// End is the log end offset: that of the next record.
func (r *Replica) End() int64 { return r.next }

// Start is the first offset that the replica has itself; End when it has none.
func (r *Replica) Start() int64 {
	if len(r.batches) == 0 {
		return r.next
	}
	return r.batches[0].first
}

// Bytes is the size of the log.
func (r *Replica) Bytes() int64 {
	if len(r.batches) == 0 {
		return 0
	}
	last := r.batches[len(r.batches)-1]
	return last.at + int64(last.size)
}

// Append appends the batches of a Fetch answer, which may end in a partial one, and
// returns how many bytes it took. Each must follow the one before. Into an empty log may
// come one that begins before its start and ends after it: the leader's log may start
// within a batch, and the replica then starts where the batch does (Partition,
// UnexpectedAppendOffsetException).
func (r *Replica) Append(b []byte) (int, error) {
	whole := 0
	for whole < len(b) {
		got, err := readBatch(b[whole:])
		if errors.Is(err, errPartialBatch) {
			break
		}
		if err != nil {
			return 0, err
		}
		if len(r.batches) == 0 && got.first < r.next && got.last >= r.next {
			r.next, r.LogStart = got.first, min(r.LogStart, got.first)
		}
		if got.first != r.next {
			return 0, fmt.Errorf("the leader sent a batch at %d where the replica ends at %d", got.first, r.next)
		}
		r.batches = append(r.batches, placed{batch: got, at: r.Bytes()})
		r.next = got.last + 1
		r.Epochs = r.Epochs.Noted(got.epoch, got.first)
		whole += got.size
	}
	if _, err := r.file.WriteAt(b[:whole], r.Bytes()-int64(whole)); err != nil {
		return 0, fmt.Errorf("log of the replica: %w", err)
	}
	return whole, nil
}

// Truncate drops everything from an offset on.
func (r *Replica) Truncate(offset int64) error {
	if offset >= r.next {
		return nil
	}
	keep := sort.Search(len(r.batches), func(i int) bool { return r.batches[i].last >= offset })
	r.batches = r.batches[:keep]
	r.next = offset
	if keep > 0 {
		r.next = r.batches[keep-1].last + 1 // a batch is dropped whole
	}
	r.Epochs = r.Epochs.Before(offset)
	return r.truncateFile()
}

// Restart drops everything, and the next record is that of an offset.
func (r *Replica) Restart(offset int64) error {
	r.batches, r.Epochs, r.next, r.LogStart = nil, nil, offset, offset
	return r.truncateFile()
}

// Restore drops everything and takes over the auxiliary state of what is in remote storage:
// the log starts at logStart, and the replica has nothing of it before offset.
func (r *Replica) Restore(offset, logStart int64, epochs Epochs) error {
	r.batches, r.next, r.LogStart, r.Epochs = nil, offset, logStart, epochs
	return r.truncateFile()
}

// StartAt takes over the leader's log start offset.
func (r *Replica) StartAt(logStart int64) {
	if logStart > r.LogStart {
		r.LogStart = logStart
		r.Epochs = r.Epochs.From(logStart)
	}
}

// Reader returns the whole log, from Start to End.
func (r *Replica) Reader() io.Reader { return io.NewSectionReader(r.file, 0, r.Bytes()) }

func (r *Replica) truncateFile() error {
	if err := r.file.Truncate(r.Bytes()); err != nil {
		return fmt.Errorf("log of the replica: %w", err)
	}
	return nil
}
