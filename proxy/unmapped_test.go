// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"net"
	"testing"

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
		if got := j.with("WARN", "no address on this listener", "listener=test", "node=9", "unmapped_nodes="+mode.String()); len(got) != 1 {
			t.Errorf("%s: warnings %q, want one", mode, got)
		}
		await(t, "the count", func() bool { return testutil.ToFloat64(s.metrics.unmapped.WithLabelValues("test")) == 3 })
	}
}
