// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"tiergate/rewrite"
)

// testCert makes a self-signed certificate for 127.0.0.1 and a pool that trusts it.
func testCert(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"broker.test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// Large frames pass both ways at once with TLS on either side and on both, in TLS 1.2
// and 1.3, and close_notify is passed on as the end of the direction.
func TestTLSLargeFramesBothWays(t *testing.T) {
	cert, pool := testCert(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, c := range []struct {
			name           string
			client, broker bool
		}{{"client", true, false}, {"broker", false, true}, {"both", true, true}} {
			t.Run(tls.VersionName(version)+"/"+c.name, func(t *testing.T) {
				server := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version}
				b := newBroker(t, func(conn *net.TCPConn) {
					if !c.broker {
						echo(conn)
						return
					}
					echo(tls.Server(conn, server))
				})
				s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) {
					if c.client {
						o.Endpoints[0].TLS = func() *tls.Config { return server }
					}
					if c.broker {
						o.Endpoints[0].BrokerTLS = func(string) *tls.Config {
							return &tls.Config{RootCAs: pool, ServerName: "broker.test"}
						}
					}
				})
				var conn interface {
					net.Conn
					CloseWrite() error
				} = connect(t, s)
				if c.client {
					conn = tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
				}
				exchangeLarge(t, conn)
			})
		}
	}
}

// exchangeLarge sends frames of many sizes, ends its direction, and compares the
// echoes.
func exchangeLarge(t *testing.T, c interface {
	net.Conn
	CloseWrite() error
},
) {
	t.Helper()
	var out, want []byte
	for i, size := range []int{0, 1, 1000, 16_384, 65_535, 65_536, 200_000, 3 << 20, 5, 9 << 20, 1} {
		body := make([]byte, size)
		_, _ = rand.Read(body)
		out = append(out, request(1, 11, int32(i), body...)...)
		want = append(want, response(int32(i), append([]byte{0, 1, 'c'}, body...)...)...)
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		if _, err := c.Write(out); err != nil {
			t.Error(err)
		}
		_ = c.CloseWrite()
	})
	got, err := io.ReadAll(c)
	sender.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d; first difference at %d", len(got), len(want), firstDifference(got, want))
	}
}

// Plaintext on a TLS port is refused with a sentence that says so.
func TestPlaintextOnTLSPort(t *testing.T) {
	cert, _ := testCert(t)
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write(request(18, 0, 1)) }()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	_, _, err := handshake(context.Background(), server, nil, PeerClient, &tls.Config{Certificates: []tls.Certificate{cert}})
	want := "TLS handshake: plaintext Kafka bytes on a TLS port: the first bytes are 0000000b00"
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}
