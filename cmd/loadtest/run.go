// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tiergate/loadtest/load"
	"tiergate/loadtest/report"
)

// RunCmd is `tiergate-loadtest run`.
type RunCmd struct {
	Scenario string        `arg:"" help:"A YAML file, or the name of a built-in scenario."`
	Cluster  string        `help:"Where brokers come from, instead of what the scenario says: real (started here; needs Java 17 and Maven), sim (simulated in this process), or HOST:PORT,... of an existing cluster." placeholder:"real|sim|HOST:PORT"`
	Target   []string      `help:"Only these targets, by name. May be given several times." placeholder:"NAME"`
	Duration time.Duration `help:"Measured time of every phase, instead of what the scenario says." placeholder:"TIME"`
	Rounds   int           `help:"Rounds of every phase, instead of what the scenario says." placeholder:"N"`
	Out      string        `help:"Folder for report.json, report.html and report.md, and for configurations and logs of what is started." default:"bin/load" placeholder:"DIR"`
	Doc      string        `help:"Also put the tables of a whole run into this Markdown file, between its marks." placeholder:"FILE" type:"existingfile"`
}

// Help is shown by --help.
func (c *RunCmd) Help() string {
	return `Starts the scenario's clusters and proxies, puts load on every target in turns, reads every record back, and prints a report. ` +
		`The same report is in the folder of --out: report.html has plots, report.json is for "compare".

Ctrl-C ends the run and reports what there is so far, verified; a second one drops everything.

Examples:

    tiergate-loadtest run quick
    tiergate-loadtest run maximum-and-half --target direct --target tiergate --rounds 2
    tiergate-loadtest run endurance --duration 2m
    tiergate-loadtest run mine.yaml --cluster kafka-0:9092 --out /tmp/report

Exit codes:

    0   all was measured and verified, and every bound of the scenario holds
    1   the scenario is wrong, or the run could not begin or go on
    2   a record was lost, doubled, out of order or corrupt, an answer was wrong, a bound does not hold, or not all was measured
    64  wrong command line`
}

// Validate is called by kong when the flags are parsed.
func (c *RunCmd) Validate() error {
	switch {
	case c.Duration < 0:
		return fmt.Errorf("--duration=%v: must be above 0", c.Duration)
	case c.Rounds < 0:
		return fmt.Errorf("--rounds=%d: must be above 0", c.Rounds)
	}
	return nil
}

// Run runs the scenario and writes the reports.
func (c *RunCmd) Run(stop Stop, streams *Streams) error {
	scenario, err := load.Open(c.Scenario)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o750); err != nil {
		return err
	}
	logs := filepath.Join(c.Out, "logs")
	if err := os.RemoveAll(logs); err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o750); err != nil {
		return err
	}
	logs, err = filepath.Abs(logs)
	if err != nil {
		return err
	}
	shown := newProgress(streams.Err)
	r, runErr := load.Run(stop.Soon, load.Options{
		Scenario: scenario, Tool: tool(), Cluster: c.Cluster, Targets: c.Target, Duration: c.Duration, Rounds: c.Rounds,
		Folder: logs, Progress: shown, Now: stop.Now,
	})
	shown.done()
	if r == nil {
		return runErr
	}
	if runErr != nil || r.Interrupted {
		c.Doc = "" // what stands there is better than half a run
	}
	if err := c.write(r, streams); err != nil {
		return err
	}
	switch {
	case runErr != nil:
		return runErr
	case r.Verdict.Outcome != report.Passed:
		return &exitError{exitFailed}
	}
	return nil
}

// write prints the report and keeps it in all its forms.
func (c *RunCmd) write(r *report.Run, streams *Streams) error {
	text := report.Text(r)
	for name, write := range map[string]func(io.Writer) error{
		"report.json": func(w io.Writer) error { return report.WriteJSON(w, r) },
		"report.html": func(w io.Writer) error { return report.HTML(w, r) },
		"report.md":   func(w io.Writer) error { _, err := io.WriteString(w, text); return err },
	} {
		if err := report.WriteFile(filepath.Join(c.Out, name), write); err != nil {
			return err
		}
	}
	if c.Doc != "" {
		if err := load.InsertInto(c.Doc, r); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(streams.Out, "%s\nPlots: %s\n", text, filepath.Join(c.Out, "report.html"))
	return err
}
