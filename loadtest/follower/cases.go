// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"strconv"
)

// The nodes of the cluster and what they are for.
const (
	leaderNode int32 = 1 // leads every topic at first
	otherNode  int32 = 2 // a replica of topics whose leader changes
	playedNode int32 = 3 // stopped; its replicas are played
)

// Case is a state of a leader's log, and of the replica that comes to it.
type Case struct {
	// Name is its row in the table.
	Name string
	// Storage of the topic.
	Storage Storage
	// What a replica does is exact: the first offset that it copies, under each policy.
	Starts func(Shape) map[Policy]int64

	nodes   []int32 // replicas; default: leaderNode, playedNode
	configs func(Shape) map[string]string
	build   func(ctx context.Context, t *Topic) error
	// seed is what the replica has when it comes; nil: nothing.
	seed func(t *Topic) []written
	// between is called after each Fetch that brought records.
	between func(ctx context.Context, t *Topic, r *Replica) error
	// WaitsFor is what an empty replica waits for under EarliestPendingUpload; "" if nothing.
	WaitsFor string
	// ownSays is in the exception that Kafka's own follower logs while it waits.
	ownSays string
	// unblock ends that wait.
	unblock func(ctx context.Context, t *Topic) error
	// maxBytes is replica.fetch.max.bytes; 0: the default.
	maxBytes int32
	// changes is true when a catch-up changes the topic, so that each needs its own.
	changes bool
}

// Cases returns the rows of the table, in order.
func Cases() []Case {
	return append(append(emptyCases(), otherCases()...), outOfRangeCases()...)
}

// HeadlineCase is the row whose saving is the headline: most of what the leader has locally
// is in remote storage too.
func HeadlineCase() Case { return partDeleted() }

// starts is the same offset under both policies.
func starts(of func(Shape) int64) func(Shape) map[Policy]int64 {
	return startsAt(of, of)
}

// startsAt has an offset for each policy.
func startsAt(local, pending func(Shape) int64) func(Shape) map[Policy]int64 {
	return func(s Shape) map[Policy]int64 {
		return map[Policy]int64{EarliestLocal: local(s), EarliestPendingUpload: pending(s)}
	}
}

func zero(Shape) int64 { return 0 }

// tieredConfigs are those of a topic that keeps all segments locally.
func tieredConfigs(Shape) map[string]string {
	return map[string]string{"remote.storage.enable": "true"}
}

// partLocalConfigs are those of a topic whose first segments go locally once uploaded.
func partLocalConfigs(s Shape) map[string]string {
	return map[string]string{"remote.storage.enable": "true", "local.retention.bytes": s.localRetention()}
}

func localOnlyConfigs(Shape) map[string]string { return nil }

// emptyCases are replicas without anything that meet a tiered topic.
func emptyCases() []Case {
	return []Case{
		{
			Name: "nothing uploaded", Storage: Tiered, configs: tieredConfigs, Starts: starts(zero),
			build: func(ctx context.Context, t *Topic) error {
				if err := t.append(ctx, t.Shape.ActiveBatches); err != nil {
					return err
				}
				return t.await(ctx, offsets{start: 0, local: 0, tiered: -1, last: t.Shape.active()})
			},
		},
		nothingUploadedLogStartAbove(),
		{
			Name: "uploaded, all still local", Storage: Tiered, configs: tieredConfigs, Starts: starts(zero),
			build: buildFull(zero),
		},
		{
			Name: "uploaded, all still local, log start above 0", Storage: Tiered, configs: tieredConfigs,
			Starts: startsAt(batchOfWithin, Shape.uploaded),
			build:  deletedTo(buildFull(zero), Shape.within, Shape.within),
		},
		partDeleted(),
		{
			Name: "uploaded, part gone locally, log start above 0", Storage: Tiered, configs: partLocalConfigs,
			Starts: startsAt(Shape.local, Shape.uploaded),
			build:  deletedTo(buildFull(Shape.local), Shape.within, Shape.local),
		},
		everythingUploaded(),
	}
}

// batchOfWithin is where the batch begins that holds within: a log that starts there is
// copied from the batch on.
func batchOfWithin(s Shape) int64 { return s.within() - int64(s.BatchRecords/2) }

