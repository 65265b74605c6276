// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"tiergate/loadtest/follower"
	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// FollowerCmd is `tiergate-loadtest follower`.
type FollowerCmd struct {
	Kafka    []string `help:"Kafka versions, each with three brokers of its own. Default: an older one and a native one." placeholder:"VERSION"`
	Only     string   `help:"all: the table and the headline; table: small topics, every case; headline: one large topic." enum:"all,table,headline" default:"all"`
	Tiergate string   `help:"The tiergate binary. Default: built from source here, or the one beside this program or in PATH." placeholder:"FILE" type:"existingfile"`
	JSON     string   `help:"Also write all rows, with every decision, to this file." placeholder:"FILE"`
}

// Help is shown by --help.
func (c *FollowerCmd) Help() string {
	return `Starts real brokers with tiered storage (needs Java 17 and Maven), stops one, and plays its replicas: how many bytes does an empty replica copy until it is in the ISR, ` +
		`with ListOffsets -6 (KIP-1023) and without? Older brokers are asked through tiergate, native ones directly and through tiergate; all must do the same. docs/follower.md explains the table.

Examples:

    tiergate-loadtest follower
    tiergate-loadtest follower --only headline --kafka 4.1.1
    tiergate-loadtest follower --json bin/follower.json

Exit codes:

    0   every replica ended up in sync and whole, with the same decisions everywhere
    1   one did not, or the run could not begin or go on
    64  wrong command line`
}

// Run plays the followers and writes the tables.
func (c *FollowerCmd) Run(stop Stop, streams *Streams) error {
	if len(c.Kafka) == 0 {
		c.Kafka = []string{kafka.Kafka41, kafka.Kafka43}
	}
	if err := kafka.Check(stop.Soon, c.Kafka...); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tiergate-follower-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	options := follower.Options{Versions: c.Kafka, Binary: c.Tiergate, Logger: slog.New(slog.NewTextHandler(streams.Err, nil))}
	if options.Binary == "" {
		if options.Binary, err = gate.Binary(stop.Soon, dir); err != nil {
			return err
		}
	}
	if c.Only != "headline" {
		options.Cases = follower.Cases()
	}
	if c.Only != "table" {
		shape := follower.Headline()
		options.Headline = &shape
	}
	report, runErr := follower.Run(stop.Soon, options)
	if report != nil {
		if err := c.write(report, streams); err != nil {
			return err
		}
	}
	return runErr
}

// write writes the tables, and the file if one is wanted.
func (c *FollowerCmd) write(report *follower.Report, streams *Streams) error {
	if err := report.WriteText(streams.Out); err != nil {
		return err
	}
	if c.JSON == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.JSON), 0o750); err != nil {
		return err
	}
	file, err := os.Create(c.JSON)
	if err != nil {
		return err
	}
	if err := report.WriteJSON(file); err != nil {
		file.Close()
		return fmt.Errorf("%s: %w", c.JSON, err)
	}
	return file.Close()
}
