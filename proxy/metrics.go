// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/rewrite"
	"tiergate/rewrite/pendingupload"
)

// maxKeys bounds the table of request counts; keys above it count as unknown.
const maxKeys = 128

// counts are what a loop counts for itself, without atomics. A tick adds them to the
// metrics and sets them to zero.
type counts struct {
	// By endpoint.
	opened, ended, unmapped []uint64

	reasons        [reasonCount]uint64
	requests       [maxKeys]uint64
	unknown        uint64
	requestBytes   uint64
	responseBytes  uint64
	lookups        uint64
	asks           uint64
	epochRounds    uint64
	answered       uint64
	empty          uint64
	failed         uint64
	unknownTopics  uint64
	unknownUploads uint64
	memoryWaits    uint64
	// events are those of sockets, useless those that changed nothing.
	events, useless uint64
	calls           calls
	// pipes is how many more are open than at the last tick.
	pipes       int
	pipesMissed uint64
}

func newCounts(endpoints int) counts {
	return counts{opened: make([]uint64, endpoints), ended: make([]uint64, endpoints), unmapped: make([]uint64, endpoints)}
}

// request counts a request by its key.
func (c *counts) request(key int16) {
	if key < 0 || key >= maxKeys {
		c.unknown++
		return
	}
	c.requests[key]++
}

// lookup counts a -6 request that was answered.
func (c *counts) lookup(r pendingupload.Report) {
	c.lookups++
	c.asks += uint64(r.Asks)
	c.epochRounds += uint64(r.EpochRounds)
	c.answered += uint64(r.Answered)
	c.empty += uint64(r.Empty)
	c.failed += uint64(r.Errors)
	c.unknownTopics += uint64(r.UnknownRemoteStorage)
}

// metrics are what Prometheus sees.
type metrics struct {
	registerer prometheus.Registerer
	listeners  []string
	sessions   *prometheus.GaugeVec
	opened     *prometheus.CounterVec
	ended      *prometheus.CounterVec
	requests   *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	unmapped   *prometheus.CounterVec
	lookups    prometheus.Counter
	asks       prometheus.Counter
	rounds     prometheus.Counter
	partitions *prometheus.CounterVec
	unknown    prometheus.Counter
	unuploaded prometheus.Counter
	refused    *prometheus.CounterVec
	delayed    prometheus.Counter
	buffered   prometheus.GaugeFunc
	handshakes prometheus.GaugeFunc
	pending    prometheus.GaugeFunc
	unaccepted *prometheus.CounterVec
	pipes      prometheus.Gauge
	unspliced  prometheus.Counter
	waits      prometheus.Counter
	waiting    prometheus.GaugeFunc
	unbound    prometheus.GaugeFunc
	limit      prometheus.GaugeFunc
	events     *prometheus.CounterVec
	calls      *prometheus.CounterVec
}

// newMetrics makes the metrics and registers them where a registerer is given.
func newMetrics(s *Server) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tiergate", Name: name, Help: help}
	}
	m := &metrics{
		registerer: s.opts.Registerer,
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tiergate", Name: "sessions", Help: "Sessions that are open now: a client connection and its broker connection.",
		}, []string{"listener"}),
		opened:     prometheus.NewCounterVec(counter("sessions_opened_total", "Client connections that were accepted."), []string{"listener"}),
		ended:      prometheus.NewCounterVec(counter("sessions_ended_total", "Sessions that ended, by reason."), []string{"reason"}),
		requests:   prometheus.NewCounterVec(counter("requests_total", "Requests of clients, by API; keys that tiergate has no name for count as unknown and pass like all others."), []string{"api"}),
		bytes:      prometheus.NewCounterVec(counter("received_bytes_total", "Bytes received: requests from clients, responses from brokers."), []string{"direction"}),
		unmapped:   prometheus.NewCounterVec(counter("unmapped_nodes_total", "Broker addresses in responses whose node has no address on the listener."), []string{"listener"}),
		lookups:    prometheus.NewCounter(counter("pending_upload_requests_total", "ListOffsets requests with -6 that were answered from look-ups.")),
		asks:       prometheus.NewCounter(counter("pending_upload_asks_total", "Requests sent to brokers to answer -6.")),
		rounds:     prometheus.NewCounter(counter("pending_upload_epoch_rounds_total", "OffsetForLeaderEpoch requests among the asks.")),
		partitions: prometheus.NewCounterVec(counter("pending_upload_partitions_total", "Partitions asked for -6, by outcome: offset, none (-1), error."), []string{"outcome"}),
		unuploaded: prometheus.NewCounter(counter("pending_upload_unknown_uploads_total", "Partitions answered -1 because it is not known what is uploaded of them (earliest_pending_upload: metadata_topic).")),
		unknown:    prometheus.NewCounter(counter("pending_upload_unknown_remote_storage_total", "Partitions answered -1 because it is not known whether their topic has remote storage on.")),
	}
	m.refused = prometheus.NewCounterVec(counter("connections_refused_total", "Client connections that got no session: a limit, or a failed handshake."), []string{"reason"})
	m.buffered = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "buffered_bytes", Help: "Memory that sessions keep, bounded by max_buffered_bytes: incomplete frames, rewritten copies, pending output, lookups.",
	}, func() float64 { return float64(s.account.total.Load()) })
	m.waits = prometheus.NewCounter(counter("memory_waits_total", "Times that reading stopped because max_buffered_bytes had no room for the next piece of a frame."))
	m.waiting = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "memory_waiting", Help: "Connections that are not read now because max_buffered_bytes has no room.",
	}, func() float64 { return float64(s.account.waiting.Load()) })
	m.delayed = prometheus.NewCounter(counter("connections_delayed_total", "Client connections that waited because of the accept rate."))
	m.handshakes = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "handshakes", Help: "TLS handshakes of clients that are worked on now; those that wait for their client do not count.",
	}, func() float64 { return float64(s.pending.turns.taken()) })
	m.pending = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "pending_connections", Help: "Client connections that have no session yet: their PROXY protocol header or TLS handshake is under way.",
	}, func() float64 { return float64(s.pending.count()) })
	m.unaccepted = prometheus.NewCounterVec(counter("accept_failures_total", "Times that no connection could be accepted, by reason; clients wait in the kernel's queue meanwhile."), []string{"reason"})
	m.pipes = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "pipes", Help: "Kernel pipes that are open now, for large frames to pass without being copied.",
	})
	m.unbound = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "unbound_ports", Help: "Configured ports that tiergate does not listen on yet, because an outgoing connection of this machine holds them.",
	}, func() float64 { return float64(s.unbound.Load()) })
	m.limit = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "sessions_limit", Help: "Sessions that there can be: limits.max_sessions or what ulimit -n allows, whichever is less; 0: no limit.",
	}, func() float64 { return float64(s.admission.limit()) })
	m.unspliced = prometheus.NewCounter(counter("pipes_missed_total", "Pieces of large frames that were copied because no pipe was left."))
	m.events = prometheus.NewCounterVec(counter("loop_events_total", "Events of sockets that woke an event loop, by whether anything could be done."), []string{"outcome"})
	m.calls = prometheus.NewCounterVec(counter("loop_system_calls_total", "System calls of the event loops, by call. Waits are counted with event_loop: epoll only."), []string{"call"})
	for _, o := range s.opts.Endpoints {
		m.listeners = append(m.listeners, o.Listener)
	}
	m.touch()
	return m, m.register()
}

