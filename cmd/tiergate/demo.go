// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
)

// DemoCmd is `tiergate demo`: the main job on a simulated cluster in the process.
type DemoCmd struct {
	Keep    bool          `help:"Leave the cluster and tiergate running until Ctrl-C, to try your own clients on. The logs keep moving meanwhile."`
	Brokers int           `default:"3" help:"Number of simulated brokers, 1 to 9."`
	Port    uint16        `default:"0" help:"Port of tiergate's bootstrap address on 127.0.0.1; its ports for the brokers follow. 0: free ports."`
	Pace    time.Duration `default:"2s" help:"With --keep: time between two changes of the logs."`
}

// Help is shown by --help.
func (c *DemoCmd) Help() string {
	return `Needs nothing but this program: no Kafka, no Java, no network beyond 127.0.0.1.

A Kafka 4.1 cluster with tiered storage is simulated in the process and tiergate runs in front of it. ` +
		`Every partition is asked for its earliest pending upload offset (ListOffsets timestamp -6), directly and through ` +
		`tiergate, and what tiergate says is compared with what a Kafka 4.2+ broker would say of the same log.

The simulated topics have records: clients can produce and consume. Only remote storage is make-believe, a number that moves.

Examples:

    tiergate demo
    tiergate demo --keep --port 9192

Exit codes:

    0   every answer is the one of a Kafka 4.2+ broker
    1   the demo could not run
    2   an answer differs
    64  wrong command line`
}

// Validate is called by kong when the flags are parsed.
func (c *DemoCmd) Validate() error {
	switch {
	case c.Brokers < 1 || c.Brokers > 9:
		return fmt.Errorf("--brokers=%d: from 1 to 9 are possible", c.Brokers)
	case int(c.Port)+c.Brokers > math.MaxUint16:
		return fmt.Errorf("--port=%d: there must be %d ports after it", c.Port, c.Brokers)
	case c.Pace <= 0:
		return fmt.Errorf("--pace=%v: must be above 0", c.Pace)
	}
	return nil
}

// demoTimeout bounds everything up to the table. It takes well under a second.
const demoTimeout = 30 * time.Second

// Run ends when ctx does, at SIGINT or SIGTERM. What it prints goes to streams.Out.
func (c *DemoCmd) Run(ctx context.Context, streams *Streams) error {
	topics := sim.SampleTopics()
	cluster, err := sim.New(sim.Options{Brokers: c.Brokers, Topics: topics, SystemRemoteStorage: sim.RemoteStorageEnabled})
	if err != nil {
		return err
	}
	defer cluster.Close()
	d := &demo{cluster: cluster, topics: topics, out: streams.Out}
	stop, err := d.startProxy(ctx, int(c.Port), streams)
	if err != nil {
		return err
	}
	defer stop()
	if err := d.show(ctx); err != nil {
		return err
	}
	if c.Keep {
		return d.keep(ctx, c.Pace)
	}
	_, err = io.WriteString(d.out, demoNext)
	return err
}

// demo is a simulated cluster and a proxy in front of it.
type demo struct {
	cluster *sim.Cluster
	topics  []sim.Topic // for names and numbers of partitions
	through string      // bootstrap address of the proxy
	out     io.Writer
}

// startProxy runs tiergate before the cluster, as serve does with a configuration file
// but without the admin server. stop ends it.
func (d *demo) startProxy(ctx context.Context, port int, streams *Streams) (stop func(), err error) {
	for try := 1; ; try++ {
		first, err := demoPorts(port, 1+len(d.cluster.Addresses()))
		if err != nil {
			return nil, err
		}
		d.through = net.JoinHostPort("127.0.0.1", strconv.Itoa(first))
		stop, err = d.serve(ctx, first, streams)
		if port == 0 && errors.Is(err, syscall.EADDRINUSE) && try < demoPortTries {
			continue // somebody was faster
		}
		return stop, err
	}
}

