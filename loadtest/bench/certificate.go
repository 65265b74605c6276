// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// certificate is a self-signed one for localhost, ECDSA on P-256.
type certificate struct {
	// pem is a file with certificate and key.
	pem  string
	pool *x509.CertPool
}

// newCertificate makes a certificate in folder.
func newCertificate(folder string) (certificate, error) {
	fail := func(err error) (certificate, error) { return certificate{}, fmt.Errorf("make certificate: %w", err) }
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fail(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fail(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	c := certificate{pem: filepath.Join(folder, "localhost.pem"), pool: x509.NewCertPool()}
	c.pool.AddCert(cert)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})...)
	if err = os.WriteFile(c.pem, text, 0o600); err != nil {
		return fail(err)
	}
	return c, nil
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
