// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// maxNodes bounds the map: an upstream that invents node ids must not take the
	// proxy's memory. Ten times the largest clusters told of in public.
	maxNodes = 10_000
	// missedSyncs is the number of whole broker lists in a row that a node may be
	// missing from before it is forgotten. A broker that is down is not in Metadata
	// answers, and is dialed at its old address as soon as it is back.
	missedSyncs = 20
)

// Node is a broker as clients of the upstream listener are told of it.
type Node struct {
	NodeID int32
	Host   string // without brackets, also when it is an IPv6 address
	Port   int32
	Rack   string // empty when the broker has none, or nothing has told of it yet
}

// Address is host:port to dial, with brackets where Host is an IPv6 address.
func (n Node) Address() string {
	return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
}

// valid is false for what stands in answers that name no broker, such as
// FindCoordinator's node -1 at ":-1".
func (n Node) valid() bool {
	return n.NodeID >= 0 && n.Host != "" && n.Port > 0 && n.Port <= 65535
}

// Nodes is the map of node ids to addresses. Readers never lock and never block;
// writers replace the whole map when something has changed, which is rare. The zero
// value is an empty map. All methods are safe for concurrent use.
type Nodes struct {
	mu    sync.Mutex // of writers
	state atomic.Pointer[nodeSet]
}

// nodeSet is immutable.
type nodeSet struct {
	sorted []Node        // by NodeID
	missed map[int32]int // whole lists in a row without the node; no entry is 0
}

func (s *nodeSet) find(nodeID int32) (int, bool) {
	if s == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(s.sorted, nodeID, func(n Node, id int32) int { return cmp.Compare(n.NodeID, id) })
}

// Get returns the node with the given id.
func (m *Nodes) Get(nodeID int32) (Node, bool) {
	s := m.state.Load()
	i, ok := s.find(nodeID)
	if !ok {
		return Node{}, false
	}
	return s.sorted[i], true
}

// ByAddress returns the node with the given address, as Address writes it.
func (m *Nodes) ByAddress(address string) (Node, bool) {
	for _, n := range m.Snapshot() {
		if n.Address() == address {
			return n, true
		}
	}
	return Node{}, false
}

// Snapshot returns all nodes, sorted by node id. The slice is shared and never
// changes: callers must not write to it, and may keep it.
func (m *Nodes) Snapshot() []Node {
	s := m.state.Load()
	if s == nil {
		return nil
	}
	return slices.Clip(s.sorted)
}

// Observe takes the nodes that one response names and returns whether they changed the map.
// An empty Rack leaves the known one: not every response has it. What cannot be a broker
// (negative id, no host, port outside 1-65535) is ignored, and so are new nodes once
// 10,000 are known. Nodes that change nothing take no lock and no memory; those that do
// cost one copy of the map, however many they are.
func (m *Nodes) Observe(nodes ...Node) bool {
	if !m.state.Load().learns(nodes) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, changed := m.state.Load().with(nodes)
	m.state.Store(next)
	return changed
}

// learns reports whether a map with nodes would be another than s.
func (s *nodeSet) learns(nodes []Node) bool {
	full := s != nil && len(s.sorted) >= maxNodes
	return slices.ContainsFunc(nodes, func(n Node) bool {
		if !n.valid() || s.says(n) {
			return false
		}
		_, known := s.find(n.NodeID)
		return known || !full
	})
}

// says whether s has n already, with nothing to add.
func (s *nodeSet) says(n Node) bool {
	i, ok := s.find(n.NodeID)
	if !ok {
		return false
	}
	if n.Rack == "" {
		n.Rack = s.sorted[i].Rack
	}
	return s.sorted[i] == n && s.missed[n.NodeID] == 0
}

// Missed returns how many whole lists in a row the node has been missing from.
func (m *Nodes) Missed(nodeID int32) int {
	s := m.state.Load()
	if s == nil {
		return 0
	}
	return s.missed[nodeID]
}

// Sync is told of a whole list of the cluster's live brokers and returns whether
// the map has changed. Nodes that are not in the list stay for 20 lists more: a
// broker that restarts is not in it either. But when another node has the address now,
// the node is gone at once: who asks for it must not reach the other. An empty list says
// nothing (a broker that has just started may give one).
func (m *Nodes) Sync(live []Node) bool {
	live = slices.DeleteFunc(slices.Clone(live), func(n Node) bool { return !n.valid() })
	if len(live) == 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, changed := m.state.Load().with(live)
	forgot := next.miss(live)
	m.state.Store(next)
	return changed || forgot
}

// with returns a copy of s that has the valid ones of nodes too, their count of misses zero.
func (s *nodeSet) with(nodes []Node) (next *nodeSet, changed bool) {
	next = &nodeSet{missed: make(map[int32]int)}
	if s != nil {
		next.sorted = slices.Clone(s.sorted)
		for id, n := range s.missed {
			next.missed[id] = n
		}
	}
	added := map[int32]Node{}
	for _, n := range nodes {
		if !n.valid() {
			continue
		}
		if i, ok := next.find(n.NodeID); ok {
			n.Rack = cmp.Or(n.Rack, next.sorted[i].Rack)
			changed = changed || next.sorted[i] != n
			next.sorted[i] = n
			delete(next.missed, n.NodeID)
			continue
		}
		before, again := added[n.NodeID]
		if again || len(next.sorted)+len(added) < maxNodes {
			n.Rack = cmp.Or(n.Rack, before.Rack)
			added[n.NodeID] = n
		}
	}
	if len(added) > 0 {
		next.sorted = slices.AppendSeq(next.sorted, maps.Values(added))
		slices.SortFunc(next.sorted, func(a, b Node) int { return cmp.Compare(a.NodeID, b.NodeID) })
	}
	return next, changed || len(added) > 0
}

// miss counts the nodes that are not in live and drops those that were missing for
// too long, or whose place another has taken. It is called before s is shared.
func (s *nodeSet) miss(live []Node) (forgot bool) {
	present := make(map[int32]struct{}, len(live))
	taken := make(map[string]struct{}, len(live))
	for _, n := range live {
		present[n.NodeID] = struct{}{}
		taken[n.Address()] = struct{}{}
	}
	s.sorted = slices.DeleteFunc(s.sorted, func(n Node) bool {
		if _, ok := present[n.NodeID]; ok {
			return false
		}
		s.missed[n.NodeID]++
		if _, gone := taken[n.Address()]; !gone && s.missed[n.NodeID] <= missedSyncs {
			return false
		}
		delete(s.missed, n.NodeID)
		forgot = true
		return true
	})
	return forgot
}
