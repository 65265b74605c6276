// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Command tiergate-loadtest puts load on Kafka through tiergate and other ways to it,
// verifies every record, and reports what they cost. docs/loadtest.md is its manual.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"tiergate/loadtest/load"
)

// Exit codes; those of tiergate mean the same.
const (
	exitOK = 0
	// exitFault: the scenario is wrong, or the run could not begin or go on.
	exitFault = 1
	// exitFailed: the run is through, and its verdict is not good.
	exitFailed = 2
	// exitUsage: the command line is wrong; EX_USAGE of sysexits.h.
	exitUsage = 64
)

// exitError ends a command with a code of its own, when everything was said already.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Streams are where commands write: Out takes what was asked for, Err all the rest.
type Streams struct {
	Out, Err io.Writer
}

// Stop tells a command to end.
type Stop struct {
	// Soon ends at the first SIGINT or SIGTERM: bring what is under way to its end.
	Soon context.Context
	// Now ends at the second one: drop everything.
	Now context.Context
}

type cli struct {
	Demo      DemoCmd      `cmd:"" help:"See the main job of tiergate on a simulated cluster, without Kafka."`
	Run       RunCmd       `cmd:"" help:"Run a scenario, and report."`
	Scenarios ScenariosCmd `cmd:"" help:"List the built-in scenarios, or show one."`
	Compare   CompareCmd   `cmd:"" help:"Compare two reports: what became worse?"`
	Follower  FollowerCmd  `cmd:"" help:"Play replicas that catch up, with -6 and without: what it saves (KIP-1023)."`
	Abuse     AbuseCmd     `cmd:"" help:"Attack tiergate and HAProxy: memory, CPU, and are other clients served meanwhile?"`
	Version   VersionCmd   `cmd:"" help:"Print the version."`
}

const description = `Puts load on Kafka through tiergate, other proxies and none, in turns, verifies every record, and reports what each way costs.

Begin with "tiergate-loadtest run quick": it needs nothing but this program and tiergate.`

func main() {
	stop, done := stopAtSignals()
	code := run(os.Args[1:], stop, &Streams{Out: os.Stdout, Err: os.Stderr})
	done()
	os.Exit(code)
}

// stopAtSignals returns a Stop that follows SIGINT and SIGTERM. A third signal ends the
// process by force: the system's way is back in place by then.
func stopAtSignals() (stop Stop, done func()) {
	soon, cancelSoon := context.WithCancel(context.Background())
	now, cancelNow := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancelSoon()
		<-signals
		cancelNow()
		signal.Stop(signals)
	}()
	return Stop{Soon: soon, Now: now}, func() {
		signal.Stop(signals)
		cancelSoon()
		cancelNow()
	}
}

// run parses args, runs the command and returns the exit code.
func run(args []string, stop Stop, streams *Streams) int {
	exited := -1
	parser, err := kong.New(&cli{},
		kong.Name("tiergate-loadtest"),
		kong.Description(description),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.BindTo(stop.Soon, (*context.Context)(nil)),
		kong.Bind(stop, streams),
	)
	if err != nil {
		fmt.Fprintln(streams.Err, "tiergate-loadtest:", err)
		return exitFault
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if exited >= 0 { // --help has printed itself, and the rest of the line does not matter
		return exited
	}
	if err != nil {
		fmt.Fprintf(streams.Err, "tiergate-loadtest: %v\nRun \"tiergate-loadtest --help\" to see what it takes.\n", err)
		return exitUsage
	}
	return exitCode(ctx.Run(), streams)
}

// exitCode says what went wrong, unless it was said already.
func exitCode(err error, streams *Streams) int {
	var faults *load.Error
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &faults):
		noun := "faults"
		if len(faults.Faults) == 1 {
			noun = "fault"
		}
		fmt.Fprintf(streams.Err, "%v\ntiergate-loadtest: %d %s in %s\n", faults, len(faults.Faults), noun, faults.File)
	default:
		fmt.Fprintln(streams.Err, "tiergate-loadtest:", err)
	}
	return exitFault
}
