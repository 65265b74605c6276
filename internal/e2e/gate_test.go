// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	gates "tiergate/internal/testkit/stand"
)

// gate is a running tiergate process.
type gate struct{ *gates.Gate }

// startGate runs tiergate for the length of a test, and waits until it is ready.
func startGate(t *testing.T, ctx context.Context, config string) *gate {
	t.Helper()
	return &gate{gates.Start(t, ctx, config)}
}

// counter returns the sum of a metric's series whose labels contain text.
func (g *gate) counter(t *testing.T, ctx context.Context, name, labels string) int {
	t.Helper()
	n, err := g.Metric(ctx, name, labels)
	must(t, err)
	return int(n)
}

// warnings are the lines of the log at level WARN, from msg= on, without clients' ports.
func (g *gate) warnings(t *testing.T) []string {
	t.Helper()
	log, err := os.ReadFile(g.LogPath())
	must(t, err)
	var lines []string
	for line := range strings.Lines(string(log)) {
		if _, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " level=WARN "); ok {
			if before, after, ok := strings.Cut(rest, " client="); ok {
				_, after, _ = strings.Cut(after, " ")
				rest = before + " " + after
			}
			lines = append(lines, rest)
		}
	}
	return lines
}
