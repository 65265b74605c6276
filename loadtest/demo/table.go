// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// position names a partition.
type position struct {
	topic     string
	partition int32
}

// listed is one answer to ListOffsets.
type listed struct {
	offset int64
	epoch  int32
	code   int16
}

// String is how the table shows an answer.
func (o listed) String() string {
	switch {
	case o.code == kerr.UnsupportedVersion.Code:
		return "refused"
	case o.code != 0:
		return fmt.Sprintf("error %d", o.code)
	case o.offset < 0:
		return "none"
	}
	return strconv.FormatInt(o.offset, 10)
}

// row is one partition: the offsets that clients receive, and the true ones.
type row struct {
	at                       position
	state                    string
	start, local, tier, last listed
	direct, through, truth   listed
}

// pending is the number of records that wait for upload, as a client of tiergate counts
// them.
func (r row) pending() string {
	switch {
	case r.state == notTiered:
		return "-"
	case r.through.code != 0:
		return "?"
	case r.through.offset < 0:
		return "0"
	}
	return strconv.FormatInt(r.last.offset-r.through.offset, 10)
}

// fault says what is wrong with a row, or "".
func (r row) fault() string {
	switch {
	case r.through != r.truth:
		return fmt.Sprintf("a Kafka 4.2+ broker says %v (leader epoch %d), tiergate says %v (leader epoch %d)",
			r.truth, r.truth.epoch, r.through, r.through.epoch)
	case r.direct.code != kerr.UnsupportedVersion.Code:
		return fmt.Sprintf("asked directly, the Kafka 4.1 broker says %v and should refuse", r.direct)
	}
	return ""
}

// ErrDiffers is the demo's finding that a response through tiergate is wrong.
var ErrDiffers = errors.New("not every answer is the one of a Kafka 4.2+ broker")

// show asks, prints what came back, and fails if any answer is not the native one.
func (d *demo) show(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	direct, err := newClient(d.cluster.Addresses()...)
	if err != nil {
		return err
	}
	defer direct.Close()
	through, err := newClient(d.through)
	if err != nil {
		return err
	}
	defer through.Close()
	if err := d.introduce(ctx, direct, through); err != nil {
		return err
	}
	rows, err := d.rows(ctx, direct, through)
	if err != nil {
		return err
	}
	return d.table(rows)
}

// newClient is an ordinary Kafka client: it asks with the newest version that the
// broker before it offers.
func newClient(bootstrap ...string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.ClientID("tiergate-demo"),
		kgo.DisableClientMetrics(),
	)
}

func (d *demo) introduce(ctx context.Context, direct, through *kgo.Client) error {
	own, err := listOffsetsVersions(ctx, direct)
	if err != nil {
		return fmt.Errorf("ask the cluster for its versions: %w", err)
	}
	offered, err := listOffsetsVersions(ctx, through)
	if err != nil {
		return fmt.Errorf("ask tiergate for its versions: %w", err)
	}
	brokers := "1 broker"
	if n := len(d.cluster.Addresses()); n != 1 {
		brokers = fmt.Sprintf("%d brokers", n)
	}
	_, err = fmt.Fprintf(d.out, `Kafka 4.2 and later can say from which offset on a partition still waits for upload to tiered storage
(ListOffsets timestamp -6, "earliest pending upload"); older brokers refuse the question. This demo simulates
a Kafka 4.1 cluster of %s in this process, puts tiergate in front of it, and asks both ways.

Directly          The brokers offer ListOffsets up to version %d; -6 needs 11. A Kafka 4.3 client gives up:
                  "%s
                  %s"
Through tiergate  It offers ListOffsets up to version %d. The same client asks and is answered; the brokers
                  stay as they are.

`, brokers, own.MaxVersion, javaRefusal, javaRange(own), offered.MaxVersion)
	return err
}

// listOffsetsVersions is the ListOffsets row of ApiVersions.
func listOffsetsVersions(ctx context.Context, client *kgo.Client) (kmsg.ApiVersionsResponseApiKey, error) {
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "tiergate-demo", "1"
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return kmsg.ApiVersionsResponseApiKey{}, err
	}
	for _, row := range response.ApiKeys {
		if row.ApiKey == kmsg.ListOffsets.Int16() {
			return row, nil
		}
	}
	return kmsg.ApiVersionsResponseApiKey{}, errors.New("ApiVersions has no row for ListOffsets")
}

// javaRefusal and javaRange are the message of the UnsupportedVersionException that the
// Java client throws. Source: org.apache.kafka.clients.NodeApiVersions.latestUsableVersion.
const javaRefusal = "The node does not support LIST_OFFSETS with version in range [11,11]."

func javaRange(own kmsg.ApiVersionsResponseApiKey) string {
	return fmt.Sprintf("The supported range is [%d,%d].", own.MinVersion, own.MaxVersion)
}

