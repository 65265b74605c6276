// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// row returns a line with the offsets in the order of the columns.
func row(topic string, partition, leader int32, offsets ...int64) *partitionRow {
	r := &partitionRow{partitionID: partitionID{topic, partition}, leader: leader}
	for i, o := range offsets {
		r.cells[i] = cell{offset: o, state: cellAnswered}
	}
	return r
}

func TestPrintOffsets(t *testing.T) {
	moved := row("orders", 12, 2, 0, 0, 5, 6, 100)
	moved.cells[columnPendingUpload] = cell{state: cellFailed, err: kerr.NotLeaderForPartition}
	lost := row("orders", 3, -1)
	lost.fail(kerr.LeaderNotAvailable)
	gone := row("z", 0, 1)
	gone.fail(errors.New("kafka-1:9092: connection refused"))
	old := row("y", 0, 0, 3, 3)
	old.cells[columnLatestTiered].state = cellUnsupported
	old.cells[columnPendingUpload].state = cellUnsupported
	old.cells[columnEnd] = cell{offset: 9, state: cellAnswered}
	silent := row("x", 0, 0, 1, 2, 3, 4)
	table := &offsetTable{
		rows: []*partitionRow{row("a", 0, 0, 0, 0, -1, -1, 0), row("orders", 2, 10, 7, 20, 5000000000, 5000000001, 5000000123), lost, moved, silent, old, gone},
		leaders: map[int32]*leaderVersions{
			0: {address: "kafka-0:9092", listOffsets: 8, release: "v3.8"}, 1: {address: "kafka-1:9092"},
		},
	}

	var out bytes.Buffer
	if err := table.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `TOPIC   PARTITION  LEADER             LOG START           LOCAL START         LATEST TIERED            PENDING UPLOAD                   END  RECORDS PENDING
a               0       0                     0                     0                     -                         -                     0                0
orders          2      10                     7                    20            5000000000                5000000001            5000000123              122
orders          3       -  LEADER_NOT_AVAILABLE  LEADER_NOT_AVAILABLE  LEADER_NOT_AVAILABLE      LEADER_NOT_AVAILABLE  LEADER_NOT_AVAILABLE                -
orders         12       2                     0                     0                     5  NOT_LEADER_FOR_PARTITION                   100                -
x               0       0                     1                     2                     3                         4            unanswered                -
y               0       0                     3                     3           unsupported               unsupported                     9                -
z               0       1           unreachable           unreachable           unreachable               unreachable           unreachable                -
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}

	out.Reset()
	if err := table.printJSON(&out); err != nil {
		t.Fatal(err)
	}
	want = `{"topic":"a","partition":0,"leader":0,"log_start":0,"local_log_start":0,"latest_tiered":null,"earliest_pending_upload":null,"end":0,"records_pending":0}
{"topic":"orders","partition":2,"leader":10,"log_start":7,"local_log_start":20,"latest_tiered":5000000000,"earliest_pending_upload":5000000001,"end":5000000123,"records_pending":122}
{"topic":"orders","partition":3,"leader":null,"log_start":null,"local_log_start":null,"latest_tiered":null,"earliest_pending_upload":null,"end":null,"records_pending":null,"errors":{"earliest_pending_upload":"LEADER_NOT_AVAILABLE","end":"LEADER_NOT_AVAILABLE","latest_tiered":"LEADER_NOT_AVAILABLE","local_log_start":"LEADER_NOT_AVAILABLE","log_start":"LEADER_NOT_AVAILABLE"}}
{"topic":"orders","partition":12,"leader":2,"log_start":0,"local_log_start":0,"latest_tiered":5,"earliest_pending_upload":null,"end":100,"records_pending":null,"errors":{"earliest_pending_upload":"NOT_LEADER_FOR_PARTITION"}}
{"topic":"x","partition":0,"leader":0,"log_start":1,"local_log_start":2,"latest_tiered":3,"earliest_pending_upload":4,"end":null,"records_pending":null,"errors":{"end":"unanswered"}}
{"topic":"y","partition":0,"leader":0,"log_start":3,"local_log_start":3,"latest_tiered":null,"earliest_pending_upload":null,"end":9,"records_pending":null,"errors":{"earliest_pending_upload":"unsupported","latest_tiered":"unsupported"}}
{"topic":"z","partition":0,"leader":1,"log_start":null,"local_log_start":null,"latest_tiered":null,"earliest_pending_upload":null,"end":null,"records_pending":null,"errors":{"earliest_pending_upload":"kafka-1:9092: connection refused","end":"kafka-1:9092: connection refused","latest_tiered":"kafka-1:9092: connection refused","local_log_start":"kafka-1:9092: connection refused","log_start":"kafka-1:9092: connection refused"}}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}

	if !table.incomplete() || (&offsetTable{rows: table.rows[:2]}).incomplete() {
		t.Error("incomplete: want true for all rows and false for the first two")
	}
	if got := table.unreachable(); len(got) != 1 || got[0] != "kafka-1:9092: connection refused" {
		t.Errorf("unreachable: got %q", got)
	}
	wantOld := "older brokers do not know EARLIEST_PENDING_UPLOAD (-6), which needs ListOffsets 11: node 0 at kafka-0:9092 (Kafka 3.8, ListOffsets up to 8).\n" +
		"Put tiergate in front of them and ask through it: tiergate check --config FILE, then tiergate serve --config FILE"
	if got := table.olderBrokers(); got != wantOld {
		t.Errorf("got\n%s\nwant\n%s", got, wantOld)
	}
}

// Internal topics are listed when they are named; what a broker refuses stands in
// its place; partitions are sorted by number.
func TestAskOffsets(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(12, "orders"), kfake.SeedTopics(1, "__consumer_offsets"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	refuse := func(timestamp int64, partition int32) {
		cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			asked := req.(*kmsg.ListOffsetsRequest)
			if asked.Topics[0].Partitions[0].Timestamp != timestamp {
				return nil, nil, false
			}
			resp := asked.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, topic := range asked.Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = topic.Topic
				for _, p := range topic.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.Offset = p.Partition, 40
					if p.Partition == partition {
						rp.ErrorCode, rp.Offset = kerr.TopicAuthorizationFailed.Code, -1
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
	}
	refuse(-1, 11)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	table, err := askOffsets(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.rows) != 12 {
		t.Fatalf("%d rows, want the 12 of orders", len(table.rows))
	}
	for i, r := range table.rows {
		wantEnd := "40"
		if i == 11 {
			wantEnd = "TOPIC_AUTHORIZATION_FAILED"
		}
		if r.topic != "orders" || r.partition != int32(i) || r.cells[columnLogStart].String() != "0" || r.cells[columnEnd].String() != wantEnd ||
			r.cells[columnPendingUpload].String() != "unsupported" {
			t.Errorf("row %d: %q, want orders %d from 0 to %s", i, r.line(), i, wantEnd)
		}
	}
	table, err = askOffsets(t.Context(), client, []string{"__consumer_offsets"})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.rows) != 1 || table.rows[0].topic != "__consumer_offsets" || table.rows[0].cells[columnEnd].String() != "40" {
		t.Errorf("got %d rows, first %q; want one of __consumer_offsets", len(table.rows), table.rows[0].line())
	}
}
