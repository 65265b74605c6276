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
	// Bootstrap is where clients connect first. Connections go to any broker.
	Bootstrap HostPort `yaml:"bootstrap"`
	// Nodes are the ports to listen on for the nodes, one each.
	Nodes PortRange `yaml:"nodes"`
	// FirstNodeID is the node id at the first port of Nodes.
	FirstNodeID int32 `yaml:"first_node_id"`
	// AdvertisedHost is advertised for every node, with its port of Nodes.
	AdvertisedHost Host `yaml:"advertised_host"`
	// NodeAddresses gives each node its addresses, in the order of the file.
	NodeAddresses NodeAddresses `yaml:"node_addresses"`
	// SNI has one port for all nodes.
	SNI *SNI `yaml:"sni"`
	// UnmappedNodes is the treatment of nodes that have no address on this listener.
	UnmappedNodes UnmappedNodes `yaml:"unmapped_nodes"`
	// Direct gives each listen address its broker, in the order of the file.
	Direct Routes `yaml:"direct"`
	// TLS applies to all addresses of the listener; nil is plaintext.
	TLS *ListenerTLS `yaml:"tls"`
	// ProxyProtocol says whether connections begin with a PROXY protocol header.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`
}

func (l *Listener) setDefaults() {
	l.UnmappedNodes = UnmappedReject
	l.ProxyProtocol = ProxyProtocolOff
}

// ListenerKind is how a listener distinguishes nodes.
type ListenerKind uint8

const (
	// KindRange: by port, consecutive ones (Nodes).
	KindRange ListenerKind = iota
	// KindAddresses: by address (NodeAddresses).
	KindAddresses
	// KindSNI: by the server name of the TLS handshake (SNI).
	KindSNI
	// KindDirect: not at all; broker addresses are unchanged (Direct).
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

// IsDirect reports whether the listener leaves broker addresses unchanged.
func (l Listener) IsDirect() bool { return l.Kind() == KindDirect }

// NodeAddress is the listen address and the advertised address of one node.
type NodeAddress struct {
	NodeID     int32
	Bind       HostPort `yaml:"bind"`
	Advertised HostPort `yaml:"advertised"`
	// key is the node id as the file spells it, for its position.
	key string
}

// NodeAddresses are the entries of a listener in the order of the file.
type NodeAddresses []NodeAddress

// SNI is one port for all nodes, which are selected by the server name of the client's TLS
// handshake.
type SNI struct {
	// Bind is where all clients connect.
	Bind HostPort `yaml:"bind"`
	// BootstrapHost is the name that clients connect to first.
	BootstrapHost Host `yaml:"bootstrap_host"`
	// NodeHost is the name of each node.
	NodeHost NodePattern `yaml:"node_host"`
	// AdvertisedPort is by default the port of Bind.
	AdvertisedPort int32 `yaml:"advertised_port"`
}

// NodePattern is a host name that contains the node id, in lower case: Before, the id in
// decimal, After.
type NodePattern struct{ Before, After string }

const (
	nodeIDVariable  = "$(node_id)"
	wantNodePattern = `a host name with ` + nodeIDVariable + ` in it once, e.g. b` + nodeIDVariable + `.kafka.example.com`
)

// String returns the pattern as a file can give it.
func (p NodePattern) String() string { return p.Before + nodeIDVariable + p.After }

// Host returns the name of a node.
func (p NodePattern) Host(nodeID int32) string {
	return fmt.Sprintf("%s%d%s", p.Before, nodeID, p.After)
}

// matches reports whether a host name is that of some node.
func (p NodePattern) matches(host string) bool {
	id, before := strings.CutPrefix(strings.ToLower(host), p.Before)
	id, after := strings.CutSuffix(id, p.After)
	return before && after && id != "" && strings.Trim(id, "0123456789") == ""
}

func (*NodePattern) kind() string { return "host name pattern" }

func (*NodePattern) wanted() string { return wantNodePattern }

func (p *NodePattern) parse(text string) error {
	before, after, ok := strings.Cut(text, nodeIDVariable)
	switch {
	case !ok:
		return fmt.Errorf("missing %s; want %s", nodeIDVariable, wantNodePattern)
	case strings.Contains(after, nodeIDVariable):
		return fmt.Errorf("found %s twice; want %s", nodeIDVariable, wantNodePattern)
	case strings.Contains(after, ":"):
		return fmt.Errorf("found a port; want %s (the port is advertised_port, or that of bind)", wantNodePattern)
	}
	parsed := NodePattern{strings.ToLower(before), strings.ToLower(after)}
	if err := checkHost(parsed.Host(1 << 30)); err != nil { // ten digits, as many as a node id may have
		return fmt.Errorf("not a host name for node %d: %w; want %s", 1<<30, err, wantNodePattern)
	}
	if strings.Trim(parsed.Before+parsed.After, "0123456789.") == "" {
		return errors.New("found only numbers; want " + wantNodePattern)
	}
	*p = parsed
	return nil
}

// UnmappedNodes is the treatment of nodes that have no address on a listener.
type UnmappedNodes string

const (
	// UnmappedReject advertises an address where nothing listens.
	UnmappedReject UnmappedNodes = "reject"
	// UnmappedHide removes the node from responses.
	UnmappedHide UnmappedNodes = "hide"
	// UnmappedPassthrough advertises the broker's own address.
	UnmappedPassthrough UnmappedNodes = "passthrough"
)

func (*UnmappedNodes) kind() string { return "value" }

func (*UnmappedNodes) wanted() string { return "reject, hide or passthrough" }

func (u *UnmappedNodes) parse(text string) error {
	return parseOneOf(u, text, UnmappedReject, UnmappedHide, UnmappedPassthrough)
}

// Route is one entry of a direct listener: connections to Listen go to Broker.
type Route struct {
	Listen, Broker HostPort
	// key is the listen address as the file spells it, for its position.
	key string
}

// Routes are the entries of a direct listener in the order of the file.
type Routes []Route