// partDeleted is what a topic with local retention looks like most of the time.
func partDeleted() Case {
	return Case{
		Name: "uploaded, part gone locally", Storage: Tiered, configs: partLocalConfigs,
		Starts: startsAt(Shape.local, Shape.uploaded),
		build:  buildFull(Shape.local),
	}
}

// nothingUploadedLogStartAbove: -6 is the log start, and no remote segment holds the offset
// before it: the replica waits until one does.
func nothingUploadedLogStartAbove() Case {
	within := func(s Shape) int64 { return s.active() / 2 }
	return Case{
		Name: "nothing uploaded, log start above 0", Storage: Tiered, configs: tieredConfigs,
		Starts: startsAt(func(s Shape) int64 { return within(s) - within(s)%int64(s.BatchRecords) }, Shape.active),
		build: func(ctx context.Context, t *Topic) error {
			if err := t.append(ctx, t.Shape.ActiveBatches); err != nil {
				return err
			}
			return t.deleteBefore(ctx, within(t.Shape))
		},
		WaitsFor: "an upload", ownSays: "Couldn't build the state from remote store",
		unblock: func(ctx context.Context, t *Topic) error {
			t.roll()
			if err := t.append(ctx, t.Shape.ActiveBatches); err != nil {
				return err
			}
			return t.await(ctx, offsets{start: within(t.Shape), local: within(t.Shape), tiered: t.Shape.active() - 1, last: 2 * t.Shape.active()})
		},
		changes: true,
	}
}

// everythingUploaded: -6 is none and the local log starts after the log: the replica waits
// until there is a record to upload. The active segment is rolled and uploaded as
// loadtest/kafka does it.
func everythingUploaded() Case {
	return Case{
		Name: "everything uploaded and gone locally", Storage: Tiered, configs: tieredConfigs,
		Starts: starts(Shape.uploaded),
		build: func(ctx context.Context, t *Topic) error {
			if err := t.segments(ctx, t.Shape.DeletedSegments+t.Shape.LocalSegments); err != nil {
				return err
			}
			if err := t.cluster.AlterTopicConfigs(ctx, t.Name, map[string]string{"segment.ms": "1000", "local.retention.ms": "1000"}); err != nil {
				return err
			}
			end := t.Shape.uploaded()
			if err := t.await(ctx, offsets{start: 0, local: end, tiered: end - 1, last: end}); err != nil {
				return err
			}
			return t.cluster.AlterTopicConfigs(ctx, t.Name, map[string]string{"segment.ms": strconv.Itoa(segmentMillis), "local.retention.ms": "-2"})
		},
		WaitsFor: "a record", ownSays: "the leader does not know the earliest pending upload offset",
		unblock: func(ctx context.Context, t *Topic) error { return t.append(ctx, t.Shape.ActiveBatches) },
		changes: true,
	}
}

// otherCases are topics without remote storage, and a leader that changes.
func otherCases() []Case {
	return []Case{
		{
			Name: "remote storage off", Storage: LocalOnly, configs: localOnlyConfigs, Starts: starts(zero),
			build: buildLocalOnly,
		},
		{
			Name: "remote storage off, log start above 0", Storage: LocalOnly, configs: localOnlyConfigs, Starts: starts(batchOfWithin),
			build: func(ctx context.Context, t *Topic) error {
				if err := buildLocalOnly(ctx, t); err != nil {
					return err
				}
				return t.deleteBefore(ctx, t.Shape.within())
			},
		},
		leaderChange(),
	}
}

// leaderChange has several leader epochs in what is uploaded, and the leader changes after
// the first records that the replica copied.
func leaderChange() Case {
	return Case{
		Name: "leader change while copying", Storage: Tiered, configs: partLocalConfigs,
		Starts:   startsAt(Shape.local, Shape.uploaded),
		nodes:    []int32{leaderNode, otherNode, playedNode},
		build:    buildEpochs,
		maxBytes: 25_000, // two batches of the small shape and a part of the third
		changes:  true,
		between: func(ctx context.Context, t *Topic, _ *Replica) error {
			_, partition, err := t.producer.metadata(ctx)
			if err != nil || partition.Leader != leaderNode {
				return err
			}
			return t.elect(ctx, otherNode, leaderNode, playedNode)
		},
	}
}

