// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// unmappedPort is told for a node that not even a longer range could serve. Nothing
// serves Kafka at port 1, so a client that tries it fails at once and stays with the proxy's
// other addresses.
const unmappedPort = 1

// PortRange advertises nodes at consecutive ports of one host: node FirstNodeID at
// FirstPort, the next node id at the next port, Count of them. It is immutable and
// safe for concurrent use.
type PortRange struct {
	// Host is what clients are told, without brackets if it is an IPv6 literal.
	Host string
	// FirstNodeID is the node id at FirstPort.
	FirstNodeID int32
	// FirstPort is from 1 to 65535.
	FirstPort int32
	// Count is the number of ports; FirstPort+Count-1 is 65535 at the most.
	Count int32
	// Taken are the ports, sorted, that other endpoints of this proxy listen on. A
	// node outside the range is never told one of them: its client would reach
	// another node there and not notice.
	Taken []int32
}

// Advertised implements Addresses. A node outside the range gets the port that it
// would have if the range reached that far, so that lengthening the range later moves
// no node; where that is no port at all (below 1 or above 65535), or one of Taken, it
// gets port 1.
func (r PortRange) Advertised(nodeID int32) (host string, port int32, mapped bool) {
	// int64: node ids go up to MaxInt32, and the sum must not wrap.
	index := int64(nodeID) - int64(r.FirstNodeID)
	p := index + int64(r.FirstPort)
	if index >= 0 && index < int64(r.Count) {
		return r.Host, int32(p), true
	}
	if p < 1 || p > math.MaxUint16 {
		return r.Host, unmappedPort, false
	}
	if _, taken := slices.BinarySearch(r.Taken, int32(p)); taken {
		return r.Host, unmappedPort, false
	}
	return r.Host, int32(p), false
}

// Growth implements Addresses: every node of the range once, whose own host has one
// letter. Ports have a fixed width.
func (r PortRange) Growth() int {
	return min(int(r.Count)*len(r.Host), maxGrowth)
}

// maxGrowth bounds Growth: of the nodes of a large cluster few are new leaders in one
// response, and all the room is padding when none is.
const maxGrowth = 1 << 10

// Address is a host, without brackets if it is an IPv6 literal, and a port from 1 to
// 65535.
type Address struct {
	Host string
	Port int32
}

// NodeTable advertises each node at an address of its own. It is immutable and safe for
// concurrent use.
type NodeTable struct {
	nodes  map[int32]Address
	other  string
	growth int
}

// NewNodeTable returns the table of nodes, at least one, and keeps the map.
func NewNodeTable(nodes map[int32]Address) *NodeTable {
	t := &NodeTable{nodes: nodes}
	first := int32(math.MaxInt32)
	for nodeID, a := range nodes {
		t.growth = min(t.growth+len(a.Host), maxGrowth)
		if nodeID <= first {
			first, t.other = nodeID, a.Host
		}
	}
	return t
}

// Advertised implements Addresses. A node that is not in the table is told at port 1 of
// the host of the node with the lowest id.
func (t *NodeTable) Advertised(nodeID int32) (host string, port int32, mapped bool) {
	if a, ok := t.nodes[nodeID]; ok {
		return a.Host, a.Port, true
	}
	return t.other, unmappedPort, false
}

// Growth implements Addresses, like PortRange.
func (t *NodeTable) Growth() int { return t.growth }

// NodeNames advertises every node at one port and at a host name of its own: Before, the
// node id in decimal, After. It is immutable and safe for concurrent use.
type NodeNames struct {
	// Before and After are in lower case.
	Before, After string
	// Port is from 1 to 65535.
	Port int32
}

// Advertised implements Addresses: every node id has a name.
func (n NodeNames) Advertised(nodeID int32) (host string, port int32, mapped bool) {
	if nodeID < 0 {
		return n.Host(0), unmappedPort, false
	}
	return n.Host(nodeID), n.Port, true
}

// Host returns the name of a node.
func (n NodeNames) Host(nodeID int32) string {
	return n.Before + strconv.Itoa(int(nodeID)) + n.After
}

// Node returns the node that a name is of, in whatever case it is written.
func (n NodeNames) Node(host string) (nodeID int32, ok bool) {
	digits, before := strings.CutPrefix(strings.ToLower(host), n.Before)
	digits, after := strings.CutSuffix(digits, n.After)
	id, err := strconv.ParseInt(digits, 10, 32)
	if !before || !after || err != nil || strconv.FormatInt(id, 10) != digits || id < 0 {
		return 0, false
	}
	return int32(id), true
}

// namedAtOnce is the number of nodes that one response is expected to name at most, of
// as many as there may be.
const namedAtOnce = 16

// Growth implements Addresses.
func (n NodeNames) Growth() int {
	return min(namedAtOnce*len(n.Host(math.MaxInt16)), maxGrowth)
}
