// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"

	"tiergate/config"
)

// base is what both sides have in common. Kafka negotiates nothing by ALPN, so there
// are no NextProtos. Kafka frames are bulk, so records are large from the start; and
// proxy then takes the configuration as it is, so that its session tickets live on from
// one handshake to the next.
func base(oldest config.TLSVersion) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true}
	if oldest == config.TLSVersion13 {
		c.MinVersion = tls.VersionTLS13
	}
	return c
}

// loadListener makes the configuration of a listener. A new one has new keys for session
// tickets: after a change of authorities no session of before is resumed.
func loadListener(name string, t *config.ListenerTLS) (*material, error) {
	pair, err := config.ReadKeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c := base(t.MinVersion)
	c.Certificates = []tls.Certificate{pair}
	m := &material{config: c, leaf: pair.Leaf, lives: []Life{chainLife(name, pair)}}
	if t.ClientCAFile != "" {
		pool, list, err := config.ReadCAs(t.ClientCAFile)
		if err != nil {
			return nil, err
		}
		c.ClientCAs = pool
		m.lives = append(m.lives, authoritiesLife(name, "client_ca_file", list))
	}
	switch t.ClientAuth {
	case config.ClientAuthRequire:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	case config.ClientAuthRequest:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case config.ClientAuthNone:
	}
	return m, nil
}

// loadUpstream makes the configuration of the broker side, without a server name unless
// one is configured. Sessions are not resumed: brokers are few, and stay.
func loadUpstream(name string, t *config.UpstreamTLS) (*material, error) {
	c := base(t.MinVersion)
	c.ServerName = string(t.ServerName)
	c.InsecureSkipVerify = t.InsecureSkipVerify // the operator asked for it, and is warned at the start
	m := &material{config: c}
	if t.CAFile != "" {
		pool, list, err := config.ReadCAs(t.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
		m.lives = append(m.lives, authoritiesLife(name, "ca_file", list))
	}
	if t.CertFile != "" {
		pair, err := config.ReadKeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, err
		}
		// Not Certificates: crypto/tls would send none when the broker's list of
		// authorities does not have its issuer, and nobody would know why.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		m.leaf = pair.Leaf
		m.lives = append(m.lives, chainLife(name, pair))
	}
	return m, nil
}

// chainLife is the life of a certificate with its intermediates: that of the first one
// to expire.
func chainLife(name string, pair tls.Certificate) Life {
	first := pair.Leaf
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil && c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return lifeOf(name, "cert_file", first)
}

// authoritiesLife is the life of a bundle: that of the last one to expire. A bundle
// has an authority that is on its way out beside its successor, which is as it should be.
func authoritiesLife(name, key string, list []*x509.Certificate) Life {
	last := list[0]
	for _, c := range list[1:] {
		if c.NotAfter.After(last.NotAfter) {
			last = c
		}
	}
	return lifeOf(name, key, last)
}

func lifeOf(name, key string, c *x509.Certificate) Life {
	return Life{For: name, Key: key, Subject: c.Subject.String(), NotBefore: c.NotBefore, NotAfter: c.NotAfter}
}
