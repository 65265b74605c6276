// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"
	"slices"

	"tiergate/codec"
)

// addressEdits collects the edits that replace the addresses of one response.
type addressEdits struct {
	rules *Rules
	edits []codec.Edit
	// unmapped are the nodes without an address of their own, one for each time that
	// such a node was named with its address.
	unmapped []int32
	// named are the nodes with the addresses that they came with, for Rules.Nodes.
	named []Node
	// text has the addresses that edits put in, one after the other.
	text []byte
	drop drop
}

// observe passes on the nodes that were named, once the response is understood.
func (a *addressEdits) observe() {
	if len(a.named) > 0 {
		a.rules.Nodes.ObserveNodes(a.named)
	}
}

// drop says what becomes of node endpoints.
type drop uint8

const (
	// keepEndpoints rewrites them.
	keepEndpoints drop = iota
	// dropEndpoints leaves an empty array: they are a hint that clients can do without.
	dropEndpoints
)

// fate is what becomes of the address of a node.
type fate uint8

const (
	// fateKept: it stays as it came.
	fateKept fate = iota
	// fateReplaced: clients are told another.
	fateReplaced
	// fateHidden: what names the node has to be taken out.
	fateHidden
)

// of decides about the address of a node, and notes a node that has none of its own.
func (a *addressEdits) of(nodeID int32) (host string, port int32, f fate) {
	host, port, mapped := a.rules.Addresses.Advertised(nodeID)
	if mapped {
		return host, port, fateReplaced
	}
	a.unmapped = append(a.unmapped, nodeID)
	switch a.rules.Unmapped {
	case UnmappedHide:
		return "", 0, fateHidden
	case UnmappedPassthrough:
		return "", 0, fateKept
	case UnmappedReject:
	}
	return host, port, fateReplaced
}

// replace adds an edit of the bytes from one offset of the cursor to another.
func (a *addressEdits) replace(from, to int, with []byte) {
	a.edits = append(a.edits, codec.Edit{From: from, To: to, With: with})
}

// node reads node id, host and port, which stand in this order in every response
// that has all three, and replaces the last two. "No node" (an empty host, as
// FindCoordinator has it beside an error) stays as it is. Of a hidden node it changes
// nothing: that is the caller's to do.
func (a *addressEdits) node(c *codec.Cursor) fate {
	nodeID := c.Int32()
	from := c.Off()
	host := c.String()
	port := c.Int32()
	if c.Err() != nil || len(host) == 0 {
		return fateKept
	}
	if a.rules.Nodes != nil {
		a.named = append(a.named, Node{NodeID: nodeID, Host: string(host), Port: port})
	}
	newHost, newPort, f := a.of(nodeID)
	if f == fateReplaced {
		start := len(a.text)
		a.text = binary.BigEndian.AppendUint32(codec.AppendString(a.text, c.Encoding(), newHost), uint32(newPort))
		// When text grows, edits from before keep the array that they point into.
		a.replace(from, c.Off(), a.text[start:len(a.text):len(a.text)])
	}
	return f
}

// nodes walks an array of nodes: id, host, port, what rest reads, tags. Hidden ones are
// taken out.
func (a *addressEdits) nodes(c *codec.Cursor, minSize int, rest func()) {
	a.elements(c, minSize, func() fate {
		f := a.node(c)
		rest()
		c.Tags()
		return f
	})
}

// elements walks an array of which element reads one, cuts out what is hidden, and
// corrects the length.
func (a *addressEdits) elements(c *codec.Cursor, minSize int, element func() fate) {
	lenOff, edits, cut := c.Off(), len(a.edits), 0
	n := c.ArrayLen(minSize)
	first := c.Off()
	for i := 0; i < n && c.Err() == nil; i++ {
		from := c.Off()
		if element() == fateHidden && c.Err() == nil {
			a.replace(from, c.Off(), nil)
			cut++
		}
	}
	if cut > 0 {
		length := codec.Edit{From: lenOff, To: first, With: codec.AppendArrayLen(nil, c.Encoding(), n-cut)}
		a.edits = slices.Insert(a.edits, edits, length)
	}
}

// controller reads the controller's node id. Where that node is hidden it becomes -1: no
// controller is known.
func (a *addressEdits) controller(c *codec.Cursor) {
	from := c.Off()
	nodeID := c.Int32()
	if c.Err() != nil || nodeID < 0 || a.rules.Unmapped != UnmappedHide {
		return
	}
	if _, _, mapped := a.rules.Addresses.Advertised(nodeID); !mapped {
		a.replace(from, c.Off(), []byte{0xff, 0xff, 0xff, 0xff})
	}
}
