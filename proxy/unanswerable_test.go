// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"tiergate/rewrite"
)

// A broker without -5 (Kafka 3.8 and earlier) is said once, however many sessions it
// has, and its answer passes as it is.
func TestBrokerWithoutLatestTieredIsSaidOnce(t *testing.T) {
	// ApiVersions 0: no error, one API, ListOffsets from 0 to 8.
	body := []byte{0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 8}
	b := newBroker(t, func(c *net.TCPConn) {
		if _, err := readFrame(c); err == nil {
			_, _ = c.Write(response(1, body...))
		}
	})
	j := &journal{}
	s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.Logger = slog.New(j) })
	for range 3 {
		c := connect(t, s)
		if _, err := c.Write(request(18, 0, 1)); err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(c); err != nil || !bytes.Equal(got, response(1, body...)) {
			t.Fatalf("got %x (%v), want %x", got, err, response(1, body...))
		}
	}
	if lines := j.with("WARN", "cannot be answered before this broker"); len(lines) != 1 {
		t.Fatalf("%d lines, want 1: %q", len(lines), lines)
	}
}
