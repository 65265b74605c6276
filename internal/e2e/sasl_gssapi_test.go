// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/authority"
	"tiergate/loadtest/kafka"
)

// testGSSAPI runs Kafka's own client with Kerberos, which nothing in Go does here, and asks
// for -6. The broker is kafka/localhost to its clients, since that is where tiergate is:
// they ask the KDC for the host that they connect to.
//
// A client takes the newest version of SaslHandshake that it is offered, and sends raw
// tokens where there is no SaslAuthenticate (SaslClientAuthenticator). So for version 0 a
// relay before tiergate takes both out of the offer.
func (s *secured) testGSSAPI(t *testing.T, ctx context.Context) {
	var want []string
	for _, l := range s.logs {
		epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
		must(t, err)
		want = append(want, shellLine(l.Topic, 0, replay(t, l, epoch).NativeEarliestPendingUpload(readUncommitted, consumer, anyEpoch).Offset))
	}
	slices.Sort(want)
	for _, on := range []side{{listener: saslListener, mode: "auto", user: serviceUser}, s.tlsSide(saslTLS, "auto")} {
		for _, version := range []kafka.SASLHandshake{kafka.SASLHandshakeV0, kafka.SASLHandshakeV1} {
			t.Run(fmt.Sprintf("%s/GSSAPI/v%d", on.listener, version), func(t *testing.T) {
				// The relays are where clients are told to go, on 127.0.0.1 and the same ports.
				on.listen, on.advertised = "127.0.0.2", "localhost"
				g := s.guard(t, ctx, on)
				for _, addr := range []string{g.bootstrap, g.node} {
					_, port, _ := net.SplitHostPort(addr)
					s.relayHandshake(t, "127.0.0.1:"+port, "127.0.0.2:"+port, on, version)
				}
				r := s.kerberosShell(t, ctx, g, on)
				if r.ExitCode != 0 || r.Stdout != strings.Join(want, "") {
					t.Errorf("GetOffsetShell: %v\nwant on stdout\n%s", r, strings.Join(want, ""))
				}
				// Loops bring their counts up to date every second.
				counted := "SASLAuthenticate"
				if version == kafka.SASLHandshakeV0 {
					counted = "ListOffsets" // the last request
				}
				must(t, kafka.Poll(ctx, "a count of "+counted, func(ctx context.Context) error {
					if g.counter(t, ctx, "tiergate_requests_total", fmt.Sprintf("api=%q", counted)) == 0 {
						return errors.New("none")
					}
					return nil
				}))
				if n := g.counter(t, ctx, "tiergate_requests_total", `api="SASLAuthenticate"`); version == kafka.SASLHandshakeV0 && n != 0 {
					t.Errorf("%d SaslAuthenticate requests after a handshake that knows none", n)
				}
			})
		}
	}
}

// kerberosShell runs GetOffsetShell of Kafka 4.3 as alice.
func (s *secured) kerberosShell(t *testing.T, ctx context.Context, g *guard, on side) kafka.Result {
	t.Helper()
	protocol := "SASL_PLAINTEXT"
	if on.client != "" {
		protocol = "SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location=" + s.file("ca.pem")
	}
	config := s.file("kerberos-" + on.listener)
	must(t, authority.Write(config, fmt.Appendf(nil, "security.protocol=%s\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nsasl.jaas.config=%s\n",
		protocol, s.kdc.JAAS(alice))))
	r, err := jars(t, ctx, kafka.Kafka43).Run(ctx, kafka.Tool{
		Class: getOffsetShell, JVM: s.kdc.JVM(),
		Args: []string{"--bootstrap-server", g.bootstrap, "--command-config", config, "--topic", openPrefix + ".*", "--time", "earliest-pending-upload"},
	})
	must(t, err)
	return r
}

// relayHandshake listens before a tiergate until the test ends. It speaks TLS where that
// does, and offers clients no later SaslHandshake than version.
func (s *secured) relayHandshake(t *testing.T, listen, target string, on side, version kafka.SASLHandshake) {
	t.Helper()
	ln, err := net.Listen("tcp", listen)
	must(t, err)
	dialer := func() (net.Conn, error) { return net.Dial("tcp", target) }
	if on.client != "" {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{s.gatePair.TLS()}})
		trust := s.clientTLS()
		dialer = func() (net.Conn, error) { return tls.Dial("tcp", target, trust) }
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer client.Close()
				gate, err := dialer()
				if err != nil {
					t.Error(err)
					return
				}
				defer gate.Close()
				relay(t, client, gate, version)
			})
		}
	})
	t.Cleanup(func() {
		must(t, ln.Close())
		running.Wait()
	})
}

// relay passes frames one by one as long as the client asks for ApiVersions, and bytes
// from then on.
func relay(t *testing.T, client, gate net.Conn, version kafka.SASLHandshake) {
	for {
		request, err := readAny(client)
		if err != nil {
			return
		}
		if _, err := gate.Write(request); err != nil {
			return
		}
		if codec.RequestKey(request) != int16(kmsg.ApiVersions) {
			break
		}
		answer, err := readAny(gate)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := client.Write(offerHandshake(t, answer, codec.RequestVersion(request), version)); err != nil {
			return
		}
	}
	go func() {
		_, _ = io.Copy(gate, client)
		_ = gate.Close()
	}()
	_, _ = io.Copy(client, gate)
}

func readAny(from io.Reader) ([]byte, error) {
	frame := make([]byte, codec.SizeLen)
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(from, frame[codec.SizeLen:])
	return frame, err
}

// offerHandshake makes an ApiVersions answer one that offers no later SaslHandshake.
func offerHandshake(t *testing.T, frame []byte, requested int16, version kafka.SASLHandshake) []byte {
	const unsupportedVersion = 35 // KIP-511: then the answer has version 0
	if frame[codec.ResponseFixedLen] == 0 && frame[codec.ResponseFixedLen+1] == unsupportedVersion {
		return frame
	}
	resp, err := kafka.DecodeResponse(int16(kmsg.ApiVersions), requested, frame)
	if err != nil {
		t.Error(err)
		return frame
	}
	offer := resp.(*kmsg.ApiVersionsResponse)
	for i := range offer.ApiKeys {
		if k := &offer.ApiKeys[i]; k.ApiKey == int16(kmsg.SASLHandshake) {
			k.MaxVersion = min(k.MaxVersion, int16(version))
		}
	}
	if version == kafka.SASLHandshakeV0 {
		offer.ApiKeys = slices.DeleteFunc(offer.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
			return k.ApiKey == int16(kmsg.SASLAuthenticate)
		})
	}
	out := offer.AppendTo(slices.Clone(frame[:codec.ResponseFixedLen]))
	codec.PutSize(out)
	return out
}
