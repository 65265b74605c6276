// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"tiergate/codec"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, options sim.Options) *sim.Cluster {
	t.Helper()
	c, err := sim.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// leader dials the leader of a partition.
func leader(t *testing.T, c *sim.Cluster, topic string, partition int32) *wire {
	t.Helper()
	id := c.Leader(topic, partition)
	if id < 0 {
		t.Fatalf("%s-%d has no leader", topic, partition)
	}
	return dial(t, c.Addresses()[id])
}

// answers writes a ListOffsets response as text: offset/epoch or the error code.
func answers(response kmsg.Response) string {
	var out []string
	for _, t := range response.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				out = append(out, fmt.Sprintf("%s-%d:E%d", t.Topic, p.Partition, p.ErrorCode))
				continue
			}
			out = append(out, fmt.Sprintf("%s-%d:%d/%d", t.Topic, p.Partition, p.Offset, p.LeaderEpoch))
		}
	}
	return strings.Join(out, " ")
}

// sampleAnswers are what each partition of sim.SampleTopics says to -2, -4, -5, -1 and
// natively to -6.
var sampleAnswers = []struct {
	at                                position
	start, local, tier, last, pending string
}{
	{position{"orders", 0}, "0/0", "3000/2", "4199/4", "5200/4", "4200/4"},
	{position{"orders", 1}, "0/0", "2000/4", "1999/0", "2500/4", "2000/4"},
	{position{"orders", 2}, "0/0", "0/0", "999/0", "1800/0", "1000/0"},
	{position{"payments", 0}, "0/0", "2000/1", "1999/1", "2000/1", "-1/-1"},
	{position{"payments", 1}, "1700/2", "1700/2", "1299/-1", "2100/2", "1700/2"},
	{position{"clicks", 0}, "0/0", "0/0", "-1/-1", "400/0", "0/0"},
	{position{"sensors", 0}, "0/0", "0/0", "-1/-1", "0/0", "-1/-1"},
	{position{"sessions", 0}, "0/0", "0/0", "-1/-1", "900/0", "-1/-1"},
	{position{"sessions", 1}, "0/0", "0/0", "-1/-1", "0/0", "-1/-1"},
}

func TestEveryStateAtEachVersion(t *testing.T) {
	for _, tt := range []struct {
		version sim.Version
		lookups []int16
		pending []int16 // versions at which -6 is answered
		refused int16   // the version that closes the connection
	}{
		{sim.Kafka39, []int16{9}, nil, 10},
		{sim.Kafka41, []int16{9, 10}, nil, 11},
		{sim.Kafka43, []int16{9, 10, 11}, []int16{11}, 12},
	} {
		t.Run(tt.version.String(), func(t *testing.T) {
			c := start(t, sim.Options{Version: tt.version, Topics: sim.SampleTopics()})
			for _, s := range sampleAnswers {
				w := leader(t, c, s.at.topic, s.at.partition)
				check := func(version int16, timestamp int64, want string) {
					t.Helper()
					want = fmt.Sprintf("%s-%d:%s", s.at.topic, s.at.partition, want)
					if got := answers(w.ask(listOffsets(version, timestamp, s.at))); got != want {
						t.Errorf("v%d timestamp %d: %s, want %s", version, timestamp, got, want)
					}
				}
				for _, v := range tt.lookups {
					check(v, -2, s.start)
					check(v, -4, s.local)
					check(v, -5, s.tier)
					check(v, -1, s.last)
					check(v, -7, "E35")
					if !slices.Contains(tt.pending, v) {
						check(v, -6, "E35")
					}
				}
				for _, v := range tt.pending {
					check(v, -6, s.pending)
				}
				w.refused(listOffsets(tt.refused, -1, s.at))
			}
		})
	}
}

