// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package stand runs the tiergate binary for tests, as its users do: built once, started
// with a configuration file, ended with SIGTERM. It knows the binary from the outside
// only.
package stand

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tiergate/loadtest/kafka"
)

// binaryEnv tells the tests where Build put the binary.
const binaryEnv = "TIERGATE_TEST_BINARY"

// Build builds the binary into dir, for the gates of this process; flags are those of go
// build, such as -race.
func Build(dir string, flags ...string) error {
	binary := filepath.Join(dir, "tiergate")
	args := append([]string{"build", "-o", binary}, flags...)
	if out, err := exec.Command("go", append(args, "tiergate/cmd/tiergate")...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build tiergate/cmd/tiergate: %w\n%s", err, out)
	}
	return os.Setenv(binaryEnv, binary)
}

// Gate is a tiergate process, or several one after the other with one configuration. Its
// methods are for one goroutine, but for Metric.
type Gate struct {
	tb      testing.TB
	process *kafka.Process
	dir     string
	admin   string
}

// Start is Launch, and waits until /readyz is content.
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
	ports, err := kafka.FreePorts(1)
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gate{tb: tb, dir: tb.TempDir(), admin: kafka.Loopback(ports[0])}
	config += fmt.Sprintf("admin:\n  address: %q\n", g.admin)
	if err := os.WriteFile(g.configPath(), []byte(config), 0o644); err != nil {
		tb.Fatal(err)
	}
	g.run()
	tb.Cleanup(func() {
		g.Stop()
		g.checkLog()
	})
	return g
}

func (g *Gate) configPath() string { return filepath.Join(g.dir, "tiergate.yaml") }

// LogPath is the file that the process logs to, over all its runs.
func (g *Gate) LogPath() string { return filepath.Join(g.dir, "tiergate.log") }

// run starts the process.
func (g *Gate) run() {
	g.tb.Helper()
	log, err := os.OpenFile(g.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		g.tb.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Getenv(binaryEnv), "serve", "--config", g.configPath())
	cmd.Stdout, cmd.Stderr = log, log
	if g.process, err = kafka.StartProcess(cmd); err != nil {
		g.tb.Fatal(err)
	}
}

func (g *Gate) awaitReady(ctx context.Context) {
	g.tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := kafka.Poll(ctx, "/readyz of tiergate", g.ready); err != nil {
		config, _ := os.ReadFile(g.configPath())
		g.tb.Fatalf("%v\n--- configuration\n%s", err, config)
	}
}

// ready asks /readyz once.
func (g *Gate) ready(ctx context.Context) error {
	select {
	case <-g.process.Done():
		return fmt.Errorf("tiergate ended: %w", g.process.Err())
	default:
	}
	_, err := g.get(ctx, "/readyz")
	return err
}

// get returns what the admin server says.
func (g *Gate) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// Metric returns the sum of all series of a metric whose labels hold each of the given
// ones, written as in `mode="splice"`; 0 when there is none.
func (g *Gate) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	page, err := g.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
series:
	for line := range strings.Lines(page) {
		series, value, ok := cutLast(strings.TrimSpace(line), " ")
		rest, found := strings.CutPrefix(series, name)
		if !ok || !found || rest != "" && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		sum += v
	}
	return sum, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Restart ends the process with SIGTERM, as Stop does, and starts it again on the same
// configuration and ports.
func (g *Gate) Restart(ctx context.Context) {
	g.tb.Helper()
	g.Stop()
	g.run()
	g.awaitReady(ctx)
}

// KillAndRestart is Restart without a word, as after a crash.
func (g *Gate) KillAndRestart(ctx context.Context) {
	g.tb.Helper()
	g.process.Kill()
	g.run()
	g.awaitReady(ctx)
}

// Stop ends the process as a supervisor does; it must end with exit code 0.
func (g *Gate) Stop() {
	g.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	if err := g.process.Terminate(ctx); err != nil {
		g.tb.Error(err)
	}
	if err := g.process.Err(); err != nil {
		g.tb.Errorf("tiergate after SIGTERM: %v", err)
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
		g.tb.Logf("--- log of tiergate\n%s", log[max(0, len(log)-16*1024):])
	}
}
