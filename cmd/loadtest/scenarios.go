// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"tiergate/loadtest/load"
)

// ScenariosCmd is `tiergate-loadtest scenarios`.
type ScenariosCmd struct {
	Name string `arg:"" optional:"" help:"Print the YAML of this scenario, to make one of your own from."`
}

// Help is shown by --help.
func (c *ScenariosCmd) Help() string {
	return `Examples:

    tiergate-loadtest scenarios
    tiergate-loadtest scenarios quick > mine.yaml
    tiergate-loadtest run mine.yaml`
}

// Run lists the scenarios, or prints one.
func (c *ScenariosCmd) Run(streams *Streams) error {
	if c.Name != "" {
		s, err := load.Open(c.Name)
		if err != nil {
			return err
		}
		_, err = io.WriteString(streams.Out, s.Text)
		return err
	}
	list, err := load.Scenarios()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 3, ' ', 0)
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Time(), s.About)
	}
	return w.Flush()
}
