// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"strings"

	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// startGate runs tiergate in dir with one listener in front of all nodes of a cluster, and
// returns it with the listener's bootstrap address when it is ready.
func startGate(ctx context.Context, binary, dir string, cluster *kafka.Cluster) (g *gate.Gate, bootstrap string, err error) {
	nodes := cluster.Nodes()
	ports, err := kafka.FreePorts(1 + len(nodes))
	if err != nil {
		return nil, "", err
	}
	bootstrap = kafka.Loopback(ports[0])
	g, err = gate.Start(ctx, gate.Options{Binary: binary, Folder: dir, Config: fmt.Sprintf(`
upstream:
  bootstrap_servers: ["%s"]
listeners:
  - name: followers
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    first_node_id: %d
    advertised_host: "127.0.0.1"
`, strings.Join(cluster.BootstrapServers(), `", "`), bootstrap, ports[1], ports[len(ports)-1], nodes[0].NodeID())})
	return g, bootstrap, err
}
