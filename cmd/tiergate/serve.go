// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"tiergate/cmd/tiergate/certs"
	"tiergate/cmd/tiergate/output"
	"tiergate/config"
	"tiergate/proxy"
)

// firstBrokers is how long serve waits with its map for the brokers to be known.
// Clients are served meanwhile.
const firstBrokers = time.Second

// ServeCmd is `tiergate serve`.
type ServeCmd struct {
	Config string `required:"" placeholder:"FILE" help:"YAML configuration: docs/configuration.md."`
	DryRun bool   `help:"Check the file and print the map of addresses; open and connect to nothing."`
}

// Help is shown by --help.
func (c *ServeCmd) Help() string {
	return `Listens on every address of the configuration, or on none, and passes clients on to their brokers until SIGTERM or SIGINT. ` +
		`The map of addresses is printed first. A cluster that cannot be reached is no reason not to start: /readyz says so, ` +
		`and tiergate keeps trying.

At the first signal /readyz turns to 503, no client is accepted any more, and requests under way have limits.drain_timeout to end. ` +
		`A second signal ends everything at once. SIGHUP reads the files of all tls blocks again; so does a change of one, within seconds.

Examples:

    tiergate serve --config tiergate.yaml
    tiergate serve --config tiergate.yaml --dry-run

Exit codes:

    0   stopped by a signal, every request was answered; or the dry run found no fault
    1   the configuration is wrong, or an address cannot be listened on
    2   stopped before every request was answered: drain_timeout was over, or a second signal came
    64  wrong command line`
}

// Run serves until stop.
func (c *ServeCmd) Run(stop Stop, streams *Streams) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	if c.DryRun {
		var rows []mapRow
		for _, of := range cfg.All() {
			rows = append(rows, nodeMap(of, nil)...)
		}
		if err := printMap(streams.Out, rows); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "\n%s is right; nothing was opened. Next: tiergate check --config %s\n", c.Config, c.Config)
		return err
	}
	loops := runtime.GOMAXPROCS(0)
	if cfg.EventLoop == config.EventLoopEpoll {
		// These loops keep a processor of Go's each while they wait. What accepts, dials and
		// does TLS handshakes gets as many again, and the kernel shares the machine's out.
		runtime.GOMAXPROCS(2 * loops)
	}
	// Go ends a process that writes to standard output or standard error after their reader
	// has ended, unless this signal is ignored. The write then fails with EPIPE.
	signal.Ignore(syscall.SIGPIPE)
	limitHeap(int64(cfg.Limits.MaxBufferedBytes))
	return serve(cfg, loops, stop, streams)
}

// heapBesides is what the Go heap may have beside limits.max_buffered_bytes before the
// garbage collector works harder: what idle sessions and the process itself take.
const heapBesides = 64 << 20

// limitHeap has the garbage collector keep the heap close to what is in use, so that bytes
// which sessions gave back do not add up to as much again. GOMEMLIMIT, where it is set,
// stays.
func limitHeap(buffered int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(buffered + heapBesides)
	}
}

// serve runs the proxy of cfg until stop. loops is proxy.Options.Loops.
func serve(cfg *config.Config, loops int, stop Stop, streams *Streams) error {
	log := newQueuedLogger(cfg.Log, streams.Err)
	metrics := newRegistry()
	metrics.MustRegister(droppedLines(streams.Err))
	tls, err := certs.New(cfg, log, metrics)
	if err != nil {
		return err
	}
	defer keepCurrent(tls)()
	warnInsecure(log, cfg)
	to, err := newClusters(cfg, tls, log, metrics)
	if err != nil {
		return err
	}
	defer to.close()
	server, err := newServer(cfg, loops, to, tls, log, metrics)
	if err != nil {
		return err
	}
	defer server.Close()
	ready := func() error { return errors.Join(server.Ready(), to.ready()) }
	http, err := startAdmin(cfg.Admin.Address.String(), metrics, ready, log)
	if err != nil {
		return err
	}
	defer http.Close()
	log.Info("tiergate starts", "version", readBuild().String())
	if err := server.Start(); err != nil {
		return explainListen(err)
	}
	http.enter(phaseServing)
	to.start(stop.Now)
	logListeners(log, cfg)
	awaitBrokers(stop.Soon, to)
	showMap(stop.Soon, cfg, to.rows(), log, streams)
	<-stop.Soon.Done()
	http.enter(phaseStopping)
	return drain(server, cfg, log, stop)
}

