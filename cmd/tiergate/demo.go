// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
)

// DemoCmd is `tiergate demo`: the main job on a simulated cluster in the process.
type DemoCmd struct{}

// Run ends when ctx does, at SIGINT or SIGTERM. What it prints goes to streams.Out.
func (c *DemoCmd) Run(ctx context.Context, streams *Streams) error {
	return errors.New("not built yet")
}
