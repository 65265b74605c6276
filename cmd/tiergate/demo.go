// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/config"
	"tiergate/loadtest/sim"
	"tiergate/loadtest/tierlog"
)

// DemoCmd is `tiergate demo`: the main job on a simulated cluster in the process.
type DemoCmd struct {
	Keep    bool          `help:"Leave the cluster and tiergate running until Ctrl-C, to try your own clients on. The logs keep moving meanwhile."`
	Brokers int           `default:"3" help:"Number of simulated brokers, 1 to 9."`
	Port    uint16        `default:"0" help:"Port of tiergate's bootstrap address on 127.0.0.1; its ports for the brokers follow. 0: free ports."`
	Pace    time.Duration `default:"2s" help:"With --keep: time between two changes of the logs."`
}

// Help is shown by --help.
func (c *DemoCmd) Help() string {
	return `Needs nothing but this program: no Kafka, no Java, no network beyond 127.0.0.1.

A Kafka 4.1 cluster with tiered storage is simulated in the process and tiergate runs in front of it. ` +
		`Every partition is asked for its earliest pending upload offset (ListOffsets timestamp -6), directly and through ` +
		`tiergate, and what tiergate says is compared with what a Kafka 4.2+ broker would say of the same log.

The simulated topics have records: clients can produce and consume. Only remote storage is make-believe, a number that moves.

Examples:

    tiergate demo
    tiergate demo --keep --port 9192

Exit codes:

    0   every answer is the one of a Kafka 4.2+ broker
    1   the demo could not run
    2   an answer differs
    64  wrong command line`
}

// Validate is called by kong when the flags are parsed.
func (c *DemoCmd) Validate() error {
	switch {
	case c.Brokers < 1 || c.Brokers > 9:
		return fmt.Errorf("--brokers=%d: from 1 to 9 are possible", c.Brokers)
	case int(c.Port)+c.Brokers > math.MaxUint16:
		return fmt.Errorf("--port=%d: there must be %d ports after it", c.Port, c.Brokers)
	case c.Pace <= 0:
		return fmt.Errorf("--pace=%v: must be above 0", c.Pace)
	}
	return nil
}

// demoTimeout bounds everything up to the table. It takes well under a second.
const demoTimeout = 30 * time.Second

// Run ends when ctx does, at SIGINT or SIGTERM. What it prints goes to streams.Out.
func (c *DemoCmd) Run(ctx context.Context, streams *Streams) error {
	topics := sim.SampleTopics()
	cluster, err := sim.New(sim.Options{Brokers: c.Brokers, Topics: topics, SystemRemoteStorage: sim.RemoteStorageEnabled})
	if err != nil {
		return err
	}
	defer cluster.Close()
	d := &demo{cluster: cluster, topics: topics, out: streams.Out}
	stop, err := d.startProxy(ctx, c.Port, streams)
	if err != nil {
		return err
	}
	defer stop()
	if err := d.show(ctx); err != nil {
		return err
	}
	if c.Keep {
		return d.keep(ctx, c.Pace)
	}
	_, err = io.WriteString(d.out, demoNext)
	return err
}

// startProxy runs tiergate before the cluster, as serve does with a configuration file
// but without the admin server. stop ends it.
func (d *demo) startProxy(ctx context.Context, port uint16, streams *Streams) (stop func(), err error) {
	for try := 1; ; try++ {
		first, err := demoPorts(port, 1+len(d.cluster.Addresses()))
		if err != nil {
			return nil, err
		}
		d.through = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(first)))
		stop, err = d.serve(ctx, first, streams)
		if port == 0 && errors.Is(err, syscall.EADDRINUSE) && try < demoPortTries {
			continue // somebody was faster
		}
		return stop, err
	}
}

func (d *demo) serve(ctx context.Context, first uint16, streams *Streams) (stop func(), err error) {
	text, err := demoProxyConfig(d.cluster.Addresses(), first)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse("the demo's configuration", text)
	if err != nil {
		return nil, err
	}
	log := newLogger(cfg.Log, streams.Err)
	to, err := newCluster(cfg, log, nil)
	if err != nil {
		return nil, err
	}
	server, err := newServer(cfg, to, log, nil)
	if err != nil {
		to.Close()
		return nil, err
	}
	stop = func() {
		_ = server.Close()
		to.Close()
	}
	if err := server.Start(); err != nil {
		stop()
		return nil, explainListen(err)
	}
	to.Start(ctx)
	return stop, nil
}

// demoPortTries bounds the search for free ports in a row, and the number of times that
// somebody else takes them first.
const demoPortTries = 20

