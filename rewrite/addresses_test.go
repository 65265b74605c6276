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
