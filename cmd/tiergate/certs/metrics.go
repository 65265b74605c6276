// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// How reading files again ended: the values of a label.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// metrics tells when certificates expire, as it is at the moment of asking.
type metrics struct {
	store   *Store
	expiry  *prometheus.Desc
	reloads *prometheus.CounterVec
}

func newMetrics(s *Store, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		store: s,
		expiry: prometheus.NewDesc("tiergate_certificate_expiry_timestamp_seconds",
			"When the certificates of a file expire, in Unix time: in cert_file the first one, among authorities the last one.",
			s.labels("use", "listener", "cluster", "file"), nil),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tiergate_tls_reloads_total",
			Help: "TLS files read again because they have changed or SIGHUP came, by result; failed: what was read before stays in use.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.reloads.WithLabelValues(result)
	}
	if len(s.all) == 0 || r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m), r.Register(m.reloads))
}

// labels leaves out the cluster where there is only one.
func (s *Store) labels(use, listener, cluster, file string) []string {
	if s.several {
		return []string{use, listener, cluster, file}
	}
	return []string{use, listener, file}
}

// Describe is prometheus.Collector's.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- m.expiry }

// Collect is prometheus.Collector's.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, src := range m.store.all {
		for _, l := range src.current.Load().lives {
			to <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, float64(l.NotAfter.Unix()), m.store.labels(src.labels[0], src.labels[1], src.labels[2], l.Key)...)
		}
	}
}