func TestApiVersionsRow(t *testing.T) {
	c := start(t, sim.Options{
		Brokers:      5,
		NodeVersions: map[int32]sim.Version{0: sim.Kafka38, 1: sim.Kafka39, 2: sim.Kafka40, 4: sim.Kafka43},
	})
	var got [][2]int16
	for _, address := range c.Addresses() {
		request := kmsg.NewPtrApiVersionsRequest()
		request.Version = 3
		request.ClientSoftwareName, request.ClientSoftwareVersion = "sim-test", "1"
		for _, row := range dial(t, address).ask(request).(*kmsg.ApiVersionsResponse).ApiKeys {
			if row.ApiKey == kmsg.ListOffsets.Int16() {
				got = append(got, [2]int16{row.MinVersion, row.MaxVersion})
			}
		}
	}
	if want := [][2]int16{{0, 8}, {0, 9}, {1, 10}, {1, 10}, {1, 11}}; !slices.Equal(got, want) {
		t.Errorf("ListOffsets versions by node %v, want %v", got, want)
	}
}

// KIP-511: the answer to a version that the broker lacks has the layout of version 0.
func TestApiVersionsTooNew(t *testing.T) {
	c := start(t, sim.Options{Version: sim.Kafka43})
	w := dial(t, c.Addresses()[0])
	request := kmsg.NewPtrApiVersionsRequest()
	request.Version = 99
	request.ClientSoftwareName, request.ClientSoftwareVersion = "sim-test", "1"
	w.send(request, 3)
	frame, err := w.frame()
	if err != nil {
		t.Fatal(err)
	}
	// Error 35, one row: key 18, versions 0 to 4.
	want := []byte{0, 0, 0, 16, 0, 0, 0, 3, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
	if !bytes.Equal(frame, want) {
		t.Errorf("got  %x\nwant %x", frame, want)
	}
}

func TestOnePartitionTwice(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Version: sim.Kafka43, Topics: sim.SampleTopics()})
	w := dial(t, c.Addresses()[0])
	for _, version := range []int16{9, 10, 11} {
		request := listOffsets(version, -2, position{"orders", 0}, position{"clicks", 0}, position{"orders", 0}, position{"nobody", 0}, position{"nobody", 0})
		want := "nobody-0:E42 clicks-0:0/0 orders-0:E42"
		if got := answers(w.ask(request)); got != want {
			t.Errorf("v%d: %s, want %s", version, got, want)
		}
	}
}

func TestRefusalsComeBeforeTheLog(t *testing.T) {
	c := start(t, sim.Options{Version: sim.Kafka43, Topics: sim.SampleTopics()})
	at := position{"orders", 0}
	w := leader(t, c, at.topic, at.partition)
	other := dial(t, c.Addresses()[(c.Leader(at.topic, at.partition)+1)%3])
	for _, timestamp := range []int64{-1, -2, -4, -5, -6} {
		for _, tt := range []struct {
			w    *wire
			at   position
			edit func(*kmsg.ListOffsetsRequest)
			want string
		}{
			{w, position{"nobody", 0}, func(*kmsg.ListOffsetsRequest) {}, "nobody-0:E3"},
			{w, position{"orders", 3}, func(*kmsg.ListOffsetsRequest) {}, "orders-3:E3"},
			{other, at, func(*kmsg.ListOffsetsRequest) {}, "orders-0:E6"},
			{w, at, func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 3 }, "orders-0:E74"},
			{w, at, func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 5 }, "orders-0:E75"},
		} {
			request := listOffsets(11, timestamp, tt.at)
			tt.edit(request)
			if got := answers(tt.w.ask(request)); got != tt.want {
				t.Errorf("timestamp %d: %s, want %s", timestamp, got, tt.want)
			}
		}
	}
}

