// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// LogState is a state that a partition's log can be in, and how to bring a new log
// there. The rows of the vectors table in the -6 specification are among LogStates.
type LogState struct {
	// Name in the words of the table.
	Name string
	// Configs of the topic when it is created.
	Configs map[string]string
	// Stages are run one after the other, with a restart of the broker between them,
	// so that each one writes under its own leader epoch.
	Stages []Stage
	// RollsActive: an active segment beyond local retention has to be rolled without an
	// append, which Kafka 3.6 does not.
	RollsActive bool
	// Settled is nil for the look-ups and the disk of a log that is in this state after
	// the last stage. Restarts after that change the current leader epoch only, and
	// Settled holds again as soon as the broker has read its remote log metadata.
	Settled func(*Log, Lookups, Disk) error
}

// Stage does one part of a log's history.
type Stage func(context.Context, *Log) error

// StateLog is a log that is in a state.
type StateLog struct {
	*Log
	State LogState
}

// Tiered says whether remote.storage.enable is true in this state in the end.
func (s StateLog) Tiered() bool {
	return s.State.Configs["remote.storage.enable"] == "true" && s.State.Name != RemoteStorageSwitchedOff
}

// BuildLogStates creates a topic for each state, called prefix and a number, and brings
// it there. All logs go through one stage at the same time; the whole cluster is
// restarted between stages.
func (c *Cluster) BuildLogStates(ctx context.Context, prefix string, states []LogState) ([]StateLog, error) {
	logs := make([]StateLog, len(states))
	numbers := make([]int, len(states))
	stages := 0
	for i, s := range states {
		numbers[i] = i
		stages = max(stages, len(s.Stages))
	}
	err := each(numbers, func(i int) error {
		topic := fmt.Sprintf("%s%02d-%s", prefix, i, topicName(states[i].Name))
		l, err := c.CreateLog(ctx, topic, states[i].Configs)
		logs[i] = StateLog{Log: l, State: states[i]}
		return err
	})
	if err != nil {
		return nil, err
	}
	for stage := range stages {
		if stage > 0 {
			if err := c.Restart(ctx); err != nil {
				return nil, err
			}
		}
		if err := each(logs, func(s StateLog) error { return s.run(ctx, stage) }); err != nil {
			return nil, err
		}
	}
	return logs, AwaitSettled(ctx, logs)
}

// run runs one stage, if the state has it.
func (s StateLog) run(ctx context.Context, stage int) error {
	if stage >= len(s.State.Stages) {
		return nil
	}
	if err := s.State.Stages[stage](ctx, s.Log); err != nil {
		return fmt.Errorf("log state %q: stage %d: %w", s.State.Name, stage, err)
	}
	return nil
}

// AwaitSettled waits until every log is in its state, as it must be before anything is
// compared: after a restart the broker reads its remote log metadata in the background.
func AwaitSettled(ctx context.Context, logs []StateLog) error {
	return each(logs, func(s StateLog) error {
		return s.Await(ctx, fmt.Sprintf("log state %q", s.State.Name), func(k Lookups, d Disk) error {
			if k.Last.Offset != s.End {
				return fmt.Errorf("the log ends at %d, not %d", k.Last.Offset, s.End)
			}
			if k.Start.Offset != s.LogStart {
				return fmt.Errorf("the log starts at %d, not %d", k.Start.Offset, s.LogStart)
			}
			return s.State.Settled(s.Log, k, d)
		})
	})
}

// topicName turns a state's name into part of a topic name.
func topicName(state string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(state))
}

// Names of states that callers treat in a special way.
const (
	NotTiered                = "not tiered, data"
	RemoteStorageSwitchedOff = "remote storage switched off for the topic"
	CopyingSwitchedOff       = "copying switched off, after a restart"
)

// A large record and how many of them make three full segments and a started one of
// the smallest segment.bytes that Kafka 4 allows (1 MiB, KIP-1030).
const (
	largeRecord  = 4000
	fourSegments = 800
	twoSegments  = 400
	smallRecord  = 100
)

// tiered returns the configs of a tiered topic, with others.
func tiered(others map[string]string) map[string]string {
	configs := map[string]string{"remote.storage.enable": "true", "segment.bytes": strconv.Itoa(1 << 20)}
	maps.Copy(configs, others)
	return configs
}

