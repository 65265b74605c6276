// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/loadtest/kafka"
)

const (
	verifiableProducer = "org.apache.kafka.tools.VerifiableProducer"
	verifiableConsumer = "org.apache.kafka.tools.VerifiableConsumer"
)

// testRollingRestart restarts two tiergates one after the other, twice each, under an
// idempotent Java producer and a Java consumer in a group: no error reaches either, and
// every record is in the log once and is consumed once.
func testRollingRestart(t *testing.T, ctx context.Context, s *stand) {
	const records, perSecond = 6000, 250
	const topic = "rolling-restart"
	node := s.cluster.Node(nodeID)
	configs := make([]string, 2)
	gates := make([]*gate, 2)
	var bootstraps []string
	for i := range gates {
		ports, err := kafka.FreePorts(2)
		must(t, err)
		configs[i] = fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
listeners:
  - name: clients
    bootstrap: "127.0.0.1:%d"
    nodes: "127.0.0.1:%d-%d"
    first_node_id: %d
    advertised_host: "127.0.0.1"
`, node.ListenerAddress("SERVICE"), ports[0], ports[1], ports[1], nodeID)
		bootstraps = append(bootstraps, kafka.Loopback(ports[0]))
		gates[i] = startGate(t, ctx, configs[i])
	}
	bootstrap := strings.Join(bootstraps, ",")
	jars := s.cluster.Jars()
	tool(t, ctx, jars, topicCommand, "--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")

	// The tool itself sets retries to 0; the producer's own default is to retry, which
	// idempotence makes safe.
	properties := filepath.Join(t.TempDir(), "producer.properties")
	must(t, os.WriteFile(properties, []byte("enable.idempotence=true\nretries=2147483647\n"), 0o644))

	var produced, consumed string
	var clients sync.WaitGroup
	clients.Go(func() {
		produced = verifiable(t, ctx, jars, verifiableProducer, "--bootstrap-server", bootstrap, "--topic", topic,
			"--max-messages", fmt.Sprint(records), "--throughput", fmt.Sprint(perSecond), "--acks", "-1", "--producer.config", properties)
	})
	clients.Go(func() {
		consumed = verifiable(t, ctx, jars, verifiableConsumer, "--bootstrap-server", bootstrap, "--topic", topic,
			"--group-id", topic, "--max-messages", fmt.Sprint(records), "--verbose")
	})
	for turn := range 4 {
		// The restarts are spread over the time that the clients take.
		awaitRecords(t, ctx, s, topic, int64(records*(turn+1)/6))
		gates[turn%2].Stop()
		gates[turn%2] = startGate(t, ctx, configs[turn%2])
	}
	clients.Wait()
	if n := strings.Count(produced, `"producer_send_success"`); n != records || strings.Contains(produced, "producer_send_error") {
		t.Errorf("the producer was told of %d records, not %d, or of an error:\n%s", n, records, tailOf(produced))
	}
	once(t, "consumed", valuesOf(t, consumed), records)
	once(t, "in the log", logValues(t, ctx, s, topic, records), records)
	report(t, "rolling restart of two tiergates, 4 restarts: %d records produced and consumed, each once", records)
}

// verifiable runs a Java client beside the test and returns what it printed.
func verifiable(t *testing.T, ctx context.Context, jars kafka.Jars, class string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	r, err := jars.Run(ctx, kafka.Tool{Class: class, Args: args})
	if err != nil || r.ExitCode != 0 {
		t.Errorf("%s: %v, exit code %d\n%s\n%s", class, err, r.ExitCode, tailOf(r.Stdout), tailOf(r.Stderr))
	}
	return r.Stdout
}

// awaitRecords waits until a topic holds at least n records.
func awaitRecords(t *testing.T, ctx context.Context, s *stand, topic string, n int64) {
	t.Helper()
	client, err := s.cluster.Client()
	must(t, err)
	defer client.Close()
	must(t, kafka.Poll(ctx, fmt.Sprintf("%d records in %s", n, topic), func(ctx context.Context) error {
		offsets, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		total := int64(0)
		offsets.Each(func(o kadm.ListedOffset) { total += o.Offset })
		if total < n {
			return fmt.Errorf("%d so far", total)
		}
		return nil
	}))
}

// valuesOf returns what a verbose VerifiableConsumer consumed.
func valuesOf(t *testing.T, out string) []string {
	t.Helper()
	var values []string
	for line := range strings.Lines(out) {
		var event struct{ Name, Value string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Name == "record_data" {
			values = append(values, event.Value)
		}
	}
	return values
}

// logValues reads a topic from its start, directly.
func logValues(t *testing.T, ctx context.Context, s *stand, topic string, n int) []string {
	t.Helper()
	client, err := s.cluster.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// once asserts that values are 0 to n-1, each once, in any order.
func once(t *testing.T, where string, values []string, n int) {
	t.Helper()
	seen := map[string]int{}
	for _, v := range values {
		seen[v]++
	}
	wrong := 0
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			wrong++
		}
	}
	if wrong > 0 || len(values) != n {
		t.Errorf("%s: %d values, want %d; %d of them are missing or doubled", where, len(values), n, wrong)
	}
}

// tailOf returns the end of a long output.
func tailOf(out string) string { return out[max(0, len(out)-2000):] }
