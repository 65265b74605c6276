// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// phase is where a served proxy is in its life.
type phase int32

const (
	// phaseStarting: not every listener is bound yet.
	phaseStarting phase = iota
	// phaseServing: clients are accepted.
	phaseServing
	// phaseStopping: no client is accepted, exchanges under way finish.
	phaseStopping
)

// admin is the HTTP server for /metrics, /healthz and /readyz.
type admin struct {
	server *http.Server
	// upstreamReady returns nil when a broker can be reached, else why not.
	upstreamReady func() error
	phase         atomic.Int32
}

func (a *admin) enter(p phase) { a.phase.Store(int32(p)) }

// newRegistry returns a registry of our own, with what it costs nothing to know: the
// process, the Go run time, the build. Nothing hangs on Prometheus's global one.
func newRegistry() *prometheus.Registry {
	b := readBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "tiergate", Name: "build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go},
	})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// startAdmin listens on address and serves until Close.
func startAdmin(address string, metrics *prometheus.Registry, upstreamReady func() error, log *slog.Logger) (*admin, error) {
	a := &admin{upstreamReady: upstreamReady}
	bound, err := net.Listen("tcp", address)
	if err != nil {
		return nil, explainListen(fmt.Errorf("admin.address: %w", err))
	}
	listener, err := newLimitedListener(bound, metrics)
	if err != nil {
		_ = bound.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "tiergate %v\n\n/metrics  for Prometheus\n/healthz  200 while the process lives\n"+
			"/readyz   200 while clients can be served, else 503 and why not\n", readBuild())
	})
	a.server = &http.Server{
		Handler: mux, ReadTimeout: adminReadTimeout, WriteTimeout: adminWriteTimeout, IdleTimeout: adminIdleTimeout,
		MaxHeaderBytes: maxAdminHeader, ConnState: listener.changed,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() {
		if err := a.server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin server ended", "error", err)
		}
	}()
	return a, nil
}

// Close ends the server and its connections at once.
func (a *admin) Close() { _ = a.server.Close() }

func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready")
}

// ready returns nil when clients can be served, else why not.
func (a *admin) ready() error {
	switch phase(a.phase.Load()) {
	case phaseStarting:
		return errors.New("the listeners are not bound yet")
	case phaseStopping:
		return errors.New("tiergate is stopping")
	case phaseServing:
	}
	return a.upstreamReady()
}
