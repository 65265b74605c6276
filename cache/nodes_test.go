// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"tiergate/cache"
)

func node(id int32, host string) cache.Node { return cache.Node{NodeID: id, Host: host, Port: 9092} }

func TestNodesObserve(t *testing.T) {
	var m cache.Nodes // the zero value is ready
	if got := m.Snapshot(); len(got) != 0 {
		t.Fatalf("snapshot of nothing is %v", got)
	}
	steps := []struct {
		observed cache.Node
		news     bool
		want     string
	}{
		{node(2, "b"), true, "[{2 b 9092 }]"},
		{node(0, "a"), true, "[{0 a 9092 } {2 b 9092 }]"},
		{node(2, "b"), false, "[{0 a 9092 } {2 b 9092 }]"},
		{cache.Node{NodeID: 2, Host: "b", Port: 9092, Rack: "r1"}, true, "[{0 a 9092 } {2 b 9092 r1}]"},
		{node(2, "b"), false, "[{0 a 9092 } {2 b 9092 r1}]"}, // an answer that tells no rack takes none away
		{cache.Node{NodeID: 2, Host: "b", Port: 9093}, true, "[{0 a 9092 } {2 b 9093 r1}]"},
		{cache.Node{NodeID: -1, Host: "c", Port: 9092}, false, "[{0 a 9092 } {2 b 9093 r1}]"},
		{cache.Node{NodeID: 3, Host: "", Port: 9092}, false, "[{0 a 9092 } {2 b 9093 r1}]"},
		{cache.Node{NodeID: 3, Host: "c", Port: -1}, false, "[{0 a 9092 } {2 b 9093 r1}]"},
		{cache.Node{NodeID: 3, Host: "c", Port: 65536}, false, "[{0 a 9092 } {2 b 9093 r1}]"},
	}
	for i, step := range steps {
		before := m.Snapshot()
		text := fmt.Sprint(before)
		if news := m.Observe(step.observed); news != step.news {
			t.Fatalf("step %d: Observe(%v) = %v, want %v", i, step.observed, news, step.news)
		}
		if got := fmt.Sprint(m.Snapshot()); got != step.want {
			t.Fatalf("step %d: nodes %s, want %s", i, got, step.want)
		}
		if got := fmt.Sprint(before); got != text {
			t.Fatalf("step %d: a snapshot taken before changed from %s to %s", i, text, got)
		}
	}
	if n, ok := m.Get(2); !ok || n.Address() != "b:9093" {
		t.Fatalf("Get(2) = %v, %v; want b:9093", n, ok)
	}
	if _, ok := m.Get(1); ok {
		t.Fatal("Get(1) found a node that nobody has told of")
	}
	if n, ok := m.ByAddress("b:9093"); !ok || n.NodeID != 2 {
		t.Fatalf("ByAddress = %v, %v; want node 2", n, ok)
	}
	if _, ok := m.ByAddress("b:9092"); ok {
		t.Fatal("ByAddress found an address that is no more")
	}
}

func TestNodeAddressBracketsIPv6(t *testing.T) {
	if got, want := (cache.Node{Host: "2001:db8::1", Port: 9092}).Address(), "[2001:db8::1]:9092"; got != want {
		t.Fatalf("address %s, want %s", got, want)
	}
}

