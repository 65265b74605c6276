// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// print writes the table.
func (t *offsetTable) print(w io.Writer) error {
	header := []string{"TOPIC", "PARTITION", "LEADER"}
	for _, c := range columns() {
		header = append(header, c.name)
	}
	lines := [][]string{append(header, "RECORDS PENDING")}
	for _, r := range t.rows {
		lines = append(lines, r.line())
	}
	return printNumbers(w, lines)
}

func (r *partitionRow) line() []string {
	line := []string{r.topic, strconv.Itoa(int(r.partition)), dashBelowZero(int64(r.leader))}
	for _, c := range r.cells {
		line = append(line, c.String())
	}
	pending := "-"
	if n, known := r.pending(); known {
		pending = strconv.FormatInt(n, 10)
	}
	return append(line, pending)
}

func dashBelowZero(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// String returns what stands in the table.
func (c cell) String() string {
	switch c.state {
	case cellAnswered:
		return dashBelowZero(c.offset)
	case cellUnsupported:
		return "unsupported"
	case cellFailed:
		var code *kerr.Error
		if errors.As(c.err, &code) {
			return code.Message
		}
		return "unreachable"
	case cellUnanswered:
	}
	return "unanswered"
}

// problem says why there is no offset, "" if there is one or none is due: the code of
// a broker's error, or the text of another.
func (c cell) problem() string {
	var code *kerr.Error
	switch {
	case c.state == cellAnswered:
		return ""
	case c.state == cellFailed && !errors.As(c.err, &code):
		return c.err.Error()
	}
	return c.String()
}

// printNumbers aligns a table: the first column to the left, numbers to the right.
func printNumbers(w io.Writer, lines [][]string) error {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], len(text))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		fmt.Fprintf(&b, "%-*s", widths[0], line[0])
		for i, text := range line[1:] {
			fmt.Fprintf(&b, "  %*s", widths[i+1], text)
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// partitionJSON is one line of --json. Its keys are documented in Help.
type partitionJSON struct {
	Topic          string            `json:"topic"`
	Partition      int32             `json:"partition"`
	Leader         *int64            `json:"leader"`
	LogStart       *int64            `json:"log_start"`
	LocalLogStart  *int64            `json:"local_log_start"`
	LatestTiered   *int64            `json:"latest_tiered"`
	PendingUpload  *int64            `json:"earliest_pending_upload"`
	End            *int64            `json:"end"`
	RecordsPending *int64            `json:"records_pending"`
	Errors         map[string]string `json:"errors,omitempty"`
}

// printJSON writes one JSON object per line.
func (t *offsetTable) printJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	for _, r := range t.rows {
		line := partitionJSON{
			Topic: r.topic, Partition: r.partition, Leader: nullBelowZero(int64(r.leader)),
			LogStart:      r.cells[columnLogStart].nullable(),
			LocalLogStart: r.cells[columnLocalLogStart].nullable(),
			LatestTiered:  r.cells[columnLatestTiered].nullable(),
			PendingUpload: r.cells[columnPendingUpload].nullable(),
			End:           r.cells[columnEnd].nullable(),
		}
		if n, known := r.pending(); known {
			line.RecordsPending = &n
		}
		for i, c := range columns() {
			if p := r.cells[i].problem(); p != "" {
				if line.Errors == nil {
					line.Errors = map[string]string{}
				}
				line.Errors[c.json] = p
			}
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// nullable returns the offset if there is one.
func (c cell) nullable() *int64 {
	if c.state != cellAnswered {
		return nil
	}
	return nullBelowZero(c.offset)
}

func nullBelowZero(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
