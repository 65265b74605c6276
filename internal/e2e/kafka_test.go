// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"tiergate/loadtest/kafka"
)

// TestKafka43 has the native broker: the oracle.
func TestKafka43(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := newStand(t, kafka.Kafka43)
	s.buildLogs(t, ctx)
	t.Run("model", func(t *testing.T) { checkShell(t, ctx, s, s.cluster.Node(nodeID).Address()) })
	t.Run("untouched", func(t *testing.T) {
		s.open(t, ctx, "auto")
		testNativeUntouched(t, ctx, s)
	})
	t.Run("freshness", func(t *testing.T) {
		s.open(t, ctx, "always")
		testFreshness(t, ctx, s, "always")
	})
	t.Run("differential", func(t *testing.T) {
		s.open(t, ctx, "always")
		testDifferential(t, ctx, s)
	})
}

// TestKafka41 has an older broker with ListOffsets v10, and the tests that need one broker
// only, whatever its version.
func TestKafka41(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := newStand(t, kafka.Kafka41)
	prepareManyTiered(t, ctx, s)
	s.buildLogs(t, ctx)
	s.runOpen(t, ctx, []standTest{
		{"newcomer", func(t *testing.T) { testNewcomer(t, ctx, s) }},
		{"history", func(t *testing.T) { testHistory(t, ctx, s) }},
		{"pipelined", func(t *testing.T) { testPipelined(t, ctx, s) }},
		{"freshness", func(t *testing.T) { testFreshness(t, ctx, s, "auto") }},
		{"direct bytes", func(t *testing.T) { testDirectBytes(t, ctx, s, 10, kafka.Kafka43, kafka.Kafka39) }},
		{"rewriting", func(t *testing.T) { testRewriting(t, ctx, s, kafka.Kafka43) }},
		{"rolling restart", func(t *testing.T) { testRollingRestart(t, ctx, s) }},
		{"2000 partitions", func(t *testing.T) { testManyPartitions(t, ctx, s) }}, // last: the broker is slower after it
	})
}

// TestKafka39 has an older broker with ListOffsets v9, whose requests have no timeout.
func TestKafka39(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := newStand(t, kafka.Kafka39)
	s.buildLogs(t, ctx)
	s.runOpen(t, ctx, []standTest{
		{"newcomer", func(t *testing.T) { testNewcomer(t, ctx, s) }},
		{"history", func(t *testing.T) { testHistory(t, ctx, s) }},
		{"pipelined", func(t *testing.T) { testPipelined(t, ctx, s) }},
		{"freshness", func(t *testing.T) { testFreshness(t, ctx, s, "auto") }},
		{"direct bytes", func(t *testing.T) { testDirectBytes(t, ctx, s, 9) }},
	})
}

// standTest is a test with tiergate before the broker.
type standTest struct {
	name string
	run  func(*testing.T)
}

// runOpen gives every test a tiergate and recorders of its own.
func (s *stand) runOpen(t *testing.T, ctx context.Context, tests []standTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s.open(t, ctx, "auto")
			test.run(t)
		})
	}
}
