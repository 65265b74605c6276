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
	// Cluster is empty where there is only one.
	Cluster  string
	Listener string
	// Serves says who is behind: "bootstrap", "node 3", "nodes 10-99", "other nodes" or
	// "direct".
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

// nodeMap lists who can be reached where at a cluster's listeners. nodes are the brokers
// known so far.
func nodeMap(of config.NamedCluster, nodes []upstream.Node) []mapRow {
	var rows []mapRow
	for _, l := range of.Listeners {
		list := []mapRow{{Serves: "bootstrap", Advertised: "-", Listens: l.Bootstrap.String(), Broker: "any of " + strings.Join(texts(of.Upstream.BootstrapServers), ", ")}}
		switch l.Kind() {
		case config.KindRange:
			list = append(list, nodeRows(l, brokerAddresses(nodes))...)
		case config.KindAddresses:
			list = append(list, addressRows(l, brokerAddresses(nodes))...)
		case config.KindSNI:
			list[0].Listens = fmt.Sprintf("%v for %s", l.SNI.Bind, l.SNI.BootstrapHost)
			list = append(list, nameRows(l, nodes)...)
		case config.KindDirect:
			list = list[:0]
			for _, r := range l.Direct {
				list = append(list, mapRow{Serves: "direct", Advertised: "-", Listens: r.Listen.String(), Broker: r.Broker.String()})
			}
		}
		for _, r := range list {
			r.Cluster, r.Listener = string(of.Name), string(l.Name)
			rows = append(rows, r)
		}
	}
	return rows
}

func brokerAddresses(nodes []upstream.Node) map[int32]string {
	known := make(map[int32]string, len(nodes))
	for _, n := range nodes {
		known[n.NodeID] = n.Address()
	}
	return known
}

// addressRows has a line for each node of the configuration.
func addressRows(l config.Listener, known map[int32]string) []mapRow {
	rows := make([]mapRow, len(l.NodeAddresses))
	for i, a := range l.NodeAddresses {
		rows[i] = mapRow{
			Serves: nodeName(a.NodeID), Advertised: a.Advertised.String(), Listens: a.Bind.String(),
			Broker: cmp.Or(known[a.NodeID], brokerUnknown),
		}
	}
	return rows
}

// nameRows has a line for each known node, and one for all others.
func nameRows(l config.Listener, nodes []upstream.Node) []mapRow {
	row := func(serves, host, broker string) mapRow {
		return mapRow{
			Serves: serves, Advertised: net.JoinHostPort(host, strconv.Itoa(int(l.SNI.AdvertisedPort))),
			Listens: fmt.Sprintf("%v for %s", l.SNI.Bind, host), Broker: broker,
		}
	}
	var rows []mapRow
	for _, n := range nodes {
		rows = append(rows, row(nodeName(n.NodeID), l.SNI.NodeHost.Host(n.NodeID), n.Address()))
	}
	return append(rows, row("other nodes", l.SNI.NodeHost.String(), brokerUnknown))
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
		Serves:     serves,
		Advertised: net.JoinHostPort(string(l.AdvertisedHost), ports),
		Listens:    net.JoinHostPort(l.Nodes.Host, ports),
		Broker:     cmp.Or(known[nodeAt(l, first)], brokerUnknown),
	}
}

// printMap writes the map as a table. Clusters are named where there are several.
func printMap(w io.Writer, rows []mapRow) error {
	lines := [][]string{{"CLUSTER", "LISTENER", "SERVES", "CLIENTS ARE TOLD", "LISTENS ON", "BROKER"}}
	first := 1 // without the column of clusters
	for _, r := range rows {
		if r.Cluster != "" {
			first = 0
		}
		lines = append(lines, []string{r.Cluster, r.Listener, r.Serves, r.Advertised, r.Listens, r.Broker})
	}
	for i := range lines {
		lines[i] = lines[i][first:]
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
