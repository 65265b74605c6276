// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"math"
	"slices"
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

// maxGrowth bounds Growth: of the nodes of a large cluster few are new leaders in one
// response, and all the room is padding when none is.
const maxGrowth = 1 << 10

// Growth implements Addresses: every node of the range once, whose own host has one
// letter. Ports have a fixed width.
func (r PortRange) Growth() int {
	return min(int(r.Count)*len(r.Host), maxGrowth)
}
