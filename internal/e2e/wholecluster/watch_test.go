// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tiergate/loadtest/kafka"
)

// targets are the names and addresses that a client turned to, and how often: host:port
// for a connection, a host alone for a name that was resolved.
type targets map[string]int

// elsewhere returns those that are not among the addresses allowed, sorted. Resolving the
// host of an allowed address is allowed.
func (s targets) elsewhere(allowed []string) []string {
	var found []string
	for target := range s {
		ok := slices.ContainsFunc(allowed, func(addr string) bool {
			host, _, _ := net.SplitHostPort(addr)
			return target == addr || target == host
		})
		if !ok {
			found = append(found, target)
		}
	}
	slices.Sort(found)
	return found
}

// readTargets reads what testdata/connects.c wrote down.
func readTargets(path string) (targets, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the preloaded library wrote nothing: %w", err)
	}
	found := make(targets)
	for line := range strings.Lines(string(b)) {
		verb, target, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || verb != "connect" && verb != "resolve" {
			return nil, fmt.Errorf("%s has the line %q", path, line)
		}
		found[strings.ReplaceAll(target, "[::ffff:127.0.0.1]", "127.0.0.1")]++ // how a dual-stack socket reaches IPv4
	}
	return found, nil
}

func TestElsewhere(t *testing.T) {
	seen := targets{"127.0.0.1:9200": 3, "127.0.0.1": 1, "127.0.0.1:9300": 1, "broker-1.kafka.invalid": 2, "127.0.0.2:9200": 1}
	got := fmt.Sprint(seen.elsewhere([]string{"127.0.0.1:9200", "127.0.0.1:9201"}))
	if want := "[127.0.0.1:9300 127.0.0.2:9200 broker-1.kafka.invalid]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// watched is a client process with testdata/connects.c preloaded.
type watched struct {
	what           string
	process        *kafka.Process
	stdin          io.WriteCloser
	stdout, stderr bytes.Buffer
	connects       string
}

// watch starts cmd; what names it in messages.
func watch(t *testing.T, what string, cmd *exec.Cmd) *watched {
	t.Helper()
	w := &watched{what: what, connects: filepath.Join(t.TempDir(), "connects")}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+filepath.Join(os.Getenv(toolsEnv), "connects.so"), "TIERGATE_CONNECTS="+w.connects)
	cmd.Stdout, cmd.Stderr = &w.stdout, &w.stderr
	var err error
	if cmd.Stdin == nil {
		w.stdin, err = cmd.StdinPipe()
		must(t, err)
	}
	w.process, err = kafka.StartProcess(cmd)
	must(t, err)
	t.Cleanup(w.process.Kill)
	return w
}

// end tells a client that works until it is told.
func (w *watched) end(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(w.stdin, "end\n")
	must(t, err)
}

// wait waits until the client ends by itself, with exit code 0, and returns what it said.
func (w *watched) wait(t *testing.T, ctx context.Context) string {
	t.Helper()
	select {
	case <-w.process.Done():
	case <-ctx.Done():
		w.process.Kill()
		t.Fatalf("%s was cut short: %v\n%s", w.what, ctx.Err(), w.output())
	}
	if err := w.process.Err(); err != nil {
		t.Fatalf("%s: %v\n%s", w.what, err, w.output())
	}
	return w.stdout.String()
}

// output is for failing tests; the process must have ended.
func (w *watched) output() string {
	// Errors first: a summary shows the first lines only.
	return fmt.Sprintf("standard error:\n%s\nstandard output:\n%s", tail(w.stderr.String()), tail(w.stdout.String()))
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// targets returns what the client turned to so far.
func (w *watched) targets(t *testing.T) targets {
	t.Helper()
	s, err := readTargets(w.connects)
	must(t, err)
	return s
}

// dialer is a watched client's way to connect, for franz-go.
type dialer struct {
	mu   sync.Mutex
	seen targets
}

// dial is kgo.Dialer's.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	if d.seen == nil {
		d.seen = make(targets)
	}
	if host, _, _ := net.SplitHostPort(addr); net.ParseIP(host) == nil {
		d.seen[host]++ // to be resolved first
	} else {
		d.seen[addr]++
	}
	d.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (d *dialer) targets() targets {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen)
}
