// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
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
	errTooManySessions = errors.New("the limit of sessions is reached (max_sessions, or what ulimit -n allows)")
	errTooManyOfClient = errors.New("max_sessions_per_client is reached")
	errDisplaced       = errors.New("all sessions are taken, and this client address has the most of them")
)

// refusals are all of them.
var refusals = []string{refusalSessions, refusalClient, refusalHandshake, refusalPending, refusalShortage}

// admission counts sessions against their limits. Its methods are safe for concurrent
// use: accept goroutines and loops call them.
//
// One client address may have all sessions that there are, as long as no other wants one:
// many clients behind one NAT or on one Kubernetes node are legitimate. When all are taken, a
// client of an address with fewer sessions gets the place of one of the address with most,
// until both have as many. So no address keeps the others out, and a health check, which has
// one connection, is always served. IPv6 addresses count by their /64 here: a client may
// choose among all of these.
type admission struct {
	// max bounds sessions; 0: nothing does.
	max, maxPerClient int

	mu   sync.Mutex
	open int
	// clients are the sessions of each address, shares those of each that shareOf returns.
	clients, shares map[netip.Addr]int
	// sizes is how many shares there are of each size, largest the largest size.
	sizes   map[int]int
	largest int
}

func newAdmission(most, mostPerClient int) admission {
	return admission{max: most, maxPerClient: mostPerClient, clients: map[netip.Addr]int{}, shares: map[netip.Addr]int{}, sizes: map[int]int{}}
}

// hopeless returns an error for a connection of a client that would get no session. A TLS
// handshake is not worth while then.
func (a *admission) hopeless(peer net.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full() && !a.claims(shareOf(peer)) {
		return a.tooMany()
	}
	return nil
}

func (a *admission) full() bool { return a.max > 0 && a.open >= a.max }

func (a *admission) tooMany() error { return fmt.Errorf("%w: %d", errTooManySessions, a.max) }

// claims reports whether a share has at least two sessions fewer than the largest has.
func (a *admission) claims(share netip.Addr) bool { return a.shares[share]+1 < a.largest }

// enter counts a session in.
func (a *admission) enter(peer net.Addr) error {
	addr := addrOf(peer)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.full():
		return a.tooMany()
	case a.maxPerClient > 0 && a.clients[addr] >= a.maxPerClient:
		return fmt.Errorf("%w: %d", errTooManyOfClient, a.maxPerClient)
	}
	a.open++
	if a.maxPerClient > 0 {
		a.clients[addr]++
	}
	a.resize(shareOf(peer), 1)
	return nil
}

// leave undoes enter.
func (a *admission) leave(peer net.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	a.resize(shareOf(peer), -1)
	if a.maxPerClient <= 0 {
		return
	}
	addr := addrOf(peer)
	if a.clients[addr]--; a.clients[addr] <= 0 {
		delete(a.clients, addr)
	}
}

// resize changes the number of sessions of a share by one.
func (a *admission) resize(share netip.Addr, by int) {
	if a.max <= 0 {
		return
	}
	size := a.shares[share]
	if a.sizes[size]--; a.sizes[size] <= 0 {
		delete(a.sizes, size)
	}
	size += by
	if size == 0 {
		delete(a.shares, share)
	} else {
		a.shares[share] = size
		a.sizes[size]++
	}
	a.largest = max(a.largest, size)
	if a.sizes[a.largest] == 0 {
		a.largest = size // it has just shrunk
	}
}

// batch is the part of all sessions that are closed at once where one must be: to find them
// takes a look at all.
const batch = 128

// heaviest returns the share with most sessions, and how many of these may go for a client of
// an address with fewer; none when it has no claim, or there is room already.
func (a *admission) heaviest(peer net.Addr) (share netip.Addr, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	mine := shareOf(peer)
	if !a.full() || !a.claims(mine) {
		return share, 0
	}
	for share, size := range a.shares {
		if size == a.largest {
			return share, min(max(1, a.max/batch), (a.largest-a.shares[mine])/2)
		}
	}
	return share, 0
}

