// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command proxybench measures tiergate beside HAProxy, nginx and a plain copying proxy.
// "make bench" runs it; docs/performance.md says how to read what it prints.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tiergate/loadtest/bench"
)

type cli struct {
	Run           runCmd      `cmd:"" default:"withargs" help:"Measure, and print the comparison."`
	Report        reportCmd   `cmd:"" help:"Print the comparison of a result in JSON again."`
	Broker        brokerCmd   `cmd:"" hidden:"" help:"Be the server of a run."`
	ServeTiergate tiergateCmd `cmd:"" hidden:"" help:"Be tiergate with one direct endpoint."`
	ServeCopy     copyCmd     `cmd:"" hidden:"" help:"Be a proxy of two io.Copy."`
}

func main() {
	ctx, done := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	command := kong.Parse(&cli{}, kong.Name("proxybench"), kong.UsageOnError(), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Description("Measures tiergate beside other proxies, on loopback."))
	err := command.Run()
	done()
	command.FatalIfErrorf(err)
}

// document is where a comparison is to be written besides standard output.
type document struct {
	Doc string `placeholder:"FILE" help:"Also write the comparison into this document, between its proxybench marks."`
}

func (d document) write(r bench.Result) error {
	fmt.Println(r.Text())
	if d.Doc == "" {
		return nil
	}
	old, err := os.ReadFile(d.Doc)
	if err != nil {
		return err
	}
	text, err := bench.Insert(old, r.Text())
	if err != nil {
		return fmt.Errorf("%s: %w", d.Doc, err)
	}
	return os.WriteFile(d.Doc, text, 0o644)
}

type runCmd struct {
	document
	Rounds    int           `default:"3" help:"How often each proxy has its turn in a workload."`
	Seconds   float64       `default:"1.5" help:"How long a turn is measured, after a warm-up of a quarter of it."`
	Counting  int           `default:"1" help:"Rounds more of plain workloads that count system calls and events; their times are not used."`
	Stall     time.Duration `default:"5s" help:"How long stalled readers read nothing."`
	Workloads []string      `placeholder:"NAME" help:"Only the workloads whose names begin with one of these."`
	Peers     []string      `placeholder:"NAME" help:"Only these of direct, tiergate, haproxy, nginx, io.Copy."`
	Threads   int           `placeholder:"N" help:"Threads that move bytes in each proxy; the number of cores unless given."`
	JSON      string        `placeholder:"FILE" help:"Write every sample here."`
	Profiles  string        `placeholder:"DIR" help:"Write a CPU profile of tiergate for each workload here. It makes tiergate a little slower."`
}

// Run measures.
func (c *runCmd) Run(ctx context.Context) error {
	o := bench.Options{
		Rounds: c.Rounds, Time: time.Duration(c.Seconds * float64(time.Second)), Stall: c.Stall, Counting: c.Counting,
		Workloads: bench.Workloads(), Peers: bench.PeerNames(), Threads: c.Threads, Profiles: c.Profiles, Progress: os.Stderr,
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	if len(c.Workloads) > 0 {
		o.Workloads = slices.DeleteFunc(o.Workloads, func(w bench.Workload) bool {
			return !slices.ContainsFunc(c.Workloads, func(start string) bool { return strings.HasPrefix(w.Name, start) })
		})
	}
	if len(c.Peers) > 0 {
		for _, name := range c.Peers {
			if !slices.Contains(o.Peers, name) {
				return fmt.Errorf("there is no peer %q: %s", name, strings.Join(o.Peers, ", "))
			}
		}
		o.Peers = slices.DeleteFunc(o.Peers, func(p string) bool { return !slices.Contains(c.Peers, p) })
	}
	result, err := bench.Run(ctx, o)
	if c.JSON != "" && len(result.Samples) > 0 {
		text, jsonErr := json.MarshalIndent(result, "", " ")
		if jsonErr != nil {
			return jsonErr
		}
		if jsonErr = os.WriteFile(c.JSON, append(text, '\n'), 0o644); jsonErr != nil {
			return jsonErr
		}
	}
	if err != nil {
		return err
	}
	return c.write(result)
}

type reportCmd struct {
	document
	JSON string `arg:"" help:"What run --json wrote; - for standard input."`
}

// Run prints.
func (c *reportCmd) Run() error {
	in := io.ReadCloser(os.Stdin)
	if c.JSON != "-" {
		var err error
		if in, err = os.Open(c.JSON); err != nil {
			return err
		}
		defer in.Close()
	}
	var result bench.Result
	if err := json.NewDecoder(in).Decode(&result); err != nil {
		return fmt.Errorf("%s: %w", c.JSON, err)
	}
	return c.write(result)
}

type brokerCmd struct{}

// Run says where it listens and serves.
func (brokerCmd) Run(ctx context.Context) error {
	// One thread serves; a second one is for the garbage collector.
	b, err := bench.NewBroker()
	if err != nil {
		return err
	}
	fmt.Println(b.Address())
	context.AfterFunc(ctx, b.Stop)
	return b.Serve()
}