func (d *demo) serve(ctx context.Context, first int, streams *Streams) (stop func(), err error) {
	text, err := demoProxyConfig(d.cluster.Addresses(), first)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse("the demo's configuration", text)
	if err != nil {
		return nil, err
	}
	log := newLogger(cfg.Log, streams.Err)
	tls, err := certs.New(cfg, log, nil) // none: the demo is plaintext
	if err != nil {
		return nil, err
	}
	to, err := newClusters(cfg, tls, log, nil)
	if err != nil {
		return nil, err
	}
	server, err := newServer(cfg, 0, to, tls, log, nil)
	if err != nil {
		to.close()
		return nil, err
	}
	stop = func() {
		_ = server.Close()
		to.close()
	}
	if err := server.Start(); err != nil {
		stop()
		return nil, explainListen(err)
	}
	to.start(ctx)
	return stop, nil
}

// demoPortTries bounds the search for free ports in a row, and the number of times that
// somebody else takes them first. On a machine that has just served many connections
// most ports of the kernel's range are in use.
const demoPortTries = 200

// demoPorts returns the first of n ports in a row that were free a moment ago: first
// itself, or any if that is 0.
func demoPorts(first, n int) (int, error) {
	if first != 0 {
		return first, demoFree(first, n)
	}
	var err error
	for range demoPortTries {
		var ln net.Listener
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		if port+n > math.MaxUint16 {
			continue
		}
		if err = demoFree(port, n); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row on 127.0.0.1: %w", n, err)
}

// demoFree returns an error unless all of n ports from first on can be listened on.
func demoFree(first, n int) error {
	for i := range n {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i)))
		if err != nil {
			return explainListen(err)
		}
		_ = ln.Close()
	}
	return nil
}

// demoProxyConfig is what somebody would write in a file to run tiergate before the
// simulated brokers.
func demoProxyConfig(brokers []string, port int) ([]byte, error) {
	servers, err := json.Marshal(brokers) // JSON is YAML
	return fmt.Appendf(nil, `upstream:
  bootstrap_servers: %s
listeners:
  - name: demo
    bootstrap: "127.0.0.1:%d"
    nodes: "127.0.0.1:%d-%d"
    advertised_host: "127.0.0.1"
log:
  level: warn
`, servers, port, port+1, port+len(brokers)), err
}

// keep lets the logs move at the given pace until ctx ends.
func (d *demo) keep(ctx context.Context, pace time.Duration) error {
	if _, err := fmt.Fprintf(d.out, `
tiergate answers at %[1]s until Ctrl-C, and the logs keep moving: ask twice.

  tiergate offsets --bootstrap-servers %[1]s
  kafka-get-offsets.sh --bootstrap-server %[1]s --time earliest-pending-upload    (Kafka 4.2 or later)
  kafka-console-consumer.sh --bootstrap-server %[1]s --topic orders --from-beginning

The brokers themselves are at %[2]s:
the same kafka-get-offsets.sh is refused there.
`, d.through, strings.Join(d.cluster.Addresses(), ",")); err != nil {
		return err
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.move(step); err != nil {
			return err
		}
	}
}

// Every demoUploadEvery-th step of a partition a segment is complete: all but the newest
// demoActive records are uploaded, and all but the newest demoLocal go from the disk.
const (
	demoUploadEvery = 4
	demoActive      = 20
	demoLocal       = 600
)

// move lets one step happen everywhere: records come in, and on some partitions a
// segment is uploaded.
func (d *demo) move(step int) error {
	n := 0
	for _, t := range d.topics {
		p := int32(0)
		for range t.Partitions {
			n++
			records, upload := int64(10+(7*n)%30), (step+n)%demoUploadEvery == 0
			err := d.cluster.Update(t.Name, p, func(log *tierlog.Log) {
				log.Append(records)
				if upload {
					log.Upload(log.LogEnd() - demoActive - 1)
					log.DeleteLocal(log.LogEnd() - demoLocal)
				}
			})
			if err != nil {
				return err
			}
			p++
		}
	}
	return nil
}
