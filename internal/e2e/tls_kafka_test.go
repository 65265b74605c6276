// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	gates "tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// testMutualTLS has a broker that wants certificates: it sees that of tiergate, for the
// service client and for every session.
func (s *secured) testMutualTLS(t *testing.T, ctx context.Context) {
	on := s.tlsSide(mutualListener, "always")
	on.user = ""
	on.upstream = fmt.Sprintf("  tls: {ca_file: %q, cert_file: %q, key_file: %q}\n", s.file("ca.pem"), s.file("gate.pem"), s.file("gate.key"))
	g := s.guard(t, ctx, on)
	conn := dialAs(t, ctx, g.node, g.tls)
	for _, l := range s.logs {
		resp, err := conn.Request(ctx, listOffsets(11, consumer, readUncommitted, pending(l.Topic)))
		must(t, err)
		epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
		must(t, err)
		native := replay(t, l, epoch).NativeEarliestPendingUpload(readUncommitted, consumer, anyEpoch)
		if got := answers(resp.(*kmsg.ListOffsetsResponse)); got[0].errorCode != 0 || got[0].position.Offset != native.Offset {
			t.Errorf("-6 of log state %q: %+v, want offset %d", l.State.Name, got, native.Offset)
		}
	}
	if lines := g.warnings(t); len(lines) > 0 {
		t.Errorf("warnings:\n%s", strings.Join(lines, "\n"))
	}
}

// testFaults has tiergates that do not speak as the broker does: each is one sentence of
// the service client, and one of every session.
func (s *secured) testFaults(t *testing.T, ctx context.Context) {
	const (
		service = `msg="no broker list from the cluster; trying again until there is one" error="no broker list: `
		dialing = `msg="session closed: the broker cannot be reached" listener=clients broker=bootstrap reason=dial_failed error="`
	)
	tlsBlock := fmt.Sprintf("  tls: {ca_file: %q}\n", s.file("ca.pem"))
	for _, c := range []struct {
		name, listener, upstream string
		service, session         string
	}{
		{
			"TLS to a plaintext port", "PLAINTEXT", tlsBlock,
			service + `BROKER: TLS handshake: the broker closed the connection during the handshake, as one does that speaks no TLS on this port"`,
			dialing + `BROKER: TLS handshake: the broker closed the connection during the handshake, as one does that speaks no TLS on this port" suppressed=0`,
		},
		{
			"plaintext to a TLS port", saslTLS, "", service + `the broker speaks TLS on this port, and there is no upstream.tls"`,
			`msg="session closed: the peer does not speak plaintext Kafka here" listener=clients broker=bootstrap reason=not_kafka ` +
				`error="from the broker: TLS bytes on a plaintext port: the first bytes are 15030300" suppressed=0`,
		},
		{
			"unknown authority", saslTLS, "  tls: {}\n",
			service + `BROKER: TLS handshake: the broker's certificate (CN=kafka) comes from an authority (CN=test) that is not in upstream.tls.ca_file or, without one, the system's"`,
			dialing + `BROKER: TLS handshake: the broker's certificate (CN=kafka) comes from an authority (CN=test) that is not in upstream.tls.ca_file or, without one, the system's" suppressed=0`,
		},
		{
			// JSSE says so after the handshake of TLS 1.3.
			"no certificate for a broker that wants one", mutualListener, tlsBlock,
			service + `the broker does not accept the certificate of upstream.tls, or wants one and there is none (alert: bad certificate)"`,
			`msg="session closed: the other side ended TLS with an alert" listener=clients broker=bootstrap reason=tls_alert ` +
				`error="the broker does not accept the certificate of upstream.tls, or wants one and there is none (alert: bad certificate)" suppressed=0`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := s.cluster.Node(nodeID).ListenerAddress(c.listener)
			yaml, bootstrap, _ := s.config(t, side{listener: c.listener, upstream: c.upstream, mode: "auto"})
			g := &gate{gates.Launch(t, yaml)}
			lines := func(n int) string {
				var got []string
				must(t, kafka.Poll(ctx, "a warning", func(context.Context) error {
					if got = g.warnings(t); len(got) < n {
						return fmt.Errorf("%d of %d", len(got), n)
					}
					return nil
				}))
				return strings.ReplaceAll(strings.Join(got, "\n"), address, "BROKER")
			}
			lines(1)
			conn := dial(t, ctx, bootstrap)
			if _, err := conn.Request(ctx, kmsg.NewPtrApiVersionsRequest()); err == nil {
				t.Error("an answer through a tiergate that cannot reach its broker")
			}
			if got, want := lines(2), c.service+"\n"+c.session; got != want {
				t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
