// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a writer that blocks until mayRead is closed, and fails while broken is true.
type pipe struct {
	bytes.Buffer
	mayRead chan struct{}
	broken  atomic.Bool
}

var errBroken = errors.New("broken pipe")

func (p *pipe) Write(b []byte) (int, error) {
	<-p.mayRead
	if p.broken.Load() {
		return 0, errBroken
	}
	return p.Buffer.Write(b)
}

// stalled returns a queue in front of a reader that reads after back is called.
func stalled() (q *Queue, p *pipe, back func()) {
	p = &pipe{mayRead: make(chan struct{})}
	q = NewQueue(p)
	q.ReportWith(func(g Gap) []byte { return fmt.Appendf(nil, "%d since %v\n", g.Lines, g.Since.Format(time.TimeOnly)) })
	return q, p, func() { close(p.mayRead) }
}

func write(t *testing.T, q *Queue, lines int, text string) {
	t.Helper()
	for range lines {
		if n, err := q.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
}

// wantDropped fills a queue whose reader stalls, wants so many lines dropped, and wants the
// rest written with a report once the reader is back.
func wantDropped(t *testing.T, lines int, text string, want uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q, p, back := stalled()
		write(t, q, 1, "first\n")
		synctest.Wait() // it is being written
		<-time.After(time.Minute)
		write(t, q, lines, text)
		if got := q.Dropped(); got != want {
			t.Errorf("%d lines of %d bytes: %d dropped, want %d", lines, len(text), got, want)
		}
		back()
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wrote := strings.SplitAfter(p.String(), "\n")
		report := ""
		if want > 0 {
			report = fmt.Sprintf("%d since 00:01:00\n", want)
		}
		rest := strings.Join(wrote[1:], "")
		if wrote[0] != "first\n" || strings.Count(rest, text) != lines-int(want) || strings.Replace(rest, report, "", 1) != strings.Repeat(text, lines-int(want)) {
			t.Errorf("%d lines, want %d and %q:\n%.200s", len(wrote), lines-int(want), report, p.String())
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	wantDropped(t, maxLines, "line\n", 0)
	wantDropped(t, maxLines+5, "line\n", 5)
	// The bytes of the line that is being written count.
	kib := strings.Repeat("x", 1023) + "\n"
	wantDropped(t, 4096, kib, 1)
	wantDropped(t, 4095, kib, 0)
}

// What cannot be written is lost; the next line that can be is followed by a report.
func TestQueueReportsFailedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p, back := stalled()
		back()
		p.broken.Store(true)
		write(t, q, 3, "lost\n")
		synctest.Wait()
		p.broken.Store(false)
		<-time.After(time.Minute)
		write(t, q, 1, "seen\n")
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got, want := p.String(), "seen\n3 since 00:00:00\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Close waits no longer than it may.
func TestQueueCloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _, back := stalled()
		defer back()
		write(t, q, 2, "line\n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time is over", err)
		}
	})
}

func TestQueueCloseSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p, back := stalled()
		back()
		p.broken.Store(true)
		write(t, q, 1, "line\n")
		if err := q.Close(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want %v", err, errBroken)
		}
	})
}
