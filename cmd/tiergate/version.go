// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set by -ldflags "-X main.version=..." and never changed.
var version string

// VersionCmd is `tiergate version`.
type VersionCmd struct{}

// Help is shown by --help.
func (c *VersionCmd) Help() string {
	return `Prints one line: the version, the commit it was built from, the Go release and the platform.

Example:

    $ tiergate version
    tiergate v0.1.0 (commit 1a2b3c4d5e6f, 2026-01-02T03:04:05Z) go1.26.0 linux/amd64`
}

// Run prints the version.
func (c *VersionCmd) Run(streams *Streams) error {
	_, err := fmt.Fprintln(streams.Out, "tiergate", readBuild())
	return err
}

// build is what is known of how the binary was made.
type build struct {
	Version  string // "unknown" when nobody said
	Revision string // the commit, 12 digits; empty when not known
	Time     string // of the commit, RFC 3339; empty when not known
	Modified string // "modified" when the work tree had changes, else empty
	Go       string
	Platform string
}

// readBuild puts together what the linker and the Go tool noted in the binary.
func readBuild() build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(version, info)
}

func buildOf(linked string, info *debug.BuildInfo) build {
	b := build{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.time":
				b.Time = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				b.Modified = "modified"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "unknown")
	return b
}

// String returns "v0.1.0 (commit 1a2b3c4d5e6f, 2026-01-02T03:04:05Z) go1.26.0 linux/amd64".
func (b build) String() string {
	text := b.Version
	if b.Revision != "" {
		text += " (commit " + b.Revision
		for _, more := range []string{b.Time, b.Modified} {
			if more != "" {
				text += ", " + more
			}
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}

// software is the version in the form that brokers accept of a client (KIP-511):
// letters, digits, "-" and ".", the outer ones letters or digits. ApiVersions with
// anything else, such as "(devel)" or "v0.1.0+dirty", is answered with INVALID_REQUEST.
// Source: ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN.
func (b build) software() string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, b.Version)
	return cmp.Or(strings.Trim(plain, "-."), "unknown")
}
