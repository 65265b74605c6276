// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"tiergate/loadtest/report"
)

// CompareCmd is `tiergate-loadtest compare`.
type CompareCmd struct {
	Before string `arg:"" help:"report.json of the run to compare with." type:"existingfile"`
	After  string `arg:"" help:"report.json of the run in question." type:"existingfile"`
}

// Help is shown by --help.
func (c *CompareCmd) Help() string {
	return `Compares every figure that both reports have, and says which became worse by more than the rounds spread.

Example:

    tiergate-loadtest compare bin/load/before/report.json bin/load/report.json

Exit codes:

    0   nothing became worse
    1   a report could not be read
    2   something became worse, or verification found something in the second run
    64  wrong command line`
}

// Run prints the comparison.
func (c *CompareCmd) Run(streams *Streams) error {
	before, err := report.ReadFile(c.Before)
	if err != nil {
		return err
	}
	after, err := report.ReadFile(c.After)
	if err != nil {
		return err
	}
	comparison := report.Compare(before, after)
	if _, err := io.WriteString(streams.Out, comparison.Text()); err != nil {
		return err
	}
	if comparison.Regressed() {
		return &exitError{exitFailed}
	}
	return nil
}
