// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// firstPort is the lowest port that FreePorts hands out.
const firstPort = 10240

// FreePorts returns n ports in a row that nobody listens on at 127.0.0.1 now, and that
// FreePorts gave to nobody else, in any process that runs: a broker is down for a while
// when it is restarted, and its ports must wait for it.
//
// The kernel's own choice (port 0) will not do for a broker that is restarted: it comes
// from the ephemeral range, and while the broker is down any outgoing connection may
// take the port, a client's connection to that very port among them (TCP connects a
// socket to itself when source and destination are the same). So the ports come from
// below the ephemeral range, and the kernel only says whether they are free.
func FreePorts(n int) ([]int, error) {
	high := ephemeralLow() - n
	for range 200 {
		first := firstPort + rand.IntN(high-firstPort)
		if ports, ok := freeFrom(first, n); ok {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports in a row between %d and %d on 127.0.0.1", n, firstPort, high+n)
}

// freeFrom returns the n ports from first on if all of them can be bound.
func freeFrom(first, n int) (ports []int, ok bool) {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp4", Loopback(port))
		if err != nil {
			return nil, false
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports, reservePorts(ports)
}

// ephemeralLow returns the first port of the ephemeral range; 32768 where the kernel
// does not say (Linux's default; the others' ranges start higher).
func ephemeralLow() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var low, high int
	if err == nil {
		if _, err := fmt.Sscan(string(b), &low, &high); err == nil && low > 2*firstPort {
			return low
		}
	}
	return 32768
}

// Loopback returns the address of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