// outOfRangeCases are replicas that have something, which neither policy begins anew for.
func outOfRangeCases() []Case {
	return []Case{
		{
			Name: "replica ends below the log start", Storage: Tiered, configs: partLocalConfigs, Starts: starts(Shape.local),
			build: deletedTo(buildFull(Shape.local), Shape.within, Shape.local),
			seed:  func(t *Topic) []written { return t.upTo(batchOfWithin(t.Shape)) },
		},
		{
			Name: "replica ends above the end, epoch unknown", Storage: Tiered, configs: tieredConfigs, Starts: starts(Shape.end),
			build: buildFull(zero),
			seed:  func(t *Topic) []written { return t.tooLong(unknownEpoch) },
		},
		{
			Name: "replica ends above the end, epoch known", Storage: Tiered, configs: tieredConfigs, Starts: starts(Shape.end),
			build: buildFull(zero),
			seed:  func(t *Topic) []written { return t.tooLong(0) },
		},
	}
}

// unknownEpoch is above every epoch of a leader here.
const unknownEpoch = 99

// upTo returns what a replica has that stopped at an offset.
func (t *Topic) upTo(offset int64) []written {
	n := 0
	for n < len(t.batches) && t.batches[n].first < offset {
		n++
	}
	return t.batches[:n:n]
}

// tooLong returns the whole log and one batch more of an epoch, which the leader does not
// have: what unclean leader election leaves behind.
func (t *Topic) tooLong(epoch int32) []written {
	return append(t.upTo(t.End()), written{
		first: t.End(), records: t.Shape.BatchRecords, valueSize: t.Shape.ValueSize, epoch: epoch, timestamp: t.now.UnixMilli(),
	})
}

// buildFull appends all segments and the active one, and waits until all but that one are
// uploaded and the local log starts where it should.
func buildFull(local func(Shape) int64) func(context.Context, *Topic) error {
	return func(ctx context.Context, t *Topic) error {
		s := t.Shape
		if err := t.segments(ctx, s.DeletedSegments+s.LocalSegments); err != nil {
			return err
		}
		if err := t.append(ctx, s.ActiveBatches); err != nil {
			return err
		}
		return t.await(ctx, offsets{start: 0, local: local(s), tiered: s.uploaded() - 1, last: s.end()})
	}
}

// deletedTo moves the log start of what build made.
func deletedTo(build func(context.Context, *Topic) error, start, local func(Shape) int64) func(context.Context, *Topic) error {
	return func(ctx context.Context, t *Topic) error {
		if err := build(ctx, t); err != nil {
			return err
		}
		if err := t.deleteBefore(ctx, start(t.Shape)); err != nil {
			return err
		}
		return t.await(ctx, offsets{start: start(t.Shape), local: local(t.Shape), tiered: t.Shape.uploaded() - 1, last: t.Shape.end()})
	}
}

// buildLocalOnly appends the same without remote storage.
func buildLocalOnly(ctx context.Context, t *Topic) error {
	if err := t.segments(ctx, t.Shape.DeletedSegments+t.Shape.LocalSegments); err != nil {
		return err
	}
	return t.append(ctx, t.Shape.ActiveBatches)
}

// buildEpochs is buildFull with leader changes: epoch 0 has the segments that go locally,
// epoch 1 those that stay but the last, epoch 2 that one and the active segment.
func buildEpochs(ctx context.Context, t *Topic) error {
	s := t.Shape
	for i, part := range []struct {
		nodes    []int32
		segments int
	}{
		{nil, s.DeletedSegments},
		{[]int32{otherNode, leaderNode, playedNode}, s.LocalSegments - 1},
		{[]int32{leaderNode, otherNode, playedNode}, 1},
	} {
		if i > 0 {
			if err := t.elect(ctx, part.nodes...); err != nil {
				return fmt.Errorf("epoch %d: %w", i, err)
			}
		}
		if err := t.segments(ctx, part.segments); err != nil {
			return fmt.Errorf("epoch %d: %w", i, err)
		}
	}
	if err := t.append(ctx, s.ActiveBatches); err != nil {
		return err
	}
	return t.await(ctx, offsets{start: 0, local: s.local(), tiered: s.uploaded() - 1, last: s.end()})
}
