// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tiergate/internal/testkit/sim"
)

// process is a tiergate of its own: the test's binary runs as the command.
type process struct {
	cmd   *exec.Cmd
	admin string
	log   lockedBuffer
	out   lockedBuffer
}

// newProcess writes a configuration and prepares the command that serves it. Its output goes
// to log and out.
func newProcess(t *testing.T, dir, admin, yaml string) *process {
	t.Helper()
	file := filepath.Join(dir, "tiergate.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s\nadmin: {address: %q}\n", yaml, admin), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{admin: admin, cmd: exec.Command(self, "serve", "--config", file)}
	p.cmd.Args[0] = "tiergate" // TestMain runs the command of that name
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	return p
}

// start starts the process and waits until it is ready.
func (p *process) start(t *testing.T) {
	t.Helper()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "readiness", func() bool { return p.get(t, "/readyz") == "200 ready\n" })
}

// startProcess serves a configuration. It is stopped at the end of the test, and its log
// shown if the test fails.
func startProcess(t *testing.T, dir, admin, yaml string) *process {
	t.Helper()
	p := newProcess(t, dir, admin, yaml)
	t.Cleanup(func() {
		if p.cmd.Process == nil {
			return
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // sessions of clients that stay are cut
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("output of tiergate:\n%s%s", p.out.String(), p.log.String())
		}
	})
	p.start(t)
	return p
}

// get returns status and body of a page of the admin server; empty when there is none.
func (p *process) get(t *testing.T, page string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// metric returns the value of a series, as /metrics writes both; empty when there is none.
func (p *process) metric(t *testing.T, series string) string {
	t.Helper()
	for line := range strings.Lines(p.get(t, "/metrics")) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lines are those of the log that contain text.
func (p *process) lines(text string) []string {
	var found []string
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// startSim starts a simulated cluster of three brokers.
func startSim(t *testing.T, opts sim.Options) *sim.Cluster {
	t.Helper()
	c, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
