// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/cmd/tiergate/certs"
	"tiergate/codec"
	"tiergate/config"
	"tiergate/rewrite"
	"tiergate/upstream"
)

// CheckCmd is `tiergate check`.
type CheckCmd struct {
	Config string `required:"" placeholder:"FILE" help:"YAML configuration: docs/configuration.md."`
}

// Help is shown by --help.
func (c *CheckCmd) Help() string {
	return `Checks the file, then connects to every broker of the cluster and says for each what clients are told of it, and who answers ` +
		`EARLIEST_PENDING_UPLOAD (-6) there: the broker itself (native), tiergate (synthesised), or nobody, and why. ` +
		`Nothing is listened on, so it can be run beside a serving tiergate. What is not well stands below the tables, one line each: ` +
		`"PROBLEM" decides the exit code, "note" does not.

Example:

    tiergate check --config tiergate.yaml && tiergate serve --config tiergate.yaml

Exit codes:

    0   all is well
    1   the configuration is wrong
    2   a broker cannot be reached, or has no port or no address of its own, or -6 cannot be answered there;
        or a certificate has expired
    64  wrong command line`
}

// Run checks the file and the brokers.
func (c *CheckCmd) Run(ctx context.Context, streams *Streams) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	tls, err := certs.New(cfg, log, metrics)
	if err != nil {
		return err
	}
	to, err := newClusters(cfg, tls, log, metrics)
	if err != nil {
		return err
	}
	defer to.close()
	found := findings{lives: tls.Lives(), own: slices.Concat(misnamed(cfg, tls), invalidNames(cfg), localPorts(ports(cfg)))}
	for _, one := range to {
		found.clusters = append(found.clusters, askBrokers(ctx, cfg, one))
	}
	if err := printCheck(streams.Out, found); err != nil {
		return err
	}
	if problems := found.problems(); len(problems) > 0 {
		return &exitError{code: exitIncomplete}
	}
	return nil
}

// findings are what check has found out.
type findings struct {
	// clusters are in the order of the configuration.
	clusters []brokers
	// lives are those of the certificates.
	lives []certs.Life
	// own are notes on the configuration itself, whatever the brokers are.
	own []string
}

// brokers are what check has found out about one cluster.
type brokers struct {
	cfg *config.Config
	config.NamedCluster
	// nodes are the brokers of the cluster's own list; when it could not be had, the
	// bootstrap servers.
	nodes []upstream.Capability
	// direct are the brokers of direct listeners, by address.
	direct map[string]upstream.Capability
	// listErr is why the cluster gave no list of its brokers.
	listErr error
	// tiered is what keeps tiergate from knowing what is uploaded, for brokers without -5.
	tiered []error
}

func askBrokers(ctx context.Context, cfg *config.Config, of cluster) brokers {
	found := brokers{
		cfg: cfg, NamedCluster: of.NamedCluster,
		listErr: of.brokers.BrokerList(ctx), nodes: of.brokers.Capabilities(ctx), direct: map[string]upstream.Capability{},
	}
	for _, l := range of.Listeners {
		for _, r := range l.Direct {
			address := r.Broker.String()
			if _, ok := found.direct[address]; !ok {
				found.direct[address] = of.brokers.CapabilityOf(ctx, address)
			}
		}
	}
	if found.readsMetadataTopic() {
		found.tiered = of.brokers.CheckTieredOffsets(ctx)
	}
	return found
}

// readsMetadataTopic says whether a broker's -5 and -6 are made from the topic
// __remote_log_metadata.
func (b brokers) readsMetadataTopic() bool {
	return slices.ContainsFunc(b.rows(), func(r brokerRow) bool {
		who, _ := answererOf(r.Capability, b.EarliestPendingUpload)
		return who == answersSynthesised && r.Versions.ListOffsets.Highest == codec.ListOffsetsLocal
	})
}

// known returns the nodes of the cluster's list in the form of the node map.
func (b brokers) known() []upstream.Node {
	var nodes []upstream.Node
	for _, c := range b.nodes {
		if c.NodeID >= 0 {
			nodes = append(nodes, upstream.Node{NodeID: c.NodeID, Host: c.Host, Port: c.Port, Rack: c.Rack})
		}
	}
	return nodes
}

// answerer says who answers -6 on connections to a broker.
type answerer string

const (
	answersNative      answerer = "native"
	answersSynthesised answerer = "synthesised"
	answersNobody      answerer = "cannot"
	answersOff         answerer = "off"
	answersUnknown     answerer = "unreachable"
)

