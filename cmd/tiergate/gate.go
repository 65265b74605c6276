// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/cmd/tiergate/output"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/rewrite"
)

// newServer makes the proxy of a configuration. Nothing is opened yet.
func newServer(c *config.Config, loops int, to clusters, tls *certs.Store, log *slog.Logger, metrics prometheus.Registerer) (*proxy.Server, error) {
	strangers, err := newStrangers(c, log, metrics)
	if err != nil {
		return nil, err
	}
	opts := proxyOptions(c, log, metrics)
	opts.Loops = loops
	if c.EventLoop == config.EventLoopEpoll {
		opts.EventLoop, opts.SpareProcessors = proxy.EventLoopEpoll, loops // serve makes them twice the loops
	}
	for _, one := range to {
		opts.Endpoints = append(opts.Endpoints, endpoints(c, one.NamedCluster, one.brokers, tls, strangers)...)
	}
	return proxy.New(opts)
}

// proxyOptions are all but the endpoints and what they need.
func proxyOptions(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) proxy.Options {
	pipes := c.Limits.MaxPipes
	if pipes == 0 {
		pipes = -1 // none; 0 would be the default
	}
	return proxy.Options{
		MaxRequestBytes:         int32(c.Limits.MaxRequestBytes),  //nolint:gosec // config bounds it by MaxInt32
		MaxResponseBytes:        int32(c.Limits.MaxResponseBytes), //nolint:gosec // config bounds it by MaxInt32
		MaxHeldBytes:            int(c.Limits.MaxHeldBytes),
		MaxUnauthenticatedBytes: int(c.Limits.MaxUnauthenticatedBytes),
		MaxBufferedBytes:        int64(c.Limits.MaxBufferedBytes),
		MaxSessions:             c.Limits.MaxSessions,
		MaxDescriptors:          descriptorLimit(),
		MaxSessionsPerClient:    c.Limits.MaxSessionsPerClient,
		AcceptRate:              c.Limits.AcceptRate,
		IdleTimeout:             time.Duration(c.Limits.IdleTimeout),
		MaxInflight:             c.Limits.MaxInflight,
		MaxPipes:                pipes,
		DialTimeout:             time.Duration(c.Limits.DialTimeout),
		HandshakeTimeout:        time.Duration(c.Limits.HandshakeTimeout),
		MaxHandshakes:           c.Limits.MaxHandshakes,
		MaxPendingConnections:   c.Limits.MaxPendingConnections,
		RemoteStorageTimeout:    time.Duration(c.Limits.RemoteStorageTimeout),
		FirstRequestTimeout:     time.Duration(c.Limits.FirstRequestTimeout),
		ProgressTimeout:         time.Duration(c.Limits.ProgressTimeout),
		LookupTimeout:           time.Duration(c.Limits.LookupTimeout),
		LingerTimeout:           time.Duration(c.Limits.LingerTimeout),
		Logger:                  log,
		Registerer:              metrics,
	}
}

// descriptorLimit is how many descriptors the process may have; 0 when it cannot be told.
// Go has raised the soft limit to the hard one.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<30))
}

func proxyProtocol(p config.ProxyProtocol) proxy.ProxyProtocol {
	switch p {
	case config.ProxyProtocolOptional:
		return proxy.ProxyProtocolOptional
	case config.ProxyProtocolRequired:
		return proxy.ProxyProtocolRequired
	case config.ProxyProtocolOff:
	}
	return proxy.ProxyProtocolOff
}

func sendProxy(p config.SendProxyProtocol) proxy.SendProxy {
	switch p {
	case config.SendProxyProtocolV1:
		return proxy.SendProxyV1
	case config.SendProxyProtocolV2:
		return proxy.SendProxyV2
	case config.SendProxyProtocolOff:
	}
	return proxy.SendProxyOff
}

func pendingUpload(mode config.PendingUpload) rewrite.PendingUpload {
	switch mode {
	case config.PendingUploadAlways:
		return rewrite.PendingUploadAlways
	case config.PendingUploadOff:
		return rewrite.PendingUploadOff
	case config.PendingUploadAuto, config.PendingUploadMetadataTopic:
	}
	return rewrite.PendingUploadAuto
}

func nodeName(nodeID int32) string { return fmt.Sprintf("node %d", nodeID) }

func texts(addresses []config.HostPort) []string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = a.String()
	}
	return list
}

// newLogger logs to w as the configuration says.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: logLevel(c.Level)}
	if c.Format == config.LogFormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// newQueuedLogger logs to a queue, which reports in the same form which lines it dropped.
func newQueuedLogger(c config.Log, queue *output.Queue) *slog.Logger {
	queue.ReportWith(func(gap output.Gap) []byte {
		var line bytes.Buffer
		newLogger(c, &line).Error("log lines were dropped: standard error was not read fast enough, or could not be written",
			"lines", gap.Lines, "since", gap.Since.Format(time.RFC3339Nano))
		return line.Bytes()
	})
	return newLogger(c, queue)
}

// droppedLines is the metric of lines that a queue dropped.
func droppedLines(queue *output.Queue) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "tiergate", Name: "log_lines_dropped_total",
		Help: "Log lines that were dropped because standard error was not read fast enough, or could not be written.",
	}, func() float64 { return float64(queue.Dropped()) })
}

func logLevel(l config.LogLevel) slog.Level {
	switch l {
	case config.LogLevelDebug:
		return slog.LevelDebug
	case config.LogLevelWarn:
		return slog.LevelWarn
	case config.LogLevelError:
		return slog.LevelError
	case config.LogLevelInfo:
	}
	return slog.LevelInfo
}

// explainListen adds to a failed listen what to do about it.
func explainListen(err error) error {
	address := "the address"
	port := "PORT"
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		address = op.Addr.String()
		if _, p, splitErr := net.SplitHostPort(address); splitErr == nil {
			port = p
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\n%s is taken: by a tiergate that runs already, by another program, or by an outgoing connection if the port is "+
			"in net.ipv4.ip_local_port_range. \"ss -tanp 'sport = :%s'\" shows which; stop it, or give another port in the configuration", err, address, port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w\nPorts below 1024 are for root: give another port, or the binary the capability CAP_NET_BIND_SERVICE", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w\nNo interface of this machine has the address %s: listen on one that it has, or on all with 0.0.0.0 or [::]; "+
			"what clients are told is advertised_host", err, address)
	}
	return err
}
