// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// hostsFile is a file whose upstream.hosts is hosts, in braces, on line 2.
func hostsFile(hosts string) string {
	return fmt.Sprintf(`upstream:
  hosts: %s
  bootstrap_servers: ["kafka-0.internal:9092"]
listeners:
  - {name: clients, bootstrap: "127.0.0.1:9192", nodes: "127.0.0.1:9200-9209", advertised_host: "127.0.0.1"}
`, hosts)
}

func TestHosts(t *testing.T) {
	c, err := Parse("f", []byte(hostsFile(`{Kafka-0.internal.: "10.0.0.10", kafka-1: [10.0.0.11, "2001:db8::11"], kafka_2: "::1"}`)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kafka-0.internal":  "[10.0.0.10]",
		"KAFKA-0.internal.": "[10.0.0.10]",
		"kafka-1":           "[10.0.0.11 2001:db8::11]",
		"kafka_2":           "[::1]",
		"kafka-0":           "[]",
	} {
		if got := fmt.Sprint(c.Upstream.Hosts.Lookup(name)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestHostsFaults(t *testing.T) {
	f := func(hosts string, want ...string) {
		t.Helper()
		_, err := Parse("f", []byte(hostsFile(hosts)))
		if got := fmt.Sprint(err); got != strings.Join(want, "\n") {
			t.Errorf("hosts: %s\ngot:\n%s\nwant:\n%s", hosts, got, strings.Join(want, "\n"))
		}
	}
	f(`{}`, `f:2:10: upstream.hosts: invalid value (an empty mapping): want a mapping of host name to IP address, e.g. {kafka-0.internal: "10.0.0.10"}, or to a list of them`)
	f(`{kafka-0: kafka-1}`, `f:2:20: upstream.hosts["kafka-0"]: invalid IP address "kafka-1": want an IP address, e.g. "10.0.0.10" or "2001:db8::10", without a port`)
	f(`{kafka-0: "0.0.0.0"}`, `f:2:20: upstream.hosts["kafka-0"]: invalid IP address "0.0.0.0": nobody can connect to a wildcard; want an IP address, e.g. "10.0.0.10" or "2001:db8::10"`)
	f(`{kafka-0: []}`, `f:2:20: upstream.hosts["kafka-0"]: invalid value (a list): want an IP address, e.g. "10.0.0.10" or "2001:db8::10"`)
	f(`{kafka-0: [10.0.0.1, x]}`, `f:2:31: upstream.hosts["kafka-0"][1]: invalid IP address "x": want an IP address, e.g. "10.0.0.10" or "2001:db8::10", without a port`)
	f(`{"10.0.0.1": 10.0.0.2}`, `f:2:11: upstream.hosts["10.0.0.1"]: invalid host name "10.0.0.1": found an IP address, which needs no entry; want a host name, e.g. kafka-0.internal`)
	f(`{"kafka-0:9092": 10.0.0.2}`, `f:2:11: upstream.hosts["kafka-0:9092"]: invalid host name "kafka-0:9092": host "kafka-0:9092" is not an IPv6 address; want a host name without a port, e.g. kafka-0.internal`)
	f(`{kafka-0: 10.0.0.1, KAFKA-0.: 10.0.0.2}`, `f:2:30: upstream.hosts["KAFKA-0."]: duplicate host name "KAFKA-0.", already given as "kafka-0": want one entry with a list of addresses`)
	// The bootstrap server of this file would be tiergate itself.
	got := fmt.Sprint(Parse("f", []byte(strings.Replace(hostsFile(`{kafka-0.internal: "127.0.0.1"}`), "9092", "9203", 1))))
	want := `f:3:23: upstream.bootstrap_servers[0]: invalid broker address "127.0.0.1:9203": tiergate itself listens there (listeners[0].nodes, line 5); want the address of a broker`
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
