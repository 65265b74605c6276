// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"
)

// ownAt is an Own for one address.
func ownAt(address net.Addr, route string) Own {
	return func(at netip.AddrPort) (string, bool) {
		if at.String() != address.String() {
			return "", false
		}
		return route, true
	}
}

// An address that this process listens on is dialed by nobody, whatever leads to it; the
// log says so once.
func TestOwnAddressIsNotDialed(t *testing.T) {
	self := listen(t, "127.0.0.1:0")
	port, _ := strconv.Atoi(self.port())
	var log logged
	dns := &names{hosts: map[string][]string{"lb.invalid": {"::ffff:127.0.0.1"}}}
	c := newTestCluster(t, Options{
		BootstrapServers: []string{"lb.invalid:" + self.port()}, LookupHost: dns.lookup, Own: ownAt(self.Addr(), ""), Logger: log.logger(),
	}, newClock().now)
	c.ObserveNodes(Node{NodeID: 4, Host: "lb.invalid", Port: int32(port)})
	text := "lb.invalid:" + self.port() + ": 127.0.0.1:" + self.port() + ": tiergate itself listens on this address"
	for range 3 {
		_, err := c.DialNode(testContext(t), 4)
		wantText(t, err, "node 4: "+text)
		_, err = c.DialAddress(testContext(t), "lb.invalid:"+self.port())
		wantText(t, err, text)
		_, err = c.DialBootstrap(testContext(t))
		wantText(t, err, "no bootstrap server can be reached: "+text)
		if !isReported(err) || isShortage(err) {
			t.Fatalf("reported %v, shortage %v; want only reported", isReported(err), isShortage(err))
		}
	}
	if err := c.BrokerList(testContext(t)); err == nil {
		t.Fatal("the service client got a broker list from nowhere")
	}
	if n := self.count(); n != 0 {
		t.Fatalf("%d connections to itself, want none", n)
	}
	if lines := log.lines("a broker's address is one that tiergate itself listens on"); len(lines) != 1 {
		t.Fatalf("logged %q, want one line", lines)
	}
	if n := testutil.ToFloat64(c.metrics.dials.WithLabelValues("node", "own")); n != 3 {
		t.Fatalf("%v dials of nodes count as own, want 3", n)
	}
}

// A bootstrap server that is tiergate itself leaves the others to be used.
func TestOwnBootstrapServer(t *testing.T) {
	self, broker := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	c := newTestCluster(t, Options{
		BootstrapServers: []string{self.Addr().String(), broker.Addr().String()}, Own: ownAt(self.Addr(), ""),
	}, newClock().now)
	for range 4 {
		conn, err := c.DialBootstrap(testContext(t))
		connect(t, conn, err)
	}
	eventually(t, "four connections to the broker", func() bool { return broker.count() == 4 })
	if n := self.count(); n != 0 {
		t.Fatalf("%d connections to itself, want none", n)
	}
}

