// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"tiergate/loadtest/load"
)

// progress shows a run: on a terminal a line that changes every second, elsewhere only
// the lines that stay.
type progress struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	shown bool // the line that changes is on the screen
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// clearLine goes back to the start of the line and erases it (ECMA-48).
const clearLine = "\r\x1b[K"

// Say is a line that stays.
func (p *progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// clear needs p.mu.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.out, clearLine)
		p.shown = false
	}
}

// Second shows where a turn is.
func (p *progress) Second(s load.Second) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprint(p.out, line(s))
	p.shown = true
}

// widest is how much of the line that changes is shown: a line that wraps cannot be erased.
const widest = 100

// line is one second in a line.
func line(s load.Second) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d/%d %s", s.Phase, s.Round, s.Rounds, s.Target)
	if s.Elapsed <= 0 {
		fmt.Fprintf(&b, " warming up")
	} else {
		fmt.Fprintf(&b, " %s of %s", s.Elapsed.Round(time.Second), s.Duration.Round(time.Second))
	}
	for i, p := range s.Points {
		fmt.Fprintf(&b, " | %s %d/s", s.Workloads[i], p.Operations)
		if p.Bytes > 1e6 {
			fmt.Fprintf(&b, " %.0f MB/s", float64(p.Bytes)/1e6)
		}
		if p.P99 > 0 {
			fmt.Fprintf(&b, " p99 %s", time.Duration(p.P99*1e3).Round(10*time.Microsecond))
		}
		if p.Errors > 0 {
			fmt.Fprintf(&b, " %d ERRORS", p.Errors)
		}
	}
	text := b.String()
	if len(text) > widest {
		text = text[:widest-3] + "..."
	}
	return text
}

// done leaves a clean line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