func TestOrderOfAnswersIsNotTheRequests(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	request := listOffsets(10, -1, position{"orders", 2}, position{"orders", 0}, position{"clicks", 0})
	want := "clicks-0:400/0 orders-0:5200/4 orders-2:1800/0"
	if got := answers(dial(t, c.Addresses()[0]).ask(request)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestOffsetForLeaderEpochRepeated(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.Version, request.ReplicaID = 4, -1
	for _, ask := range []struct {
		topic  string
		epochs []int32
	}{{"orders", []int32{0, 1, 2, 3, 4, 5}}, {"payments", []int32{1}}, {"orders", []int32{4, 0}}} {
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = ask.topic
		for _, epoch := range ask.epochs {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.LeaderEpoch = epoch
			rt.Partitions = append(rt.Partitions, p)
		}
		request.Topics = append(request.Topics, rt)
	}
	var got []string
	for _, rt := range dial(t, c.Addresses()[0]).ask(request).(*kmsg.OffsetForLeaderEpochResponse).Topics {
		got = append(got, rt.Topic)
		for _, p := range rt.Partitions {
			got = append(got, fmt.Sprintf("%d:%d/%d", p.ErrorCode, p.EndOffset, p.LeaderEpoch))
		}
	}
	want := "orders 0:2500/0 0:2500/0 0:4000/2 0:4000/2 0:5200/4 0:-1/-1 payments 0:2000/1 orders 0:5200/4 0:2500/0"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func describe(t *testing.T, c *sim.Cluster, names []string) string {
	t.Helper()
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.Version = 4
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{kmsg.ConfigResourceTypeTopic, "orders"}, {kmsg.ConfigResourceTypeTopic, "sessions"}, {kmsg.ConfigResourceTypeTopic, "nobody"}, {kmsg.ConfigResourceTypeBroker, "0"}} {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName, rr.ConfigNames = r.kind, r.name, names
		request.Resources = append(request.Resources, rr)
	}
	var got []string
	for _, r := range dial(t, c.Addresses()[0]).ask(request).(*kmsg.DescribeConfigsResponse).Resources {
		got = append(got, fmt.Sprintf("%s:E%d", r.ResourceName, r.ErrorCode))
		for _, config := range r.Configs {
			got = append(got, fmt.Sprintf("%s=%s(%v)", config.Name, *config.Value, config.Source))
		}
	}
	return strings.Join(got, " ")
}

func TestDescribeConfigs(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics(), SystemRemoteStorage: codec.RemoteStorageEnabled})
	names := []string{"remote.storage.enable", "cleanup.policy", "remote.log.storage.system.enable"}
	want := "orders:E0 cleanup.policy=delete(DEFAULT_CONFIG) remote.storage.enable=true(DYNAMIC_TOPIC_CONFIG) " +
		"sessions:E0 cleanup.policy=delete(DEFAULT_CONFIG) remote.storage.enable=false(DEFAULT_CONFIG) " +
		"nobody:E3 0:E0 remote.log.storage.system.enable=true(STATIC_BROKER_CONFIG)"
	if got := describe(t, c, names); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = "orders:E0 cleanup.policy=delete(DEFAULT_CONFIG) sessions:E0 cleanup.policy=delete(DEFAULT_CONFIG) nobody:E3 0:E0"
	if got := describe(t, c, []string{"cleanup.policy"}); got != want {
		t.Errorf("by name: got  %s\nwant %s", got, want)
	}
	c.SetSystemRemoteStorage(codec.RemoteStorageDisabled)
	if err := c.Update("orders", 0, func(l *tierlog.Log) { l.SetRemoteStorage(codec.RemoteStorageDisabled) }); err != nil {
		t.Fatal(err)
	}
	want = "orders:E0 remote.storage.enable=false(DEFAULT_CONFIG) sessions:E0 remote.storage.enable=false(DEFAULT_CONFIG) " +
		"nobody:E3 0:E0 remote.log.storage.system.enable=false(DEFAULT_CONFIG)"
	if got := describe(t, c, []string{"remote.storage.enable", "remote.log.storage.system.enable"}); got != want {
		t.Errorf("switched off: got  %s\nwant %s", got, want)
	}
	c.SetDescribeConfigs(sim.DescribeConfigsDenied)
	if got, want := describe(t, c, names), "orders:E29 sessions:E29 nobody:E29 0:E31"; got != want {
		t.Errorf("denied: got  %s\nwant %s", got, want)
	}
}

