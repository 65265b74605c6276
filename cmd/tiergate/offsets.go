// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tiergate/codec"
)

// OffsetsCmd is `tiergate offsets`.
type OffsetsCmd struct {
	BootstrapServers []string      `required:"" placeholder:"HOST:PORT" help:"Where to ask: brokers, or tiergate's bootstrap address."`
	Topic            []string      `placeholder:"TOPIC" help:"Topics to list, may be repeated. Default: all but internal ones."`
	JSON             bool          `name:"json" help:"Print one JSON object per partition and line."`
	Timeout          time.Duration `default:"30s" help:"Time for all of it (${default})."`
}

// Help is shown by --help.
func (c *OffsetsCmd) Help() string {
	return `Asks each partition's leader for its tiered storage offsets and prints a line per partition: the log start (-2), the local log start (-4), ` +
		`the latest offset in remote storage (-5), the earliest one that waits for upload (-6), the end (-1), and how many records wait, ` +
		`from the one waiting first to the end. "-" stands for none: nothing is uploaded, or nothing waits. ` +
		`An error of the broker stands in its place by name; "unsupported" means that the broker is too old to be asked. ` +
		`Internal topics are left out unless they are named.

With --json, each line is an object with the keys topic, partition, leader, log_start, local_log_start, latest_tiered, ` +
		`earliest_pending_upload, end and records_pending. An offset is null where the table has "-" or an error; ` +
		`errors holds the latter, by key.

Older brokers (before Kafka 4.2) do not know -6. Ask through tiergate then.

Examples:

    tiergate offsets --bootstrap-servers 127.0.0.1:9192
    tiergate offsets --bootstrap-servers 127.0.0.1:9192 --topic orders --json | jq .records_pending

Exit codes:

    0   every offset was answered
    1   no broker can be reached, or a topic does not exist
    2   some offsets are missing: errors, or a broker that is too old
    64  wrong command line`
}

// Run asks and prints.
func (c *OffsetsCmd) Run(ctx context.Context, streams *Streams) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.BootstrapServers...),
		kgo.ClientID("tiergate-offsets"),
		kgo.SoftwareNameAndVersion("tiergate", readBuild().software()),
		kgo.DisableClientMetrics(),
		kgo.RetryTimeout(c.Timeout/2),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	table, err := askOffsets(ctx, client, c.Topic)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.BootstrapServers, ","), err)
	}
	show := table.print
	if c.JSON {
		show = table.printJSON
	}
	if err := show(streams.Out); err != nil {
		return err
	}
	if !table.incomplete() {
		return nil
	}
	var reasons []error
	for _, text := range append(table.unreachable(), table.olderBrokers()) {
		if text != "" {
			reasons = append(reasons, errors.New(text))
		}
	}
	return &exitError{exitIncomplete, errors.Join(reasons...)}
}

// column is an offset of the table.
type column struct {
	name, json string
	timestamp  int64
	// since is the version of ListOffsets that knows the timestamp.
	since int16
}

// Columns of the table, from left to right, and in the order in which they are
// asked for: each offset only grows and none is above the one asked for after it, so
// the records pending are never fewer than none.
const (
	columnLogStart = iota
	columnLocalLogStart
	columnLatestTiered
	columnPendingUpload
	columnEnd
	columnCount
)

// columns describes them. The timestamps are those of ListOffsetsRequest.java.
func columns() [columnCount]column {
	return [columnCount]column{
		columnLogStart:      {"LOG START", "log_start", codec.EarliestTimestamp, 1},
		columnLocalLogStart: {"LOCAL START", "local_log_start", codec.EarliestLocalTimestamp, codec.ListOffsetsLocal},
		columnLatestTiered:  {"LATEST TIERED", "latest_tiered", codec.LatestTieredTimestamp, codec.ListOffsetsTiered},
		columnPendingUpload: {"PENDING UPLOAD", "earliest_pending_upload", codec.EarliestPendingUploadTimestamp, codec.ListOffsetsPendingUpload},
		columnEnd:           {"END", "end", codec.LatestTimestamp, 1},
	}
}

