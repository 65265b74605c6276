// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Why a connection gets no session: the values of a metric's label.
const (
	refusalSessions  = "sessions"
	refusalClient    = "sessions_per_client"
	refusalHandshake = "handshake"
	refusalPending   = "pending_connections"
	refusalShortage  = "local_shortage"
)

var (
	errTooManySessions = errors.New("max_sessions is reached")
	errTooManyOfClient = errors.New("max_sessions_per_client is reached")
)

// refusals are all of them.
var refusals = []string{refusalSessions, refusalClient, refusalHandshake, refusalPending, refusalShortage}

// admission counts sessions against their limits. Its methods are safe for concurrent
// use: accept goroutines and loops call them.
type admission struct {
	max, maxPerClient int

	mu      sync.Mutex
	open    int
	clients map[netip.Addr]int
}

// enter counts a connection in, before it has said anything.
func (a *admission) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.max > 0 && a.open >= a.max {
		return fmt.Errorf("%w: %d", errTooManySessions, a.max)
	}
	a.open++
	return nil
}

// leave undoes enter.
func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
}

// identify counts a connection to its client's address; enter came first.
func (a *admission) identify(peer net.Addr) error {
	if a.maxPerClient <= 0 {
		return nil
	}
	addr := addrOf(peer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clients[addr] >= a.maxPerClient {
		return fmt.Errorf("%w: %d", errTooManyOfClient, a.maxPerClient)
	}
	a.clients[addr]++
	return nil
}

// forget undoes identify and enter.
func (a *admission) forget(peer net.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	if a.maxPerClient <= 0 {
		return
	}
	addr := addrOf(peer)
	if a.clients[addr]--; a.clients[addr] <= 0 {
		delete(a.clients, addr)
	}
}

// paced waits until AcceptRate allows one more connection: this one waits here, those
// behind it in the kernel's queue. It reports false when the server closes first.
func (s *Server) paced() bool {
	if s.pace == nil || s.pace.Allow() {
		return true
	}
	s.metrics.delayed.Inc()
	return s.pace.Wait(s.ctx) == nil
}

// addrOf returns the IP address of a peer; an IPv4 address that came over IPv6 is the
// same client.
func addrOf(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}
