// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package output writes to standard error and standard output without waiting for whoever
// reads them: a pipe whose reader stalls blocks its writer for as long as that lasts.
package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a Queue. An endpoint logs at most 20 faults in 10 seconds, so 8,192 lines are more
// than an hour of one that has nothing but faults.
const (
	maxLines = 8192
	maxBytes = 4 << 20
)

// reportEvery is the time between two reports of dropped lines while lines are still
// waiting.
const reportEvery = time.Second

// Queue is an io.Writer that returns at once. A goroutine of its own passes the lines on.
// When the queue is full, or the writer behind it fails, lines are dropped and counted.
// All methods are safe for concurrent use.
type Queue struct {
	to    io.Writer
	lines chan []byte
	// bytes is the length of what is in lines.
	bytes   atomic.Int64
	dropped atomic.Uint64
	// closing ends when Close is called, ended when nothing is written any more.
	closing chan struct{}
	close   sync.Once
	ended   chan struct{}

	mu sync.Mutex
	// gap is what was dropped since the last report.
	gap Gap
	// failed is the error of the last write.
	failed error
	report func(Gap) []byte
	// reported is the time of the last report.
	reported time.Time
}

// Gap is a number of lines that are missing in the output.
type Gap struct {
	Lines uint64
	// Since is when the first of them was dropped.
	Since time.Time
}

// NewQueue returns a queue in front of to. The caller closes it.
func NewQueue(to io.Writer) *Queue {
	q := &Queue{to: to, lines: make(chan []byte, maxLines), closing: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write takes one line, as the handlers of slog write them. It keeps a copy and never
// fails: the line may be dropped later.
func (q *Queue) Write(line []byte) (int, error) {
	if q.bytes.Add(int64(len(line))) > maxBytes {
		q.bytes.Add(-int64(len(line)))
		q.drop()
		return len(line), nil
	}
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.bytes.Add(-int64(len(line)))
		q.drop()
	}
	return len(line), nil
}

// ReportWith sets what makes the line that reports dropped lines. Without it none is
// written. It is called by the queue's goroutine and must not write to the queue.
func (q *Queue) ReportWith(report func(Gap) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.report = report
}

// Dropped is the number of lines that were dropped since the start.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Close waits until every line is written, or until ctx ends. The error says why some were
// not. Lines written later are lost.
func (q *Queue) Close(ctx context.Context) error {
	q.close.Do(func() { close(q.closing) })
	select {
	case <-q.ended:
	case <-ctx.Done():
		return fmt.Errorf("its reader does not read: %w", ctx.Err())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil && q.gap.Lines > 0 {
		return errors.New("there was more than fits in the queue")
	}
	return q.failed
}

// run writes lines until Close, and then those that are left.
func (q *Queue) run() {
	defer close(q.ended)
	for {
		select {
		case line := <-q.lines:
			q.put(line)
			continue
		case <-q.closing:
		}
		break
	}
	for {
		select {
		case line := <-q.lines:
			q.put(line)
		default:
			return
		}
	}
}

// put writes one line and, where lines are missing in the output, a report of these.
func (q *Queue) put(line []byte) {
	_, err := q.to.Write(line)
	q.bytes.Add(-int64(len(line)))
	now := time.Now()
	q.mu.Lock()
	q.failed = err
	due := err == nil && q.gap.Lines > 0 && q.report != nil && (len(q.lines) == 0 || now.Sub(q.reported) >= reportEvery)
	gap, report := q.gap, q.report
	if due {
		q.gap, q.reported = Gap{}, now
	}
	q.mu.Unlock()
	if err != nil {
		q.drop()
	}
	if !due {
		return
	}
	if _, err := q.to.Write(report(gap)); err != nil {
		q.missing(gap)
	}
}

// drop counts a line that was dropped.
func (q *Queue) drop() {
	q.dropped.Add(1)
	q.missing(Gap{1, time.Now()})
}

// missing adds to what the next report says.
func (q *Queue) missing(more Gap) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gap.Lines == 0 || more.Since.Before(q.gap.Since) {
		q.gap.Since = more.Since
	}
	q.gap.Lines += more.Lines
}