// demoPorts returns the first of n ports in a row that were free a moment ago: first
// itself, or any if that is 0.
func demoPorts(first uint16, n int) (uint16, error) {
	if first != 0 {
		return first, demoFree(first, n)
	}
	var err error
	for range demoPortTries {
		var ln net.Listener
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		if port+n > math.MaxUint16 {
			continue
		}
		if err = demoFree(uint16(port), n); err == nil {
			return uint16(port), nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row on 127.0.0.1: %w", n, err)
}

// demoFree returns an error unless all of n ports from first on can be listened on.
func demoFree(first uint16, n int) error {
	for i := range n {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(first)+i)))
		if err != nil {
			return explainListen(err)
		}
		_ = ln.Close()
	}
	return nil
}

// demoProxyConfig is what somebody would write in a file to run tiergate before the
// simulated brokers.
func demoProxyConfig(brokers []string, port uint16) ([]byte, error) {
	servers, err := json.Marshal(brokers) // JSON is YAML
	return fmt.Appendf(nil, `upstream:
  bootstrap_servers: %s
listeners:
  - name: demo
    bootstrap: "127.0.0.1:%d"
    nodes: "127.0.0.1:%d-%d"
    advertised_host: "127.0.0.1"
log:
  level: warn
`, servers, port, port+1, int(port)+len(brokers)), err
}

// demoPosition names a partition.
type demoPosition struct {
	topic     string
	partition int32
}

// demoOffset is one answer to ListOffsets.
type demoOffset struct {
	offset int64
	epoch  int32
	code   int16
}

