// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// names is a resolver of its own: nothing leaves the machine.
type names struct {
	mu    sync.Mutex
	hosts map[string][]string
	asked int
}

func (n *names) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	ips, ok := n.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var found []netip.Addr
	for _, ip := range ips {
		found = append(found, netip.MustParseAddr(ip))
	}
	return found, nil
}

func TestDialBootstrapTakesTurns(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "[::1]:0")
	c := newTestCluster(t, Options{BootstrapServers: []string{a.Addr().String(), b.Addr().String()}}, time.Now)
	for range 4 {
		conn, err := c.DialBootstrap(testContext(t))
		connect(t, conn, err)
	}
	eventually(t, "two connections to each server", func() bool { return a.count() == 2 && b.count() == 2 })
}

func TestDialBootstrapGoesOnToTheNext(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	c := newTestCluster(t, Options{
		BootstrapServers: []string{refusing(t), "kafka.invalid:9092", live.Addr().String()},
		LookupHost:       (&names{}).lookup,
	}, newClock().now)
	for range 3 { // beginning with each server once
		conn, err := c.DialBootstrap(testContext(t))
		connect(t, conn, err)
	}
	eventually(t, "three connections", func() bool { return live.count() == 3 })
}

func TestDialBootstrapNamesAllThatFailed(t *testing.T) {
	first, second := refusing(t), refusing(t)
	_, port, _ := net.SplitHostPort(second)
	clock := newClock()
	c := newTestCluster(t, Options{
		BootstrapServers: []string{first, "kafka.invalid:9092", "two.invalid:" + port},
		LookupHost:       (&names{hosts: map[string][]string{"two.invalid": {"127.0.0.1", "::1"}}}).lookup,
	}, clock.now)
	_, err := c.DialBootstrap(testContext(t))
	down := ": connect: connection refused"
	wantText(t, err, "no bootstrap server can be reached: "+first+down+
		"; kafka.invalid:9092: lookup kafka.invalid: no such host"+
		"; two.invalid:"+port+": 127.0.0.1:"+port+down+"; [::1]:"+port+down)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal("the error is not ECONNREFUSED to errors.Is")
	}

	// All at once again, from memory, and beginning with the second.
	_, err = c.DialBootstrap(testContext(t))
	memory := " (remembered for 100ms)"
	wantText(t, err, "no bootstrap server can be reached: "+
		"kafka.invalid:9092: lookup kafka.invalid: no such host"+memory+
		"; two.invalid:"+port+": 127.0.0.1:"+port+down+"; [::1]:"+port+down+memory+
		"; "+first+down+memory)
}

func TestDialAddressTriesEveryAddressOfAName(t *testing.T) {
	v6 := listen(t, "[::1]:0")
	dns := &names{hosts: map[string][]string{"kafka.invalid": {"127.0.0.1", "::ffff:127.0.0.2", "::1"}}}
	c := newTestCluster(t, Options{BootstrapServers: []string{"kafka.invalid:1"}, LookupHost: dns.lookup}, newClock().now)
	conn, err := c.DialAddress(testContext(t), "kafka.invalid:"+v6.port())
	connect(t, conn, err)

	// The broker moves: the next dial knows, as nothing of the old answer is kept.
	v4 := listen(t, "127.0.0.3:0")
	dns.mu.Lock()
	dns.hosts["kafka.invalid"] = []string{"127.0.0.3"}
	dns.mu.Unlock()
	conn, err = c.DialAddress(testContext(t), "kafka.invalid:"+v4.port())
	connect(t, conn, err)
	if dns.asked != 2 {
		t.Fatalf("%d look-ups, want 2: one for every dial", dns.asked)
	}
}

func TestDialAddressBoundsTheAddressesOfAName(t *testing.T) {
	_, port, _ := net.SplitHostPort(refusing(t))
	var ips []string
	for i := range 50 {
		ips = append(ips, fmt.Sprintf("127.0.1.%d", i+1))
	}
	dns := &names{hosts: map[string][]string{"many.invalid": ips, "none.invalid": {}}}
	c := newTestCluster(t, Options{BootstrapServers: []string{"many.invalid:1"}, LookupHost: dns.lookup}, newClock().now)
	_, err := c.DialAddress(testContext(t), "many.invalid:"+port)
	if n := strings.Count(fmt.Sprint(err), "connection refused"); n != maxAddresses {
		t.Fatalf("%d addresses tried, want %d: %v", n, maxAddresses, err)
	}
	_, err = c.DialAddress(testContext(t), "none.invalid:"+port)
	wantText(t, err, "none.invalid:"+port+": lookup none.invalid: no addresses")
}