// Where a direct listener stands at the address that the broker advertises, the broker
// behind it is dialed. A route to another such address is a circle.
func TestOwnAddressWithRoute(t *testing.T) {
	self := listen(t, "127.0.0.1:0")
	k := newKafka(t, kfake.NumBrokers(1))
	broker := k.ListenAddrs()[0]
	c := newTestCluster(t, Options{BootstrapServers: []string{self.Addr().String()}, Own: ownAt(self.Addr(), broker)}, newClock().now)
	if err := c.BrokerList(testContext(t)); err != nil {
		t.Fatal(err)
	}
	conn, err := c.DialAddress(testContext(t), self.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.RemoteAddr().String(); got != broker {
		t.Fatalf("dialed %s, want %s", got, broker)
	}
	_ = conn.Close()

	c = newTestCluster(t, Options{BootstrapServers: []string{broker}, Own: ownAt(self.Addr(), self.Addr().String())}, newClock().now)
	_, err = c.DialAddress(testContext(t), self.Addr().String())
	if !isReported(err) {
		t.Fatalf("error %v, want one that is reported", err)
	}
	if n := self.count(); n != 0 {
		t.Fatalf("%d connections to itself, want none", n)
	}
}

func failedDial(errs ...error) error {
	e := &dialError{address: "a:1"}
	for i, err := range errs {
		op := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
		e.tried = append(e.tried, attempt{fmt.Sprintf("10.0.0.%d:1", i), op})
	}
	return e
}

// What this machine lacks is not held against the broker: the next dial goes out.
func TestLocalShortageIsNotRemembered(t *testing.T) {
	f := func(result dialResult, err error) {
		t.Helper()
		memory := newFailures(newClock().now)
		for range 2 {
			_, got, _ := memory.guard(t.Context(), "a:1", func() (net.Conn, error) { return nil, err })
			if got != result {
				t.Errorf("%v: %s, want %s", err, got, result)
			}
			if result == dialFailed {
				return
			}
		}
	}

	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		f(dialShortage, failedDial(errno))
		f(dialShortage, failedDial(errno, syscall.EADDRNOTAVAIL))
		f(dialFailed, failedDial(errno, syscall.ECONNREFUSED)) // [::1] where there is no IPv6, say
	}
	f(dialShortage, &dialError{address: "a:1", tried: []attempt{{"a:1", &net.DNSError{Err: "dial udp 10.0.0.1:53: socket: too many open files"}}}})
	f(dialFailed, &dialError{address: "a:1", tried: []attempt{{"a:1", &net.DNSError{Err: "no such host"}}}})
	f(dialFailed, errors.New("else"))
}

// The error of a bootstrap dial is a shortage when that of every server is.
func TestLocalShortageOfAllServers(t *testing.T) {
	short, down := failedDial(syscall.EMFILE), failedDial(syscall.ECONNREFUSED)
	for _, c := range []struct {
		errs []error
		want bool
	}{{[]error{short, short}, true}, {[]error{short, down}, false}, {[]error{down, short}, false}, {[]error{nil, short}, true}} {
		if got := isShortage(fmt.Errorf("no bootstrap server: %w", listed(c.errs))); got != c.want {
			t.Errorf("%v: %v, want %v", c.errs, got, c.want)
		}
	}
}

// A bootstrap server that answers nothing costs one dial in 30 s the time to go on to the
// next one, not every second dial.
func TestSilentBootstrapServerIsTriedLast(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	var tried atomic.Int32
	clock := newClock()
	c := newTestCluster(t, Options{
		BootstrapServers: []string{"silent.invalid:9092", live.Addr().String()},
		LookupHost: func(ctx context.Context, _ string) ([]netip.Addr, error) {
			tried.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, clock.now)
	dials := func(n int, want int32) {
		t.Helper()
		for range n {
			conn, err := c.DialBootstrap(testContext(t))
			connect(t, conn, err)
		}
		if got := tried.Load(); got != want {
			t.Fatalf("the silent server was tried %d times, want %d", got, want)
		}
	}
	dials(10, 1)
	clock.pass(retryLast)
	dials(10, 2)
}

// So does an address of a name that has several.
func TestPreference(t *testing.T) {
	clock := newClock()
	p := preference{now: clock.now}
	f := func(want string, winner int) {
		t.Helper()
		got := p.order([]string{"a", "b", "c"})
		if fmt.Sprint(got) != want {
			t.Errorf("order %v, want %s", got, want)
		}
		p.reached(got, winner)
	}

	f("[a b c]", 2)
	f("[c a b]", 0)
	clock.pass(retryLast)
	f("[a b c]", 1) // one dial begins with a again
	f("[b c a]", 0)
	clock.pass(retryLast)
	f("[a b c]", 0) // it answers
	f("[a b c]", 0)
	for i := range 10_000 {
		p.reached([]string{strconv.Itoa(i), "x"}, 1)
		clock.pass(retryLast)
	}
	if n := len(p.last); n > manyFailures {
		t.Errorf("%d addresses remembered, want at most %d", n, manyFailures)
	}
}
