// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	f := func(linked string, info *debug.BuildInfo, text, software string) {
		t.Helper()
		b := buildOf(linked, info)
		if got, want := b.String(), text+" "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := b.software(); got != software {
			t.Errorf("%q: software version %q, want %q", b.Version, got, software)
		}
	}
	of := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	at := debug.BuildSetting{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}

	f("", nil, "unknown", "unknown")
	f("", of(""), "unknown", "unknown")
	f("", of("(devel)"), "(devel)", "devel")
	f("", of("v0.1.0+dirty", revision, at, dirty), "v0.1.0+dirty (commit 0123456789ab, 2026-01-02T03:04:05Z, modified)", "v0.1.0-dirty")
	f("v1.2.3", of("(devel)", revision, at, clean), "v1.2.3 (commit 0123456789ab, 2026-01-02T03:04:05Z)", "v1.2.3")
	f("v1.2.3-4-gabc", of("v9", revision), "v1.2.3-4-gabc (commit 0123456789ab)", "v1.2.3-4-gabc")
	f("...", nil, "...", "unknown")
}
