// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// fallbackDelay is how long an attempt may be without result before the next
	// address is tried beside it, as in RFC 8305 (happy eyeballs), which advises 250 ms
	// and more. A dead first server costs this and not a whole DialTimeout.
	fallbackDelay = 300 * time.Millisecond
	// maxAddresses of one name are tried; more in a DNS answer are a mistake or a trick.
	maxAddresses = 16
	// maxListed node ids stand in an error.
	maxListed = 20
)

// keepAlive notices a broker that is gone without a word after a minute, and keeps
// what is between (cloud balancers drop silently after 4 minutes) from forgetting
// the connection. field reports 15: librdkafka#2845, #3109.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// DialBootstrap opens a connection to any of the bootstrap servers. Each call starts
// with the next server of the list, and goes on to the others, and to every address
// that their names have now, when one fails or takes long. A server that another one had to
// stand in for is tried last for 30 s. The error names every address tried and why it failed.
//
// The error of all Dial methods has, somewhere in its tree, a method LocalShortage() bool,
// which reports whether this machine lacked a descriptor, a local port or memory, and a
// method Reported() bool, which reports whether it was logged already (see Own).
//
// As all Dial methods it may be called concurrently, blocks until ctx ends, must not
// be called on a loop, and returns a connection that embeds a *net.TCPConn with
// TCP_NODELAY and keepalive on, and is the caller's. Nothing was sent on it. Its method
// ServerName gives the host that the address names, for TLS.
func (c *Cluster) DialBootstrap(ctx context.Context) (net.Conn, error) {
	servers := c.prefer.order(rotate(c.opts.BootstrapServers, int(c.nextServer.Add(1)-1)))
	conn, winner, errs := race(ctx, len(servers), func(ctx context.Context, i int) (net.Conn, error) {
		return c.dial(ctx, servers[i], targetBootstrap)
	})
	if conn == nil {
		return nil, fmt.Errorf("no bootstrap server can be reached: %w", listed(errs))
	}
	c.prefer.reached(servers, winner)
	return conn, nil
}

// DialNode opens a connection to the broker with the given node id at the address
// that the node map has now. A node that is not in the map makes it ask for the
// broker list first, once for all who wait and at most once a second. So does one that
// cannot be reached, ten times a second at most, and when it has moved it is dialed
// where it is now.
func (c *Cluster) DialNode(ctx context.Context, nodeID int32) (net.Conn, error) {
	node, known := c.nodes.Get(nodeID)
	if !known {
		err := c.refresh(ctx)
		if node, known = c.nodes.Get(nodeID); !known {
			return nil, c.unknownNode(nodeID, err)
		}
	}
	conn, err := c.dial(ctx, node.Address(), targetNode)
	if err != nil {
		if now, moved := c.movedTo(ctx, node); moved {
			conn, err = c.dial(ctx, now.Address(), targetNode)
		}
	}
	if err != nil {
		c.wantRefresh() // the broker may be about to move: the next dial shall know
		if n := c.nodes.Missed(nodeID); n > 0 {
			return nil, fmt.Errorf("node %d: %w; it is down or was removed: the cluster's last %s", nodeID, err, without(n))
		}
		return nil, fmt.Errorf("node %d: %w", nodeID, err)
	}
	return conn, nil
}

// movedTo says where a node that could not be dialed is now, if that is elsewhere. While
// the cluster gives no list it does not wait for one.
func (c *Cluster) movedTo(ctx context.Context, was Node) (now Node, moved bool) {
	now, known := c.nodes.Get(was.NodeID)
	if known && now.Address() == was.Address() && c.refusedBy.Load() == nil {
		ctx, cancel := context.WithTimeout(ctx, recheckPatience)
		defer cancel()
		_, _ = c.rechecks.Load(ctx, []struct{}{{}}) // what it found is in the map
		now, known = c.nodes.Get(was.NodeID)
	}
	return now, known && now.Address() != was.Address()
}

// without says that a node is missing from the last n broker lists.
func without(n int) string {
	if n == 1 {
		return "broker list does not name it"
	}
	return fmt.Sprintf("%d broker lists do not name it", n)
}

func (c *Cluster) unknownNode(nodeID int32, refreshed error) error {
	seen := "no broker was seen yet"
	if nodes := c.nodes.Snapshot(); len(nodes) > 0 {
		var ids []string
		for _, n := range nodes[:min(len(nodes), maxListed)] {
			ids = append(ids, strconv.Itoa(int(n.NodeID)))
		}
		seen = "brokers seen are " + strings.Join(ids, ", ")
		if more := len(nodes) - maxListed; more > 0 {
			seen += fmt.Sprintf(" and %d more", more)
		}
	}
	if refreshed != nil {
		return fmt.Errorf("node %d is not known: %s: %w", nodeID, seen, refreshed)
	}
	return fmt.Errorf("node %d is not known: %s", nodeID, seen)
}

// DialAddress opens a connection to one address, host:port.
func (c *Cluster) DialAddress(ctx context.Context, address string) (net.Conn, error) {
	return c.dial(ctx, address, targetAddress)
}

// dial opens a connection to an address, counts it and remembers a failure.
func (c *Cluster) dial(ctx context.Context, address string, target dialTarget) (net.Conn, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("dial %w", err)
	}
	conn, result, err := c.failed.guard(ctx, address, func() (net.Conn, error) {
		return c.dialHost(ctx, host, port, c.opts.Own)
	})
	c.metrics.dials.WithLabelValues(string(target), string(result)).Inc()
	if err != nil {
		return nil, err
	}
	if c.opts.TLS == nil {
		c.reached() // with TLS, a port that takes connections is no broker yet
	}
	return conn, nil
}

