// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
)

// The metrics of a few sessions whose every byte is known, and nothing registered once
// the server is closed.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	old, b := newOldBroker(t, 10, tierlog.Vectors()[3].Log())
	old.logs["unknown"] = []*tierlog.Log{tieredWithoutUploads()}
	s := newServerWithoutTicks(t, b.dial, rewrite.Rules{}, func(o *Options) { o.Registerer = registry })
	c := connect(t, s)
	pending := frameOfRequest(old.offsetsRequest(11, -6), 3)
	requests := [][]byte{request(3, 1, 1), request(3, 1, 2), request(10_000, 0, 4, 1, 2, 3), request(-1, 0, 5), pending}
	sent := 0
	for _, r := range requests {
		mustWrite(t, c, r)
		sent += len(r)
		mustRead(t, c)
	}
	foreign := connect(t, s)
	mustWrite(t, foreign, httpGet)
	_ = ending(t, foreign)
	sent += len(httpGet)
	awaitSessions(t, s, 1)
	tickAfter(t, s, 0)
	want := `
# HELP tiergate_sessions Sessions that are open now: a client connection and its broker connection.
# TYPE tiergate_sessions gauge
tiergate_sessions{listener="test"} 1
# HELP tiergate_sessions_opened_total Client connections that were accepted.
# TYPE tiergate_sessions_opened_total counter
tiergate_sessions_opened_total{listener="test"} 2
# HELP tiergate_requests_total Requests of clients, by API; keys that tiergate has no name for count as unknown and pass like all others.
# TYPE tiergate_requests_total counter
tiergate_requests_total{api="ListOffsets"} 1
tiergate_requests_total{api="Metadata"} 2
tiergate_requests_total{api="unknown"} 2
# HELP tiergate_pending_upload_requests_total ListOffsets requests with -6 that were answered from look-ups.
# TYPE tiergate_pending_upload_requests_total counter
tiergate_pending_upload_requests_total 1
# HELP tiergate_pending_upload_asks_total Requests sent to brokers to answer -6.
# TYPE tiergate_pending_upload_asks_total counter
tiergate_pending_upload_asks_total 5
# HELP tiergate_pending_upload_epoch_rounds_total OffsetForLeaderEpoch requests among the asks.
# TYPE tiergate_pending_upload_epoch_rounds_total counter
tiergate_pending_upload_epoch_rounds_total 1
# HELP tiergate_pending_upload_partitions_total Partitions asked for -6, by outcome: offset, none (-1), error.
# TYPE tiergate_pending_upload_partitions_total counter
tiergate_pending_upload_partitions_total{outcome="error"} 0
tiergate_pending_upload_partitions_total{outcome="none"} 1
tiergate_pending_upload_partitions_total{outcome="offset"} 1
# HELP tiergate_pending_upload_unknown_remote_storage_total Partitions answered -1 because it is not known whether their topic has remote storage on.
# TYPE tiergate_pending_upload_unknown_remote_storage_total counter
tiergate_pending_upload_unknown_remote_storage_total 1
# HELP tiergate_buffered_bytes Memory that sessions keep, bounded by max_buffered_bytes: incomplete frames, rewritten copies, pending output, lookups.
# TYPE tiergate_buffered_bytes gauge
tiergate_buffered_bytes 0
`
	var names []string
	for line := range strings.Lines(want) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			names = append(names, fields[2])
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(s.metrics.ended.WithLabelValues("not_kafka")); got != 1 {
		t.Errorf("%v sessions ended as not_kafka, want 1", got)
	}
	if got := testutil.ToFloat64(s.metrics.bytes.WithLabelValues("requests")); got != float64(sent) {
		t.Errorf("%v bytes of requests, want %d", got, sent)
	}
	// Answers to asks are responses too.
	if got, want := testutil.ToFloat64(s.metrics.bytes.WithLabelValues("responses")), float64(old.answered.Load()); got != want {
		t.Errorf("%v bytes of responses, want %v", got, want)
	}
	_ = s.Close()
	if left, err := registry.Gather(); err != nil || len(left) != 0 {
		t.Errorf("%d metrics are registered after Close (%v)", len(left), err)
	}
}
