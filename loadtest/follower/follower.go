// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// Policy says where an empty replica of a tiered topic begins to copy.
type Policy string

const (
	// EarliestLocal is KIP-405, what every broker does by default: at the leader's earliest
	// local offset (ListOffsets -4).
	EarliestLocal Policy = "-4"
	// EarliestPendingUpload is KIP-1023, follower.fetch.last.tiered.offset.enable=true: at
	// the first offset that is not in remote storage (ListOffsets -6).
	EarliestPendingUpload Policy = "-6"
)

// Storage says whether a topic's records go to remote storage.
type Storage string

const (
	// LocalOnly is a topic without remote.storage.enable.
	LocalOnly Storage = "local only"
	// Tiered is one with it.
	Tiered Storage = "tiered"
)

// Leader is the broker that a replica fetches from. An error that is a *kerr.Error is the
// broker's answer; any other ends the catch-up.
type Leader interface {
	// Fetch asks for records at the replica's end.
	Fetch(ctx context.Context, ask FetchAsk) (Fetched, error)
	// ListOffset asks for one of the offsets that have negative timestamps.
	ListOffset(ctx context.Context, currentEpoch int32, timestamp int64) (kafka.Position, error)
	// EpochEnds asks for the ends of several epochs; the answers have their order.
	EpochEnds(ctx context.Context, currentEpoch int32, epochs []int32) ([]EpochEnd, error)
}

// FetchAsk is a replica's Fetch of one partition.
type FetchAsk struct {
	CurrentEpoch     int32 // of the leader, as the replica knows it
	Offset           int64
	LastFetchedEpoch int32
	LogStart         int64
}

// Fetched is the answer. LogStart is the leader's, also beside an error.
type Fetched struct {
	Batches       []byte
	HighWatermark int64
	LogStart      int64
	// Diverging is where the replica's log has parted from the leader's; nil when it has not.
	Diverging *EpochEnd
}

// Finder finds the leader, as a broker's metadata does.
type Finder interface {
	Leader(ctx context.Context) (leader Leader, epoch int32, err error)
}

// Segment is a segment in remote storage, with the leader epochs up to its end.
type Segment struct {
	First, Last int64
	Epochs      Epochs
}

// Remote is the remote storage of the partition.
type Remote interface {
	// Segment returns the segment that holds an offset written under an epoch, if there is one.
	Segment(offset int64, epoch int32) (Segment, bool, error)
}

// Follower catches up with a leader. All fields but Between and Wait are required.
type Follower struct {
	Policy  Policy
	Storage Storage
	Finder  Finder
	Remote  Remote
	Replica *Replica
	// Between is called after records were appended, before the next Fetch.
	Between func(ctx context.Context, r *Replica) error
	// Wait is called where the leader or the remote storage is not ready; the replica then
	// fetches again. A broker waits for replica.fetch.backoff.ms.
	Wait func(ctx context.Context, why error) error

	leader  Leader
	epoch   int32
	outcome Outcome
}

// Outcome is what a catch-up did. Everything but the durations follows from the leader's log.
type Outcome struct {
	// Steps are the decisions, in order. One that repeats while the replica waits, and
	// records after records, stand once.
	Steps []string `json:"steps"`
	// Start is the first offset that was copied, or would have been.
	Start int64 `json:"start_offset"`
	// LogStart and End are the replica's, in sync.
	LogStart int64 `json:"log_start_offset"`
	End      int64 `json:"end_offset"`
	// CopiedBytes are the record batches that were copied, dropped ones too.
	CopiedBytes int64 `json:"copied_bytes"`
	// LeaderChanges that the replica met.
	LeaderChanges int `json:"leader_changes"`
	// Waits, how often it had to fetch again since something was not ready.
	Waits int `json:"waits"`
	// CaughtUp is the time from the first Fetch to the last record, Waits and all.
	CaughtUp time.Duration `json:"caught_up_ns"`
}

// errNotReady says that the leader or the remote storage does not know yet what the
// replica needs.
type errNotReady struct{ what string }

func (e errNotReady) Error() string { return e.what }

