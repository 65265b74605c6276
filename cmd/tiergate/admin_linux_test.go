// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// idleAdmin opens a connection to the admin port, has one request answered and keeps it.
func (s *serving) idleAdmin(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: tiergate\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal("a health check after others that stay connected:", err)
	}
	defer resp.Body.Close()
	return c
}

// Idle connections to the admin port take no descriptors from Kafka clients, and do not keep
// later health checks out.
func TestIdleAdminConnections(t *testing.T) {
	const descriptors, idle = 400, 400
	s := newServing(t)
	s.start(t)
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: descriptors}, nil); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections() // of the wait for readiness
	var first net.Conn
	for i := range idle {
		c := s.idleAdmin(t)
		if i == 0 {
			first = c
		}
	}
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection that was idle for the longest is still open")
	}
	s.wantServed(t)
	closed, err := strconv.Atoi(s.metric(t, "tiergate_admin_connections_closed_total"))
	if err != nil || closed < idle-maxAdminConnections {
		t.Errorf("%d connections were closed (%v), want %d at the least", closed, err, idle-maxAdminConnections)
	}
	s.wantEnd(t)
}

// The connection that has no request for the longest makes room; where all have one, the new
// one does.
func TestAdminConnectionsThatMakeRoom(t *testing.T) {
	l, err := newLimitedListener(nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, maxAdminConnections)
	for i := range conns {
		conns[i] = new(net.TCPConn)
		if surplus := l.admit(conns[i]); surplus != nil {
			t.Fatalf("connection %d is one too many", i)
		}
		l.changed(conns[i], http.StateNew)
		l.changed(conns[i], http.StateActive)
	}
	f := func(want net.Conn) {
		t.Helper()
		c := net.Conn(new(net.TCPConn))
		surplus := l.admit(c)
		if want == nil {
			want = c
		}
		if surplus != want {
			t.Errorf("%p made room, want %p", surplus, want)
		}
		if surplus != c {
			l.changed(c, http.StateActive)
			l.changed(surplus, http.StateClosed)
		}
	}
	f(nil)
	l.changed(conns[3], http.StateIdle)
	l.changed(conns[2], http.StateIdle)
	l.changed(conns[7], http.StateIdle)
	l.changed(conns[2], http.StateActive)
	f(conns[3])
	f(conns[7])
	f(nil)
	l.changed(conns[2], http.StateClosed)
	if surplus := l.admit(new(net.TCPConn)); surplus != nil {
		t.Error("there is no room after a connection has closed")
	}
	f(nil)
}

// A request with headers of 64 KiB is refused.
func TestAdminHeaderLimit(t *testing.T) {
	s := newServing(t)
	s.start(t)
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+s.admin+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want %d", resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
	}
	s.wantEnd(t)
}