func TestNodesSync(t *testing.T) {
	var m cache.Nodes
	if !m.Sync([]cache.Node{node(1, "b"), node(0, "a")}) {
		t.Fatal("the first list is no news")
	}
	if m.Sync([]cache.Node{node(0, "a"), node(1, "b")}) {
		t.Fatal("the same list in another order is news")
	}
	if m.Sync(nil) || len(m.Snapshot()) != 2 {
		t.Fatalf("an empty list changed the nodes to %v", m.Snapshot())
	}
	// Node 1 restarts: missing from 20 lists it stays, and is counted anew after it is back.
	without := []cache.Node{node(0, "a")}
	for round := range 2 {
		for i := range 20 {
			if m.Sync(without) {
				t.Fatalf("round %d: list %d without node 1 is news", round, i)
			}
		}
		if round == 0 {
			m.Observe(node(1, "b")) // a session's answer named it
		}
	}
	if got, want := fmt.Sprint(m.Snapshot()), "[{0 a 9092 } {1 b 9092 }]"; got != want {
		t.Fatalf("nodes %s, want %s", got, want)
	}
	if !m.Sync(without) {
		t.Fatal("forgetting node 1 is no news")
	}
	if got, want := fmt.Sprint(m.Snapshot()), "[{0 a 9092 }]"; got != want {
		t.Fatalf("nodes %s, want %s", got, want)
	}
}

// A node that is missing while another has its address is gone at once.
func TestNodeWhosePlaceIsTaken(t *testing.T) {
	var m cache.Nodes
	m.Sync([]cache.Node{node(0, "a"), node(1, "b")})
	if !m.Sync([]cache.Node{node(0, "a"), node(7, "b")}) {
		t.Fatal("node 7 instead of node 1 is no news")
	}
	if got, want := fmt.Sprint(m.Snapshot()), "[{0 a 9092 } {7 b 9092 }]"; got != want {
		t.Fatalf("nodes %s, want %s", got, want)
	}
	// Two at one address, both live, are the brokers' own fault, and stay.
	m.Sync([]cache.Node{node(0, "b"), node(7, "b")})
	if got, want := fmt.Sprint(m.Snapshot()), "[{0 b 9092 } {7 b 9092 }]"; got != want {
		t.Fatalf("nodes %s, want %s", got, want)
	}
}

func TestNodesAreBounded(t *testing.T) {
	var m cache.Nodes
	all := make([]cache.Node, 10_001)
	for i := range all {
		all[i] = node(int32(i), "a")
	}
	m.Sync(all)
	if got := len(m.Snapshot()); got != 10_000 {
		t.Fatalf("%d nodes, want 10000", got)
	}
	if m.Observe(node(20_000, "b")) {
		t.Fatal("a node past the bound was taken")
	}
	if !m.Observe(node(7, "b")) {
		t.Fatal("a known node could not change its address at the bound")
	}
}

// A response of many new nodes costs one copy of the map, and one that adds nothing, such as
// unknown nodes once the map is full, costs nothing.
func TestNodesCostOneCopy(t *testing.T) {
	all := make([]cache.Node, 20_000)
	for i := range all {
		all[i] = node(int32(len(all)-i), "a") // descending: no order is given
	}
	for _, c := range []struct {
		name  string
		known []cache.Node
		named []cache.Node
		want  float64
	}{
		{"all are new", nil, all[:5000], 100},
		{"all are new, and too many", nil, all, 100},
		{"all are known", all[:5000], all[:5000], 0},
		{"the map is full, none is known", all[:10_000], all[10_000:], 0},
		{"the map is full, all are known", all[:10_000], all, 0},
	} {
		maps := make([]cache.Nodes, 3) // AllocsPerRun calls once more
		for i := range maps {
			maps[i].Observe(c.known...)
		}
		at := 0
		got := testing.AllocsPerRun(len(maps)-1, func() {
			maps[at].Observe(c.named...)
			at++
		})
		if got > c.want {
			t.Errorf("%s: %v allocations, want %v at most", c.name, got, c.want)
		}
		if got, want := len(maps[0].Snapshot()), min(10_000, max(len(c.known), len(c.named))); got != want {
			t.Errorf("%s: %d nodes are known, want %d", c.name, got, want)
		}
	}
}