// keepCurrent reads TLS files again when they have changed, and at SIGHUP, until the
// function that it returns is called. That function waits flushTime at the most.
func keepCurrent(tls *certs.Store) (stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { tls.Watch(ctx) })
	running.Go(func() {
		for {
			select {
			case <-hangup:
				tls.Reload()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(hangup)
		cancel()
		ended := make(chan struct{})
		go func() {
			running.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(flushTime): // a disk or a file server that does not answer holds no exit up
		}
	}
}

// warnInsecure says what the configuration gives away.
func warnInsecure(log *slog.Logger, cfg *config.Config) {
	for _, of := range cfg.All() {
		log := log
		if of.Name != "" {
			log = log.With("cluster", string(of.Name))
		}
		tls, sasl := of.Upstream.TLS, of.Upstream.SASL
		if tls != nil && tls.InsecureSkipVerify {
			log.Warn("INSECURE: upstream.tls.insecure_skip_verify is on: brokers' certificates are not checked, " +
				"so whoever stands between can read and change everything, passwords among it")
		}
		if tls == nil && sasl != nil && sasl.Mechanism == config.SASLPlain {
			log.Warn("INSECURE: upstream.sasl has the mechanism PLAIN and there is no upstream.tls: its password is sent readably")
		}
	}
}

// logListeners says of each listener that it is bound.
func logListeners(log *slog.Logger, cfg *config.Config) {
	for _, of := range cfg.All() {
		for _, l := range of.Listeners {
			log.Info("listening", append([]any{"listener", l.Name}, listens(l)...)...)
		}
	}
	log.Info("serving /metrics, /healthz and /readyz", "address", cfg.Admin.Address.String())
}

// listens are the attributes of a log line that say where a listener listens.
func listens(l config.Listener) []any {
	switch l.Kind() {
	case config.KindAddresses:
		nodes := make([]string, len(l.NodeAddresses))
		for i, a := range l.NodeAddresses {
			nodes[i] = fmt.Sprintf("%d at %v told %v", a.NodeID, a.Bind, a.Advertised)
		}
		return []any{"bootstrap", l.Bootstrap.String(), "node_addresses", strings.Join(nodes, ", "), "unmapped_nodes", string(l.UnmappedNodes)}
	case config.KindSNI:
		return []any{
			"sni", l.SNI.Bind.String(), "bootstrap_host", string(l.SNI.BootstrapHost), "node_host", l.SNI.NodeHost.String(),
			"advertised_port", l.SNI.AdvertisedPort,
		}
	case config.KindDirect:
		routes := make([]string, len(l.Direct))
		for i, r := range l.Direct {
			routes[i] = r.Listen.String() + " to " + r.Broker.String()
		}
		return []any{"direct", strings.Join(routes, ", ")}
	case config.KindRange:
	}
	return []any{
		"bootstrap", l.Bootstrap.String(), "nodes", l.Nodes.String(), "first_node_id", l.FirstNodeID,
		"advertised_host", l.AdvertisedHost, "unmapped_nodes", string(l.UnmappedNodes),
	}
}

// awaitBrokers waits a moment for the broker lists, so that the map can show it.
func awaitBrokers(ctx context.Context, to clusters) {
	ctx, cancel := context.WithTimeout(ctx, firstBrokers)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !to.known() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// mapTime is how long serve waits for whoever reads standard output.
const mapTime = time.Second

// showMap prints the map, or logs it where a program reads the output. That it cannot be
// printed is no reason not to serve.
func showMap(ctx context.Context, cfg *config.Config, rows []mapRow, log *slog.Logger, streams *Streams) {
	if cfg.Log.Format == config.LogFormatText {
		if err := printInTime(ctx, streams.Out, rows); err != nil {
			log.Warn("the map of addresses cannot be written to standard output; clients are served all the same", "error", err)
		}
		return
	}
	for _, r := range rows {
		log := log
		if r.Cluster != "" {
			log = log.With("cluster", r.Cluster)
		}
		log.Info("map", "listener", r.Listener, "serves", r.Serves, "advertised", r.Advertised, "address", r.Listens, "broker", r.Broker)
	}
}

// printInTime writes the map, for mapTime at the most.
func printInTime(ctx context.Context, w io.Writer, rows []mapRow) error {
	var text bytes.Buffer
	if err := printMap(&text, rows); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mapTime)
	defer cancel()
	queue := output.NewQueue(w)
	_, _ = queue.Write(text.Bytes())
	return queue.Close(ctx)
}

var errSecondSignal = errors.New("a second signal came")

// drain lets exchanges under way end, for drain_timeout at the most.
func drain(server *proxy.Server, cfg *config.Config, log *slog.Logger, stop Stop) error {
	limit := time.Duration(cfg.Limits.DrainTimeout)
	log.Info("stopping: no client is accepted any more; requests under way may end", "drain_timeout", limit.String())
	ctx, cancel := context.WithTimeout(stop.Now, limit)
	defer cancel()
	err := server.Drain(ctx)
	_ = server.Close()
	switch {
	case err == nil:
		log.Info("stopped: every request was answered")
		return nil
	case stop.Now.Err() != nil:
		err = fmt.Errorf("%w: %w", errSecondSignal, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("limits.drain_timeout (%v) is over: %w", limit, err)
	}
	return &exitError{exitIncomplete, fmt.Errorf("stopped before every request was answered: %w", err)}
}
