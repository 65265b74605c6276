// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lateListenEvery is the time between two tries of a lateListener.
const lateListenEvery = time.Second

// lateListener listens at an address whose port an outgoing connection of this machine holds:
// the kernel gives such connections ports of ip_local_port_range, and a configured port may be
// among these. The connection ends some time, so Accept tries until then.
type lateListener struct {
	log     *slog.Logger
	address string
	closing chan struct{}
	// unbound counts the server's listeners whose port is not bound yet.
	unbound *atomic.Int32

	mu     sync.Mutex
	got    net.Listener // nil: not yet
	closed bool
}

// listen returns a listener at the address of e. It is a lateListener where only connections
// hold the port; a port that somebody listens on is an error.
func (s *Server) listen(e Endpoint) (net.Listener, error) {
	ln, err := net.Listen("tcp", e.Address)
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) || !heldByConnections(e.Address) {
		return ln, err
	}
	log := s.log.With("listener", e.Listener, "broker", e.Broker, "address", e.Address)
	log.Warn("an outgoing connection of this machine holds this port: tiergate tries to listen on it every second and serves its other addresses; "+
		"keep such ports out of outgoing connections with net.ipv4.ip_local_reserved_ports", "error", err)
	late := &lateListener{log: log, address: e.Address, closing: make(chan struct{}), unbound: &s.unbound}
	s.unbound.Add(1)
	s.late = append(s.late, late)
	return late, nil
}

// Ready returns nil when every endpoint listens, else which does not. It may be called after
// Start.
func (s *Server) Ready() error {
	var faults []error
	for _, l := range s.late {
		if l.Addr() == nil {
			faults = append(faults, fmt.Errorf("not listening on %s yet: an outgoing connection holds the port", l.address))
		}
	}
	return errors.Join(faults...)
}

// Accept waits for the port first.
func (l *lateListener) Accept() (net.Conn, error) {
	for {
		ln, err := l.listen()
		if err != nil {
			return nil, err
		}
		if ln != nil {
			return ln.Accept()
		}
		select {
		case <-time.After(lateListenEvery):
		case <-l.closing:
		}
	}
}

// listen returns the listener; nil when the port cannot be had yet.
func (l *lateListener) listen() (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	if l.got == nil {
		ln, err := net.Listen("tcp", l.address)
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // it is tried again
		}
		l.got = ln
		l.unbound.Add(-1)
		l.log.Info("the port is free: listening")
	}
	return l.got, nil
}

// Close ends Accept. Calling it again does nothing.
func (l *lateListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.closing)
	if l.got == nil {
		l.unbound.Add(-1)
		return nil
	}
	return l.got.Close()
}

// Addr is nil until the port could be had.
func (l *lateListener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got == nil {
		return nil
	}
	return l.got.Addr()
}

// heldByConnections reports whether there are connections from the port of an address, and
// nobody listens on it. Only Linux tells; elsewhere the answer is no.
func heldByConnections(address string) bool {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return false
	}
	held := false
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		connected, listening := socketsAt(file, port)
		if listening {
			return false
		}
		held = held || connected
	}
	return held
}

// socketsAt reads a table of the kernel's sockets: the fields of a line are its number, the
// local address and port, the remote ones, and the state, all in hexadecimal, where 0A is
// LISTEN. Source: proc_net_tcp.rst of the kernel's documentation.
func socketsAt(file string, port uint64) (connected, listening bool) {
	table, err := os.Open(file)
	if err != nil {
		return false, false
	}
	defer func() { _ = table.Close() }()
	local := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasSuffix(fields[1], local) {
			continue
		}
		if fields[3] == "0A" {
			listening = true
		} else {
			connected = true
		}
	}
	return connected, listening
}
