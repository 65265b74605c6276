// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"tiergate/internal/testkit/authority"
)

// issued returns a certificate of ca, or a self-signed one when ca is nil.
func issued(t *testing.T, ca *authority.Authority, leaf authority.Leaf) tls.Certificate {
	t.Helper()
	issue := authority.SelfSigned
	if ca != nil {
		issue = ca.Issue
	}
	pair, err := issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return pair.TLS()
}

func newAuthority(t *testing.T, name string) *authority.Authority {
	t.Helper()
	ca, err := authority.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// shake runs a handshake over loopback, reads a byte behind it on either side, and
// returns how each side failed, "" if it did not.
func shake(t *testing.T, client, server *tls.Config) (clientErr, serverErr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	run := func(with Peer, c *tls.Conn) string {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		err := c.HandshakeContext(ctx)
		if err == nil {
			_, _ = c.Write([]byte{1})
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			return ExplainTLS(with, err).Error()
		}
		return ""
	}
	ended := make(chan string)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			ended <- err.Error()
			return
		}
		ended <- run(PeerClient, tls.Server(c, server))
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	clientErr = run(PeerBroker, tls.Client(c, client))
	return clientErr, <-ended
}

// Every fault of a certificate is one sentence at the side that found it, and one at the
// side that is told.
func TestTLSWords(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "theirs")
	long := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	far := time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts := []string{"kafka.example.com", "10.0.0.1"}
	server := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	client := &tls.Config{RootCAs: ca.Pool(), ServerName: "kafka.example.com"}
	good := issued(t, ca, authority.Leaf{Name: "broker", Hosts: hosts})
	mutual := server(good)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	with := func(c tls.Certificate) *tls.Config {
		return &tls.Config{
			RootCAs: ca.Pool(), ServerName: "10.0.0.1",
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil },
		}
	}
	refused := func(alert string) string {
		return "the client does not accept this listener's certificate (alert: " + alert + ")"
	}
	unwanted := func(alert string) string {
		return "the broker does not accept the certificate of upstream.tls, or wants one and there is none (alert: " + alert + ")"
	}
	for _, c := range []struct {
		name                   string
		client, server         *tls.Config
		wantClient, wantServer string
	}{
		{"well", client, server(good), "", ""},
		{
			"expired", client, server(issued(t, ca, authority.Leaf{Name: "broker", Hosts: hosts, NotBefore: long, NotAfter: long.AddDate(1, 0, 0)})),
			"the broker's certificate (CN=broker) has expired: it was valid until 2021-01-01T00:00:00Z", refused("bad certificate"),
		},
		{
			"not yet valid", client, server(issued(t, ca, authority.Leaf{Name: "broker", Hosts: hosts, NotBefore: far, NotAfter: far.AddDate(1, 0, 0)})),
			"the broker's certificate (CN=broker) is not valid before 2120-01-01T00:00:00Z", refused("bad certificate"),
		},
		{
			"wrong host", &tls.Config{RootCAs: ca.Pool(), ServerName: "kafka-0"}, server(good),
			"the broker's certificate (CN=broker) is for kafka.example.com, 10.0.0.1 and not for kafka-0", refused("bad certificate"),
		},
		{
			"wrong address", &tls.Config{RootCAs: ca.Pool(), ServerName: "10.0.0.2"}, server(good),
			"the broker's certificate (CN=broker) is for kafka.example.com, 10.0.0.1 and not for 10.0.0.2", refused("bad certificate"),
		},
		{
			"no names", client, server(issued(t, ca, authority.Leaf{Name: "kafka.example.com"})),
			"the broker's certificate (CN=kafka.example.com) is for no host at all (it has no subject alternative names) and not for kafka.example.com",
			refused("bad certificate"),
		},
		{
			"unknown authority", client, server(issued(t, other, authority.Leaf{Name: "broker", Hosts: hosts})),
			"the broker's certificate (CN=broker) comes from an authority (CN=theirs) that is not in upstream.tls.ca_file or, without one, the system's",
			refused("bad certificate"),
		},
		{
			"self-signed", client, server(issued(t, nil, authority.Leaf{Name: "broker", Hosts: hosts})),
			"the broker's certificate (CN=broker) is self-signed and not in upstream.tls.ca_file or, without one, the system's",
			refused("bad certificate"),
		},
		{
			"client without a certificate", client, mutual,
			unwanted("certificate required"), "the client sent no certificate, and this listener wants one (client_auth: require)",
		},
		{
			"client of another authority", with(issued(t, other, authority.Leaf{Name: "app"})), mutual,
			unwanted("unknown certificate authority"), "the client's certificate (CN=app) comes from an authority (CN=theirs) that is not in client_ca_file",
		},
		{
			"expired client", with(issued(t, ca, authority.Leaf{Name: "app", NotBefore: long, NotAfter: long.AddDate(1, 0, 0)})), mutual,
			unwanted("expired certificate"), "the client's certificate (CN=app) has expired: it was valid until 2021-01-01T00:00:00Z",
		},
		{
			"old version", &tls.Config{RootCAs: ca.Pool(), ServerName: "10.0.0.1", MaxVersion: tls.VersionTLS12},
			&tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS13},
			"the broker finds no TLS version or cipher that both take (alert: protocol version not supported)",
			"the client offers no TLS version from min_version on",
		},
		{
			"old broker", &tls.Config{RootCAs: ca.Pool(), ServerName: "10.0.0.1", MinVersion: tls.VersionTLS13},
			&tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12},
			"the broker finds no TLS version or cipher that both take (alert: protocol version not supported)",
			"the client offers no TLS version from min_version on",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			gotClient, gotServer := shake(t, c.client, c.server)
			if gotClient != c.wantClient || gotServer != c.wantServer {
				t.Errorf("client: %s\nwant:   %s\nserver: %s\nwant:   %s", gotClient, c.wantClient, gotServer, c.wantServer)
			}
		})
	}
}

// A peer that speaks something else, or nothing.
func TestTLSWordsForeign(t *testing.T) {
	f := func(with Peer, say, want string) {
		t.Helper()
		near, far := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go func() {
			if with == PeerBroker {
				_, _ = far.Read(make([]byte, 4096))
			}
			_, _ = far.Write([]byte(say))
			_ = far.Close()
		}()
		_, _, err := handshake(ctx, near, nil, with, &tls.Config{ServerName: "kafka-0"})
		if err == nil || strings.TrimPrefix(err.Error(), "TLS handshake: ") != want {
			t.Errorf("%v says %q: got %v, want %s", with, say, err, want)
		}
	}

	f(PeerClient, "", "the client closed the connection during the handshake")
	f(PeerClient, "\x16", "the client closed the connection during the handshake")
	f(PeerClient, "GET / HTTP/1.1\r\n\r\n", "what the client sent is no TLS: the first bytes are 474554202f")
	f(PeerBroker, "", "the broker closed the connection during the handshake, as one does that speaks no TLS on this port")
	f(PeerBroker, "HTTP/1.1 400 Bad Request\r\n\r\n", "what the broker sent is no TLS: the first bytes are 485454502f")
}
