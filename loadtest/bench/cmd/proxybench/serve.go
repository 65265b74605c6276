// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/loadtest/bench"
	"tiergate/proxy"
	"tiergate/rewrite"
)

// serve is what both proxies of ours are told.
type serve struct {
	Listen      string `required:""`
	Broker      string `required:""`
	Threads     int    `required:""`
	Certificate string `help:"A file with certificate and key: clients speak TLS."`
}

type tiergateCmd struct {
	serve
	EventLoop  string `enum:"gnet,epoll" default:"gnet" help:"As event_loop of a configuration."`
	CPUProfile string `name:"cpuprofile" help:"Write a CPU profile here at the end."`
}

// Run serves until it is told to end. The -6 answer is on, and metrics are counted, as in
// "tiergate serve"; addresses stay as they are.
func (c *tiergateCmd) Run(ctx context.Context) error {
	config, err := bench.ServerTLS(c.Certificate)
	if err != nil {
		return err
	}
	// As in "tiergate serve".
	loop, processors := proxy.EventLoopGnet, c.Threads
	if c.EventLoop == "epoll" {
		loop, processors = proxy.EventLoopEpoll, 2*c.Threads
	}
	runtime.GOMAXPROCS(processors)
	endpoint := proxy.Endpoint{
		Listener: "bench", Address: c.Listen, Broker: c.Broker,
		Dial: func(ctx context.Context) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "tcp", c.Broker)
		},
		Rules:         rewrite.Rules{PendingUpload: rewrite.PendingUploadAuto},
		RemoteStorage: noRemoteStorage{},
	}
	if config != nil {
		endpoint.TLS = func() *tls.Config { return config }
	}
	registry := prometheus.NewRegistry()
	server, err := proxy.New(proxy.Options{
		Endpoints: []proxy.Endpoint{endpoint}, Loops: c.Threads, EventLoop: loop, SpareProcessors: c.Threads, Registerer: registry,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	if c.CPUProfile != "" {
		f, err := os.Create(c.CPUProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err = pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if err = server.Start(); err != nil {
		return err
	}
	go tellMetrics(os.Stdin, os.Stdout, registry)
	<-ctx.Done()
	return server.Close()
}

// tellMetrics answers every line of in with the values of all series.
func tellMetrics(in io.Reader, out io.Writer, registry prometheus.Gatherer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		families, err := registry.Gather()
		var b strings.Builder
		for _, family := range families {
			for _, m := range family.GetMetric() {
				b.WriteString(family.GetName())
				for _, label := range m.GetLabel() {
					b.WriteString(" " + label.GetValue())
				}
				fmt.Fprintf(&b, " %v\n", m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
		b.WriteByte('\n')
		if _, writeErr := io.WriteString(out, b.String()); err != nil || writeErr != nil {
			return
		}
	}
}

// noRemoteStorage knows nothing: no request of the benchmark needs a remote storage status.
type noRemoteStorage struct{}

func (noRemoteStorage) CachedRemoteStorage(string) (enabled, known bool) { return false, false }
func (noRemoteStorage) ResolveRemoteStorage(context.Context, []string) map[string]bool {
	return nil
}
func (noRemoteStorage) ObserveRemoteStorage([]string) {}

type copyCmd struct{ serve }

// Run serves until it is told to end.
func (c *copyCmd) Run(ctx context.Context) error {
	config, err := bench.ServerTLS(c.Certificate)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(c.Threads)
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	return bench.ServeCopy(listener, c.Broker, config)
}
