// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/kafka"
)

// TestKafka38 and TestKafka36 have brokers without -5: the newest, and the oldest with
// tiered storage.
func TestKafka38(t *testing.T) { testWithoutLatestTiered(t, kafka.Kafka38) }

func TestKafka36(t *testing.T) { testWithoutLatestTiered(t, kafka.Kafka36) }

// testWithoutLatestTiered has tiergate answer -5 and -6 from the metadata topic.
func testWithoutLatestTiered(t *testing.T, version string) {
	t.Parallel()
	ctx := realBrokers(t)
	ports, err := kafka.FreePorts(1)
	must(t, err)
	s := newStand(t, version, kafka.PeekJVM(ports[0]))
	s.logs, err = s.cluster.BuildLogStates(ctx, "state", kafka.OlderLogStates(version))
	must(t, err)
	for _, test := range []standTest{
		{"newcomer", func(t *testing.T) {
			testNewcomer(t, ctx, s)
			testLatestTieredShell(t, ctx, s)
		}},
		{"history", func(t *testing.T) { testHistoryOf(t, ctx, s, (*tierlog.Log).LearnTiered) }},
		// A leader that was there when uploaded records were deleted remembers them until
		// then: one of the differences that docs/operations.md names.
		{"memory after a restart", func(t *testing.T) {
			s.restart(t, ctx)
			s.awaitTieredOffsets(t, ctx)
			testBrokersMemory(t, ctx, s, ports[0])
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.open(t, ctx, "metadata_topic")
			s.awaitTieredOffsets(t, ctx)
			test.run(t)
		})
	}
}

// awaitTieredOffsets waits until tiergate offers ListOffsets 11, which it does once it has
// read the metadata topic.
func (s *stand) awaitTieredOffsets(t *testing.T, ctx context.Context) {
	t.Helper()
	must(t, kafka.Poll(ctx, "ListOffsets 11", func(ctx context.Context) error {
		conn, err := kafka.Dial(ctx, s.rewriteA.Address(), "endtoend")
		if err != nil {
			return err
		}
		defer conn.Close()
		resp, err := conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return err
		}
		for _, key := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
			if key.ApiKey == int16(kmsg.ListOffsets) && key.MaxVersion == 11 {
				return nil
			}
		}
		return errors.New("it is not offered")
	}))
}

// testLatestTieredShell is the other timestamp: GetOffsetShell refuses the broker, and
// through tiergate it prints the last uploaded offset, which lies on disk.
func testLatestTieredShell(t *testing.T, ctx context.Context, s *stand) {
	l := s.log(t, "uploaded, all still local")
	shell := func(bootstrap string) kafka.Result {
		r, err := jars(t, ctx, kafka.Kafka43).Run(ctx, kafka.Tool{Class: getOffsetShell, Args: []string{
			"--bootstrap-server", bootstrap, "--topic", l.Topic, "--time", "latest-tiered",
		}})
		must(t, err)
		return r
	}
	disk, err := l.Disk()
	must(t, err)
	if r, want := shell(s.rewriteA.Address()), shellLine(l.Topic, 0, disk.HighestUploaded()); r.ExitCode != 0 || r.Stdout != want {
		t.Errorf("latest-tiered through tiergate: %v\nwant on stdout %q", r, want)
	}
	const refusal = "does not support LIST_OFFSETS with version in range [9,11]"
	if r := shell(s.cluster.Node(nodeID).Address()); !strings.Contains(r.Stdout+r.Stderr, refusal) {
		t.Errorf("directly, GetOffsetShell does not say %q: %v", refusal, r)
	}
}

// testBrokersMemory compares -5 through tiergate with what the leader has in memory, once
// the leader is at rest: a difference must stay over ten tries.
func testBrokersMemory(t *testing.T, ctx context.Context, s *stand, debug int) {
	compared, err := 0, error(nil)
	for range 10 {
		if compared, err = s.compareMemory(ctx, debug); err == nil {
			break
		}
	}
	must(t, err)
	report(t, "-5 in front of Kafka %s: %d partitions compared with the leader's memory", s.cluster.Jars().Version, compared)
	if compared != len(s.logs) {
		t.Errorf("%d partitions compared, want %d", compared, len(s.logs))
	}
}

func (s *stand) compareMemory(ctx context.Context, debug int) (compared int, err error) {
	memory, err := kafka.Peek(ctx, debug)
	if err != nil {
		return 0, err
	}
	conn, err := kafka.Dial(ctx, s.rewriteA.Address(), "endtoend")
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var different []error
	for _, m := range memory {
		if !slices.ContainsFunc(s.logs, func(l kafka.StateLog) bool { return l.Topic == m.Topic }) {
			continue
		}
		want := m.Log
		if m.Task != nil && s.cluster.Jars().Version == kafka.Kafka36 {
			want = *m.Task // the log's own is filled by the next copy only, after a restart
		}
		resp, err := conn.Request(ctx, listOffsets(9, consumer, readUncommitted, want5(m.Topic)))
		if err != nil {
			return compared, err
		}
		if got := answers(resp.(*kmsg.ListOffsetsResponse))[0]; got.errorCode != 0 || got.position.Offset != want {
			different = append(different, fmt.Errorf("%s: -5 is %+v, the leader has %d", m.Topic, got, want))
		}
		compared++
	}
	return compared, errors.Join(different...)
}

// want5 asks for -5 of partition 0 of a topic.
func want5(topic string) want { return want{topic, 0, codec.LatestTieredTimestamp, anyEpoch} }
