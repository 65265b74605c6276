// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of the admin server. It has no authentication and shares the process's descriptors
// with Kafka clients.
const (
	// maxAdminConnections leaves room for several Prometheus servers, health checks and people.
	maxAdminConnections = 64
	// maxAdminHeader bounds the headers of a request, in bytes.
	maxAdminHeader = 16 << 10
	// adminReadTimeout bounds receiving a request: it has no body.
	adminReadTimeout = 5 * time.Second
	// adminWriteTimeout bounds a response. /metrics of many listeners has some MB.
	adminWriteTimeout = time.Minute
	// adminIdleTimeout is above the usual scrape intervals, so that a connection is used again.
	adminIdleTimeout = 2 * time.Minute
)

// limitedListener has at most maxAdminConnections open. A further connection takes the place
// of the one that has been without a request for the longest: idle connections must not keep
// health checks out. If all have a request, the new one is closed.
type limitedListener struct {
	net.Listener
	closed prometheus.Counter

	mu   sync.Mutex
	open map[net.Conn]struct{}
	// waiting are those without a request, the longest waiting first.
	waiting []net.Conn
}

func newLimitedListener(l net.Listener, metrics prometheus.Registerer) (*limitedListener, error) {
	closed := prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "tiergate", Name: "admin_connections_closed_total",
		Help: "Connections to the admin port that were closed because too many were open.",
	})
	return &limitedListener{Listener: l, closed: closed, open: map[net.Conn]struct{}{}}, metrics.Register(closed)
}

// Accept returns the next connection that there is room for.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		surplus := l.admit(c)
		if surplus == nil {
			return c, nil
		}
		l.closed.Inc()
		_ = surplus.Close()
		if surplus != c {
			return c, nil
		}
	}
}

// admit counts c in and returns the connection to close instead, which may be c; nil when
// there is room for all.
func (l *limitedListener) admit(c net.Conn) (surplus net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxAdminConnections {
		if len(l.waiting) == 0 {
			return c
		}
		surplus, l.waiting = l.waiting[0], l.waiting[1:]
		delete(l.open, surplus)
	}
	l.open[c] = struct{}{}
	return surplus
}

// changed is http.Server's ConnState.
func (l *limitedListener) changed(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, c); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	_, open := l.open[c]
	switch state {
	case http.StateNew, http.StateIdle:
		if open {
			l.waiting = append(l.waiting, c)
		}
	case http.StateClosed, http.StateHijacked:
		delete(l.open, c)
	case http.StateActive:
	}
}