// TieredTopic returns the configs of a tiered topic with the smallest segments that every
// version allows.
func TieredTopic() map[string]string { return tiered(nil) }

// rolledByTime returns the configs of a tiered topic whose segments end where the test
// says roll.
func rolledByTime() map[string]string {
	return tiered(map[string]string{"segment.ms": strconv.FormatInt(rollAfter.Milliseconds(), 10)})
}

// LogStates returns the states of the vectors table, in its order, and some more: several
// epochs within what is pending, open transactions, deletions where nothing is uploaded.
func LogStates() []LogState {
	return append(vectorStates(), moreStates()...)
}

// OlderLogStates returns those of LogStates that brokers of Kafka 3.6 to 3.8 can be brought
// into: copying or remote storage cannot be switched off there (KIP-950).
func OlderLogStates(version string) []LogState {
	return slices.DeleteFunc(LogStates(), func(s LogState) bool {
		return s.Name == RemoteStorageSwitchedOff || s.Name == CopyingSwitchedOff || s.RollsActive && version == Kafka36
	})
}

// vectorStates are the rows of the table. Records are deleted in the last stage, since the
// broker remembers the tiered offset of segments that are gone until it is restarted.
func vectorStates() []LogState {
	return []LogState{
		{Name: NotTiered, Stages: []Stage{appendSmall(300), appendSmall(20)}, Settled: nothingUploaded},
		{Name: "tiered, empty", Configs: tiered(nil), Settled: nothingUploaded},
		{Name: "tiered, only the active segment", Configs: tiered(nil), Stages: []Stage{appendSmall(40)}, Settled: nothingUploaded},
		{Name: "uploaded, all still local", Configs: tiered(nil), Stages: []Stage{appendLarge(fourSegments)}, Settled: uploadedAllLocal},
		{
			Name: "uploaded, local part deleted", Configs: tiered(map[string]string{"local.retention.bytes": "1"}),
			Stages: []Stage{appendLarge(fourSegments)}, Settled: uploadedLocalDeleted,
		},
		{Name: "everything uploaded", Configs: tiered(nil), RollsActive: true, Stages: []Stage{uploadEverything}, Settled: everythingUploaded},
		{
			Name: "X is the first offset of a later epoch", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{uploadEverything, appendSmall(20)}, Settled: pendingFrom(20),
		},
		{
			Name: "records deleted past the tiered part", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{uploadEverything, nothing, stages(appendSmall(20), awaitState(pendingFrom(20)), deleteAllBut(10))}, Settled: startsLocal,
		},
		{
			Name: "all deleted", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{uploadEverything, nothing, stages(appendSmall(20), awaitState(pendingFrom(20)), deleteAllBut(0))}, Settled: startsLocal,
		},
		{
			Name: RemoteStorageSwitchedOff, Configs: tiered(nil),
			Stages: []Stage{stages(appendLarge(fourSegments), awaitState(uploadedAllLocal), switchRemoteStorageOff)}, Settled: nothingUploaded,
		},
		{
			Name: CopyingSwitchedOff, Configs: tiered(nil),
			Stages:  []Stage{stages(appendLarge(fourSegments), awaitState(uploadedAllLocal), switchCopyingOff), nothing},
			Settled: uploadForgotten,
		},
	}
}

