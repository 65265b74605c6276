// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tiergate/loadtest/kafka"
)

// testTools runs the command line tools of Kafka 4.3 that people work with, each watched.
// They need not connect to every node, only to none that is not tiergate's.
func testTools(t *testing.T, ctx context.Context, w *whole) {
	const topic = "tools"
	properties := filepath.Join(t.TempDir(), "producer.properties")
	must(t, os.WriteFile(properties, []byte("enable.idempotence=true\nretries=2147483647\n"), 0o644))
	group := []string{"--bootstrap-server", w.bootstrap, "--describe", "--group"}
	for _, run := range []struct {
		class string
		args  []string
		stdin string
		text  string // on standard output
		times int
	}{
		{class: "TopicCommand", args: []string{"--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"}, text: "Created topic", times: 1},
		{class: "ConsoleProducer", args: []string{"--topic", topic}, stdin: strings.Repeat("console\n", 50)},
		{class: "ProducerPerformance", args: []string{
			"--topic", topic, "--num-records", "250", "--record-size", "10", "--throughput", "-1", "--transaction-duration-ms", "50",
			"--transactional-id", topic,
		}, text: "250 records sent", times: 1},
		{class: "VerifiableProducer", args: []string{"--topic", topic, "--max-messages", "100", "--acks", "-1", "--command-config", properties}, text: `"producer_send_success"`, times: 100},
		{class: "VerifiableConsumer", args: []string{"--topic", topic, "--group-id", topic + "-verifiable", "--max-messages", "400", "--verbose"}, text: `"record_data"`, times: 400},
		{class: "consumer.ConsoleConsumer", args: []string{
			"--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "400", "--timeout-ms", "60000",
			"--isolation-level", "read_committed",
		}, text: "\n", times: 400},
		{class: "consumer.group.ConsumerGroupCommand", args: append(group[2:], topic), text: topic + " ", times: 1},
		{class: "TransactionsCommand", args: []string{"list"}, text: topic, times: 1},
	} {
		switch run.class {
		case "ProducerPerformance":
			run.args = append(run.args, "--producer-props", "bootstrap.servers="+w.bootstrap)
		default:
			run.args = append([]string{"--bootstrap-server", w.bootstrap}, run.args...)
		}
		tool := kafka.Tool{Class: "org.apache.kafka.tools." + run.class, Args: run.args}
		if run.stdin != "" {
			tool.Stdin = strings.NewReader(run.stdin)
		}
		c := watch(t, run.class, jars(t, ctx).Command(tool, t.TempDir()))
		out := c.wait(t, ctx)
		if n := strings.Count(out, run.text); run.text != "" && n < run.times {
			t.Errorf("%s says %q %d times, want %d: %s", run.class, run.text, n, run.times, c.output())
		}
		if found := c.targets(t).elsewhere(w.allowed()); len(found) > 0 {
			t.Errorf("%s turned to %v, which are not tiergate", run.class, found)
		}
	}
}
