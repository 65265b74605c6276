// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
)

// Listener is one way into a cluster. Its kind is decided by which of Nodes,
// NodeAddresses, SNI and Direct is set.
type Listener struct {
	// Name is unique in the file; it labels metrics and log lines.
	Name Name `yaml:"name"`
	// Bootstrap is where clients connect first; any broker may be behind it.
	Bootstrap HostPort `yaml:"bootstrap"`
	// Nodes are the ports to listen on for the nodes, one each.
	Nodes PortRange `yaml:"nodes"`
	// FirstNodeID is the node id behind the first port of Nodes.
	FirstNodeID int32 `yaml:"first_node_id"`
	// AdvertisedHost is the host that clients are told; the port is the one of Nodes.
	AdvertisedHost Host `yaml:"advertised_host"`
	// NodeAddresses gives each node its addresses, in the order of the file.
	NodeAddresses NodeAddresses `yaml:"node_addresses"`
	// SNI has all nodes at one port.
	SNI *SNI `yaml:"sni"`
	// UnmappedNodes says what clients are told of nodes that have no address here.
	UnmappedNodes UnmappedNodes `yaml:"unmapped_nodes"`
	// Direct gives each listen address its broker, in the order of the file.
	Direct Routes `yaml:"direct"`
	// TLS is how clients speak to all addresses of the listener; nil is plaintext.
	TLS *ListenerTLS `yaml:"tls"`
	// ProxyProtocol says whether connections begin with a PROXY protocol header.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`
}

func (l *Listener) setDefaults() {
	l.UnmappedNodes = UnmappedReject
	l.ProxyProtocol = ProxyProtocolOff
}

// ListenerKind says how a listener's nodes are told apart.
type ListenerKind uint8

const (
	// KindRange: by port, consecutive ones (Nodes).
	KindRange ListenerKind = iota
	// KindAddresses: by an address each (NodeAddresses).
	KindAddresses
	// KindSNI: by the name that TLS asks for (SNI).
	KindSNI
	// KindDirect: not at all; broker addresses are left alone (Direct).
	KindDirect
)

// Kind returns the kind of a checked listener.
func (l Listener) Kind() ListenerKind {
	switch {
	case len(l.Direct) > 0:
		return KindDirect
	case l.SNI != nil:
		return KindSNI
	case len(l.NodeAddresses) > 0:
		return KindAddresses
	}
	return KindRange
}

// IsDirect says whether the listener leaves addresses alone.
func (l Listener) IsDirect() bool { return l.Kind() == KindDirect }

// NodeAddress is where one node is listened for, and what clients are told of it.
type NodeAddress struct {
	NodeID     int32
	Bind       HostPort `yaml:"bind"`
	Advertised HostPort `yaml:"advertised"`
	// key is the node id as the file spells it, to find its place again.
	key string
}

// NodeAddresses are the entries of a listener in the order of the file.
type NodeAddresses []NodeAddress

// SNI is one port for all nodes, told apart by the name that a client's TLS handshake
// asks for.
type SNI struct {
	// Bind is where all clients connect.
	Bind HostPort `yaml:"bind"`
	// BootstrapHost is the name that clients connect to first.
	BootstrapHost Host `yaml:"bootstrap_host"`
	// NodeHost is the name of each node.
	NodeHost NodePattern `yaml:"node_host"`
	// AdvertisedPort is what clients are told; Parse fills in the port of Bind.
	AdvertisedPort int32 `yaml:"advertised_port"`
}

// NodePattern is a host name with the node id in it, in lower case: Before, the id in
// decimal, After.
type NodePattern struct{ Before, After string }

const (
	nodeIDVariable  = "$(node_id)"
	wantNodePattern = `a host name with ` + nodeIDVariable + ` in it once, such as b` + nodeIDVariable + `.kafka.example.com`
)

// String returns the pattern as it may stand in a file.
func (p NodePattern) String() string { return p.Before + nodeIDVariable + p.After }

// Host returns the name of a node.
func (p NodePattern) Host(nodeID int32) string {
	return fmt.Sprintf("%s%d%s", p.Before, nodeID, p.After)
}

// matches says whether a host name is that of some node.
func (p NodePattern) matches(host string) bool {
	id, before := strings.CutPrefix(strings.ToLower(host), p.Before)
	id, after := strings.CutSuffix(id, p.After)
	return before && after && id != "" && strings.Trim(id, "0123456789") == ""
}

func (*NodePattern) wanted() string { return wantNodePattern }

func (p *NodePattern) parse(text string) error {
	before, after, ok := strings.Cut(text, nodeIDVariable)
	switch {
	case !ok:
		return fmt.Errorf("has no %s; wanted %s", nodeIDVariable, wantNodePattern)
	case strings.Contains(after, nodeIDVariable):
		return fmt.Errorf("has %s twice; wanted %s", nodeIDVariable, wantNodePattern)
	case strings.Contains(after, ":"):
		return fmt.Errorf("has a port; wanted %s: the port is advertised_port, or that of bind", wantNodePattern)
	}
	parsed := NodePattern{strings.ToLower(before), strings.ToLower(after)}
	if err := checkHost(parsed.Host(1 << 30)); err != nil { // ten digits, as many as a node id may have
		return fmt.Errorf("gives node %d no host name: it %w; wanted %s", 1<<30, err, wantNodePattern)
	}
	if strings.Trim(parsed.Before+parsed.After, "0123456789.") == "" {
		return errors.New("is no name but numbers; wanted " + wantNodePattern)
	}
	*p = parsed
	return nil
}

// UnmappedNodes says what clients are told of nodes that have no address at a listener.
type UnmappedNodes string

const (
	// UnmappedReject: an address where nothing listens.
	UnmappedReject UnmappedNodes = "reject"
	// UnmappedHide: nothing, as if there were no such node.
	UnmappedHide UnmappedNodes = "hide"
	// UnmappedPassthrough: the broker's own address.
	UnmappedPassthrough UnmappedNodes = "passthrough"
)

func (*UnmappedNodes) wanted() string { return "reject, hide or passthrough" }

func (u *UnmappedNodes) parse(text string) error {
	return parseOneOf(u, text, UnmappedReject, UnmappedHide, UnmappedPassthrough)
}

// Route is one entry of a direct listener: what comes in at Listen goes to Broker.
type Route struct {
	Listen, Broker HostPort
	// key is the listen address as the file spells it, to find its place again.
	key string
}

// Routes are the entries of a direct listener in the order of the file.
type Routes []Route
