// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"tiergate/internal/testkit/authority"
)

// certificate is a self-signed one for localhost, ECDSA on P-256.
type certificate struct {
	// pem is a file with certificate and key.
	pem  string
	pool *x509.CertPool
}

// newCertificate makes a certificate in folder.
func newCertificate(folder string) (certificate, error) {
	pair, err := authority.SelfSigned(authority.Leaf{Name: "localhost", Hosts: []string{"localhost"}})
	if err != nil {
		return certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	c := certificate{pem: filepath.Join(folder, "localhost.pem"), pool: x509.NewCertPool()}
	c.pool.AddCert(pair.Certificate)
	return c, os.WriteFile(c.pem, pair.Keystore(), 0o600)
}

// ServerTLS is how a proxy of ours speaks TLS with clients. file holds certificate and
// key; an empty name means no TLS, and a nil configuration.
func ServerTLS(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(file, file)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, err
}
