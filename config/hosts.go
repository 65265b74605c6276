// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// HostEntry gives one host name its addresses.
type HostEntry struct {
	// Name is a DNS name as the file spells it.
	Name string
	// Addresses are at least one, in the order to try them.
	Addresses []IPAddress
}

// Hosts are names and their addresses, as in /etc/hosts, in the order of the file.
type Hosts []HostEntry

// Lookup returns the addresses of a host name, in any case and with or without the dot
// of the DNS root; nil when it is not among hosts. The caller must not change them.
func (hosts Hosts) Lookup(name string) []netip.Addr {
	i := slices.IndexFunc(hosts, func(h HostEntry) bool { return hostKey(h.Name) == hostKey(name) })
	if i < 0 {
		return nil
	}
	addrs := make([]netip.Addr, len(hosts[i].Addresses))
	for j, a := range hosts[i].Addresses {
		addrs[j] = netip.Addr(a)
	}
	return addrs
}

// IPAddress is an IP literal, without brackets if it is IPv6.
type IPAddress netip.Addr

const wantIPAddress = `an IP address, e.g. "10.0.0.10" or "2001:db8::10"`

func (*IPAddress) kind() string { return "IP address" }

func (*IPAddress) wanted() string { return wantIPAddress }

// String returns the address as a file can give it.
func (a IPAddress) String() string { return netip.Addr(a).String() }

func (a *IPAddress) parse(text string) error {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return fmt.Errorf("want %s, without a port", wantIPAddress)
	case isWildcard(text):
		return fmt.Errorf("nobody can connect to a wildcard; want %s", wantIPAddress)
	}
	*a = IPAddress(addr)
	return nil
}

// hosts reads a mapping of host name to IP address, or to a list of them.
func (d *decoder) hosts(path string, n ast.Node, into *Hosts) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) == 0 {
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
		return
	}
	for _, e := range d.Entries(path, m, hostPath) {
		key := hostPath(path, e.Key)
		d.Places[key] = e.At
		d.hostName(path, e.Key, *into)
		h := HostEntry{Name: e.Key}
		if list, isList := e.Value.(*ast.SequenceNode); isList && len(list.Values) > 0 {
			d.value(key, e.Value, reflect.ValueOf(&h.Addresses).Elem())
		} else {
			h.Addresses = make([]IPAddress, 1)
			d.value(key, e.Value, reflect.ValueOf(&h.Addresses[0]).Elem())
		}
		*into = append(*into, h)
	}
}

// hostName rejects an invalid host name, and a duplicate.
func (d *decoder) hostName(path, name string, earlier Hosts) {
	key := hostPath(path, name)
	if _, err := netip.ParseAddr(name); err == nil {
		d.Fault(key, "invalid host name %q: found an IP address, which needs no entry; want a host name, e.g. kafka-0.internal", name)
		return
	}
	if err := checkHost(name); err != nil {
		d.Fault(key, "invalid host name %q: %v; want a host name without a port, e.g. kafka-0.internal", name, err)
		return
	}
	for _, h := range earlier {
		if hostKey(h.Name) == hostKey(name) {
			d.Fault(key, "duplicate host name %q, already given as %q: want one entry with a list of addresses", name, h.Name)
			return
		}
	}
}

// hostPath names one entry of hosts: upstream.hosts["kafka-0.internal"].
func hostPath(path, name string) string { return fmt.Sprintf("%s[%q]", path, name) }