// touch makes every series of a closed set visible from the start.
func (m *metrics) touch() {
	for _, l := range m.listeners {
		m.sessions.WithLabelValues(l)
		m.opened.WithLabelValues(l)
		m.unmapped.WithLabelValues(l)
	}
	for r := range reasonCount {
		m.ended.WithLabelValues(r.String())
	}
	for _, outcome := range []string{"offset", "none", "error"} {
		m.partitions.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"used", "useless"} {
		m.events.WithLabelValues(outcome)
	}
	for _, call := range []string{"wait", "control", "read", "write", "splice"} {
		m.calls.WithLabelValues(call)
	}
	m.bytes.WithLabelValues("requests")
	m.bytes.WithLabelValues("responses")
	m.unaccepted.WithLabelValues("local_shortage")
	m.unaccepted.WithLabelValues("other")
	for _, why := range refusals {
		m.refused.WithLabelValues(why)
	}
}

// collectors lists all metrics.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.sessions, m.opened, m.ended, m.requests, m.bytes, m.unmapped,
		m.lookups, m.asks, m.rounds, m.partitions, m.unknown, m.unuploaded, m.refused, m.delayed, m.buffered,
		m.handshakes, m.pending, m.unaccepted, m.pipes, m.unspliced, m.waits, m.waiting, m.unbound, m.limit, m.events, m.calls,
	}
}

func (m *metrics) register() error {
	if m.registerer == nil {
		return nil
	}
	var errs []error
	for _, c := range m.collectors() {
		errs = append(errs, m.registerer.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}

// add moves a loop's counts to the metrics. Loops call it.
func (m *metrics) add(c *counts) {
	for i, l := range m.listeners {
		if c.opened[i] > 0 || c.ended[i] > 0 {
			m.opened.WithLabelValues(l).Add(float64(c.opened[i]))
			m.sessions.WithLabelValues(l).Add(float64(c.opened[i]) - float64(c.ended[i]))
		}
		if c.unmapped[i] > 0 {
			m.unmapped.WithLabelValues(l).Add(float64(c.unmapped[i]))
		}
		c.opened[i], c.ended[i], c.unmapped[i] = 0, 0, 0
	}
	for r, n := range c.reasons {
		if n > 0 {
			m.ended.WithLabelValues(reason(r).String()).Add(float64(n))
		}
	}
	for key, n := range c.requests {
		if n > 0 {
			m.requests.WithLabelValues(rewrite.KeyName(int16(key))).Add(float64(n))
		}
	}
	if c.unknown > 0 {
		m.requests.WithLabelValues("unknown").Add(float64(c.unknown))
	}
	m.bytes.WithLabelValues("requests").Add(float64(c.requestBytes))
	m.bytes.WithLabelValues("responses").Add(float64(c.responseBytes))
	m.lookups.Add(float64(c.lookups))
	m.asks.Add(float64(c.asks))
	m.rounds.Add(float64(c.epochRounds))
	m.partitions.WithLabelValues("offset").Add(float64(c.answered))
	m.partitions.WithLabelValues("none").Add(float64(c.empty))
	m.partitions.WithLabelValues("error").Add(float64(c.failed))
	m.unknown.Add(float64(c.unknownTopics))
	m.unuploaded.Add(float64(c.unknownUploads))
	m.pipes.Add(float64(c.pipes))
	m.unspliced.Add(float64(c.pipesMissed))
	m.waits.Add(float64(c.memoryWaits))
	m.events.WithLabelValues("used").Add(float64(c.events - c.useless))
	m.events.WithLabelValues("useless").Add(float64(c.useless))
	for call, n := range map[string]uint64{
		"wait": c.calls.waits, "control": c.calls.controls, "read": c.calls.reads, "write": c.calls.writes, "splice": c.calls.splices,
	} {
		m.calls.WithLabelValues(call).Add(float64(n))
	}
	*c = counts{opened: c.opened, ended: c.ended, unmapped: c.unmapped}
}