// rows asks everything there is to ask of every partition.
func (d *demo) rows(ctx context.Context, direct, through *kgo.Client) ([]row, error) {
	var rows []row
	for _, t := range d.topics {
		p := int32(0)
		for range t.Partitions {
			rows = append(rows, row{at: position{t.Name, p}})
			p++
		}
	}
	for _, ask := range []struct {
		client    *kgo.Client
		timestamp int64
		put       func(*row, listed)
	}{
		{direct, codec.EarliestTimestamp, func(r *row, o listed) { r.start = o }},
		{direct, codec.EarliestLocalTimestamp, func(r *row, o listed) { r.local = o }},
		{direct, codec.LatestTieredTimestamp, func(r *row, o listed) { r.tier = o }},
		{direct, codec.LatestTimestamp, func(r *row, o listed) { r.last = o }},
		{direct, codec.EarliestPendingUploadTimestamp, func(r *row, o listed) { r.direct = o }},
		{through, codec.EarliestPendingUploadTimestamp, func(r *row, o listed) { r.through = o }},
	} {
		answers, err := list(ctx, ask.client, ask.timestamp, rows)
		if err != nil {
			return nil, fmt.Errorf("ask for timestamp %d: %w", ask.timestamp, err)
		}
		for i := range rows {
			ask.put(&rows[i], answers[rows[i].at])
		}
	}
	for i := range rows {
		model, err := d.cluster.Model(rows[i].at.topic, rows[i].at.partition)
		if err != nil {
			return nil, err
		}
		native := model.NativeEarliestPendingUpload(tierlog.ReadUncommitted, tierlog.ConsumerReplicaID, -1)
		rows[i].truth = listed{native.Offset, native.Epoch, native.ErrorCode}
		rows[i].state = stateOf(model)
	}
	return rows, nil
}

// list asks the leaders of all partitions for one timestamp.
func list(ctx context.Context, client *kgo.Client, timestamp int64, of []row) (map[position]listed, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = tierlog.ConsumerReplicaID
	for _, r := range of {
		if n := len(request.Topics); n == 0 || request.Topics[n-1].Topic != r.at.topic {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = r.at.topic
			request.Topics = append(request.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = r.at.partition, timestamp
		t := &request.Topics[len(request.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	answers := make(map[position]listed, len(of))
	for _, shard := range client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				answers[position{t.Topic, p.Partition}] = listed{p.Offset, p.LeaderEpoch, p.ErrorCode}
			}
		}
	}
	for _, r := range of {
		if _, ok := answers[r.at]; !ok {
			return nil, fmt.Errorf("no answer for %s-%d", r.at.topic, r.at.partition)
		}
	}
	return answers, nil
}

// States of a log in plain words.
const (
	notTiered     = "not tiered"
	empty         = "tiered, still empty"
	nothing       = "nothing uploaded yet"
	everything    = "everything uploaded"
	deletedPast   = "deleted past the upload"
	partlyOnDisk  = "partly uploaded, all on disk"
	partlyOffDisk = "partly uploaded, disk freed"
)

func stateOf(log *tierlog.Log) string {
	pending := log.HighestRemote() + 1
	switch {
	case log.RemoteStorage() == codec.RemoteStorageDisabled:
		return notTiered
	case log.LogEnd() == 0:
		return empty
	case pending == 0:
		return nothing
	case pending >= log.LogEnd():
		return everything
	case log.LogStart() > pending:
		return deletedPast
	case log.LocalLogStart() > log.LogStart():
		return partlyOffDisk
	}
	return partlyOnDisk
}

// table prints the rows, at most 110 columns wide while offsets have up to six digits,
// and what was wrong with them.
func (d *demo) table(rows []row) error {
	lines := [][]string{
		{"", "", "", "LOG", "FIRST", "LAST", "", "ASKED", "THROUGH", "RECORDS", ""},
		{"TOPIC", "P", "STATE", "START", "LOCAL", "TIERED", "END", "DIRECTLY", "TIERGATE", "PENDING", "CHECK"},
	}
	var wrong []string
	for _, r := range rows {
		check := "ok"
		if fault := r.fault(); fault != "" {
			check = "WRONG"
			wrong = append(wrong, fmt.Sprintf("WRONG: %s-%d: %s\n", r.at.topic, r.at.partition, fault))
		}
		lines = append(lines, []string{
			r.at.topic, strconv.Itoa(int(r.at.partition)), r.state, r.start.String(), r.local.String(), r.tier.String(),
			r.last.String(), r.direct.String(), r.through.String(), r.pending(), check,
		})
	}
	_, err := fmt.Fprintf(d.out, `%s
THROUGH TIERGATE is the first offset that is not in tiered storage yet; "none": nothing waits for upload.
CHECK: %d of %d answers, offset and leader epoch, are what a Kafka 4.2+ broker says of the same log.
%s`, columns(lines), len(rows)-len(wrong), len(rows), strings.Join(wrong, ""))
	if err == nil && len(wrong) > 0 {
		err = ErrDiffers
	}
	return err
}

// columns sets out cells: topic, state and check to the left, all else, being
// numbers mostly, to the right.
func columns(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var text strings.Builder
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			width := widths[i]
			if i == 0 || i == 2 || i == len(line)-1 {
				width = -width
			}
			fmt.Fprintf(&out, "%*s  ", width, cell)
		}
		text.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	return text.String()
}

// firstConfig is the shortest configuration for real use.
const firstConfig = `  upstream:
    bootstrap_servers: ["your-broker:9092"]
  listeners:
    - name: clients
      bootstrap: "127.0.0.1:9192"
      nodes: "127.0.0.1:9200-9209"      # node id 0 at 9200 ... node id 9 at 9209
      advertised_host: "127.0.0.1"
`

// next is the way from the demo to real use.
const next = `
Next: put tiergate before your own brokers (Kafka 3.9 to 4.1). Save this as tiergate.yaml, with your addresses:

` + firstConfig + `
then  tiergate check --config tiergate.yaml   says what each of your brokers can do,
and   tiergate serve --config tiergate.yaml   is what your clients bootstrap from, at 127.0.0.1:9192.
      tiergate-loadtest demo --keep           leaves this demo running, to try your clients on first.
`