// cell is one offset of one partition. The zero cell was not answered.
type cell struct {
	offset int64 // in cellAnswered; -1: there is none
	state  cellState
	err    error // in cellFailed
}

type cellState uint8

const (
	// cellUnanswered: no answer named the partition.
	cellUnanswered cellState = iota
	// cellAnswered: offset is the broker's answer.
	cellAnswered
	// cellUnsupported: the leader's ListOffsets does not know the timestamp.
	cellUnsupported
	// cellFailed: err says why there is no offset.
	cellFailed
)

type partitionID struct {
	topic     string
	partition int32
}

// partitionRow is a line of the table.
type partitionRow struct {
	partitionID
	leader int32 // -1: none
	cells  [columnCount]cell
}

// pending returns the number of records that wait for upload; known is false when the
// offsets that tell are missing.
func (r *partitionRow) pending() (records int64, known bool) {
	from, end := r.cells[columnPendingUpload], r.cells[columnEnd]
	switch {
	case from.state != cellAnswered || end.state != cellAnswered:
		return 0, false
	case from.offset < 0:
		return 0, true
	}
	return max(end.offset-from.offset, 0), true
}

// leaderVersions is what one broker offers.
type leaderVersions struct {
	address     string
	listOffsets int16
	release     string
	err         error
}

// offsetTable holds partitions sorted by topic and number, and what their leaders can.
type offsetTable struct {
	rows    []*partitionRow
	leaders map[int32]*leaderVersions
}

func askOffsets(ctx context.Context, client *kgo.Client, topics []string) (*offsetTable, error) {
	t := &offsetTable{leaders: map[int32]*leaderVersions{}}
	if err := t.askPartitions(ctx, client, topics); err != nil {
		return nil, err
	}
	t.askVersions(ctx, client)
	byID := make(map[partitionID]*partitionRow, len(t.rows))
	for _, r := range t.rows {
		byID[r.partitionID] = r
	}
	for i := range columnCount {
		t.askColumn(ctx, client, i, byID)
	}
	return t, nil
}

// askPartitions fills in the rows, without offsets.
func (t *offsetTable) askPartitions(ctx context.Context, client *kgo.Client, topics []string) error {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(topics))) {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("no broker answers: %w", err)
	}
	for _, b := range resp.Brokers {
		t.leaders[b.NodeID] = &leaderVersions{address: fmt.Sprintf("%s:%d", b.Host, b.Port), listOffsets: -1}
	}
	var faults []error
	for _, topic := range resp.Topics {
		name := ""
		if topic.Topic != nil {
			name = *topic.Topic
		}
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			faults = append(faults, fmt.Errorf("topic %q: %w", name, err))
			continue
		}
		if len(topics) == 0 && (topic.IsInternal || codec.NeverTiered(name)) {
			continue
		}
		for _, p := range topic.Partitions {
			r := &partitionRow{partitionID: partitionID{name, p.Partition}, leader: p.Leader}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && p.Leader < 0 {
				r.fail(err)
			}
			t.rows = append(t.rows, r)
		}
	}
	slices.SortFunc(t.rows, func(a, b *partitionRow) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return errors.Join(faults...)
}

// fail notes err for every cell that has no answer.
func (r *partitionRow) fail(err error) {
	for i := range r.cells {
		if r.cells[i].state == cellUnanswered {
			r.cells[i] = cell{state: cellFailed, err: err}
		}
	}
}

// askVersions asks every leader what its ListOffsets can do, so that it is asked for
// nothing that it does not know.
func (t *offsetTable) askVersions(ctx context.Context, client *kgo.Client) {
	asked := map[int32]bool{}
	for _, r := range t.rows {
		leader, ok := t.leaders[r.leader]
		if !ok {
			continue // no leader; the row says so
		}
		if !asked[r.leader] {
			asked[r.leader] = true
			leader.ask(ctx, client.Broker(int(r.leader)))
		}
		if leader.err != nil {
			r.fail(leader.err)
		}
	}
}