func moreStates() []LogState {
	return []LogState{
		{
			Name: "several epochs, several uploads", Configs: tiered(nil),
			Stages: []Stage{appendLarge(twoSegments), appendLarge(twoSegments), appendLarge(twoSegments)}, Settled: uploadedAllLocal,
		},
		{
			Name: "uploaded, the first local part deleted", Configs: tiered(map[string]string{"local.retention.bytes": "1500000"}),
			Stages: []Stage{appendLarge(fourSegments)}, Settled: uploadedPartLocal,
		},
		{
			Name: "X begins a later epoch, all still local", Configs: rolledByTime(),
			Stages: []Stage{appendSmall(50), stages(roll, appendSmall(20)), appendSmall(5)}, Settled: uploadedAllLocal,
		},
		{
			Name: "X begins an epoch after one without records, all still local", Configs: rolledByTime(),
			Stages: []Stage{appendSmall(50), nothing, stages(roll, appendSmall(20))}, Settled: uploadedAllLocal,
		},
		{
			Name: "X within an epoch that began in what is uploaded, all still local", Configs: rolledByTime(),
			Stages: []Stage{appendSmall(50), stages(appendSmall(20), roll, appendSmall(20)), appendSmall(5)}, Settled: uploadedAllLocal,
		},
		{
			Name: "several epochs after what is uploaded", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{uploadEverything, appendSmall(3), appendSmall(4)}, Settled: pendingFrom(7),
		},
		{
			Name: "open transaction after what is uploaded", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{stages(uploadEverything, appendOpen(20)), appendSmall(5)}, Settled: pendingFrom(25),
		},
		{Name: "open transaction, nothing uploaded", Configs: tiered(nil), Stages: []Stage{appendOpen(20)}, Settled: nothingUploaded},
		{
			Name: "open transaction in what is pending", Configs: tiered(nil), RollsActive: true,
			Stages: []Stage{stages(uploadEverything, appendSmall(9), appendOpen(11))}, Settled: pendingFrom(20),
		},
		{
			Name: "records deleted, nothing uploaded", Configs: tiered(nil),
			Stages: []Stage{appendSmall(40), stages(appendSmall(10), deleteAllBut(15))}, Settled: startsLocal,
		},
		{Name: "all deleted, nothing uploaded", Configs: tiered(nil), Stages: []Stage{stages(appendSmall(40), deleteAllBut(0))}, Settled: startsLocal},
	}
}

// stages makes one stage of several steps.
func stages(steps ...Stage) Stage {
	return func(ctx context.Context, l *Log) error {
		for _, step := range steps {
			if err := step(ctx, l); err != nil {
				return err
			}
		}
		return nil
	}
}

func roll(_ context.Context, l *Log) error {
	l.Roll()
	return nil
}

func nothing(context.Context, *Log) error { return nil }

func appendSmall(records int) Stage {
	return func(ctx context.Context, l *Log) error { return l.Append(ctx, records, smallRecord) }
}

func appendLarge(records int) Stage {
	return func(ctx context.Context, l *Log) error { return l.Append(ctx, records, largeRecord) }
}

// appendOpen leaves its transaction open and ends the producer: the coordinator keeps
// the transaction for 15 minutes.
func appendOpen(records int) Stage {
	return func(ctx context.Context, l *Log) error {
		defer l.CloseProducer()
		return l.AppendOpen(ctx, records, smallRecord)
	}
}

// deleteAllBut deletes all records but the last few.
func deleteAllBut(records int64) Stage {
	return func(ctx context.Context, l *Log) error { return l.DeleteRecordsBefore(ctx, l.End-records) }
}

func awaitState(settled func(*Log, Lookups, Disk) error) Stage {
	return func(ctx context.Context, l *Log) error {
		return l.Await(ctx, "upload", func(k Lookups, d Disk) error { return settled(l, k, d) })
	}
}

// uploadEverything appends four segments and has the active one rolled and uploaded
// too: a segment that is older than segment.ms and beyond local retention is rolled
// without an append (UnifiedLog.deleteOldSegments). Then retention is as it was.
func uploadEverything(ctx context.Context, l *Log) error {
	return stages(
		appendLarge(fourSegments),
		alterConfigs(map[string]string{"segment.ms": "1000", "local.retention.ms": "1000"}),
		awaitState(everythingUploaded),
		alterConfigs(map[string]string{"segment.ms": "604800000", "local.retention.ms": "-2"}),
	)(ctx, l)
}

func alterConfigs(configs map[string]string) Stage {
	return func(ctx context.Context, l *Log) error { return l.AlterConfigs(ctx, configs) }
}

// switchRemoteStorageOff gives the remote part up, which only KRaft can (KIP-950).
func switchRemoteStorageOff(ctx context.Context, l *Log) error {
	return l.AlterConfigs(ctx, map[string]string{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
}

// switchCopyingOff makes the remote part read-only (KIP-950).
func switchCopyingOff(ctx context.Context, l *Log) error {
	return l.AlterConfigs(ctx, map[string]string{"remote.log.copy.disable": "true"})
}
