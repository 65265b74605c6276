// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/cache/tiered"
	"tiergate/codec"
)

// tieredMetrics are those of a tieredReader. It is a hook of the reader's client.
type tieredMetrics struct {
	reader             *tieredReader
	connects, restarts prometheus.Counter
	// Totals of the readings that have ended; the reader's lock guards them.
	records, refused, evictions uint64

	recordsDesc, refusedDesc, evictionsDesc, lagDesc, partitionsDesc, inFlightDesc, readyDesc *prometheus.Desc
}

func newTieredMetrics(r *tieredReader) *tieredMetrics {
	name := func(n string) string { return prometheus.BuildFQName("tiergate", "upstream", "tiered_"+n) }
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, labels, nil)
	}
	counter := func(n, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name(n), Help: help})
	}
	return &tieredMetrics{
		reader:         r,
		connects:       counter("reader_connects_total", "Connections that the reader of "+codec.RemoteLogMetadata+" opened."),
		restarts:       counter("reader_restarts_total", "How often the reader had to begin again from the start of "+codec.RemoteLogMetadata+"."),
		recordsDesc:    desc("records_total", "Records read from "+codec.RemoteLogMetadata+"."),
		refusedDesc:    desc("refused_records_total", "Records of partitions for which there was no room: while it grows, partitions are unknown."),
		evictionsDesc:  desc("evictions_total", "Segments whose upload was under way that had to be forgotten, which makes their partition unknown for a while."),
		lagDesc:        desc("lag_records", "Records of "+codec.RemoteLogMetadata+" that are not read yet."),
		partitionsDesc: desc("partitions", "Partitions with tiered segments, by whether their highest tiered offset is known.", "state"),
		inFlightDesc:   desc("in_flight_segments", "Segments whose upload has begun and not ended."),
		readyDesc:      desc("ready", "1 while tiered offsets are known: "+codec.RemoteLogMetadata+" is read to its end, as it was at most 5 s ago."),
	}
}

// OnBrokerConnect counts the connections of the reader's client.
func (m *tieredMetrics) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		m.connects.Inc()
	}
}

// keep adds the totals of an index that is about to be forgotten. The caller holds the
// reader's lock.
func (m *tieredMetrics) keep(x *tiered.Index) {
	if x != nil {
		n := x.Counts()
		m.records += n.Records
		m.refused += n.Refused
		m.evictions += n.Evictions
	}
}

// Describe is part of prometheus.Collector.
func (m *tieredMetrics) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, to)
}

// Collect is part of prometheus.Collector.
func (m *tieredMetrics) Collect(to chan<- prometheus.Metric) {
	ready := 0.0
	if m.reader.ready() == nil {
		ready = 1
	}
	m.reader.mu.RLock()
	var n tiered.Counts
	var lag int64
	if x := m.reader.index; x != nil {
		n = x.Counts()
		for i, s := range m.reader.sources {
			lag += max(0, s.end-x.Position(int32(i)))
		}
	}
	n.Records += m.records
	n.Refused += m.refused
	n.Evictions += m.evictions
	m.reader.mu.RUnlock()
	m.connects.Collect(to)
	m.restarts.Collect(to)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	to <- prometheus.MustNewConstMetric(m.recordsDesc, prometheus.CounterValue, float64(n.Records))
	to <- prometheus.MustNewConstMetric(m.refusedDesc, prometheus.CounterValue, float64(n.Refused))
	to <- prometheus.MustNewConstMetric(m.evictionsDesc, prometheus.CounterValue, float64(n.Evictions))
	gauge(m.lagDesc, float64(lag))
	gauge(m.partitionsDesc, float64(n.Partitions-n.Unknown), "known")
	gauge(m.partitionsDesc, float64(n.Unknown), "unknown")
	gauge(m.inFlightDesc, float64(n.InFlight))
	gauge(m.readyDesc, ready)
}
