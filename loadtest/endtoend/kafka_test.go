// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"testing"

	"tiergate/loadtest/kafka"
)

func TestKafka43(t *testing.T) {
	ctx := realBrokers(t)
	s := newStand(t, ctx, kafka.Kafka43, "always")
	s.buildLogs(t, ctx)
	t.Run("differential", func(t *testing.T) { testDifferential(t, ctx, s) })
}

func TestKafka41(t *testing.T) { testOlderKafka(t, kafka.Kafka41) }

func TestKafka39(t *testing.T) { testOlderKafka(t, kafka.Kafka39) }

func testOlderKafka(t *testing.T, version string) {
	ctx := realBrokers(t)
	s := newStand(t, ctx, version, "auto")
	s.buildLogs(t, ctx)
	t.Run("history", func(t *testing.T) {
		n := checkHistory(t, ctx, s)
		report(t, "history before Kafka %s: %d comparisons with the model", version, n)
	})
}
