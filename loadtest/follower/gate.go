// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tiergate/loadtest/kafka"
)

// Binary returns the path of tiergate: built into dir when this runs in its source tree,
// else the one beside this program, or the one in PATH.
func Binary(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "tiergate")
	out, buildErr := exec.CommandContext(ctx, "go", "build", "-o", binary, "tiergate/cmd/tiergate").CombinedOutput()
	if buildErr == nil {
		return binary, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "tiergate")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if path, err := exec.LookPath("tiergate"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("no tiergate beside this program or in PATH, and building it failed: %w\n%s", buildErr, out)
}

// gate is a running tiergate process with one listener before all nodes of a cluster.
type gate struct {
	process   *kafka.Process
	bootstrap string
	admin     string
	logPath   string
}

// startGate runs `tiergate serve` in dir and waits until it is ready.
func startGate(ctx context.Context, binary, dir string, cluster *kafka.Cluster) (*gate, error) {
	nodes := cluster.Nodes()
	ports, err := kafka.FreePorts(2 + len(nodes))
	if err != nil {
		return nil, err
	}
	g := &gate{admin: kafka.Loopback(ports[0]), bootstrap: kafka.Loopback(ports[1]), logPath: filepath.Join(dir, "tiergate.log")}
	config := fmt.Sprintf(`
upstream:
  bootstrap_servers: ["%s"]
listeners:
  - name: followers
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    first_node_id: %d
    advertised_host: "127.0.0.1"
admin:
  address: %q
`, strings.Join(cluster.BootstrapServers(), `", "`), g.bootstrap, ports[2], ports[len(ports)-1], nodes[0].NodeID(), g.admin)
	file := filepath.Join(dir, "tiergate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(g.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(binary, "serve", "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	if g.process, err = kafka.StartProcess(cmd); err != nil {
		return nil, fmt.Errorf("start tiergate: %w", err)
	}
	if err := kafka.Poll(ctx, "/readyz of tiergate", g.ready); err != nil {
		g.process.Kill()
		output, _ := os.ReadFile(g.logPath)
		return nil, fmt.Errorf("%w\n%s", err, output)
	}
	return g, nil
}

// ready asks /readyz once.
func (g *gate) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

// stop ends the process as a supervisor does.
func (g *gate) stop() error {
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
