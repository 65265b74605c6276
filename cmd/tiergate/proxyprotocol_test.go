// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"testing"
)

// One tiergate before another, which wants to be told who the clients are: each session
// and the service client of the first begin with a header, before TLS, and everything
// else is as ever. Without a header there is one sentence in the log.
func TestProxyProtocolFromOneToAnother(t *testing.T) {
	ca := newAuthority(t, "ca")
	server := issue(t, ca, loopback("tiergate"))
	cluster := startSecured(t, nil)
	cluster.write(t, map[string][]byte{"tls.crt": server.CertPEM, "tls.key": server.KeyPEM, "ca.pem": ca.PEM()})
	const block = "    tls: {cert_file: tls.crt, key_file: tls.key}\n"
	client := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			second := cluster.serveBefore(t, "", block+"    proxy_protocol: required\n")
			first := cluster.serveTo(t, second.bootstrap, fmt.Sprintf("  tls: {ca_file: ca.pem}\n  send_proxy_protocol: %s\n", version), block)
			wantPendingUpload(t, first, client)
			first.wantWarnings(t)
			second.wantWarnings(t)

			wantRefused(t, second.bootstrap, client)
			second.wantWarnings(t, `msg="connection refused" listener=clients `+
				`error="PROXY protocol: proxyproto: proxy protocol signature not present" suppressed=0`)
		})
	}
}

// Where a header is optional, clients with and without one are served.
func TestProxyProtocolOptional(t *testing.T) {
	cluster := startSecured(t, nil)
	second := cluster.serveBefore(t, "", "    proxy_protocol: optional\n")
	first := cluster.serveTo(t, second.bootstrap, "  send_proxy_protocol: v2\n", "")
	for _, g := range []*served{first, second} {
		wantPendingUpload(t, g, nil)
		g.wantWarnings(t)
	}
}
