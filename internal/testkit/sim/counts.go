// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request names a kind of request that reached a broker.
type Request struct {
	NodeID  int32
	Key     kmsg.Key
	Version int16
}

// counts are of client requests; those of the simulation's own client are not in.
type counts struct {
	mu sync.Mutex
	of map[Request]int
}

// count notes a request as it came off the wire, before anything is changed.
func (c *Cluster) count(nodeID int32, key, version int16, frame []byte) {
	c.counts.mu.Lock()
	if c.counts.of == nil {
		c.counts.of = make(map[Request]int)
	}
	c.counts.of[Request{nodeID, kmsg.Key(key), version}]++
	c.counts.mu.Unlock()
	if c.options.OnRequest != nil {
		c.options.OnRequest(nodeID, frame)
	}
}

// Requests returns how many requests of each kind the brokers have read since the
// start or the last ResetRequests.
func (c *Cluster) Requests() map[Request]int {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	return maps.Clone(c.counts.of)
}

// RequestsOf is the sum of Requests over nodes and versions for one API.
func (c *Cluster) RequestsOf(key kmsg.Key) int {
	n := 0
	for r, of := range c.Requests() {
		if r.Key == key {
			n += of
		}
	}
	return n
}

// ResetRequests starts the count anew.
func (c *Cluster) ResetRequests() {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	clear(c.counts.of)
}
