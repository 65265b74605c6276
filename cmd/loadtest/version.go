// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by -ldflags "-X main.version=..." and never changed.
var version string

// VersionCmd is `tiergate-loadtest version`.
type VersionCmd struct{}

// Run prints the version.
func (c *VersionCmd) Run(streams *Streams) error {
	_, err := fmt.Fprintln(streams.Out, "tiergate-loadtest", tool(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return err
}

// tool is the version for reports.
func tool() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(version, module, "unknown")
}