func (l *leaderVersions) ask(ctx context.Context, broker *kgo.Broker) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "tiergate", readBuild().software()
	resp, err := req.RequestWith(ctx, broker)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		l.err = fmt.Errorf("%s: %w", l.address, err)
		return
	}
	versions := kversion.FromApiVersionsResponse(resp)
	l.release = versions.VersionGuess()
	if v, ok := versions.LookupMaxKeyVersion(int16(kmsg.ListOffsets)); ok {
		l.listOffsets = v
	}
}

// askColumn asks for one offset of every partition whose leader knows it.
func (t *offsetTable) askColumn(ctx context.Context, client *kgo.Client, i int, byID map[partitionID]*partitionRow) {
	col := columns()[i]
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, r := range t.rows {
		leader := t.leaders[r.leader]
		switch {
		case r.cells[i].state != cellUnanswered || leader == nil:
			continue
		case leader.listOffsets < col.since:
			r.cells[i] = cell{state: cellUnsupported}
			continue
		}
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != r.topic {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = r.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = r.partition, col.timestamp, -1
		rt := &req.Topics[len(req.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	if len(req.Topics) == 0 {
		return
	}
	// The client splits the request by leader, and asks again where one has moved.
	for _, shard := range client.RequestSharded(ctx, req) {
		t.takeShard(shard, i, byID)
	}
}

func (t *offsetTable) takeShard(shard kgo.ResponseShard, i int, byID map[partitionID]*partitionRow) {
	if shard.Err != nil {
		for _, topic := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
			for _, p := range topic.Partitions {
				byID[partitionID{topic.Topic, p.Partition}].cells[i] = cell{state: cellFailed, err: shard.Err}
			}
		}
		return
	}
	for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range topic.Partitions {
			r := byID[partitionID{topic.Topic, p.Partition}]
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case r == nil: // an answer that nobody asked for
			case err != nil:
				r.cells[i] = cell{state: cellFailed, err: err}
			default:
				r.cells[i] = cell{offset: p.Offset, state: cellAnswered}
			}
		}
	}
}

// incomplete says whether some offset is missing.
func (t *offsetTable) incomplete() bool {
	return slices.ContainsFunc(t.rows, func(r *partitionRow) bool {
		return slices.ContainsFunc(r.cells[:], func(c cell) bool { return c.state != cellAnswered })
	})
}

// unreachable returns the reasons behind "unreachable", each once.
func (t *offsetTable) unreachable() []string {
	reasons := map[string]bool{}
	var code *kerr.Error
	for _, r := range t.rows {
		for _, c := range r.cells {
			if c.state == cellFailed && !errors.As(c.err, &code) {
				reasons[c.err.Error()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

// olderBrokers says which leaders do not know -6 and what to do about it; it is empty
// when all do.
func (t *offsetTable) olderBrokers() string {
	old := map[int32]bool{}
	for _, r := range t.rows {
		if r.cells[columnPendingUpload].state == cellUnsupported {
			old[r.leader] = true
		}
	}
	if len(old) == 0 {
		return ""
	}
	var names []string
	for _, id := range slices.Sorted(maps.Keys(old)) {
		l := t.leaders[id]
		names = append(names, fmt.Sprintf("node %d at %s (Kafka %s, ListOffsets up to %d)",
			id, l.address, release(l.release, l.listOffsets), l.listOffsets))
	}
	return fmt.Sprintf("older brokers do not know EARLIEST_PENDING_UPLOAD (-6), which needs ListOffsets %d: %s.\n"+
		"Put tiergate in front of them and ask through it: tiergate check --config FILE, then tiergate serve --config FILE",
		codec.ListOffsetsPendingUpload, strings.Join(names, "; "))
}