// BenchmarkNodesObserve is a response of 20,000 brokers: the first, and the next ones.
func BenchmarkNodesObserve(b *testing.B) {
	all := make([]cache.Node, 20_000)
	for i := range all {
		all[i] = node(int32(i), "a")
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m cache.Nodes
			m.Observe(all...)
		}
	})
	b.Run("next", func(b *testing.B) {
		var m cache.Nodes
		m.Observe(all...)
		b.ReportAllocs()
		for b.Loop() {
			m.Observe(all...)
		}
	})
}

// TestNodesModel runs random histories on the map and on a Go map.
func TestNodesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m cache.Nodes
		want := make(map[int32]cache.Node)
		missed := make(map[int32]int)
		draw := rapid.Custom(func(t *rapid.T) cache.Node {
			return cache.Node{
				NodeID: rapid.Int32Range(-1, 4).Draw(t, "id"),
				Host:   rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "host"),
				Port:   rapid.SampledFrom([]int32{0, 1, 2}).Draw(t, "port"),
			}
		})
		valid := func(n cache.Node) bool { return n.NodeID >= 0 && n.Host != "" && n.Port > 0 }
		put := func(n cache.Node) (news bool) {
			if !valid(n) {
				return false
			}
			news = want[n.NodeID] != n
			want[n.NodeID], missed[n.NodeID] = n, 0
			return news
		}
		t.Repeat(map[string]func(*rapid.T){
			"observe": func(t *rapid.T) {
				n := draw.Draw(t, "node")
				got, news := m.Observe(n), put(n)
				if got != news {
					t.Fatalf("Observe(%v) = %v, want %v", n, got, news)
				}
			},
			"sync": func(t *rapid.T) {
				live := rapid.SliceOfNDistinct(draw, 0, 4, func(n cache.Node) int32 { return n.NodeID }).Draw(t, "live")
				times := rapid.SampledFrom([]int{1, 21}).Draw(t, "times")
				for range times {
					got := m.Sync(live)
					named := make(map[int32]bool)
					news := false
					for _, n := range live {
						news = put(n) || news
						named[n.NodeID] = named[n.NodeID] || valid(n)
					}
					for id := range want {
						if slices.ContainsFunc(live, valid) && !named[id] {
							place := func(n cache.Node) bool { return valid(n) && n.Address() == want[id].Address() }
							if missed[id]++; missed[id] > 20 || slices.ContainsFunc(live, place) {
								delete(want, id)
								news = true
							}
						}
					}
					if got != news {
						t.Fatalf("Sync(%v) = %v, want %v", live, got, news)
					}
				}
			},
			"": func(t *rapid.T) {
				got := m.Snapshot()
				if len(got) != len(want) || !slices.IsSortedFunc(got, func(a, b cache.Node) int { return int(a.NodeID - b.NodeID) }) {
					t.Fatalf("nodes %v, want %v sorted", got, want)
				}
				for _, n := range got {
					if want[n.NodeID] != n || m.Missed(n.NodeID) != missed[n.NodeID] {
						t.Fatalf("node %v missed %d times, want %v and %d", n, m.Missed(n.NodeID), want[n.NodeID], missed[n.NodeID])
					}
				}
			},
		})
	})
}

// TestNodesConcurrentUse is for the race detector; the sum of what writers were told
// to be news is exact, as each writer has node ids of its own.
func TestNodesConcurrentUse(t *testing.T) {
	var m cache.Nodes
	var workers sync.WaitGroup
	news := make([]int, 4)
	for w := range 4 {
		workers.Go(func() {
			for i := range 200 {
				if m.Observe(node(int32(w*10+i%10), fmt.Sprint(i/100))) {
					news[w]++
				}
				for _, n := range m.Snapshot() {
					m.Get(n.NodeID)
				}
			}
		})
	}
	workers.Wait()
	for w, n := range news {
		if n != 20 {
			t.Fatalf("writer %d was told of %d news, want 20", w, n)
		}
	}
	if len(m.Snapshot()) != 40 {
		t.Fatalf("%d nodes, want 40", len(m.Snapshot()))
	}
}