func TestDialAddressRefusesWhatIsNoAddress(t *testing.T) {
	c := newTestCluster(t, Options{BootstrapServers: []string{"127.0.0.1:1"}}, newClock().now)
	for address, want := range map[string]string{
		"kafka":      `dial "kafka": want host:port, and an IPv6 address in brackets`,
		"::1:9092":   `dial "::1:9092": want host:port, and an IPv6 address in brackets`,
		"kafka:0":    `dial "kafka:0": want host:port with a port from 1 to 65535`,
		"kafka:http": `dial "kafka:http": want host:port with a port from 1 to 65535`,
		":9092":      `dial ":9092": want host:port with a port from 1 to 65535`,
	} {
		_, err := c.DialAddress(testContext(t), address)
		wantText(t, err, want)
	}
}

func TestDialThatIsCalledOffIsNotRemembered(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	looking := make(chan struct{}, 1)
	c := newTestCluster(t, Options{
		BootstrapServers: []string{"slow.invalid:" + live.port()},
		LookupHost: func(ctx context.Context, _ string) ([]netip.Addr, error) {
			select {
			case looking <- struct{}{}:
				<-ctx.Done()
				return nil, ctx.Err()
			default: // the second time the answer is there at once
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
		},
	}, newClock().now)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		for len(looking) == 0 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	if _, err := c.DialBootstrap(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("dial ended with %v, want canceled", err)
	}
	conn, err := c.DialBootstrap(testContext(t))
	connect(t, conn, err)
}

func TestDialNode(t *testing.T) {
	k := newKafka(t)
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()[:1]}, clock.now)
	ctx := testContext(t)

	// The first dial finds the list by itself, and all who wait share it.
	var dials sync.WaitGroup
	for i := range 30 {
		dials.Go(func() {
			conn, err := c.DialNode(ctx, int32(i%3))
			if err != nil {
				t.Error(err)
				return
			}
			if got, want := conn.RemoteAddr().String(), k.ListenAddrs()[i%3]; got != want {
				t.Errorf("node %d dialed at %s, want %s", i%3, got, want)
			}
			_ = conn.Close()
		})
	}
	dials.Wait()
	if n := k.metadataRequests(); n != 1 {
		t.Fatalf("%d Metadata requests, want 1 for all", n)
	}

	// A node that is not there, for a second from memory.
	for range 5 {
		_, err := c.DialNode(ctx, 7)
		wantText(t, err, "node 7 is not known: brokers seen are 0, 1, 2")
	}
	if n := k.metadataRequests(); n != 1 {
		t.Fatalf("%d Metadata requests within a second, want 1", n)
	}
	if _, _, err := k.AddNode(7, 0); err != nil {
		t.Fatal(err)
	}
	clock.pass(minRefresh)
	conn, err := c.DialNode(ctx, 7)
	connect(t, conn, err)
	if n := k.metadataRequests(); n != 2 {
		t.Fatalf("%d Metadata requests, want 2", n)
	}
}

func TestDialNodeWithoutACluster(t *testing.T) {
	down := refusing(t)
	c := newTestCluster(t, Options{BootstrapServers: []string{down}}, newClock().now)
	_, err := c.DialNode(testContext(t), 7)
	wantText(t, err, "node 7 is not known: no broker was seen yet: no broker list: "+down+": connect: connection refused")
}

func TestDialNodeAtAnObservedAddress(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	port, _ := strconv.Atoi(live.port())
	c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t)}}, newClock().now)
	c.ObserveNodes(Node{NodeID: 4, Host: "127.0.0.1", Port: int32(port)})
	c.ObserveNodes(Node{NodeID: -1, Host: "", Port: -1}) // FindCoordinator without a coordinator
	conn, err := c.DialNode(testContext(t), 4)
	connect(t, conn, err)
	if got, want := fmt.Sprint(c.Nodes()), fmt.Sprintf("[{4 127.0.0.1 %d }]", port); got != want {
		t.Fatalf("nodes %s, want %s", got, want)
	}
}

func TestDialNodeOfALargeCluster(t *testing.T) {
	c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t)}}, newClock().now)
	for id := range int32(22) {
		c.ObserveNodes(Node{NodeID: id, Host: "kafka.invalid", Port: 9092})
	}
	_, err := c.DialNode(testContext(t), 99)
	text, _, _ := strings.Cut(err.Error(), ": no broker list")
	if want := "node 99 is not known: brokers seen are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 2 more"; text != want {
		t.Fatalf("error %q, want %q", text, want)
	}
}