// CatchUp fetches until the replica has reached the high watermark and has told the leader
// so with one more Fetch.
func (f *Follower) CatchUp(ctx context.Context) (Outcome, error) {
	f.outcome = Outcome{Start: -1}
	began := time.Now()
	if err := f.find(ctx); err != nil {
		return f.outcome, err
	}
	for {
		synced, err := f.turn(ctx)
		switch {
		case f.retriable(err):
			err = f.again(ctx, err)
		case err == nil && !synced:
			f.outcome.CaughtUp = time.Since(began)
		}
		if err != nil {
			return f.outcome, fmt.Errorf("replica at %d after %q: %w", f.Replica.End(), f.outcome.Steps, err)
		}
		if synced {
			f.finish()
			return f.outcome, nil
		}
	}
}

// finish notes how the replica is now.
func (f *Follower) finish() {
	if f.outcome.Start < 0 {
		f.outcome.Start = f.Replica.End()
	}
	f.outcome.LogStart, f.outcome.End = f.Replica.LogStart, f.Replica.End()
	f.step("in sync at %d", f.Replica.End())
}

// turn is one Fetch and what follows from its answer. synced is true when the Fetch told
// the leader that the replica is at the high watermark.
func (f *Follower) turn(ctx context.Context) (synced bool, err error) {
	at := f.Replica.End()
	got, err := f.leader.Fetch(ctx, FetchAsk{
		CurrentEpoch: f.epoch, Offset: at, LastFetchedEpoch: f.Replica.Epochs.Latest(), LogStart: f.Replica.LogStart,
	})
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		f.step("Fetch %d: %s", at, kerr.OffsetOutOfRange.Message)
		return false, f.outOfRange(ctx)
	case errors.Is(err, kerr.OffsetMovedToTieredStorage):
		f.step("Fetch %d: %s", at, kerr.OffsetMovedToTieredStorage.Message)
		return false, f.movedToTieredStorage(ctx)
	case err != nil:
		return false, err
	case got.Diverging != nil:
		return false, f.diverged(at, *got.Diverging)
	}
	return f.take(ctx, at, got)
}

// take appends what was fetched.
func (f *Follower) take(ctx context.Context, at int64, got Fetched) (synced bool, err error) {
	empty := f.Replica.Bytes() == 0
	n, err := f.Replica.Append(got.Batches)
	if err != nil {
		return false, err
	}
	f.Replica.StartAt(got.LogStart)
	if n == 0 {
		if len(got.Batches) > 0 {
			return false, fmt.Errorf("Fetch %d brought %d bytes and no whole batch", at, len(got.Batches))
		}
		return at >= got.HighWatermark, nil
	}
	if f.outcome.Start < 0 {
		f.outcome.Start = at
		if empty {
			f.outcome.Start = f.Replica.Start() // a batch may begin before
		}
	}
	f.outcome.CopiedBytes += int64(n)
	f.step("records")
	if f.Between != nil {
		return false, f.Between(ctx, f.Replica)
	}
	return false, nil
}

// outOfRange treats OFFSET_OUT_OF_RANGE.
func (f *Follower) outOfRange(ctx context.Context) error {
	last, err := f.offset(ctx, codec.LatestTimestamp)
	if err != nil {
		return err
	}
	if f.asksPendingUpload(last) {
		start, err := f.offset(ctx, codec.EarliestTimestamp)
		if err != nil {
			return err
		}
		pending, err := f.pendingUpload(ctx, start)
		if err != nil {
			return err
		}
		return f.tier(ctx, pending, start)
	}
	if last.Offset < f.Replica.End() {
		f.step("truncate to %d", last.Offset)
		return f.Replica.Truncate(last.Offset)
	}
	start, err := f.offset(ctx, codec.EarliestTimestamp)
	if err != nil {
		return err
	}
	if start.Offset <= f.Replica.End() {
		return errNotReady{fmt.Sprintf("the leader's log is [%d, %d), and %d is out of its range", start.Offset, last.Offset, f.Replica.End())}
	}
	f.step("start empty at %d", start.Offset)
	return f.Replica.Restart(start.Offset)
}