// answererOf says who answers -6 at a broker, by the function that sessions decide by, and
// why.
func answererOf(c upstream.Capability, mode config.PendingUpload) (who answerer, why string) {
	if c.Err != nil {
		return answersUnknown, c.Err.Error()
	}
	rules := rewrite.Rules{PendingUpload: pendingUpload(mode)}
	if mode == config.PendingUploadMetadataTopic {
		rules.Uploads = uploads{}
	}
	support, highest := rules.SupportOf(c.Versions), c.Versions.ListOffsets.Highest
	switch {
	case support == rewrite.SupportNative && rules.Synthesises(support):
		return answersSynthesised, "earliest_pending_upload is always; the broker knows -6 itself"
	case support == rewrite.SupportNative:
		return answersNative, "the broker knows -6 itself; tiergate touches nothing"
	case mode == config.PendingUploadOff:
		return answersOff, "earliest_pending_upload is off, and the broker does not know -6"
	case support == rewrite.SupportMetadataTopic:
		return answersSynthesised, fmt.Sprintf("its ListOffsets ends at version %d; tiergate makes -5 and -6 from the topic __remote_log_metadata", highest)
	case support == rewrite.SupportSynthesised:
		return answersSynthesised, fmt.Sprintf("its ListOffsets ends at version %d; tiergate asks it for -4, -2, -5 and -1", highest)
	}
	return answersNobody, lacking(c.Versions, mode)
}

// lacking says what a broker without an answer to -6 has not.
func lacking(b codec.BrokerVersions, mode config.PendingUpload) string {
	switch {
	case b.ListOffsets.Highest < 0:
		return "it does not offer ListOffsets at all: is it a Kafka broker?"
	case b.ListOffsets.Highest < codec.ListOffsetsLocal:
		return fmt.Sprintf("its ListOffsets ends at version %d: it is older than tiered storage (Kafka 3.6)", b.ListOffsets.Highest)
	case b.ListOffsets.Highest < codec.ListOffsetsTiered && mode != config.PendingUploadMetadataTopic:
		return fmt.Sprintf("its ListOffsets ends at version %d (Kafka 3.6 to 3.8): it does not know -5 (latest tiered offset), "+
			"from which -6 is made; Kafka 3.9 is the first that does. With earliest_pending_upload: metadata_topic tiergate makes both "+
			"from the topic __remote_log_metadata", b.ListOffsets.Highest)
	case !b.OffsetForLeaderEpoch.Has(codec.OffsetForLeaderEpochLookup):
		return "it does not offer OffsetForLeaderEpoch version 4, which tells the epoch of the answer"
	default:
		return "it does not offer Metadata version 12, which tells the ids of topics"
	}
}

