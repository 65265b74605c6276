// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"

	"tiergate/codec"
)

// addressEdits collects the edits that replace the addresses of one response.
type addressEdits struct {
	rules *Rules
	// base is the offset of the cursor's first byte in the frame.
	base     int
	edits    []codec.Edit
	unmapped []int32
	drop     drop
}

// drop says what becomes of node endpoints.
type drop uint8

const (
	// keepEndpoints rewrites them.
	keepEndpoints drop = iota
	// dropEndpoints leaves an empty array: they are a hint that clients can do without.
	dropEndpoints
)

// node reads node id, host and port, which stand in this order in every response
// that has all three, and replaces the last two.
func (a *addressEdits) node(c *codec.Cursor) {
	nodeID := c.Int32()
	a.address(c, nodeID)
}

// address reads host and port of a node and replaces them. "No node" (an empty host,
// as FindCoordinator has it beside an error) stays as it is.
func (a *addressEdits) address(c *codec.Cursor, nodeID int32) {
	from := c.Off()
	host := c.String()
	port := c.Int32()
	if c.Err() != nil || len(host) == 0 {
		return
	}
	if a.rules.Nodes != nil {
		a.rules.Nodes.ObserveNode(nodeID, string(host), port)
	}
	newHost, newPort, mapped := a.rules.Addresses.Advertised(nodeID)
	if !mapped {
		a.unmapped = append(a.unmapped, nodeID)
	}
	with := codec.AppendString(nil, c.Encoding(), newHost)
	with = binary.BigEndian.AppendUint32(with, uint32(newPort))
	a.edits = append(a.edits, codec.Edit{From: a.base + from, To: a.base + c.Off(), With: with})
}
