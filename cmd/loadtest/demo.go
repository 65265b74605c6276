// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"tiergate/loadtest/demo"
	"tiergate/loadtest/gate"
)

// DemoCmd is `tiergate-loadtest demo`.
type DemoCmd struct {
	Keep     bool          `help:"Leave the cluster and tiergate running until Ctrl-C, to try your own clients on. The logs keep moving meanwhile."`
	Brokers  int           `default:"3" help:"Number of simulated brokers, 1 to 9."`
	Port     uint16        `default:"0" help:"Port of tiergate's bootstrap address on 127.0.0.1; its ports for the brokers follow. 0: free ports."`
	Pace     time.Duration `default:"2s" help:"With --keep: time between two changes of the logs."`
	Tiergate string        `help:"The tiergate binary. Default: built from source here, or the one beside this program or in PATH." placeholder:"FILE" type:"existingfile"`
}

// Help is shown by --help.
func (c *DemoCmd) Help() string {
	return `Needs nothing but this program and tiergate: no Kafka, no Java, no network beyond 127.0.0.1.

A Kafka 4.1 cluster with tiered storage is simulated in this process and tiergate runs in front of it. ` +
		`Every partition is asked for its earliest pending upload offset (ListOffsets timestamp -6), directly and through ` +
		`tiergate, and what tiergate says is compared with what a Kafka 4.2+ broker would say of the same log.

The simulated topics have records: clients can produce and consume. Only remote storage is make-believe, a number that moves.

Examples:

    tiergate-loadtest demo
    tiergate-loadtest demo --keep --port 9192

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

// Run ends at the first SIGINT or SIGTERM.
func (c *DemoCmd) Run(stop Stop, streams *Streams) error {
	if c.Tiergate == "" {
		folder, err := os.MkdirTemp("", "tiergate-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		if c.Tiergate, err = gate.Binary(stop.Soon, folder); err != nil {
			return err
		}
	}
	o := demo.Options{Binary: c.Tiergate, Brokers: c.Brokers, Port: int(c.Port), Out: streams.Out}
	if c.Keep {
		o.Pace = c.Pace
	}
	err := demo.Run(stop.Soon, o)
	if errors.Is(err, demo.ErrDiffers) {
		fmt.Fprintln(streams.Err, "tiergate-loadtest:", err)
		return &exitError{exitFailed}
	}
	return err
}