// String is how the table shows an answer.
func (o demoOffset) String() string {
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

// demoRow is one partition: what clients are told, and the truth.
type demoRow struct {
	at                       demoPosition
	state                    string
	start, local, tier, last demoOffset
	direct, through, truth   demoOffset
}

// pending is the number of records that wait for upload, as a client of tiergate counts
// them.
func (r demoRow) pending() string {
	switch {
	case r.state == demoNotTiered:
		return "-"
	case r.through.code != 0:
		return "?"
	case r.through.offset < 0:
		return "0"
	}
	return strconv.FormatInt(r.last.offset-r.through.offset, 10)
}

// fault says what is wrong with a row, or "".
func (r demoRow) fault() string {
	switch {
	case r.through != r.truth:
		return fmt.Sprintf("a Kafka 4.2+ broker says %v (leader epoch %d), tiergate says %v (leader epoch %d)",
			r.truth, r.truth.epoch, r.through, r.through.epoch)
	case r.direct.code != kerr.UnsupportedVersion.Code:
		return fmt.Sprintf("asked directly, the Kafka 4.1 broker says %v and should refuse", r.direct)
	}
	return ""
}

// demo is a simulated cluster and a proxy in front of it.
type demo struct {
	cluster *sim.Cluster
	topics  []sim.Topic // for names and numbers of partitions
	through string      // bootstrap address of the proxy
	out     io.Writer
}

// errDemoDiffers is the demo's finding that tiergate answered wrongly.
var errDemoDiffers = errors.New("not every answer is the one of a Kafka 4.2+ broker")

// show asks, prints what came back, and fails if any answer is not the native one.
func (d *demo) show(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	direct, err := demoClient(d.cluster.Addresses()...)
	if err != nil {
		return err
	}
	defer direct.Close()
	through, err := demoClient(d.through)
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

// demoClient is an ordinary Kafka client: it asks with the newest version that the
// broker before it offers.
func demoClient(bootstrap ...string) (*kgo.Client, error) {
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
	_, err = fmt.Fprintf(d.out, `Kafka 4.2 and later can say from which offset on a partition still waits for upload to tiered storage
(ListOffsets timestamp -6, "earliest pending upload"); older brokers refuse the question. This demo simulates
a Kafka 4.1 cluster of %s in this process, puts tiergate in front of it, and asks both ways.

Directly          The brokers offer ListOffsets up to version %d; -6 needs 11. A Kafka 4.3 client gives up:
                  "%s
                  %s"
Through tiergate  It offers ListOffsets up to version %d. The same client asks and is answered; the brokers
                  stay as they are.

`, count(len(d.cluster.Addresses()), "broker"), own.MaxVersion, javaRefusal, javaRange(own), offered.MaxVersion)
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
func (d *demo) rows(ctx context.Context, direct, through *kgo.Client) ([]demoRow, error) {
	var rows []demoRow
	for _, t := range d.topics {
		for p := range t.Partitions {
			rows = append(rows, demoRow{at: demoPosition{t.Name, int32(p)}})
		}
	}
	for _, ask := range []struct {
		client    *kgo.Client
		timestamp int64
		put       func(*demoRow, demoOffset)
	}{
		{direct, tierlog.EarliestTimestamp, func(r *demoRow, o demoOffset) { r.start = o }},
		{direct, tierlog.EarliestLocalTimestamp, func(r *demoRow, o demoOffset) { r.local = o }},
		{direct, tierlog.LatestTieredTimestamp, func(r *demoRow, o demoOffset) { r.tier = o }},
		{direct, tierlog.LatestTimestamp, func(r *demoRow, o demoOffset) { r.last = o }},
		{direct, tierlog.EarliestPendingUploadTimestamp, func(r *demoRow, o demoOffset) { r.direct = o }},
		{through, tierlog.EarliestPendingUploadTimestamp, func(r *demoRow, o demoOffset) { r.through = o }},
	} {
		answers, err := demoAsk(ctx, ask.client, ask.timestamp, rows)
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
		rows[i].truth = demoOffset{native.Offset, native.Epoch, native.ErrorCode}
		rows[i].state = demoState(model)
	}
	return rows, nil
}

// demoAsk asks the leaders of all partitions for one timestamp.
func demoAsk(ctx context.Context, client *kgo.Client, timestamp int64, of []demoRow) (map[demoPosition]demoOffset, error) {
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
	answers := make(map[demoPosition]demoOffset, len(of))
	for _, shard := range client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				answers[demoPosition{t.Topic, p.Partition}] = demoOffset{p.Offset, p.LeaderEpoch, p.ErrorCode}
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
	demoNotTiered     = "not tiered"
	demoEmpty         = "tiered, still empty"
	demoNothing       = "nothing uploaded yet"
	demoEverything    = "everything uploaded"
	demoDeletedPast   = "deleted past the upload"
	demoPartlyOnDisk  = "partly uploaded, all on disk"
	demoPartlyOffDisk = "partly uploaded, disk freed"
)

func demoState(log *tierlog.Log) string {
	pending := log.HighestRemote() + 1
	switch {
	case log.RemoteStorage() == tierlog.Disabled:
		return demoNotTiered
	case log.LogEnd() == 0:
		return demoEmpty
	case pending == 0:
		return demoNothing
	case pending >= log.LogEnd():
		return demoEverything
	case log.LogStart() > pending:
		return demoDeletedPast
	case log.LocalLogStart() > log.LogStart():
		return demoPartlyOffDisk
	}
	return demoPartlyOnDisk
}

// table prints the rows, at most 110 columns wide while offsets have up to six digits,
// and what was wrong with them.
func (d *demo) table(rows []demoRow) error {
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
%s`, demoColumns(lines), len(rows)-len(wrong), len(rows), strings.Join(wrong, ""))
	if err == nil && len(wrong) > 0 {
		err = &exitError{exitIncomplete, errDemoDiffers}
	}
	return err
}

// demoColumns sets out cells: topic, state and check to the left, all else, being
// numbers mostly, to the right.
func demoColumns(lines [][]string) string {
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

// demoConfig is the shortest configuration for real use.
const demoConfig = `  upstream:
    bootstrap_servers: ["your-broker:9092"]
  listeners:
    - name: clients
      bootstrap: "127.0.0.1:9192"
      nodes: "127.0.0.1:9200-9209"      # node id 0 at 9200 ... node id 9 at 9209
      advertised_host: "127.0.0.1"
`

// demoNext is the way from the demo to real use.
const demoNext = `
Next: put tiergate before your own brokers (Kafka 3.9 to 4.1). Save this as tiergate.yaml, with your addresses:

` + demoConfig + `
then  tiergate check --config tiergate.yaml   says what each of your brokers can do,
and   tiergate serve --config tiergate.yaml   is what your clients bootstrap from, at 127.0.0.1:9192.
      tiergate demo --keep                    leaves this demo running, to try your clients on first.
`

// keep lets the logs move at the given pace until ctx ends.
func (d *demo) keep(ctx context.Context, pace time.Duration) error {
	if _, err := fmt.Fprintf(d.out, `
tiergate answers at %[1]s until Ctrl-C, and the logs keep moving: ask twice.

  tiergate offsets --bootstrap-servers %[1]s
  kafka-get-offsets.sh --bootstrap-server %[1]s --time earliest-pending-upload    (Kafka 4.2 or later)
  kafka-console-consumer.sh --bootstrap-server %[1]s --topic orders --from-beginning

The brokers themselves are at %[2]s:
the same kafka-get-offsets.sh is refused there.
`, d.through, strings.Join(d.cluster.Addresses(), ",")); err != nil {
		return err
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.move(step); err != nil {
			return err
		}
	}
}

// Every demoUploadEvery-th step of a partition a segment is complete: all but the newest
// demoActive records are uploaded, and all but the newest demoLocal go from the disk.
const (
	demoUploadEvery = 4
	demoActive      = 20
	demoLocal       = 600
)

// move lets one step happen everywhere: records come in, and on some partitions a
// segment is uploaded.
func (d *demo) move(step int) error {
	n := 0
	for _, t := range d.topics {
		for p := range t.Partitions {
			n++
			records, upload := int64(10+7*n%30), (step+n)%demoUploadEvery == 0
			err := d.cluster.Update(t.Name, int32(p), func(log *tierlog.Log) {
				log.Append(records)
				if upload {
					log.Upload(log.LogEnd() - demoActive - 1)
					log.DeleteLocal(log.LogEnd() - demoLocal)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
