// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"fmt"
	"math"
	"testing"
)

func TestPortRangeAdvertised(t *testing.T) {
	fromZero := PortRange{Host: "kafka.example.com", FirstNodeID: 0, FirstPort: 9200, Count: 10}
	fromHundred := PortRange{Host: "2001:db8::1", FirstNodeID: 100, FirstPort: 65530, Count: 6}
	low := PortRange{Host: "h", FirstNodeID: 10, FirstPort: 3, Count: 2}

	neighbours := PortRange{Host: "h", FirstPort: 9200, Count: 10, Taken: []int32{9192, 9210, 9211, 9644}}

	f := func(r PortRange, nodeID int32, want string) {
		t.Helper()
		host, port, mapped := r.Advertised(nodeID)
		if got := fmt.Sprintf("%s %d %t", host, port, mapped); got != want {
			t.Errorf("%+v, node %d: got %q, want %q", r, nodeID, got, want)
		}
	}

	f(fromZero, 0, "kafka.example.com 9200 true")
	f(fromZero, 9, "kafka.example.com 9209 true")
	f(fromZero, 10, "kafka.example.com 9210 false")
	f(fromZero, 56335, "kafka.example.com 65535 false")
	f(fromZero, 56336, "kafka.example.com 1 false")
	f(fromZero, math.MaxInt32, "kafka.example.com 1 false")
	f(fromZero, -1, "kafka.example.com 9199 false")
	f(fromZero, math.MinInt32, "kafka.example.com 1 false")

	f(fromHundred, 99, "2001:db8::1 65529 false")
	f(fromHundred, 100, "2001:db8::1 65530 true")
	f(fromHundred, 105, "2001:db8::1 65535 true")
	f(fromHundred, 106, "2001:db8::1 1 false")

	f(low, 10, "h 3 true")
	f(low, 8, "h 1 false")
	f(low, 7, "h 1 false")
	f(low, 0, "h 1 false")

	f(neighbours, 9, "h 9209 true")
	f(neighbours, 10, "h 1 false")
	f(neighbours, 11, "h 1 false")
	f(neighbours, 12, "h 9212 false")
	f(neighbours, 444, "h 1 false")
	f(neighbours, -8, "h 1 false")
}

func TestNodeTable(t *testing.T) {
	table := NewNodeTable(map[int32]Address{7: {"b7.example.com", 9092}, 3: {"2001:db8::3", 19093}, 2147483647: {"z", 1234}})
	for nodeID, want := range map[int32]string{
		7: "b7.example.com 9092 true", 3: "2001:db8::3 19093 true", 2147483647: "z 1234 true",
		0: "2001:db8::3 1 false", 8: "2001:db8::3 1 false", -1: "2001:db8::3 1 false",
	} {
		host, port, mapped := table.Advertised(nodeID)
		if got := fmt.Sprintf("%s %d %t", host, port, mapped); got != want {
			t.Errorf("node %d: got %s, want %s", nodeID, got, want)
		}
	}
	if got, want := table.Growth(), len("b7.example.com")+len("2001:db8::3")+len("z"); got != want {
		t.Errorf("growth %d, want %d", got, want)
	}
	host, _, _ := NewNodeTable(map[int32]Address{math.MaxInt32: {"only", 1}}).Advertised(1)
	if host != "only" {
		t.Errorf("got %q, want only", host)
	}
}

func TestNodeNames(t *testing.T) {
	names := NodeNames{Before: "b", After: ".kafka.example.com", Port: 9093}
	for nodeID, want := range map[int32]string{
		0: "b0.kafka.example.com 9093 true", 12: "b12.kafka.example.com 9093 true",
		math.MaxInt32: "b2147483647.kafka.example.com 9093 true", -1: "b0.kafka.example.com 1 false",
	} {
		host, port, mapped := names.Advertised(nodeID)
		if got := fmt.Sprintf("%s %d %t", host, port, mapped); got != want {
			t.Errorf("node %d: got %s, want %s", nodeID, got, want)
		}
	}
	for host, want := range map[string]string{
		"b0.kafka.example.com": "0 true", "B12.Kafka.EXAMPLE.com": "12 true", "b2147483647.kafka.example.com": "2147483647 true",
		"b2147483648.kafka.example.com": "0 false", "b-1.kafka.example.com": "0 false", "b+1.kafka.example.com": "0 false",
		"b01.kafka.example.com": "0 false", "b.kafka.example.com": "0 false", "1.kafka.example.com": "0 false",
		"b1.kafka.example.com.evil.org": "0 false", "xb1.kafka.example.com": "0 false", "": "0 false",
		"b1_0.kafka.example.com": "0 false",
	} {
		nodeID, ok := names.Node(host)
		if got := fmt.Sprintf("%d %t", nodeID, ok); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
	digits := NodeNames{Before: "k1", After: "x", Port: 1}
	if nodeID, ok := digits.Node(digits.Host(1)); nodeID != 1 || !ok {
		t.Errorf("k11x: got %d %t, want 1", nodeID, ok)
	}
}