// limit is how many sessions there can be; 0: any number.
func (a *admission) limit() int { return a.max }

// seat counts a session in, in the place of another one where that is right.
func (s *Server) seat(peer net.Addr) error {
	err := s.admission.enter(peer)
	if !errors.Is(err, errTooManySessions) {
		return err
	}
	// One at a time, or each of many newcomers would close its batch.
	s.displacing.Lock()
	defer s.displacing.Unlock()
	if err = s.admission.enter(peer); !errors.Is(err, errTooManySessions) {
		return err
	}
	if share, n := s.admission.heaviest(peer); n > 0 {
		s.displace(share, n)
		return s.admission.enter(peer)
	}
	return err
}

// displace ends n sessions of a share: those in which nothing is under way first, and of
// these the ones in which nothing has happened for longest.
func (s *Server) displace(share netip.Addr, n int) {
	all := make([][]seated, len(s.loops))
	if s.onLoops(s.ctx, func(l *loop) { all[slices.Index(s.loops, l)] = l.seatedOf(share, n) }) != nil {
		return
	}
	closing := map[*loop][]*session{}
	for _, v := range idlest(slices.Concat(all...), n) {
		closing[v.session.loop] = append(closing[v.session.loop], v.session)
	}
	_ = s.onLoops(s.ctx, func(l *loop) { // the newcomer ends with the server
		for _, session := range closing[l] {
			l.guard(session, func() {
				session.end(reasonDisplaced, fmt.Errorf("%w: the limit is %d (max_sessions, or what ulimit -n allows)", errDisplaced, s.admission.max))
			})
		}
	})
}

// seated is a session as displace sees it.
type seated struct {
	session *session
	holder
	busy int
}

// seatedOf returns the n sessions of a share that go first.
func (l *loop) seatedOf(share netip.Addr, n int) []seated {
	var all []seated
	for s := range l.sessions {
		if shareOf(s.peer) != share {
			continue
		}
		busy := 0
		if !s.idle() {
			busy = 1
		}
		all = append(all, seated{s, holder{active: s.lastActive, event: s.lastEvent}, busy})
	}
	return idlest(all, n)
}

// idlest returns the n that go first.
func idlest(all []seated, n int) []seated {
	slices.SortFunc(all, func(a, b seated) int {
		return cmp.Or(cmp.Compare(a.busy, b.busy), a.active.Compare(b.active), cmp.Compare(a.event, b.event))
	})
	return all[:min(n, len(all))]
}

// Descriptors that are not for sessions.
const (
	// ownDescriptors are for the admin port (64), the service client, files and loops.
	ownDescriptors = 160
	// pipePart and pendingPart are the parts of all descriptors that pipes and connections
	// without a session may have.
	pipePart, pendingPart = 16, 8
)

// share divides the descriptors that the process may have: it returns how many sessions there
// can be, and bounds pipes and connections without a session.
func (o *Options) share() (sessions int) {
	all := o.MaxDescriptors
	if o.MaxPipes > 0 {
		o.MaxPipes = min(o.MaxPipes, max(1, all/pipePart/2))
		all -= 2 * o.MaxPipes
	}
	if slices.ContainsFunc(o.Endpoints, func(e Endpoint) bool { return e.TLS != nil || e.ProxyProtocol != ProxyProtocolOff }) {
		o.MaxPendingConnections = min(o.MaxPendingConnections, max(1, o.MaxDescriptors/pendingPart))
		all -= o.MaxPendingConnections
	}
	return max(1, (all-ownDescriptors-len(o.Endpoints))/2)
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

// shareOf returns what stands for a peer where addresses have equal shares: its address, or
// the first one of its /64 for IPv6.
func shareOf(peer net.Addr) netip.Addr {
	addr := addrOf(peer)
	if !addr.Is6() {
		return addr
	}
	net, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return net.Addr()
}