func printCheck(w io.Writer, found findings) error {
	what := "the cluster"
	if len(found.clusters) > 1 {
		what = "the clusters"
	}
	fmt.Fprintf(w, "Where clients reach %s:\n\n", what)
	var rows []mapRow
	for _, b := range found.clusters {
		rows = append(rows, nodeMap(b.NamedCluster, b.known())...)
	}
	if err := printMap(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWho answers EARLIEST_PENDING_UPLOAD (-6):")
	fmt.Fprintln(w)
	if err := printTable(w, found.lines()); err != nil {
		return err
	}
	problems, notes := found.problems(), found.notes()
	if len(problems)+len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range problems {
		fmt.Fprintln(w, "PROBLEM:", p)
	}
	for _, n := range notes {
		fmt.Fprintln(w, "note:", n)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", conclusion(problems, notes))
	return err
}

func conclusion(problems, notes []string) string {
	switch {
	case len(problems) > 0:
		return count(len(problems), "problem") + " found."
	case len(notes) > 0:
		return "All is well, but for what the notes say."
	}
	return "All is well."
}

// lines are the table of all brokers.
func (f findings) lines() [][]string {
	lines := [][]string{{"CLUSTER", "NODE", "BROKER", "CLIENTS ARE TOLD", "KAFKA", "LISTOFFSETS", "TIERED STORAGE", "-6", "WHY"}}
	first := 1 // without the column of clusters
	for _, b := range f.clusters {
		if b.Name != "" {
			first = 0
		}
		lines = append(lines, b.lines()...)
	}
	for i := range lines {
		lines[i] = lines[i][first:]
	}
	return lines
}

// problems are what keeps clients from a broker or from its -6.
func (f findings) problems() []string {
	var list []string
	for _, b := range f.clusters {
		list = append(list, b.named(b.problems())...)
	}
	return append(list, expired(f.lives, time.Now())...)
}

// notes are what an operator should know and may well intend.
func (f findings) notes() []string {
	var list []string
	for _, b := range f.clusters {
		list = append(list, b.named(b.notes())...)
	}
	list = append(list, f.own...)
	return append(list, expiring(f.lives, time.Now())...)
}

// named puts the cluster before each line, where there are several.
func (b brokers) named(lines []string) []string {
	if b.Name == "" {
		return lines
	}
	for i := range lines {
		lines[i] = fmt.Sprintf("cluster %q: %s", b.Name, lines[i])
	}
	return lines
}

func (b brokers) lines() [][]string {
	var lines [][]string
	for _, r := range b.rows() {
		who, why := answererOf(r.Capability, b.EarliestPendingUpload)
		if who == answersNobody || who == answersUnknown {
			why = "see below"
		}
		lines = append(lines, []string{
			string(b.Name), nodeID(r.Capability), r.Address(), strings.Join(r.told, ", "), release(r.Release, r.Versions.ListOffsets.Highest), upTo(r.Versions.ListOffsets.Highest),
			tieredStorage(r.Capability), string(who), why,
		})
	}
	return lines
}

// brokerRow is a broker and what clients are told of it, by each listener.
type brokerRow struct {
	upstream.Capability
	told []string
}

// rows returns every broker that a listener needs, once: those of the cluster's own
// list where addresses are rewritten, those that direct listeners name, and bootstrap
// servers that do not answer.
func (b brokers) rows() []brokerRow {
	var rows []brokerRow
	byAddress := map[string]int{}
	add := func(c upstream.Capability, told []string) {
		i, ok := byAddress[c.Address()]
		if !ok || c.NodeID >= 0 && c.NodeID != rows[i].NodeID {
			i = len(rows)
			byAddress[c.Address()] = i
			rows = append(rows, brokerRow{Capability: c})
		}
		rows[i].told = append(rows[i].told, told...)
	}
	for _, c := range b.nodes {
		told := b.advertisedAs(c.NodeID)
		switch {
		case len(told) > 0:
			add(c, told)
		case c.Err != nil && c.NodeID < 0:
			add(c, []string{"-"})
		}
	}
	for _, l := range b.Listeners {
		for _, r := range l.Direct {
			add(b.direct[r.Broker.String()], []string{"as it says"})
		}
	}
	return rows
}

func nodeID(c upstream.Capability) string {
	if c.NodeID < 0 {
		return "?"
	}
	return strconv.Itoa(int(c.NodeID))
}

// plainGuess is a guess that names one release or the first of those it may be.
var plainGuess = regexp.MustCompile(`^(at least )?v([0-9]+\.[0-9]+)$`)

// release names the Kafka release of a broker: guess, which is made from all the
// versions that it offers, or, where that leads nowhere (a broker that lacks APIs, or
// that is no Apache Kafka), what its ListOffsets says alone. Source of the latter: the
// KIPs of the constants above, and ListOffsetsRequest.json at the releases' tags.
func release(guess string, listOffsetsMax int16) string {
	if m := plainGuess.FindStringSubmatch(guess); m != nil {
		return m[1] + m[2]
	}
	switch {
	case listOffsetsMax >= codec.ListOffsetsPendingUpload:
		return "4.2 or later"
	case listOffsetsMax == 10:
		return "4.0 or 4.1"
	case listOffsetsMax == codec.ListOffsetsTiered:
		return "3.9"
	case listOffsetsMax == codec.ListOffsetsLocal:
		return "3.6 to 3.8"
	case listOffsetsMax >= 0:
		return "before 3.6"
	}
	return "-"
}

func upTo(version int16) string {
	if version < 0 {
		return "-"
	}
	return fmt.Sprintf("up to %d", version)
}

func tieredStorage(c upstream.Capability) string {
	if c.Err != nil {
		return "-"
	}
	switch c.RemoteStorage {
	case codec.RemoteStorageEnabled:
		return "on"
	case codec.RemoteStorageDisabled:
		return "off"
	case codec.RemoteStorageUnknown:
	}
	return "unknown"
}

// advertisedAs lists what the rewriting listeners tell clients of a node. It is empty
// only where no listener rewrites addresses.
func (b brokers) advertisedAs(nodeID int32) []string {
	var told []string
	for _, l := range b.Listeners {
		if l.IsDirect() {
			continue
		}
		host, port, mapped := addresses(b.cfg, l).Advertised(nodeID)
		switch {
		case nodeID < 0:
			told = append(told, "?")
		case !mapped:
			told = append(told, "no address at "+string(l.Name))
		default:
			told = append(told, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	return told
}

func (b brokers) problems() []string {
	var list []string
	named := map[string]string{}
	for _, r := range b.rows() {
		name := brokerName(r.Capability)
		switch who, why := answererOf(r.Capability, b.EarliestPendingUpload); who {
		case answersUnknown:
			list = append(list, fmt.Sprintf("%s does not answer: %s", name, why))
		case answersNobody:
			list = append(list, fmt.Sprintf("-6 cannot be answered at %s: %s", name, why))
		case answersNative, answersSynthesised, answersOff:
		}
		if first, ok := named[r.Address()]; ok {
			list = append(list, fmt.Sprintf("%s has the same address as %s: clients cannot tell them apart; look at the brokers' advertised.listeners",
				name, first))
		}
		named[r.Address()] = name
	}
	for _, fault := range b.tiered {
		list = append(list, "-5 and -6 cannot be made in front of Kafka 3.6 to 3.8: "+fault.Error())
	}
	if b.listErr != nil && len(list) == 0 {
		list = append(list, b.listErr.Error())
	}
	for _, l := range b.Listeners {
		if l.IsDirect() {
			continue
		}
		told := addresses(b.cfg, l)
		list = append(list, loops(l, told, b.known())...)
		if text := without(l, told, b.known()); text != "" && l.UnmappedNodes == config.UnmappedReject {
			list = append(list, text)
		}
	}
	return list
}

// loops are nodes that advertise what a listener tells clients of them.
func loops(l config.Listener, told rewrite.Addresses, nodes []upstream.Node) []string {
	var list []string
	for _, n := range nodes {
		host, port, mapped := told.Advertised(n.NodeID)
		if mapped && net.JoinHostPort(host, strconv.Itoa(int(port))) == n.Address() {
			list = append(list, fmt.Sprintf("node %d (%s) advertises what listener %q tells clients of it: "+
				"bootstrap_servers lead back to tiergate, or both want the same port", n.NodeID, n.Address(), l.Name))
		}
	}
	return list
}

// without says which nodes a listener has no address for and what that means for
// clients; empty when there is none.
func without(l config.Listener, told rewrite.Addresses, nodes []upstream.Node) string {
	var names []string
	var ids []int32
	for _, n := range nodes {
		if _, _, mapped := told.Advertised(n.NodeID); !mapped {
			names = append(names, fmt.Sprintf("node %d (%s)", n.NodeID, n.Address()))
			ids = append(ids, n.NodeID)
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := fmt.Sprintf("listener %q has no address for %s, so ", l.Name, strings.Join(names, ", "))
	switch {
	case l.UnmappedNodes == config.UnmappedHide:
		return text + "they are hidden from clients (unmapped_nodes: hide)"
	case l.UnmappedNodes == config.UnmappedPassthrough:
		return text + "clients are told these addresses (unmapped_nodes: passthrough)"
	case l.Kind() == config.KindAddresses:
		return text + "clients cannot reach them through it: add them to node_addresses"
	}
	return text + "clients cannot reach them through it: " + widerRange(l, ids)
}

// widerRange says which range has ports for the nodes as well, and leaves the others
// at theirs.
func widerRange(l config.Listener, ids []int32) string {
	least, most := min(slices.Min(ids), l.FirstNodeID), slices.Max(ids)
	first := int64(l.Nodes.First) - (int64(l.FirstNodeID) - int64(least))
	last := max(int64(l.Nodes.Last), int64(l.Nodes.First)+int64(most)-int64(l.FirstNodeID))
	if first < 1 || last > math.MaxUint16 {
		return fmt.Sprintf("no range with node %d at port %d reaches that far; give them a listener of their own, with first_node_id: %d",
			l.FirstNodeID, l.Nodes.First, slices.Min(ids))
	}
	wider := fmt.Sprintf("nodes: %q would do", net.JoinHostPort(l.Nodes.Host, fmt.Sprintf("%d-%d", first, last)))
	if least < l.FirstNodeID {
		wider = fmt.Sprintf("first_node_id: %d with %s", least, wider)
	}
	return wider
}

func (b brokers) notes() []string {
	var list []string
	answerers := map[answerer]bool{}
	for _, r := range b.rows() {
		who, _ := answererOf(r.Capability, b.EarliestPendingUpload)
		answerers[who] = true
		switch name := brokerName(r.Capability); {
		case r.Err != nil:
		case r.RemoteStorage == codec.RemoteStorageDisabled:
			list = append(list, name+" has remote.log.storage.system.enable=false: no topic is tiered there, and -6 is answered with -1")
		case r.RemoteStorage == codec.RemoteStorageUnknown && r.NodeID >= 0:
			list = append(list, fmt.Sprintf("%s does not say whether tiered storage is on: %v", name, r.RemoteStorageErr))
		}
	}
	for _, l := range b.Listeners {
		if l.IsDirect() || l.UnmappedNodes == config.UnmappedReject {
			continue // a problem, if there are any
		}
		if text := without(l, addresses(b.cfg, l), b.known()); text != "" {
			list = append(list, text)
		}
	}
	if answerers[answersNative] && answerers[answersSynthesised] {
		list = append(list, "some brokers know -6 and some do not, as during a rolling upgrade; tiergate decides on each connection")
	}
	return list
}

func brokerName(c upstream.Capability) string {
	if c.NodeID < 0 {
		return c.Address()
	}
	return fmt.Sprintf("node %d (%s)", c.NodeID, c.Address())
}
