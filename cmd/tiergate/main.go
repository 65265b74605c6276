// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Command tiergate is a proxy for Kafka that answers EARLIEST_PENDING_UPLOAD
// (ListOffsets timestamp -6, KIP-1023) for brokers that cannot. This package is the
// only one that knows all the others: it turns the configuration into their options.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tiergate/cmd/tiergate/output"
	"tiergate/config"
)

// Exit codes; each command's --help says which of them it uses for what.
const (
	exitOK = 0
	// exitFault: the configuration is wrong, or the command could not begin.
	exitFault = 1
	// exitIncomplete: the command ran, and its answer is "not all is well".
	exitIncomplete = 2
	// exitUsage: the command line is wrong; EX_USAGE of sysexits.h.
	exitUsage = 64
)

// exitError ends a command with a code of its own. err may be nil: then everything
// was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Streams are where commands write: Out takes what was asked for, Err all the rest. Writing
// to Err never waits.
type Streams struct {
	Out io.Writer
	Err *output.Queue
}

// Stop tells a command to end. Commands that need no more than the first signal take
// a context.Context, which is Soon.
type Stop struct {
	// Soon ends at the first SIGINT or SIGTERM: finish what is under way.
	Soon context.Context
	// Now ends at the second one: drop everything.
	Now context.Context
}

type cli struct {
	Serve   ServeCmd   `cmd:"" help:"Run the proxy."`
	Check   CheckCmd   `cmd:"" help:"Check a configuration, and every broker of its cluster."`
	Offsets OffsetsCmd `cmd:"" help:"List the tiered storage offsets of partitions, EARLIEST_PENDING_UPLOAD among them."`
	Version VersionCmd `cmd:"" help:"Print the version."`
}

const description = `A proxy for Kafka that answers EARLIEST_PENDING_UPLOAD (ListOffsets timestamp -6, KIP-1023) for brokers of ` +
	`Kafka 3.9 to 4.1, which cannot. Everything else passes through.

Begin with "tiergate-loadtest demo". Then write a configuration, try it with "tiergate check" and run it with "tiergate serve".`

func main() {
	stop, done := stopAtSignals()
	code := run(os.Args[1:], stop, os.Stdout, splitStderr())
	done()
	os.Exit(code)
}

// stopAtSignals returns a Stop that follows SIGINT and SIGTERM. A third signal ends
// the process by force: the system's way is back in place by then.
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

// flushTime is how long the exit waits for whatever may be stuck: whoever reads standard error,
// or a disk.
const flushTime = time.Second

// run parses args, runs the command and returns the exit code.
func run(args []string, stop Stop, stdout, stderr io.Writer) int {
	streams := &Streams{Out: stdout, Err: output.NewQueue(stderr)}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		_ = streams.Err.Close(ctx) // there is no other place to report it
	}()
	return runCommand(args, stop, streams)
}

func runCommand(args []string, stop Stop, streams *Streams) int {
	exited := -1
	parser, err := kong.New(&cli{},
		kong.Name("tiergate"),
		kong.Description(description),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.BindTo(stop.Soon, (*context.Context)(nil)),
		kong.Bind(stop, streams),
	)
	if err != nil {
		fmt.Fprintln(streams.Err, "tiergate:", err)
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
		return usage(err, streams)
	}
	return exitCode(ctx.Run(), streams)
}

// usage reports a wrong command line.
func usage(err error, streams *Streams) int {
	command := "tiergate"
	var parseErr *kong.ParseError
	if errors.As(err, &parseErr) && parseErr.Context.Selected() != nil {
		command = parseErr.Context.Selected().FullPath()
	}
	fmt.Fprintf(streams.Err, "tiergate: %v\nRun \"%s --help\" to see what it takes.\n", err, command)
	return exitUsage
}

// exitCode says what went wrong, unless it was said already.
func exitCode(err error, streams *Streams) int {
	var faults *config.Error
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &faults):
		fmt.Fprintln(streams.Err, faults)
		fmt.Fprintf(streams.Err, "tiergate: %s in %s\n", count(len(faults.Faults), "fault"), faults.File)
		return exitFault
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(streams.Err, "tiergate:", exit.err)
		}
		return exit.code
	default:
		fmt.Fprintln(streams.Err, "tiergate:", err)
		return exitFault
	}
}

// count returns "1 fault" or "3 faults".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
