// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Where Linux has the ports that it gives to outgoing connections, and those that it does not
// (ip-sysctl.rst of the kernel's documentation).
const (
	localPortRange     = "/proc/sys/net/ipv4/ip_local_port_range"
	localReservedPorts = "/proc/sys/net/ipv4/ip_local_reserved_ports"
)

// localPorts are notes on ports that an outgoing connection of this machine may hold when
// tiergate starts. There are none where the system does not tell its range.
func localPorts(ports []int32) []string {
	span, err := os.ReadFile(localPortRange)
	if err != nil {
		return nil
	}
	reserved, err := os.ReadFile(localReservedPorts)
	if err != nil {
		return nil
	}
	return unreserved(ports, string(span), string(reserved))
}

// unreserved is localPorts for a range "32768 60999" and reserved ports "8080,9148-9150".
// ports are sorted.
func unreserved(ports []int32, span, reserved string) []string {
	var first, last int32
	if _, err := fmt.Sscan(span, &first, &last); err != nil {
		return nil
	}
	var at []portSpan
	for _, p := range ports {
		switch {
		case p < first || p > last || isReserved(p, reserved):
		case len(at) > 0 && at[len(at)-1].last == p-1:
			at[len(at)-1].last = p
		default:
			at = append(at, portSpan{p, p})
		}
	}
	if len(at) == 0 {
		return nil
	}
	texts := make([]string, len(at))
	for i, s := range at {
		texts[i] = s.String()
	}
	list := strings.Join(texts, ",")
	return []string{fmt.Sprintf("the ports %s to listen on are among those that this machine gives to outgoing connections "+
		"(net.ipv4.ip_local_port_range is %d to %d), so one may be held when tiergate starts: "+
		"add them to net.ipv4.ip_local_reserved_ports, or take lower ports", list, first, last)}
}

// portSpan is a run of ports, both ends included.
type portSpan struct{ first, last int32 }

func (s portSpan) String() string {
	if s.first == s.last {
		return strconv.Itoa(int(s.first))
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}

// isReserved reports whether a port is in a list such as "8080,9148-9150".
func isReserved(port int32, reserved string) bool {
	for part := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.Atoi(from)
		last, errLast := strconv.Atoi(to)
		if errFirst == nil && errLast == nil && int(port) >= first && int(port) <= last {
			return true
		}
	}
	return false
}
