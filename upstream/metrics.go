// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cache"
)

// dialTarget says what was dialed. A metric label: the set is closed.
type dialTarget string

const (
	targetBootstrap dialTarget = "bootstrap"
	targetNode      dialTarget = "node"
	targetAddress   dialTarget = "address"
	targetService   dialTarget = "service" // by the service client
)

// dialResult says how a dial ended. A metric label: the set is closed.
type dialResult string

const (
	dialConnected  dialResult = "connected"
	dialFailed     dialResult = "failed"
	dialRemembered dialResult = "remembered" // refused from memory
	dialGaveUp     dialResult = "gave_up"    // the caller's context ended
	dialOwn        dialResult = "own"        // not dialed: this process listens there
	dialShortage   dialResult = "shortage"   // no descriptor, local port or memory
)

type metrics struct {
	dials     *prometheus.CounterVec // by target, result
	refreshes *prometheus.CounterVec // by result
	requests  prometheus.Counter
	verdicts  *prometheus.CounterVec // by verdict
	unknown   *prometheus.CounterVec // by reason
	gauges    []prometheus.Collector // read from the cluster when asked for
}

func newMetrics(c *Cluster) *metrics {
	name := func(n string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tiergate", Subsystem: "upstream", Name: n}
	}
	with := func(o prometheus.CounterOpts, help string) prometheus.CounterOpts { o.Help = help; return o }
	m := &metrics{
		dials: prometheus.NewCounterVec(with(name("dials_total"),
			"Dials of one address as configured or told by a broker, by what was dialed and how it ended; remembered: refused for at most a second because it had just failed; own: not dialed, since tiergate itself listens there; shortage: this machine had no descriptor, local port or memory."),
			[]string{"target", "result"}),
		refreshes: prometheus.NewCounterVec(with(name("broker_list_requests_total"),
			"Requests of the service client for the broker list, by result."), []string{"result"}),
		requests: prometheus.NewCounter(with(name("verdict_requests_total"),
			"DescribeConfigs requests that ask for remote.storage.enable, of up to 500 topics each.")),
		verdicts: prometheus.NewCounterVec(with(name("verdicts_total"),
			"Topics asked for, by verdict on their remote storage."), []string{"verdict"}),
		unknown: prometheus.NewCounterVec(with(name("verdict_failures_total"),
			"Topics whose verdict stayed unknown, by reason; each was answered -1 if it decided a -6 request."), []string{"reason"}),
	}
	m.gauges = cacheMetrics(c)
	for _, why := range unknownReasons { // so that a rate can be taken from the first one on
		m.unknown.WithLabelValues(string(why))
	}
	for _, verdict := range []RemoteStorage{RemoteStorageUnknown, RemoteStorageDisabled, RemoteStorageEnabled} {
		m.verdicts.WithLabelValues(verdict.String())
	}
	return m
}

// cacheMetrics are read from the node map and the verdicts in memory.
func cacheMetrics(c *Cluster) []prometheus.Collector {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "tiergate", Subsystem: "upstream", Name: name, Help: help}, read)
	}
	counter := func(name, help string, read func(cache.Counts) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "tiergate", Subsystem: "upstream", Name: name, Help: help},
			func() float64 { return float64(read(c.verdicts.Counts())) })
	}
	return []prometheus.Collector{
		gauge("nodes", "Brokers in the node map.", func() float64 { return float64(len(c.nodes.Snapshot())) }),
		gauge("verdict_cache_entries", "Topics whose verdict is in memory.", func() float64 { return float64(c.verdicts.Len()) }),
		counter("verdict_cache_hits_total", "Verdicts answered from memory.", func(n cache.Counts) uint64 { return n.Hits }),
		counter("verdict_cache_misses_total", "Verdicts not in memory when asked for.", func(n cache.Counts) uint64 { return n.Misses }),
		counter("verdict_cache_evictions_total", "Verdicts that the bound on topics pushed out of memory.", func(n cache.Counts) uint64 { return n.Evictions }),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var faults []error
	for _, collector := range append([]prometheus.Collector{m.dials, m.refreshes, m.requests, m.verdicts, m.unknown}, m.gauges...) {
		faults = append(faults, r.Register(collector))
	}
	return errors.Join(faults...)
}