// movedToTieredStorage treats OFFSET_MOVED_TO_TIERED_STORAGE.
func (f *Follower) movedToTieredStorage(ctx context.Context) error {
	var last kafka.Position
	var err error
	if f.Policy == EarliestPendingUpload {
		if last, err = f.offset(ctx, codec.LatestTimestamp); err != nil {
			return err
		}
	}
	start, err := f.offset(ctx, codec.EarliestTimestamp)
	if err != nil {
		return err
	}
	var from kafka.Position
	if f.asksPendingUpload(last) {
		from, err = f.pendingUpload(ctx, start)
	} else {
		from, err = f.offset(ctx, codec.EarliestLocalTimestamp)
	}
	if err != nil {
		return err
	}
	return f.tier(ctx, from, start)
}

// asksPendingUpload is ReplicaFetcherThread.shouldFetchFromLastTieredOffset: only for an
// empty replica of a tiered topic whose log is not empty.
func (f *Follower) asksPendingUpload(last kafka.Position) bool {
	return f.Policy == EarliestPendingUpload && f.Storage == Tiered && f.Replica.End() == 0 && last.Offset != 0
}

// pendingUpload asks -6. None means that there is nothing to upload or that the leader does
// not know it: where the whole log is local the replica begins there, else it waits.
func (f *Follower) pendingUpload(ctx context.Context, start kafka.Position) (kafka.Position, error) {
	pending, err := f.offset(ctx, codec.EarliestPendingUploadTimestamp)
	if err != nil || pending.Offset != kafka.NoPosition.Offset {
		return pending, err
	}
	local, err := f.offset(ctx, codec.EarliestLocalTimestamp)
	if err == nil && local.Offset != start.Offset {
		err = errNotReady{"no earliest pending upload offset"}
	}
	return local, err
}

// diverged truncates the replica to where its log and the leader's part (KIP-595's
// truncation on fetch; AbstractFetcherThread.getOffsetTruncationState).
func (f *Follower) diverged(at int64, leader EpochEnd) error {
	own := f.Replica.Epochs.EndOf(leader.Epoch, at)
	to := own.Offset
	switch {
	case own.Epoch < 0:
		to = leader.Offset
	case own.Epoch == leader.Epoch:
		to = min(to, leader.Offset)
	}
	f.step("Fetch %d: diverging from epoch %d, which ends at %d: truncate to %d", at, leader.Epoch, leader.Offset, to)
	return f.Replica.Truncate(to)
}

// offset asks for one offset and notes the answer.
func (f *Follower) offset(ctx context.Context, timestamp int64) (kafka.Position, error) {
	got, err := f.leader.ListOffset(ctx, f.epoch, timestamp)
	if err == nil {
		f.step("%d: %v", timestamp, got)
	}
	return got, err
}

// find finds the leader.
func (f *Follower) find(ctx context.Context) error {
	leader, epoch, err := f.Finder.Leader(ctx)
	if err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	if f.leader != nil && epoch != f.epoch {
		f.outcome.LeaderChanges++
		f.step("leader epoch %d", epoch)
	}
	f.leader, f.epoch = leader, epoch
	return nil
}

// retriable says whether a broker would fetch again after this error.
func (f *Follower) retriable(err error) bool {
	var notReady errNotReady
	return errors.As(err, &notReady) || movedLeader(err) || errors.Is(err, kerr.OffsetNotAvailable)
}

// movedLeader says whether the error is that of a broker which does not lead, or not under
// that epoch.
func movedLeader(err error) bool {
	for _, of := range []error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// again waits, and finds the leader anew.
func (f *Follower) again(ctx context.Context, why error) error {
	if !movedLeader(why) {
		f.step("wait: %v", why)
	}
	f.outcome.Waits++
	if f.Wait != nil {
		if err := f.Wait(ctx, why); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return f.find(ctx)
}

// step notes a decision, unless it only repeats: the last one, or the steps since the same
// wait.
func (f *Follower) step(format string, args ...any) {
	f.outcome.Steps = withoutRepeats(append(f.outcome.Steps, fmt.Sprintf(format, args...)))
}

// withoutRepeats drops the end of steps where it repeats what stands right before it.
func withoutRepeats(steps []string) []string {
	for n := 1; n <= len(steps)/2; n++ {
		end, before := steps[len(steps)-n:], steps[len(steps)-2*n:len(steps)-n]
		same := true
		for i := range end {
			same = same && end[i] == before[i]
		}
		if same {
			return steps[:len(steps)-n]
		}
	}
	return steps
}
