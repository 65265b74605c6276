// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tiergate/loadtest/abuse"
	"tiergate/loadtest/gate"
	"tiergate/loadtest/load"
)

// AbuseCmd is `tiergate-loadtest abuse`.
type AbuseCmd struct {
	Attack   []string      `help:"Only this attack, by its name in the table. May be given several times." placeholder:"NAME" sep:"none"`
	Target   []string      `help:"Only this proxy: tiergate or haproxy. May be given several times." enum:"tiergate,haproxy" placeholder:"NAME"`
	Duration time.Duration `help:"How long each attack lasts." default:"10s" placeholder:"TIME"`
	Within   time.Duration `help:"The time in which an exchange of a well-behaved client must be complete." default:"2s" placeholder:"TIME"`
	Clients  int           `help:"Number of well-behaved clients." default:"50" placeholder:"N"`
	Tiergate string        `help:"The tiergate binary. Default: built from source here, or the one beside this program or in PATH." placeholder:"FILE" type:"existingfile"`
	Out      string        `help:"Folder for abuse.json, abuse.md, and for configurations and logs of what is started." default:"bin/abuse" placeholder:"DIR"`
	Doc      string        `help:"Also put the table into this Markdown file, between its marks." placeholder:"FILE" type:"existingfile"`
}

// Help is shown by --help.
func (c *AbuseCmd) Help() string {
	return `Attacks a tiergate process, and HAProxy in TCP mode where the attack applies to it, while well-behaved clients use it, and prints peak memory, ` +
		`CPU, and how many of these clients were served in time. Needs Linux; everything is on loopback. docs/abuse.md has the table and explains it.

Examples:

    tiergate-loadtest abuse
    tiergate-loadtest abuse --attack "half frames" --target tiergate --duration 5s

Exit codes:

    0   all clients were served in time, and memory stayed within its bound, in every attack on tiergate
    1   the run could not begin or go on
    2   an attack on tiergate did not hold
    64  wrong command line`
}

// Run makes the attacks and writes the table.
func (c *AbuseCmd) Run(stop Stop, streams *Streams) error {
	if err := os.MkdirAll(c.Out, 0o750); err != nil {
		return err
	}
	folder, err := filepath.Abs(c.Out)
	if err != nil {
		return err
	}
	if c.Tiergate == "" {
		if c.Tiergate, err = gate.Binary(stop.Soon, folder); err != nil {
			return err
		}
	}
	r, err := abuse.Run(stop.Soon, abuse.Options{
		Binary: c.Tiergate, Attacks: c.Attack, Targets: c.Target, Duration: c.Duration, Within: c.Within, Clients: c.Clients, Folder: folder,
		Progress: func(row abuse.Row) {
			fmt.Fprintf(streams.Err, "%s, %s: peak %d MiB, %d of %d served %q %s\n", row.Attack, row.Target, row.PeakBytes>>20, row.Served, row.Clients, row.Faults, row.Busy)
		},
	})
	if err != nil {
		return err
	}
	if err := c.write(r, streams); err != nil {
		return err
	}
	if !r.Held() {
		return &exitError{exitFailed}
	}
	return nil
}

// write prints the table and keeps it in all its forms.
func (c *AbuseCmd) write(r *abuse.Report, streams *Streams) error {
	rows, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"abuse.json": append(rows, '\n'), "abuse.md": []byte(r.Text())} {
		if err := os.WriteFile(filepath.Join(c.Out, name), text, 0o600); err != nil {
			return err
		}
	}
	if c.Doc != "" {
		document, err := os.ReadFile(c.Doc)
		if err == nil {
			document, err = load.Insert(document, "abuse", r.Text())
		}
		if err == nil {
			err = os.WriteFile(c.Doc, document, 0o600) //nolint:gosec // the caller names the file, which keeps its permissions
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Doc, err)
		}
	}
	_, err = fmt.Fprint(streams.Out, r.Text())
	return err
}