// A node that has moved is dialed at its new address when the old one fails, long before
// the next refresh is due, and also when the last one was a moment ago.
func TestDialNodeThatFailsRefreshesTheMap(t *testing.T) {
	k := newKafka(t, kfake.NumBrokers(1))
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()}, clock.now)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	c.Start(ctx)
	eventually(t, "node 0 is known", func() bool { return len(c.Nodes()) == 1 })

	host, port, _ := splitAddress(refusing(t))
	c.ObserveNodes(Node{NodeID: 0, Host: host, Port: int32(port)})
	conn, err := c.DialNode(ctx, 0)
	connect(t, conn, err)
	if got, want := c.Nodes()[0].Address(), k.ListenAddrs()[0]; got != want {
		t.Fatalf("node 0 at %s, want %s", got, want)
	}
}

// moved is a broker that goes and comes back under another port.
func moved(t *testing.T, k *kafka, nodeID int32) (was, is string) {
	t.Helper()
	was = k.ListenAddrs()[nodeID]
	if err := k.RemoveNode(nodeID); err != nil {
		t.Fatal(err)
	}
	_, port, err := k.AddNode(nodeID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return was, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// A broker that restarts under another port is dialed there: the dial itself finds out, or
// the service client's list, or an answer to some client, has told of it before.
func TestDialNodeThatMoved(t *testing.T) {
	k := newKafka(t)
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()[:1]}, clock.now)
	ctx := testContext(t)
	if err := c.BrokerList(ctx); err != nil {
		t.Fatal(err)
	}
	dial := func(want string) {
		t.Helper()
		conn, err := c.DialNode(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); got != want {
			t.Fatalf("node 2 dialed at %s, want %s", got, want)
		}
		_ = conn.Close()
	}
	_, is := moved(t, k, 2)
	dial(is) // within a second after the last list

	_, is = moved(t, k, 2)
	clock.pass(minRefresh)
	if err := c.BrokerList(ctx); err != nil {
		t.Fatal(err)
	}
	dial(is)

	_, is = moved(t, k, 2)
	host, port, _ := splitAddress(is)
	c.ObserveNodes(Node{NodeID: 2, Host: host, Port: int32(port)})
	dial(is)
}

// A broker that was removed says so, for as long as it is remembered and afterwards; one
// that is added is dialed without further ado.
func TestDialNodeThatWasRemoved(t *testing.T) {
	k := newKafka(t)
	clock := newClock()
	c := newTestCluster(t, Options{BootstrapServers: k.ListenAddrs()[:1]}, clock.now)
	ctx := testContext(t)
	lists := func(n int) {
		t.Helper()
		for range n {
			clock.pass(minRefresh)
			if err := c.BrokerList(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	lists(1)
	was := k.ListenAddrs()[2]
	if err := k.RemoveNode(2); err != nil {
		t.Fatal(err)
	}
	lists(1)
	clock.pass(time.Minute) // the service client has tried it too
	_, err := c.DialNode(ctx, 2)
	wantText(t, err, "node 2: "+was+": connect: connection refused; it is down or was removed: the cluster's last broker list does not name it")
	lists(19)
	clock.pass(time.Minute)
	_, err = c.DialNode(ctx, 2)
	wantText(t, err, "node 2: "+was+": connect: connection refused; it is down or was removed: the cluster's last 20 broker lists do not name it")
	lists(1)
	_, err = c.DialNode(ctx, 2)
	wantText(t, err, "node 2 is not known: brokers seen are 0, 1")

	if _, _, err := k.AddNode(9, 0); err != nil {
		t.Fatal(err)
	}
	clock.pass(minRefresh)
	conn, err := c.DialNode(ctx, 9)
	connect(t, conn, err)
}

// A broker whose name leads elsewhere now is dialed there: nothing is remembered of names.
func TestDialNodeResolvesEachTime(t *testing.T) {
	first := listen(t, "127.0.0.1:0")
	second := listen(t, "127.0.0.2:"+first.port())
	port, _ := strconv.Atoi(first.port())
	dns := &names{hosts: map[string][]string{"kafka-4.internal": {"127.0.0.1"}}}
	c := newTestCluster(t, Options{BootstrapServers: []string{refusing(t)}, LookupHost: dns.lookup}, newClock().now)
	c.ObserveNodes(Node{NodeID: 4, Host: "kafka-4.internal", Port: int32(port)})
	for _, want := range []string{"127.0.0.1:" + first.port(), "127.0.0.2:" + second.port()} {
		conn, err := c.DialNode(testContext(t), 4)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); got != want {
			t.Fatalf("dialed %s, want %s", got, want)
		}
		_ = conn.Close()
		dns.mu.Lock()
		dns.hosts["kafka-4.internal"] = []string{"127.0.0.2"}
		dns.mu.Unlock()
	}
}
