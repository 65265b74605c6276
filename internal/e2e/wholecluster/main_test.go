// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// toolsEnv tells the tests where TestMain put the compiled clients.
const toolsEnv = "TIERGATE_TEST_CLIENTS"

// librdkafka is the release of confluent-kafka on PyPI, which has librdkafka of the same
// version in it.
const librdkafka = "2.16.1"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("wholecluster: a -short run starts no real Kafka brokers and tests nothing here; run without -short, " +
			"with Java 17+, Maven, gcc and Python 3")
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tiergate-wholecluster-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv(toolsEnv, dir)
	for _, prepare := range []func(context.Context, string) error{checkTools, buildGate, buildWatch, buildJava, installLibrdkafka} {
		if err := prepare(ctx, dir); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return m.Run()
}

// checkTools says in one sentence what the machine lacks.
func checkTools(ctx context.Context, _ string) error {
	var missing []string
	for _, tool := range []string{"javac", "gcc", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("tests of whole clusters need a JDK, gcc and Python 3, and this machine lacks %s: "+
			"install them (on Debian or Ubuntu: apt-get install openjdk-17-jdk-headless gcc python3-venv)", strings.Join(missing, ", "))
	}
	return kafka.Check(ctx, kafka.Kafka41, kafka.Kafka43)
}

func buildGate(_ context.Context, dir string) error { return stand.Build(dir, raceFlags...) }

// buildWatch compiles the library that is preloaded into clients.
func buildWatch(ctx context.Context, dir string) error {
	return command(ctx, "gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", filepath.Join(dir, "connects.so"), "testdata/connects.c", "-ldl")
}

// buildJava compiles the Java client with the newest jars.
func buildJava(ctx context.Context, dir string) error {
	jars, err := kafka.Fetch(ctx, kafka.Kafka43, progress())
	if err != nil {
		return err
	}
	return command(ctx, "javac", "-cp", jars.ClassPath(), "-d", dir, "testdata/Calls.java")
}

// python is the interpreter of the virtual environment with librdkafka.
func python() (string, error) {
	return filepath.Abs("../../../.cache/librdkafka-" + librdkafka + "/bin/python")
}

// installLibrdkafka makes a virtual environment in the cache folder, once.
func installLibrdkafka(ctx context.Context, _ string) error {
	interpreter, err := python()
	if err != nil {
		return err
	}
	if command(ctx, interpreter, "-c", "import confluent_kafka") == nil {
		return nil
	}
	venv := filepath.Dir(filepath.Dir(interpreter))
	if err := command(ctx, "python3", "-m", "venv", "--clear", venv); err != nil {
		return fmt.Errorf("tests with librdkafka need Python's venv (on Debian or Ubuntu: apt-get install python3-venv): %w", err)
	}
	if err := command(ctx, interpreter, "-m", "pip", "install", "-q", "confluent-kafka=="+librdkafka); err != nil {
		return fmt.Errorf("tests with librdkafka need confluent-kafka %s from PyPI, once: %w", librdkafka, err)
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

func progress() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stdout, nil)) }

// must ends the test when there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