func TestUpdateMovesModelAndRecords(t *testing.T) {
	c := start(t, sim.Options{Version: sim.Kafka43, Topics: sim.SampleTopics()})
	at := position{"clicks", 0}
	w := leader(t, c, at.topic, at.partition)
	if err := c.Update(at.topic, at.partition, func(l *tierlog.Log) {
		l.Restart(3)
		l.Append(100)
		l.Upload(399)
	}); err != nil {
		t.Fatal(err)
	}
	for timestamp, want := range map[int64]string{-1: "clicks-0:500/3", -5: "clicks-0:399/0", -6: "clicks-0:400/3"} {
		if got := answers(w.ask(listOffsets(11, timestamp, at))); got != want {
			t.Errorf("timestamp %d: %s, want %s", timestamp, got, want)
		}
	}
	if info := c.Kfake().PartitionInfo(at.topic, at.partition); info.Epoch != 3 || info.HighWatermark != 500 {
		t.Errorf("kfake is in epoch %d with end %d, want 3 and 500", info.Epoch, info.HighWatermark)
	}
	if err := c.MoveLeader(at.topic, at.partition, (c.Leader(at.topic, at.partition)+1)%3); err != nil {
		t.Fatal(err)
	}
	if got, want := answers(w.ask(listOffsets(11, -6, at))), "clicks-0:E6"; got != want {
		t.Errorf("the old leader says %s, want %s", got, want)
	}
	if got, want := answers(leader(t, c, at.topic, at.partition).ask(listOffsets(11, -1, at))), "clicks-0:500/4"; got != want {
		t.Errorf("the new leader says %s, want %s", got, want)
	}
}

func client(t *testing.T, c *sim.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Addresses()...), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// What clients produce and delete counts in the next answer.
func TestClientsRecordsEnterTheModel(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics()})
	ctx := deadline(t)
	cl := client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for range 5 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "clicks", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	at := position{"clicks", 0}
	w := leader(t, c, "clicks", 0)
	if got, want := answers(w.ask(listOffsets(10, -1, at))), "clicks-0:405/0"; got != want {
		t.Errorf("end: %s, want %s", got, want)
	}
	var delete kadm.Offsets
	delete.AddOffset("clicks", 0, 250, -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(ctx, delete); err != nil {
		t.Fatal(err)
	}
	if got, want := answers(w.ask(listOffsets(10, -4, at))), "clicks-0:250/0"; got != want {
		t.Errorf("first local offset: %s, want %s", got, want)
	}
	model, err := c.Model("clicks", 0)
	if err != nil {
		t.Fatal(err)
	}
	if model.LogStart() != 250 || model.LogEnd() != 405 {
		t.Errorf("the model says %v, want start 250, end 405", model)
	}
}

func TestOpenTransactionHoldsTheStableOffset(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics()})
	ctx := deadline(t)
	cl := client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("t"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "clicks", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w := leader(t, c, "clicks", 0)
	end := func(isolation int8) string {
		request := listOffsets(10, -1, position{"clicks", 0})
		request.IsolationLevel = isolation
		return answers(w.ask(request))
	}
	if got, want := end(0)+" "+end(1), "clicks-0:401/0 clicks-0:400/0"; got != want {
		t.Errorf("open: %s, want %s", got, want)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got, want := end(0)+" "+end(1), "clicks-0:402/0 clicks-0:402/0"; got != want { // one more: the commit marker
		t.Errorf("committed: %s, want %s", got, want)
	}
}

// Every offset that is named can be read, with the epoch that is named.
func TestRecordsAreThere(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics()})
	ctx := deadline(t)
	cl := client(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(3999)}}))
	var got []string
	for len(got) < 3 {
		fetches := cl.PollRecords(ctx, 3-len(got))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			got = append(got, fmt.Sprintf("%d/%d %s", r.Offset, r.LeaderEpoch, r.Value))
		}
	}
	want := []string{"3999/2 orders-0@3999", "4000/4 orders-0@4000", "4001/4 orders-0@4001"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestKadmListOffsets(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics()})
	adm := kadm.NewClient(client(t, c))
	ctx := deadline(t)
	var got []string
	for _, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){adm.ListStartOffsets, adm.ListEndOffsets} {
		offsets, err := list(ctx, "orders", "payments", "sessions")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range offsets.Offsets().Sorted() {
			got = append(got, fmt.Sprintf("%s-%d:%d", o.Topic, o.Partition, o.At))
		}
	}
	want := "orders-0:0 orders-1:0 orders-2:0 payments-0:0 payments-1:1700 sessions-0:0 sessions-1:0 " +
		"orders-0:5200 orders-1:2500 orders-2:1800 payments-0:2000 payments-1:2100 sessions-0:900 sessions-1:0"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// Timestamps of records: kfake's answer where there are records, the model's, whose
