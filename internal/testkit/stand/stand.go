// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package stand runs the tiergate binary and Kafka's brokers for the length of a test.
package stand

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// binaryEnv tells the tests where Build put the binary.
const binaryEnv = "TIERGATE_TEST_BINARY"

// Build builds the binary into dir, for the gates of this process; flags are those of go
// build, such as -race.
func Build(dir string, flags ...string) error {
	binary, err := gate.Binary(context.Background(), dir, flags...)
	if err != nil {
		return err
	}
	return os.Setenv(binaryEnv, binary)
}

// Binary is the path of the binary that Build built.
func Binary() string { return os.Getenv(binaryEnv) }

// Brokers launches a cluster for a test and closes it when the test ends.
func Brokers(tb testing.TB, options kafka.Options) *kafka.Cluster {
	tb.Helper()
	c, err := kafka.Launch(context.Background(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// Gate is a tiergate process of a test.
type Gate struct {
	*gate.Gate
	tb testing.TB
}

// Start is Launch, and waits until tiergate is ready.
func Start(tb testing.TB, ctx context.Context, config string) *Gate {
	tb.Helper()
	g := Launch(tb, config)
	g.awaitReady(ctx)
	return g
}

// Launch runs `tiergate serve` with a configuration to which the address of the admin
// server is added. When the test ends the process gets SIGTERM and must end with exit code 0.
func Launch(tb testing.TB, config string) *Gate {
	tb.Helper()
	g := &Gate{tb: tb}
	var err error
	if g.Gate, err = gate.New(gate.Options{Binary: Binary(), Folder: tb.TempDir(), Config: config}); err != nil {
		tb.Fatal(err)
	}
	g.launch()
	tb.Cleanup(func() {
		g.Stop()
		g.checkLog()
	})
	return g
}

func (g *Gate) launch() {
	g.tb.Helper()
	if err := g.Launch(); err != nil {
		g.tb.Fatal(err)
	}
}

func (g *Gate) awaitReady(ctx context.Context) {
	g.tb.Helper()
	if err := g.AwaitReady(ctx, time.Minute); err != nil {
		config, _ := os.ReadFile(g.ConfigPath())
		g.tb.Fatalf("%v\n--- configuration\n%s", err, config)
	}
}

// Restart ends the process with SIGTERM, as Stop does, and starts it again on the same
// configuration and ports.
func (g *Gate) Restart(ctx context.Context) {
	g.tb.Helper()
	g.Stop()
	g.launch()
	g.awaitReady(ctx)
}

// KillAndRestart is Restart after SIGKILL, as after a crash.
func (g *Gate) KillAndRestart(ctx context.Context) {
	g.tb.Helper()
	g.Kill()
	g.launch()
	g.awaitReady(ctx)
}

// Stop ends the process as a supervisor does; it must end with exit code 0.
func (g *Gate) Stop() {
	g.tb.Helper()
	if err := g.Gate.Stop(); err != nil {
		g.tb.Error(err)
	}
}

// checkLog looks for what must not be in the log, and shows it if anything failed.
func (g *Gate) checkLog() {
	log, err := os.ReadFile(g.LogPath())
	if err != nil {
		g.tb.Error(err)
	}
	if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic")) {
		g.tb.Error("tiergate's log shows a data race or a panic")
	}
	if g.tb.Failed() {
		g.tb.Logf("--- log of tiergate\n%s", g.LogTail())
	}
}
