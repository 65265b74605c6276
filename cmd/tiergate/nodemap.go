// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"

	"tiergate/config"
	"tiergate/upstream"
)

// mapRow is one line of the map of addresses.
type mapRow struct {
	Listener string
	// Serves says who is behind: "bootstrap", "node 3", "nodes 10-99" or "direct".
	Serves string
	// Advertised is what clients are told, "-" where that is nothing.
	Advertised string
	// Listens is the address that is bound.
	Listens string
	// Broker is the address behind, or "not known yet".
	Broker string
}

const (
	brokerUnknown = "not known yet"
	// unknownRun is the number of neighbouring nodes without a known broker from which
	// on they share a line.
	unknownRun = 4
)

// nodeMap lists who can be reached where. nodes are the brokers known so far.
func nodeMap(c *config.Config, nodes []upstream.Node) []mapRow {
	known := make(map[int32]string, len(nodes))
	for _, n := range nodes {
		known[n.NodeID] = n.Address()
	}
	var rows []mapRow
	for _, l := range c.Listeners {
		name := string(l.Name)
		for _, r := range l.Direct {
			rows = append(rows, mapRow{name, "direct", "-", r.Listen.String(), r.Broker.String()})
		}
		if l.IsDirect() {
			continue
		}
		rows = append(rows, mapRow{name, "bootstrap", "-", l.Bootstrap.String(), "any of " + strings.Join(texts(c.Upstream.BootstrapServers), ", ")})
		rows = append(rows, nodeRows(l, known)...)
	}
	return rows
}

// nodeRows has a line for each known node, and for each unknown one unless many
// stand side by side.
func nodeRows(l config.Listener, known map[int32]string) []mapRow {
	var rows []mapRow
	count := l.Nodes.Count()
	for i := int32(0); i < count; {
		run := int32(1)
		if known[nodeAt(l, i)] == "" {
			for i+run < count && known[nodeAt(l, i+run)] == "" {
				run++
			}
		}
		if run >= unknownRun {
			rows = append(rows, nodeRow(l, i, i+run-1, known))
			i += run
			continue
		}
		for range run {
			rows = append(rows, nodeRow(l, i, i, known))
			i++
		}
	}
	return rows
}

func nodeAt(l config.Listener, i int32) int32 { return l.FirstNodeID + i }

// nodeRow is the line of the nodes at the ports first to last of the range.
func nodeRow(l config.Listener, first, last int32, known map[int32]string) mapRow {
	serves := nodeName(nodeAt(l, first))
	ports := strconv.Itoa(int(int32(l.Nodes.First) + first))
	if first != last {
		serves = fmt.Sprintf("nodes %d-%d", nodeAt(l, first), nodeAt(l, last))
		ports += "-" + strconv.Itoa(int(int32(l.Nodes.First)+last))
	}
	return mapRow{
		Listener:   string(l.Name),
		Serves:     serves,
		Advertised: net.JoinHostPort(string(l.AdvertisedHost), ports),
		Listens:    net.JoinHostPort(l.Nodes.Host, ports),
		Broker:     cmp.Or(known[nodeAt(l, first)], brokerUnknown),
	}
}

// printMap writes the map as a table.
func printMap(w io.Writer, rows []mapRow) error {
	lines := [][]string{{"LISTENER", "SERVES", "CLIENTS ARE TOLD", "LISTENS ON", "BROKER"}}
	for _, r := range rows {
		lines = append(lines, []string{r.Listener, r.Serves, r.Advertised, r.Listens, r.Broker})
	}
	return printTable(w, lines)
}

// printTable aligns columns; no space is left at the end of a line.
func printTable(w io.Writer, lines [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		// The last cell has no tab behind it, so it is not padded.
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}