// dialHost resolves host and tries its addresses.
func (c *Cluster) dialHost(ctx context.Context, host string, port uint16, own Own) (net.Conn, error) {
	address := net.JoinHostPort(host, strconv.Itoa(int(port)))
	ips, err := c.lookup(ctx, host)
	if err != nil {
		return nil, &dialError{address: address, tried: []attempt{{address, err}}}
	}
	addresses := make([]string, len(ips))
	for i, ip := range ips {
		addresses[i] = netip.AddrPortFrom(ip, port).String()
	}
	addresses = c.prefer.order(addresses)
	conn, winner, errs := race(ctx, len(addresses), func(ctx context.Context, i int) (net.Conn, error) {
		conn, err := c.dialResolved(ctx, host, addresses[i], own)
		if errors.As(err, new(ownAddressError)) && c.selfDialed.first(address) {
			c.opts.Logger.Warn("a broker's address is one that tiergate itself listens on: it is not dialed, since that would lead back to tiergate without end; "+
				"correct the brokers' advertised.listeners, or upstream.bootstrap_servers", "address", address, "resolved", addresses[i])
		}
		return conn, err
	})
	if conn != nil {
		c.prefer.reached(addresses, winner)
		return conn, nil
	}
	failed := &dialError{address: address}
	for i, err := range errs {
		if err != nil { // nil: ctx ended before its turn
			failed.tried = append(failed.tried, attempt{addresses[i], err})
		}
	}
	return nil, failed
}

// dialResolved opens a connection to one address that host has, or to the broker behind it
// where the address is this process's own.
func (c *Cluster) dialResolved(ctx context.Context, host, address string, own Own) (net.Conn, error) {
	switch route, is := own(netip.MustParseAddrPort(address)); {
	case is && route == "":
		return nil, ownAddressError{}
	case is:
		host, port, err := splitAddress(route)
		if err != nil {
			return nil, err
		}
		return c.dialHost(ctx, host, port, own.withoutRoutes)
	}
	dialer := net.Dialer{Timeout: c.opts.DialTimeout, KeepAliveConfig: keepAlive} // TCP_NODELAY is net's default
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &brokerConn{tcp, host}, nil
	}
	return conn, err
}

// lookup returns at least one and at most maxAddresses addresses, or an error.
func (c *Cluster) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	ips, err := c.opts.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	found := make([]netip.Addr, 0, min(len(ips), maxAddresses))
	for _, ip := range ips[:cap(found)] {
		found = append(found, ip.Unmap())
	}
	return found, nil
}

// attempt is one address tried in vain.
type attempt struct {
	address string
	err     error
}

// dialError says which addresses were tried and why each failed.
type dialError struct {
	address string // as configured or told by a broker
	tried   []attempt
}

func (e *dialError) Error() string {
	var text strings.Builder
	text.WriteString(e.address)
	for i, a := range e.tried {
		switch {
		case len(e.tried) == 1 && a.address == e.address:
			text.WriteString(": ")
		case i == 0:
			text.WriteString(": " + a.address + ": ")
		default:
			text.WriteString("; " + a.address + ": ")
		}
		text.WriteString(reason(a.err))
	}
	return text.String()
}

func (e *dialError) Unwrap() []error {
	errs := make([]error, len(e.tried))
	for i, a := range e.tried {
		errs[i] = a.err
	}
	return errs
}

// reason is the text of err without the operation and addresses that net puts
// before it.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

// listed joins errs on one line.
func listed(errs []error) error {
	return &errorList{slices.DeleteFunc(errs, func(e error) bool { return e == nil })}
}

type errorList struct{ errs []error }

func (l *errorList) Error() string {
	texts := make([]string, len(l.errs))
	for i, err := range l.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (l *errorList) Unwrap() []error { return l.errs }

// rotate returns a copy of list that starts at its element n modulo its length.
func rotate(list []string, n int) []string {
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// race runs attempts 0 to n-1 until one gives a connection, the winner: the next one begins
// when one has failed, or when fallbackDelay has gone by since the last one began. The
// others are called off. Without a connection it returns the errors, by attempt; nil
// for those that ctx left no time for.
func race(ctx context.Context, n int, try func(ctx context.Context, i int) (net.Conn, error)) (conn net.Conn, winner int, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		i    int
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome, n) // room for all: a late attempt does not block
	began, ended := 0, 0
	begin := func() {
		i := began
		began++
		go func() {
			conn, err := try(ctx, i)
			outcomes <- outcome{i, conn, err}
		}()
	}
	begin()
	timer := time.NewTimer(fallbackDelay)
	defer timer.Stop()
	errs = make([]error, n)
	for ended < began {
		select {
		case o := <-outcomes:
			ended++
			if o.err == nil {
				go func() { // called off, yet one may have won too
					for range began - ended {
						if late := <-outcomes; late.err == nil {
							_ = late.conn.Close()
						}
					}
				}()
				return o.conn, o.i, nil
			}
			errs[o.i] = o.err
		case <-timer.C:
		}
		if began < n && ctx.Err() == nil {
			begin()
			timer.Reset(fallbackDelay)
		}
	}
	return nil, -1, errs
}
