// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package authority is a certificate authority for tests: it issues what a test asks
// for, expired and for the wrong host too, and writes it as the PEM files that tiergate
// and Kafka's brokers (ssl.keystore.type=PEM, KIP-651) read.
package authority

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
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Authority issues certificates. It may be used by any goroutine.
type Authority struct {
	pair Pair
}

// Leaf is what a certificate says.
type Leaf struct {
	// Name is the common name.
	Name string
	// Hosts are the DNS names and IP addresses that it is for.
	Hosts []string
	// NotBefore and NotAfter bound its life. Default: from an hour ago, for a day.
	NotBefore, NotAfter time.Time
}

// Pair is a certificate and its key.
type Pair struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// CertPEM is the certificate, KeyPEM the key in PKCS #8.
	CertPEM, KeyPEM []byte
}

// New makes an authority with a certificate of its own.
func New(name string) (*Authority, error) {
	template := template(Leaf{Name: name})
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	pair, err := issue(template, nil)
	return &Authority{pair}, err
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pair.CertPEM }

// Pool has the authority as the only member.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.pair.Certificate)
	return pool
}

// Issue makes a certificate, for servers and clients.
func (a *Authority) Issue(leaf Leaf) (Pair, error) { return issue(template(leaf), &a.pair) }

// SelfSigned makes a certificate that no authority has signed.
func SelfSigned(leaf Leaf) (Pair, error) { return issue(template(leaf), nil) }

func template(leaf Leaf) *x509.Certificate {
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: leaf.Name},
		NotBefore:             leaf.NotBefore,
		NotAfter:              leaf.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if t.NotBefore.IsZero() {
		t.NotBefore = time.Now().Add(-time.Hour)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = time.Now().Add(24 * time.Hour)
	}
	for _, host := range leaf.Hosts {
		if ip, err := netip.ParseAddr(host); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t
}

// issue signs template with the parent's key, or with its own.
func issue(template *x509.Certificate, parent *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return Pair{}, err
	}
	signer := Pair{Certificate: template, key: key}
	if parent != nil {
		signer = *parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Certificate, &key.PublicKey, signer.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", template.Subject, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: cert, key: key,
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}

// TLS is the pair in the form of crypto/tls.
func (p Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Certificate.Raw}, PrivateKey: p.key, Leaf: p.Certificate}
}

// Keystore is the pair as one PEM file, which Kafka takes for a keystore.
func (p Pair) Keystore() []byte { return append(append([]byte(nil), p.KeyPEM...), p.CertPEM...) }

// Write replaces a file as a whole: readers see the old bytes or the new ones.
func Write(path string, text []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".next-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
