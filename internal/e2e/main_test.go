// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	gates "tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// TestMain builds the binary once, with -race when the tests themselves are. Without Java
// and Maven it fails with one sentence: these tests are never left out in silence.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e: a -short run starts no real Kafka brokers and tests nothing here; run without -short, with Java 17+ and Maven")
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	if err := kafka.Check(ctx, kafka.Kafka36, kafka.Kafka38, kafka.Kafka39, kafka.Kafka41, kafka.Kafka43); err != nil {
		fmt.Println(err)
		return 1
	}
	dir, err := os.MkdirTemp("", "tiergate-e2e-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := gates.Build(dir, raceFlags...); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

// realBrokers is the first line of every test here. The context ends before the time
// that go test allows, so that failures show what was waited for.
func realBrokers(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with Java 17+ and Maven")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func progress() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stdout, nil)) }

// report says a figure both in the test's log and to whoever reads the output of a run
// without -v.
func report(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	fmt.Println(line)
}

// must ends the test when there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