// record at offset o has timestamp o, where there are none.
func TestTimestamps(t *testing.T) {
	hollow := tierlog.New(0)
	hollow.Append(1000)
	topics := append(sim.SampleTopics(), sim.Topic{Name: "hollow", Records: sim.NoRecords, Partitions: []*tierlog.Log{hollow}})
	c := start(t, sim.Options{Brokers: 1, Topics: topics})
	w := dial(t, c.Addresses()[0])
	for _, tt := range []struct {
		timestamp int64
		want      string
	}{
		{300, "hollow-0:300/0 clicks-0:0/0"},
		{time.Now().Add(time.Hour).UnixMilli(), "hollow-0:-1/-1 clicks-0:-1/-1"},
		{-1, "hollow-0:1000/0 clicks-0:400/0"},
	} {
		if got := answers(w.ask(listOffsets(10, tt.timestamp, position{"clicks", 0}, position{"hollow", 0}))); got != tt.want {
			t.Errorf("timestamp %d: %s, want %s", tt.timestamp, got, tt.want)
		}
	}
	if info := c.Kfake().PartitionInfo("hollow", 0); info.HighWatermark != 0 {
		t.Errorf("a topic without records has %d", info.HighWatermark)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	var frames [][]byte
	c := start(t, sim.Options{
		Brokers: 1, Topics: sim.SampleTopics(),
		OnRequest: func(_ int32, frame []byte) { frames = append(frames, bytes.Clone(frame)) },
	})
	if got := c.Requests(); len(got) != 0 {
		t.Fatalf("before any client: %v", got)
	}
	w := dial(t, c.Addresses()[0])
	at := position{"orders", 0}
	w.send(listOffsets(9, -1, at), 1)
	w.send(listOffsets(10, -1, at), 2)
	w.send(listOffsets(10, -5, at), 2) // a correlation id twice
	w.receive(listOffsets(9, -1, at), 1)
	w.receive(listOffsets(10, -1, at), 2)
	w.receive(listOffsets(10, -5, at), 2)
	got := c.Requests()
	if n9, n10 := got[sim.Request{Key: kmsg.ListOffsets, Version: 9}], got[sim.Request{Key: kmsg.ListOffsets, Version: 10}]; len(got) != 2 || n9 != 1 || n10 != 2 {
		t.Errorf("counted %v, want one v9 and two v10", got)
	}
	if n := c.RequestsOf(kmsg.ListOffsets); n != 3 || len(frames) != 3 {
		t.Errorf("RequestsOf %d, frames seen %d, want 3 and 3", n, len(frames))
	}
	c.ResetRequests()
	if got := c.Requests(); len(got) != 0 {
		t.Errorf("after ResetRequests: %v", got)
	}
}

// A Produce with acks 0 is owed nothing; what is pipelined behind it is answered.
func TestProduceWithoutAcks(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	w := dial(t, c.Addresses()[0])
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks = 9, 0
	w.send(produce, 1)
	w.send(listOffsets(10, -1, position{"clicks", 0}), 2)
	if got, want := answers(w.receive(listOffsets(10, -1, position{}), 2)), "clicks-0:400/0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// kfake itself would panic at an unknown key, and allocate whatever a size field says.
func TestUnreadableRequestsCloseTheConnection(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	for _, frame := range [][]byte{
		{0, 0, 0, 10, 0x27, 0x10, 0, 0, 0, 0, 0, 1, 0xff, 0xff},      // key 10000
		{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, // 2 GiB
		{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03}, // TLS
		{0, 0, 0, 10, 0, 2, 0, 10, 0, 0, 0, 1, 0x7f, 0xff},           // client id past the end
	} {
		w := dial(t, c.Addresses()[0])
		if _, err := w.nc.Write(frame); err != nil {
			t.Fatal(err)
		}
		if got, err := w.frame(); err == nil {
			t.Errorf("%x was answered with %x", frame, got)
		}
	}
	if got, want := answers(dial(t, c.Addresses()[0]).ask(listOffsets(10, -1, position{"clicks", 0}))), "clicks-0:400/0"; got != want {
		t.Errorf("afterwards: %s, want %s", got, want)
	}
}

// Many clients ask while the model moves and the cluster is closed under them: nobody
// hangs, and goleak finds nothing.
func TestCloseUnderLoad(t *testing.T) {
	c := start(t, sim.Options{Topics: sim.SampleTopics()})
	const clients = 8
	asked, done := make(chan struct{}, clients), make(chan struct{}, clients)
	for i := range clients {
		w := dial(t, c.Addresses()[i%3])
		go func() {
			defer func() { done <- struct{}{} }()
			request := listOffsets(10, -1, position{"orders", 0}, position{"clicks", 0})
			frame := kmsg.NewRequestFormatter().AppendRequest(nil, request, 1)
			for n := 0; ; n++ {
				if _, err := w.nc.Write(frame); err != nil {
					return
				}
				if got, err := w.frame(); err != nil || codec.ResponseCorrelationID(got) != 1 {
					return
				}
				if n == 0 {
					asked <- struct{}{}
				}
			}
		}()
	}
	for range clients {
		<-asked
	}
	for range 20 {
		if err := c.Update("orders", 0, func(l *tierlog.Log) { l.Append(10) }); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	for range clients {
		<-done
	}
	if err := c.Update("orders", 0, func(*tierlog.Log) {}); err == nil {
		t.Error("Update after Close returned no error")
	}
	if id := c.Leader("orders", 0); id != -1 {
		t.Errorf("Leader after Close is %d", id)
	}
}

func TestConnectionsCanBeCut(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	w := dial(t, c.Addresses()[0])
	w.ask(listOffsets(10, -1, position{"clicks", 0}))
	c.CloseConnections()
	if got, err := w.frame(); err == nil {
		t.Errorf("got %x, want the connection closed", got)
	}
}

func TestFaultsAreKfakes(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	c.Kfake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "clicks", Count: 1})
	w := dial(t, c.Addresses()[0])
	request := listOffsets(10, -5, position{"clicks", 0}, position{"orders", 0})
	if got, want := answers(w.ask(request)), "orders-0:4199/4 clicks-0:E-1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The Java admin client of 4.3 describes topics this way and fails at null lists.
func TestDescribeTopicPartitionsHasNoNullLists(t *testing.T) {
	c := start(t, sim.Options{Brokers: 1, Topics: sim.SampleTopics()})
	request := kmsg.NewPtrDescribeTopicPartitionsRequest()
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = "orders"
	request.Topics = append(request.Topics, topic)
	request.ResponsePartitionLimit = 100
	response := dial(t, c.Addresses()[0]).ask(request).(*kmsg.DescribeTopicPartitionsResponse)
	if n := len(response.Topics[0].Partitions); n != 3 {
		t.Fatalf("%d partitions, want 3", n)
	}
	for _, p := range response.Topics[0].Partitions {
		if p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
			t.Errorf("partition %d: a null list: %+v", p.Partition, p)
		}
	}
}
