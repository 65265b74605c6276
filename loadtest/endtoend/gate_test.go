// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tiergate/loadtest/kafka"
)

// gate is a running tiergate process.
type gate struct {
	process *kafka.Process
	logPath string
	admin   string
}

// startGate is launchGate, and waits until /readyz is content.
func startGate(t *testing.T, ctx context.Context, config string) *gate {
	t.Helper()
	g := launchGate(t, config)
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := kafka.Poll(ready, "/readyz of tiergate", g.ready); err != nil {
		t.Fatalf("%v\n--- configuration\n%s", err, config)
	}
	return g
}

// launchGate runs `tiergate serve` with a configuration to which the address of the admin
// server is added. When the test ends it gets SIGTERM and must end with exit code 0.
func launchGate(t *testing.T, config string) *gate {
	t.Helper()
	dir := t.TempDir()
	ports, err := kafka.FreePorts(1)
	must(t, err)
	g := &gate{admin: kafka.Loopback(ports[0]), logPath: filepath.Join(dir, "tiergate.log")}
	file := filepath.Join(dir, "tiergate.yaml")
	config += fmt.Sprintf("admin:\n  address: %q\n", g.admin)
	must(t, os.WriteFile(file, []byte(config), 0o644))
	log, err := os.Create(g.logPath)
	must(t, err)
	defer log.Close()
	cmd := exec.Command(os.Getenv(binaryEnv), "serve", "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	g.process, err = kafka.StartProcess(cmd)
	must(t, err)
	t.Cleanup(func() { g.stop(t) })
	return g
}

// ready asks /readyz once.
func (g *gate) ready(ctx context.Context) error {
	select {
	case <-g.process.Done():
		return fmt.Errorf("tiergate ended: %w", g.process.Err())
	default:
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, body.Bytes())
	}
	return nil
}

// stop ends the process as a supervisor does and shows its log if anything failed.
func (g *gate) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	if err := g.process.Terminate(ctx); err != nil {
		t.Error(err)
	}
	if err := g.process.Err(); err != nil {
		t.Errorf("tiergate after SIGTERM: %v", err)
	}
	log, err := os.ReadFile(g.logPath)
	if err != nil {
		t.Error(err)
	}
	if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic")) {
		t.Error("tiergate's log shows a data race or a panic")
	}
	if t.Failed() {
		t.Logf("--- log of tiergate\n%s", log[max(0, len(log)-16*1024):])
	}
}
