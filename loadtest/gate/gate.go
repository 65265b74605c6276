// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package gate runs tiergate as its users do: a process with a configuration file, whose
// admin server says when it is ready. It knows the program from the outside only.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tiergate/loadtest/kafka"
)

// Options of a gate.
type Options struct {
	// Binary is the program; see Binary.
	Binary string
	// Folder is where tiergate.yaml and the log are written.
	Folder string
	// Config is the configuration without the block admin.
	Config string
	// Admin is the address of the admin server. Default: a free port of 127.0.0.1.
	Admin string
	// Log is the name of the log in Folder. Default: tiergate.log.
	Log string
	// Stderr takes what the process writes to standard error, instead of the log.
	Stderr *os.File
	// Env are environment variables beside this process's own.
	Env []string
	// MaxFiles is the limit of open files (ulimit -n). Default: that of this process.
	MaxFiles int
}

// Gate is a tiergate process, or several one after the other with one configuration. Its
// methods are for one goroutine, but for Get and Metric.
type Gate struct {
	options Options
	process *kafka.Process
}

// New writes the configuration. It starts nothing.
func New(o Options) (*Gate, error) {
	if o.Admin == "" {
		ports, err := kafka.FreePorts(1)
		if err != nil {
			return nil, err
		}
		o.Admin = kafka.Loopback(ports[0])
	}
	if o.Log == "" {
		o.Log = "tiergate.log"
	}
	g := &Gate{options: o}
	return g, os.WriteFile(g.ConfigPath(), fmt.Appendf(nil, "%sadmin:\n  address: %q\n", o.Config, o.Admin), 0o600)
}

// Start is New and Gate.Start. The caller must stop or kill the process.
func Start(ctx context.Context, o Options) (*Gate, error) {
	g, err := New(o)
	if err == nil {
		err = g.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// ConfigPath is the configuration file.
func (g *Gate) ConfigPath() string { return filepath.Join(g.options.Folder, "tiergate.yaml") }

// LogPath is the file that the process logs to, over all its runs.
func (g *Gate) LogPath() string { return filepath.Join(g.options.Folder, g.options.Log) }

// MetricsURL is the address of the metrics.
func (g *Gate) MetricsURL() string { return "http://" + g.options.Admin + "/metrics" }

// Process is the one that was started last; nil before.
func (g *Gate) Process() *kafka.Process { return g.process }

// Start starts the process and waits until it is ready, for a minute at the most. A
// process that does not become ready is killed; the error has the end of its log.
func (g *Gate) Start(ctx context.Context) error {
	if err := g.Launch(); err != nil {
		return err
	}
	if err := g.AwaitReady(ctx, time.Minute); err != nil {
		g.process.Kill()
		return fmt.Errorf("%w; it said:\n%s", err, g.LogTail())
	}
	return nil
}

// Launch starts the process and returns at once.
func (g *Gate) Launch() error {
	log, err := os.OpenFile(g.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	command := []string{g.options.Binary, "serve", "--config", g.ConfigPath()}
	if n := g.options.MaxFiles; n > 0 {
		command = append([]string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(n)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), g.options.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if g.options.Stderr != nil {
		cmd.Stderr = g.options.Stderr
	}
	if g.process, err = kafka.StartProcess(cmd); err != nil {
		return fmt.Errorf("start tiergate: %w", err)
	}
	return nil
}

// AwaitReady waits until /readyz says 200, for a limited time.
func (g *Gate) AwaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return kafka.Poll(ctx, "/readyz of tiergate", func(ctx context.Context) error {
		select {
		case <-g.process.Done():
			cancel() // there is nothing to wait for
			return fmt.Errorf("tiergate ended: %w", errors.Join(g.process.Err(), errors.New("exit code 0")))
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := g.Get(ctx, "/readyz")
		return err
	})
}

// client opens a connection for each request: there is no connection that a restart of
// tiergate could have closed.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Get returns a page of the admin server. A status other than 200 is an error.
func (g *Gate) Get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.options.Admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
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
	page, err := g.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
series:
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ')
		rest, found := strings.CutPrefix(line[:max(0, space)], name)
		if !found || rest != "" && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", line, err)
		}
		sum += v
	}
	return sum, nil
}

// LogTail is the end of the log.
func (g *Gate) LogTail() string {
	log, err := os.ReadFile(g.LogPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-16*1024):]))
}

// Stop ends the process as a supervisor does, with SIGTERM. Another exit code than 0 is
// an error. After 40 s the process is killed.
func (g *Gate) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	if err := g.process.Terminate(ctx); err != nil {
		return err
	}
	if err := g.process.Err(); err != nil {
		return fmt.Errorf("tiergate after SIGTERM: %w", err)
	}
	return nil
}

// Kill ends the process at once.
func (g *Gate) Kill() { g.process.Kill() }
