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

const wantIPAddress = `an IP address, such as "10.0.0.10" or "2001:db8::10"`

func (*IPAddress) wanted() string { return wantIPAddress }

// String returns the address as it may stand in a file.
func (a IPAddress) String() string { return netip.Addr(a).String() }

func (a *IPAddress) parse(text string) error {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return fmt.Errorf("is no IP address; wanted %s: names and ports stay those that brokers advertise", wantIPAddress)
	case isWildcard(text):
		return fmt.Errorf("is a wildcard, which nobody can connect to; wanted %s", wantIPAddress)
	}
	*a = IPAddress(addr)
	return nil
}

// hosts reads a mapping of host name to IP address, or to a list of them.
func (d *decoder) hosts(path string, n ast.Node, into *Hosts) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) == 0 {
		d.Fault(path, "%s; wanted %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
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

// hostName refuses a name that no broker can be told by, or that an earlier entry has.
func (d *decoder) hostName(path, name string, before Hosts) {
	key := hostPath(path, name)
	if _, err := netip.ParseAddr(name); err == nil {
		d.Fault(key, "%q is no name but an address, which is dialed as it is; wanted a host name", name)
		return
	}
	if err := checkHost(name); err != nil {
		d.Fault(key, "%q %v; wanted a host name without a port, such as kafka-0.internal", name, err)
		return
	}
	for _, h := range before {
		if hostKey(h.Name) == hostKey(name) {
			d.Fault(key, "%q is the same name as %q; keep one of them, with a list of addresses", name, h.Name)
			return
		}
	}
}

// hostPath names one entry of hosts: upstream.hosts["kafka-0.internal"].
func hostPath(path, name string) string { return fmt.Sprintf("%s[%q]", path, name) }
