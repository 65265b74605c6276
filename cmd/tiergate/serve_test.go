// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tiergate/cmd/tiergate/output"
	"tiergate/internal/testkit/sim"
)

// lockedBuffer is written to by a server and read by a test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// queued is standard error of a command that runs in the test.
func queued(t *testing.T, w io.Writer) *output.Queue {
	t.Helper()
	q := output.NewQueue(w)
	t.Cleanup(func() { _ = q.Close(context.Background()) })
	return q
}

// await asks until ok, for 20 s at the most.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s did not come", what)
		case <-tick.C:
		}
	}
}

// A served proxy that is stopped leaves no goroutine behind.
func TestServeLeavesNothingRunning(t *testing.T) {
	cluster, err := sim.New(sim.Options{Brokers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var out, log lockedBuffer
	stderr := queued(t, &log)
	before := goleak.IgnoreCurrent()
	first, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	cfg := parsed(t, fmt.Sprintf(`
upstream: {bootstrap_servers: ["%s"]}
listeners: [{name: clients, bootstrap: "127.0.0.1:%d", nodes: "127.0.0.1:%d-%d", advertised_host: 127.0.0.1}]
admin: {address: "127.0.0.1:%d"}
`, cluster.Addresses()[0], first, first+1, first+1, first+2))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(cfg, 0, Stop{Soon: ctx, Now: t.Context()}, &Streams{Out: &out, Err: stderr}) }()
	await(t, "the map", func() bool { return out.String() != "" })
	client, err := net.Dial("tcp", cfg.Listeners[0].Bootstrap.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	cluster.CloseConnections()
	goleak.VerifyNone(t, before)
}
