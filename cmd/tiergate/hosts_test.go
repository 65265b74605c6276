// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"tiergate/config"
)

// Names of upstream.hosts reach the dialer; an address is nobody's name, and others go
// the way of the system.
func TestUpstreamHosts(t *testing.T) {
	c, err := config.Parse("f", []byte(`
upstream: {bootstrap_servers: ["kafka-0.invalid:9092"], hosts: {kafka-0.invalid: ["10.0.0.10", "::1"]}}
listeners: [{name: direct, direct: {"127.0.0.1:9092": "kafka-0.invalid:9092"}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	lookup := upstreamOptions(c, c.All()[0], nil, nil).LookupHost
	if got, err := lookup(t.Context(), "KAFKA-0.invalid"); fmt.Sprint(got, err) != "[10.0.0.10 ::1] <nil>" {
		t.Errorf("kafka-0.invalid: got %v, %v", got, err)
	}
	if got, err := lookup(t.Context(), "127.0.0.9"); fmt.Sprint(got, err) != "[::ffff:127.0.0.9] <nil>" {
		t.Errorf("127.0.0.9 by the system's resolver: got %v, %v", got, err)
	}
}
