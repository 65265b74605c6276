// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"tiergate/internal/testkit/recorder"
	gates "tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// stand is one broker and, while it is open, tiergate before it, twice: on a listener
// that rewrites addresses, and in direct mode. Recorders stand on the client's side of
// both (A), on the broker's side of the direct one (B), and on the broker's side of
// everything else, tiergate's own clients among it:
//
//	client > rewriteA, rewriteNodeA > tiergate "clients" > service > SERVICE
//	client > directA > tiergate "sidecar" > directB > SIDECAR
//
// SIDECAR is advertised as directA, SERVICE as service. The rewriting listener is on
// 127.0.0.2 and advertises 127.0.0.1, where its recorders listen on the same ports: so
// clients that follow an address meet a recorder again.
type stand struct {
	cluster *kafka.Cluster
	logs    []kafka.StateLog

	directAddress, serviceAddress string // advertised by the broker

	gate                   *gate
	rewriteA, rewriteNodeA *recorder.Recorder // bootstrap and the only node's port
	directA, directB       *recorder.Recorder
	service                *recorder.Recorder
}

// nodeID is that of the only broker of a stand.
const nodeID = 1

// newStand starts the broker; jvm are more options of its Java.
func newStand(t *testing.T, version string, jvm ...string) *stand {
	t.Helper()
	ports, err := kafka.FreePorts(2)
	must(t, err)
	s := &stand{directAddress: kafka.Loopback(ports[0]), serviceAddress: kafka.Loopback(ports[1])}
	s.cluster = gates.Brokers(t, kafka.Options{
		Version: version, TieredStorage: kafka.TieredStorageOn, Logger: progress(), JVM: jvm,
		Nodes: []kafka.NodeOptions{{NodeID: nodeID, Listeners: []kafka.Listener{
			{Name: "SIDECAR", Advertised: s.directAddress},
			{Name: "SERVICE", Advertised: s.serviceAddress},
		}}},
	})
	return s
}

// open starts tiergate and the recorders for the length of a test. mode is
// earliest_pending_upload.
func (s *stand) open(t *testing.T, ctx context.Context, mode string) {
	t.Helper()
	node := s.cluster.Node(nodeID)
	s.service = record(t, s.serviceAddress, node.ListenerAddress("SERVICE"))
	s.directB = record(t, "127.0.0.1:0", node.ListenerAddress("SIDECAR"))
	ports, err := kafka.FreePorts(4) // bootstrap, nodes 0 and 1, sidecar
	must(t, err)
	sidecar := kafka.Loopback(ports[3])
	s.gate = startGate(t, ctx, fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
listeners:
  - name: clients
    bootstrap: "127.0.0.2:%d"
    nodes: "127.0.0.2:%d-%d"
    advertised_host: "127.0.0.1"
  - name: sidecar
    direct: {%q: %q}
earliest_pending_upload: %s
`, s.serviceAddress, ports[0], ports[1], ports[2], sidecar, s.directB.Address(), mode))
	s.rewriteA = record(t, kafka.Loopback(ports[0]), "127.0.0.2:"+strconv.Itoa(ports[0]))
	s.rewriteNodeA = record(t, kafka.Loopback(ports[2]), "127.0.0.2:"+strconv.Itoa(ports[2]))
	s.directA = record(t, s.directAddress, sidecar)
}

// buildLogs brings one topic into each state.
func (s *stand) buildLogs(t *testing.T, ctx context.Context) {
	t.Helper()
	var err error
	s.logs, err = s.cluster.BuildLogStates(ctx, "state", kafka.LogStates())
	must(t, err)
}

// log returns the log that is in a state.
func (s *stand) log(t *testing.T, state string) kafka.StateLog {
	t.Helper()
	for _, l := range s.logs {
		if l.State.Name == state {
			return l
		}
	}
	t.Fatalf("no log state %q", state)
	return kafka.StateLog{}
}

// restart restarts the broker and waits until every log is in its state again.
func (s *stand) restart(t *testing.T, ctx context.Context) {
	t.Helper()
	must(t, s.cluster.Restart(ctx))
	must(t, kafka.AwaitSettled(ctx, s.logs))
}

// record starts a recorder for the length of a test.
func record(t *testing.T, listen, target string) *recorder.Recorder {
	t.Helper()
	r, err := recorder.Start(listen, target)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

// dial opens a raw connection for the length of a test.
func dial(t *testing.T, ctx context.Context, addr string) *kafka.Conn {
	t.Helper()
	c, err := kafka.Dial(ctx, addr, "endtoend")
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
