// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/kafka"
)

// replay makes the in-memory model of a log out of what the test did to it, and of what
// lay on disk, locally and remotely; nothing in it comes from an answer to ListOffsets.
// leaderEpoch is the current one.
func replay(t *testing.T, l kafka.StateLog, leaderEpoch int32) *tierlog.Log {
	t.Helper()
	disk, err := l.Disk()
	must(t, err)
	m := tierlog.New(l.Epochs[0].Epoch)
	if l.Tiered() {
		m.SetRemoteStorage(codec.RemoteStorageEnabled)
	}
	for i, e := range l.Epochs {
		if i > 0 {
			m.NewLeaderEpoch(e.Epoch)
		}
		next := l.End
		if i+1 < len(l.Epochs) {
			next = l.Epochs[i+1].Offset
		}
		if open := l.LastStable; open < l.End && m.LogEnd() <= open && open < next {
			m.Append(open - m.LogEnd())
			m.SetLastStableOffset(open)
		}
		m.Append(next - m.LogEnd())
	}
	if l.HighestUploaded >= 0 {
		m.Upload(l.HighestUploaded)
	}
	if l.State.Name == kafka.CopyingSwitchedOff {
		m.StopCopying()
	}
	m.DeleteLocal(disk.Segments[0])
	m.DeleteRecords(l.LogStart)
	if leaderEpoch > m.LeaderEpoch() {
		m.Restart(leaderEpoch)
		m.LearnRemote()
	}
	if m.LogEnd() != l.End || m.LogStart() != l.LogStart || m.LastStableOffset() != l.LastStable || m.LeaderEpoch() != leaderEpoch {
		t.Fatalf("%s: the model %v is not the log %+v", l.Topic, m, l.Log)
	}
	return m
}

// testHistory compares what tiergate answers to -6 before an older broker with what the
// model of the same history answers as a native broker, and how the broker's own answers
// to -1, -2, -4 and -5 compare with the model's as an older one. Both come in one request,
// as they would from a client that asks for everything.
func testHistory(t *testing.T, ctx context.Context, s *stand) {
	testHistoryOf(t, ctx, s, func(*tierlog.Log) {})
}

// testHistoryOf is testHistory, where prepare changes the model of each log first.
func testHistoryOf(t *testing.T, ctx context.Context, s *stand, prepare func(*tierlog.Log)) {
	comparisons := 0
	conn := dial(t, ctx, s.rewriteA.Address())
	timestamps := []int64{-6, -1, -2, -4, -5}
	for _, l := range s.logs {
		epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
		must(t, err)
		m := replay(t, l, epoch)
		prepare(m)
		for _, isolation := range []int8{readUncommitted, readCommitted} {
			for _, replicaID := range []int32{consumer, tierlog.DebuggingReplicaID, nodeID} {
				for _, current := range []int32{anyEpoch, epoch, epoch - 1, epoch + 1} {
					for _, timestamp := range timestamps {
						req := listOffsets(11, replicaID, isolation, want{l.Topic, 0, timestamp, current})
						resp, err := conn.Request(ctx, req)
						must(t, err)
						what := fmt.Sprintf("log state %q: timestamp %d, isolation level %d, replica id %d, current leader epoch %d of %d",
							l.State.Name, timestamp, isolation, replicaID, current, epoch)
						compareWithModel(t, what, resp.(*kmsg.ListOffsetsResponse), l.Topic, m, req)
						comparisons++
					}
				}
			}
		}
	}
	report(t, "history before Kafka %s: %d answers compared with the model of the same log", s.cluster.Jars().Version, comparisons)
}

// compareWithModel compares the answer to a request of one partition.
func compareWithModel(t *testing.T, what string, resp *kmsg.ListOffsetsResponse, topic string, m *tierlog.Log, req *kmsg.ListOffsetsRequest) {
	t.Helper()
	p := req.Topics[0].Partitions[0]
	var a tierlog.Answer
	if p.Timestamp == codec.EarliestPendingUploadTimestamp {
		a = m.NativeEarliestPendingUpload(req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
	} else {
		a = m.ListOffset(p.Timestamp, req.IsolationLevel, req.ReplicaID, p.CurrentLeaderEpoch)
	}
	want := answer{topic, 0, a.ErrorCode, a.Timestamp, kafka.Position{Offset: a.Offset, Epoch: a.Epoch}}
	got := answers(resp)
	if len(got) != 1 || got[0] != want {
		t.Errorf("%s:\ngot  %+v\nwant %+v\nmodel: %v", what, got, want, m)
	}
}
