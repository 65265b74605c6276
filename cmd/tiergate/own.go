// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"tiergate/config"
	"tiergate/upstream"
)

// own is what a configuration listens on, as resolved addresses.
type own struct {
	// binds has every address, and the cluster and broker of a direct listener behind it.
	// The IP address of a wildcard is the zero Addr: Go's listeners on 0.0.0.0 and on [::]
	// take both IPv4 and IPv6.
	binds map[netip.AddrPort]behind
	// hosts are the hosts that were resolved.
	hosts  map[string]netip.Addr
	locals *localAddresses
}

// behind is the one broker that all clients of an address are passed to; the zero value
// where there is none.
type behind struct {
	cluster config.Name
	broker  string
}

// newOwn resolves what a configuration listens on, the admin port included, as
// net.Listen does.
func newOwn(c *config.Config) *own {
	o := &own{binds: map[netip.AddrPort]behind{}, hosts: map[string]netip.Addr{}, locals: &localAddresses{list: net.InterfaceAddrs}}
	o.add(c.Admin.Address, behind{})
	for _, of := range c.All() {
		for _, l := range of.Listeners {
			for _, at := range binds(l) {
				o.add(at, behind{})
			}
			for _, r := range l.Direct {
				o.add(r.Listen, behind{of.Name, r.Broker.String()})
			}
		}
	}
	return o
}

func (o *own) add(at config.HostPort, to behind) {
	ip, resolved := o.hosts[at.Host]
	if !resolved {
		tcp, err := net.ResolveTCPAddr("tcp", at.String())
		if err != nil {
			return // listening fails too, and says why
		}
		ip = tcp.AddrPort().Addr().Unmap().WithZone("")
		if ip.IsUnspecified() {
			ip = netip.Addr{}
		}
		o.hosts[at.Host] = ip
	}
	o.binds[netip.AddrPortFrom(ip, at.Port)] = to
}

// of is the upstream.Own of a cluster. A direct listener of another cluster is no way to a
// broker of this one.
func (o *own) of(cluster config.Name) upstream.Own {
	return func(at netip.AddrPort) (route string, is bool) {
		to, is := o.find(at)
		if to.cluster != cluster {
			return "", is
		}
		return to.broker, is
	}
}

func (o *own) find(at netip.AddrPort) (behind, bool) {
	ip := at.Addr().Unmap().WithZone("")
	switch { // connecting to a wildcard is connecting to the loopback address
	case ip == netip.IPv4Unspecified():
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case ip == netip.IPv6Unspecified():
		ip = netip.IPv6Loopback()
	}
	if to, ok := o.binds[netip.AddrPortFrom(ip, at.Port())]; ok {
		return to, true
	}
	to, ok := o.binds[netip.AddrPortFrom(netip.Addr{}, at.Port())]
	if ok && (ip.IsLoopback() || o.locals.has(ip)) {
		return to, true
	}
	return behind{}, false
}

// binds lists every address that a listener listens on.
func binds(l config.Listener) []config.HostPort {
	all := []config.HostPort{l.Bootstrap}
	switch l.Kind() {
	case config.KindRange:
		for p := int32(l.Nodes.First); p <= int32(l.Nodes.Last); p++ {
			all = append(all, config.HostPort{Host: l.Nodes.Host, Port: uint16(p)}) //nolint:gosec // between two ports
		}
	case config.KindAddresses:
		for _, a := range l.NodeAddresses {
			all = append(all, a.Bind)
		}
	case config.KindSNI:
		return []config.HostPort{l.SNI.Bind}
	case config.KindDirect:
		all = all[:0]
		for _, r := range l.Direct {
			all = append(all, r.Listen)
		}
	}
	return all
}

// ports lists every port that a configuration listens on, sorted, each once.
func ports(c *config.Config) []int32 {
	all := []int32{int32(c.Admin.Address.Port)}
	for _, of := range c.All() {
		for _, l := range of.Listeners {
			for _, at := range binds(l) {
				all = append(all, int32(at.Port))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// localsFor is how long the addresses of the interfaces are remembered: the kernel lists
// them slowly where there are many, and a virtual address may come and go.
const localsFor = time.Second

// localAddresses are those of this machine's interfaces.
type localAddresses struct {
	list func() ([]net.Addr, error)

	mu    sync.Mutex
	known map[netip.Addr]struct{}
	until time.Time
}

// has reports whether an interface has the address. When the kernel does not say, none has.
func (l *localAddresses) has(ip netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.After(l.until) {
		l.until, l.known = now.Add(localsFor), map[netip.Addr]struct{}{}
		found, _ := l.list()
		for _, a := range found {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				l.known[prefix.Addr().Unmap()] = struct{}{}
			}
		}
	}
	_, local := l.known[ip]
	return local
}
