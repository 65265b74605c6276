// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job of tiergate on a simulated cluster: each partition is
// asked for its earliest pending upload offset, directly and through a tiergate process,
// and the response is compared with that of a Kafka 4.2+ broker.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"tiergate/codec"
	"tiergate/internal/testkit/sim"
	"tiergate/internal/testkit/tierlog"
	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// Options of a demo.
type Options struct {
	// Binary is the tiergate program.
	Binary string
	// Brokers is the number of simulated brokers.
	Brokers int
	// Port of tiergate's bootstrap address on 127.0.0.1; its ports for the brokers follow.
	// 0: free ports.
	Port int
	// Pace, when above 0, leaves all running after the table, with this time between two
	// changes of the logs, until ctx ends.
	Pace time.Duration
	// Out takes what is shown.
	Out io.Writer
}

// timeout bounds everything up to the table. It takes about a second.
const timeout = 30 * time.Second

// Run shows the demo. A response that differs from a Kafka 4.2+ broker's is ErrDiffers.
func Run(ctx context.Context, o Options) error {
	topics := sim.SampleTopics()
	cluster, err := sim.New(sim.Options{Brokers: o.Brokers, Topics: topics, SystemRemoteStorage: codec.RemoteStorageEnabled})
	if err != nil {
		return err
	}
	defer cluster.Close()
	d := &demo{cluster: cluster, topics: topics, out: o.Out}
	stop, err := d.startProxy(ctx, o.Binary, o.Port)
	if err != nil {
		return err
	}
	defer stop()
	if err := d.show(ctx); err != nil {
		return err
	}
	if o.Pace > 0 {
		return d.keep(ctx, o.Pace)
	}
	_, err = io.WriteString(d.out, next)
	return err
}

// demo is a simulated cluster and a proxy in front of it.
type demo struct {
	cluster *sim.Cluster
	topics  []sim.Topic // for names and numbers of partitions
	through string      // bootstrap address of the proxy
	gate    *gate.Gate  // the proxy
	out     io.Writer
}

// startProxy runs tiergate in front of the cluster. stop ends it.
func (d *demo) startProxy(ctx context.Context, binary string, port int) (stop func(), err error) {
	if port == 0 {
		ports, err := kafka.FreePorts(1 + len(d.cluster.Addresses()))
		if err != nil {
			return nil, err
		}
		port = ports[0]
	}
	d.through = kafka.Loopback(port)
	config, err := proxyConfig(d.cluster.Addresses(), port)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "tiergate-demo-")
	if err != nil {
		return nil, err
	}
	if d.gate, err = gate.Start(ctx, gate.Options{Binary: binary, Folder: folder, Config: config}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return func() {
		d.gate.Kill()
		_ = os.RemoveAll(folder)
	}, nil
}

// proxyConfig is what somebody would write in a file to run tiergate in front of the
// simulated brokers.
func proxyConfig(brokers []string, port int) (string, error) {
	servers, err := json.Marshal(brokers) // JSON is YAML
	return fmt.Sprintf(`upstream:
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
		case <-d.gate.Process().Done():
			return fmt.Errorf("tiergate ended by itself:\n%s", d.gate.LogTail())
		case <-ticker.C:
		}
		if err := d.move(step); err != nil {
			return err
		}
	}
}

// Every uploadEvery-th step of a partition a segment is complete: all but the newest
// activeRecords records are uploaded, and all but the newest localRecords go from the disk.
const (
	uploadEvery   = 4
	activeRecords = 20
	localRecords  = 600
)

// move lets one step happen everywhere: records come in, and on some partitions a
// segment is uploaded.
func (d *demo) move(step int) error {
	n := 0
	for _, t := range d.topics {
		p := int32(0)
		for range t.Partitions {
			n++
			records, upload := int64(10+(7*n)%30), (step+n)%uploadEvery == 0
			err := d.cluster.Update(t.Name, p, func(log *tierlog.Log) {
				log.Append(records)
				if upload {
					log.Upload(log.LogEnd() - activeRecords - 1)
					log.DeleteLocal(log.LogEnd() - localRecords)
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
