// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cache"
	"tiergate/codec"
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
	statuses  *prometheus.CounterVec // by status
	unknown   *prometheus.CounterVec // by reason
	fallbacks prometheus.Counter
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
		requests: prometheus.NewCounter(with(name("remote_storage_requests_total"),
			"DescribeConfigs requests that ask for remote.storage.enable, of up to 500 topics each.")),
		statuses: prometheus.NewCounterVec(with(name("remote_storage_lookups_total"),
			"Topics asked for, by status of their remote storage."), []string{"status"}),
		unknown: prometheus.NewCounterVec(with(name("remote_storage_failures_total"),
			"Topics whose remote storage status could not be had, by reason."), []string{"reason"}),
		fallbacks: prometheus.NewCounter(with(name("remote_storage_fallbacks_total"),
			"Topics for which the last known status was used, at most 15 s old, because the lookup failed or took more than a second.")),
	}
	m.gauges = cacheMetrics(c)
	if c.tieredReader != nil {
		m.gauges = append(m.gauges, c.tieredReader.metrics)
	}
	for _, why := range unknownReasons { // so that a rate can be taken from the first one on
		m.unknown.WithLabelValues(string(why))
	}
	for _, status := range []codec.RemoteStorage{codec.RemoteStorageUnknown, codec.RemoteStorageDisabled, codec.RemoteStorageEnabled} {
		m.statuses.WithLabelValues(status.String())
	}
	return m
}

// cacheMetrics are read from the node map and the statuses in memory.
func cacheMetrics(c *Cluster) []prometheus.Collector {
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "tiergate", Subsystem: "upstream", Name: name, Help: help}, read)
	}
	counter := func(name, help string, read func(cache.Counts) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "tiergate", Subsystem: "upstream", Name: name, Help: help},
			func() float64 { return float64(read(c.statuses.Counts())) })
	}
	return []prometheus.Collector{
		gauge("nodes", "Brokers in the node map.", func() float64 { return float64(len(c.nodes.Snapshot())) }),
		gauge("remote_storage_cache_entries", "Topics whose remote storage status is in memory.", func() float64 { return float64(c.statuses.Len()) }),
		counter("remote_storage_cache_hits_total", "Statuses that were in memory when wanted.", func(n cache.Counts) uint64 { return n.Hits }),
		counter("remote_storage_cache_misses_total", "Statuses that were not in memory when wanted, or too old.", func(n cache.Counts) uint64 { return n.Misses }),
		counter("remote_storage_cache_evictions_total", "Statuses that the bound on topics pushed out of memory.", func(n cache.Counts) uint64 { return n.Evictions }),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var faults []error
	for _, collector := range append([]prometheus.Collector{m.dials, m.refreshes, m.requests, m.statuses, m.unknown, m.fallbacks}, m.gauges...) {
		faults = append(faults, r.Register(collector))
	}
	return errors.Join(faults...)
}
