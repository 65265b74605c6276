// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// nextPort is the address with the port after that of another one.
func nextPort(t *testing.T, address string) string {
	t.Helper()
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(addr.Addr(), addr.Port()+1).String()
}

// holdPort opens a connection from an address. Nothing of it is left when it is closed.
func holdPort(t *testing.T, from string) net.Conn {
	t.Helper()
	somewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = somewhere.Close() })
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))}
	c, err := dialer.DialContext(t.Context(), "tcp", somewhere.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.(*net.TCPConn).SetLinger(0); err != nil { // no TIME_WAIT after it
		t.Fatal(err)
	}
	return c
}

// A node's port that an outgoing connection holds: all else is served, /readyz says what is
// missing, and the port is listened on once it is free.
func TestPortHeldByConnection(t *testing.T) {
	s := newServing(t)
	node := nextPort(t, s.bootstrap)
	outgoing := holdPort(t, node)
	s.launch(t)
	await(t, "readiness that names the port", func() bool {
		return s.get(t, "/readyz") == "503 not ready: not listening on "+node+" yet: an outgoing connection holds the port\n"
	})
	if got := s.metric(t, "tiergate_unbound_ports"); got != "1" {
		t.Errorf("tiergate_unbound_ports is %q while the port is held, want 1", got)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(within(t)); err != nil {
		t.Error("the bootstrap address does not serve:", err)
	}
	if got := s.lines("an outgoing connection of this machine holds this port"); len(got) != 1 || !strings.Contains(got[0], "level=WARN") {
		t.Errorf("warnings: %q", got)
	}
	_ = outgoing.Close()
	await(t, "readiness", func() bool { return s.get(t, "/readyz") == "200 ready\n" })
	if got := s.metric(t, "tiergate_unbound_ports"); got != "0" {
		t.Errorf("tiergate_unbound_ports is %q, want 0", got)
	}
	direct, err := kgo.NewClient(kgo.SeedBrokers(node))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if err := direct.Ping(within(t)); err != nil {
		t.Error("the node's address does not serve:", err)
	}
	s.wantServed(t)
	s.wantEnd(t)
}

// The process ends while the port is still held.
func TestPortHeldUntilTheEnd(t *testing.T) {
	s := newServing(t)
	holdPort(t, s.bootstrap)
	s.launch(t)
	await(t, "an answer of /readyz", func() bool {
		return strings.HasPrefix(s.get(t, "/readyz"), "503 not ready: not listening on "+s.bootstrap)
	})
	s.wantEnd(t)
}
