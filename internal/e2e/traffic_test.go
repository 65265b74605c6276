// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/loadtest/kafka"
)

// tool runs a Java tool that must succeed and returns what it printed.
func tool(t *testing.T, ctx context.Context, jars kafka.Jars, class string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r, err := jars.Run(ctx, kafka.Tool{Class: class, Args: args})
	must(t, err)
	if r.ExitCode != 0 {
		t.Fatalf("%s of Kafka %s: %v", class, jars.Version, r)
	}
	return r.Stdout
}

// Classes of the command line tools.
const (
	topicCommand         = "org.apache.kafka.tools.TopicCommand"
	producerPerformance  = "org.apache.kafka.tools.ProducerPerformance"
	consoleConsumer      = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	consoleShareConsumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
	consumerGroupCommand = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	configCommand        = "kafka.admin.ConfigCommand"
	getOffsetShell       = "org.apache.kafka.tools.GetOffsetShell"
	transactionsCommand  = "org.apache.kafka.tools.TransactionsCommand"
	deleteRecordsCommand = "org.apache.kafka.tools.DeleteRecordsCommand"
)

// javaTraffic is what Java clients of a version ordinarily do: administer, produce with
// all acks, idempotent, and in transactions, consume in a group. What they print says
// whether every record arrived.
func javaTraffic(t *testing.T, ctx context.Context, jars kafka.Jars, bootstrap, topic string) {
	t.Helper()
	produce := func(records int, more ...string) {
		t.Helper()
		args := []string{"--topic", topic, "--num-records", fmt.Sprint(records), "--record-size", "300", "--throughput", "-1"}
		for i, a := range more {
			if !strings.Contains(a, "=") || strings.HasPrefix(a, "--") {
				args, more[i] = append(args, a), ""
			}
		}
		args = append(args, "--producer-props", "bootstrap.servers="+bootstrap)
		for _, a := range more {
			if a != "" {
				args = append(args, a)
			}
		}
		out := tool(t, ctx, jars, producerPerformance, args...)
		if want := fmt.Sprintf("%d records sent", records); !strings.Contains(out, want) {
			t.Errorf("ProducerPerformance %v of Kafka %s does not say %q:\n%s", more, jars.Version, want, out)
		}
	}
	tool(t, ctx, jars, topicCommand, "--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
	produce(2000, "acks=all", "batch.size=50000", "linger.ms=20")
	produce(1000, "acks=0", "enable.idempotence=false", "client.id=no-acks")
	produce(1000, "acks=1", "enable.idempotence=false", "compression.type=gzip")
	produce(1000, "--transaction-duration-ms", "100", "--transactional-id", topic+"-transactions", "acks=all")

	out := tool(t, ctx, jars, consoleConsumer, "--bootstrap-server", bootstrap, "--topic", topic, "--group", topic+"-group",
		"--from-beginning", "--max-messages", "5000", "--timeout-ms", "60000", "--isolation-level", "read_committed")
	if lines := strings.Count(out, "\n"); lines != 5000 {
		t.Errorf("ConsoleConsumer of Kafka %s printed %d records, not 5000", jars.Version, lines)
	}
	out = tool(t, ctx, jars, consumerGroupCommand, "--bootstrap-server", bootstrap, "--describe", "--group", topic+"-group")
	if !strings.Contains(out, topic+"-group") {
		t.Errorf("ConsumerGroupCommand of Kafka %s does not show the group:\n%s", jars.Version, out)
	}
	out = tool(t, ctx, jars, topicCommand, "--bootstrap-server", bootstrap, "--describe", "--topic", topic)
	if got := strings.Count(out, "Leader: 1"); got != 3 {
		t.Errorf("TopicCommand of Kafka %s shows %d partitions led by node 1, not 3:\n%s", jars.Version, got, out)
	}
	tool(t, ctx, jars, configCommand, "--bootstrap-server", bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic, "--all")
	tool(t, ctx, jars, getOffsetShell, "--bootstrap-server", bootstrap, "--topic", topic, "--time", "latest")
	tool(t, ctx, jars, getOffsetShell, "--bootstrap-server", bootstrap, "--topic", topic, "--time", "1")
	tool(t, ctx, jars, transactionsCommand, "--bootstrap-server", bootstrap, "list")
	offsets := filepath.Join(t.TempDir(), "offsets.json")
	must(t, os.WriteFile(offsets, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":%q,"partition":0,"offset":5}]}`, topic), 0o644))
	tool(t, ctx, jars, deleteRecordsCommand, "--bootstrap-server", bootstrap, "--offset-json-file", offsets)
}

// newProtocolsTraffic is what only the newest Java clients do: the consumer groups of
// KIP-848 and the share groups of KIP-932.
func newProtocolsTraffic(t *testing.T, ctx context.Context, jars kafka.Jars, bootstrap, topic string) {
	t.Helper()
	tool(t, ctx, jars, topicCommand, "--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
	tool(t, ctx, jars, configCommand, "--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", topic+"-share",
		"--add-config", "share.auto.offset.reset=earliest")
	tool(t, ctx, jars, producerPerformance, "--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "-1",
		"--producer-props", "bootstrap.servers="+bootstrap)
	for class, args := range map[string][]string{
		consoleConsumer:      {"--group", topic + "-consumer", "--from-beginning", "--consumer-property", "group.protocol=consumer"},
		consoleShareConsumer: {"--group", topic + "-share"},
	} {
		out := tool(t, ctx, jars, class, append([]string{
			"--bootstrap-server", bootstrap, "--topic", topic,
			"--max-messages", "1000", "--timeout-ms", "60000",
		}, args...)...)
		if lines := strings.Count(out, "\n"); lines < 1000 {
			t.Errorf("%s printed %d records, not 1000", class, lines)
		}
	}
}

// franzTraffic is what javaTraffic is, from franz-go.
func franzTraffic(t *testing.T, ctx context.Context, bootstrap, topic string) {
	t.Helper()
	const records = 500
	base := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(50 * time.Millisecond)}
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(base, opts...)...)
		must(t, err)
		return cl
	}
	produce := func(cl *kgo.Client, kind string) {
		t.Helper()
		var batch []*kgo.Record
		for i := range records {
			batch = append(batch, kgo.KeyStringRecord(fmt.Sprint(i), fmt.Sprintf("%s %d %s", kind, i, strings.Repeat("x", 200))))
		}
		must(t, cl.ProduceSync(ctx, batch...).FirstErr())
	}
	admin := client()
	adm := kadm.NewClient(admin)
	_, err := adm.CreateTopic(ctx, 3, 1, nil, topic)
	must(t, err)

	// A leader that does not know yet that it is one drops records with acks=0 in silence.
	must(t, kafka.Poll(ctx, "leaders of "+topic, func(ctx context.Context) error {
		offsets, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			err = offsets.Error()
		}
		return err
	}))

	idempotent := client(kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	produce(idempotent, "idempotent")
	idempotent.Close()
	noAcks := client(kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite(), kgo.ClientID("no-acks"))
	produce(noAcks, "no acks")
	noAcks.Close()
	transactional := client(kgo.TransactionalID(topic + "-transactions"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, transactional.BeginTransaction())
		produce(transactional, fmt.Sprintf("commit %v", bool(end)))
		must(t, transactional.EndTransaction(ctx, end))
	}
	transactional.Close()

	consumer := client(kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	kinds := make(map[string]int)
	polling, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for got := 0; got < 3*records; {
		fetches := consumer.PollFetches(polling)
		if polling.Err() != nil {
			t.Fatalf("franz-go consumed %v within a minute, want %d of each", kinds, records)
		}
		fetches.EachError(func(_ string, _ int32, err error) { t.Fatal(err) })
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			kinds[string(r.Value[:7])]++
		})
	}
	must(t, consumer.CommitUncommittedOffsets(ctx))
	consumer.Close()
	if kinds["no acks"] != records || kinds["idempot"] != records || kinds["commit "] != records || len(kinds) != 3 {
		t.Errorf("franz-go consumed %v, want %d of each and nothing from the aborted transaction", kinds, records)
	}

	lag, err := adm.Lag(ctx, topic+"-group")
	must(t, err)
	if got := lag[topic+"-group"].Lag.Total(); got < 0 || lag.Error() != nil {
		t.Errorf("lag of the group: %d, %v", got, lag.Error())
	}
	_, err = adm.ListOffsetsAfterMilli(ctx, 1, topic)
	must(t, err)
	_, err = adm.DescribeTopicConfigs(ctx, topic)
	must(t, err)
	admin.Close()
}
