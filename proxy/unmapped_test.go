// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/codec"
	"tiergate/rewrite"
)

// A node without an address is told as configured, counted each time by listener, and
// warned of once.
func TestUnmappedNode(t *testing.T) {
	const key, version = 3, 0 // Metadata
	brokers := func(list ...byte) []byte { return append([]byte{0, 0, 0}, append(list, 0, 0, 0, 0)...) }
	for mode, want := range map[rewrite.Unmapped][]byte{
		rewrite.UnmappedReject:      brokers(1, 0, 0, 0, 9, 0, 1, 'p', 0, 0, 0, 1),
		rewrite.UnmappedHide:        brokers(0),
		rewrite.UnmappedPassthrough: brokers(1, 0, 0, 0, 9, 0, 2, 'k', '9', 0, 0, 0, 2),
	} {
		b := newBroker(t, func(c *net.TCPConn) {
			for {
				frame, err := readFrame(c)
				if err != nil {
					return
				}
				answer := response(codec.RequestCorrelationID(frame), brokers(1, 0, 0, 0, 9, 0, 2, 'k', '9', 0, 0, 0, 2)...)
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		})
		j := &journal{}
		table := rewrite.NewNodeTable(map[int32]rewrite.Address{1: {Host: "p", Port: 9201}})
		s := newServer(t, b.dial, rewrite.Rules{Addresses: table, Unmapped: mode}, loggingTo(j))
		c := connect(t, s)
		for id := range int32(3) {
			if _, err := c.Write(request(key, version, id)); err != nil {
				t.Fatal(err)
			}
			got, err := readFrame(c)
			if err != nil || !bytes.Equal(got, response(id, want...)) {
				t.Fatalf("%s: got %x, %v; want %x", mode, got, err, response(id, want...))
			}
		}
		if got := j.with("WARN", "no address on this listener", "listener=test", "nodes=9", "unmapped_nodes="+mode.String()); len(got) != 1 {
			t.Errorf("%s: warnings %q, want one", mode, got)
		}
		await(t, "the count", func() bool { return testutil.ToFloat64(s.metrics.unmapped.WithLabelValues("test")) == 3 })
	}
}

// A response that names a thousand nodes without an address brings one line, and nodes that
// come later one line together, when the interval is over.
func TestManyUnmappedNodes(t *testing.T) {
	j := &journal{}
	_, s, _, _ := oneSession(t, 100, loggingTo(j))
	e, now := s.endpoints[0], time.Unix(1000, 0)
	name := func(from, to int32) {
		var nodes []int32
		for id := from; id < to; id++ {
			nodes = append(nodes, id)
		}
		e.unmapped.add(nodes)
		e.warnUnmapped(now)
	}
	want := func(when string, nodes ...string) {
		t.Helper()
		lines := j.with("WARN brokers have no address on this listener")
		if len(lines) != len(nodes) {
			t.Fatalf("%s: %d lines, want %d: %q", when, len(lines), len(nodes), lines)
		}
		for i, list := range nodes {
			if !strings.Contains(lines[i], " nodes="+list+" unmapped_nodes=") {
				t.Errorf("%s: %q, want nodes %s", when, lines[i], list)
			}
		}
	}
	first, second := "0,1,2,3,4,5,6,7,8,9 and 690 more", "700,701,702,703,704,705,706,707,708,709 and 290 more"
	name(0, 700)
	want("at first", first)
	for id := int32(650); id < 2000; id++ {
		name(id, id+1)
	}
	want("soon after", first)
	s.loops[0].tick(now.Add(quietEvery))
	want("at the next tick", first, second)
	now = now.Add(time.Hour)
	name(5000, 9000)
	s.loops[0].tick(now.Add(time.Hour))
	want("when a thousand are known", first, second)
}
