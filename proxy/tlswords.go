// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Peer is whom TLS is spoken with.
type Peer uint8

const (
	// PeerClient is a client of a listener.
	PeerClient Peer = iota
	// PeerBroker is a broker.
	PeerBroker
)

func (p Peer) String() string {
	if p == PeerBroker {
		return "broker"
	}
	return "client"
}

// tlsFault is an error of crypto/tls in plain words.
type tlsFault struct {
	text  string
	cause error
}

func (e *tlsFault) Error() string { return e.text }
func (e *tlsFault) Unwrap() error { return e.cause }

// ExplainTLS puts an error of crypto/tls, in a handshake or after it, into one plain
// sentence that names what an operator can look at. The result wraps err.
func ExplainTLS(with Peer, err error) error {
	var header tls.RecordHeaderError
	var remote *net.OpError
	var verify *tls.CertificateVerificationError
	text := strings.TrimPrefix(err.Error(), "tls: ")
	switch {
	case errors.As(err, &verify):
		text = certificateWords(with, verify)
	case errors.As(err, &header):
		text = foreignWords(with, header.RecordHeader)
	case errors.As(err, &remote) && remote.Op == "remote error":
		text = alertWords(with, strings.TrimPrefix(remote.Err.Error(), "tls: "))
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("the %s did not end the handshake within handshake_timeout", with)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		text = fmt.Sprintf("the %s closed the connection during the handshake", with)
		if with == PeerBroker {
			// A Kafka port without TLS reads the first bytes as a frame of 369 MB.
			text += ", as one does that speaks no TLS on this port"
		}
	case strings.Contains(text, "client didn't provide a certificate"):
		text = "the client sent no certificate, and this listener wants one (client_auth: require)"
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "unsupported protocol version"),
		strings.Contains(text, "older than TLS 1.3"):
		text = fmt.Sprintf("the %s offers no TLS version from min_version on", with)
	}
	return &tlsFault{text, err}
}

// foreignWords says what a peer that does not speak TLS probably speaks.
func foreignWords(with Peer, first [5]byte) string {
	if with == PeerClient && first[0] == 0 {
		return fmt.Sprintf("plaintext Kafka bytes on a TLS port: the first bytes are %x", first)
	}
	return fmt.Sprintf("what the %s sent is no TLS: the first bytes are %x", with, first)
}

// alertWords says what a peer meant by an alert (RFC 8446, 6.2). JSSE and OpenSSL send
// several of them for the same thing.
func alertWords(with Peer, alert string) string {
	switch alert {
	case "handshake failure", "protocol version not supported", "insufficient security level":
		return fmt.Sprintf("the %s finds no TLS version or cipher that both take (alert: %s)", with, alert)
	case "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "access denied", "certificate required":
		if with == PeerClient {
			return fmt.Sprintf("the client does not accept this listener's certificate (alert: %s)", alert)
		}
		return fmt.Sprintf("the broker does not accept the certificate of upstream.tls, or wants one and there is none (alert: %s)", alert)
	}
	return fmt.Sprintf("the %s ended TLS with an alert: %s", with, alert)
}

// certificateWords says what is wrong with a peer's certificate.
func certificateWords(with Peer, err *tls.CertificateVerificationError) string {
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	leaf := err.UnverifiedCertificates[0]
	whose := fmt.Sprintf("the %s's certificate (%s)", with, leaf.Subject)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if !invalid.Cert.Equal(leaf) {
			whose = fmt.Sprintf("the certificate of an authority (%s) of the %s's", invalid.Cert.Subject, with)
		}
		if time.Now().Before(invalid.Cert.NotBefore) {
			return fmt.Sprintf("%s is not valid before %s", whose, invalid.Cert.NotBefore.Format(time.RFC3339))
		}
		return fmt.Sprintf("%s has expired: it was valid until %s", whose, invalid.Cert.NotAfter.Format(time.RFC3339))
	case errors.As(err, &host):
		return fmt.Sprintf("%s is for %s and not for %s", whose, certificateNames(leaf), host.Host)
	case errors.As(err, &unknown) && string(leaf.RawSubject) == string(leaf.RawIssuer):
		return fmt.Sprintf("%s is self-signed and not in %s", whose, trusted(with))
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s comes from an authority (%s) that is not in %s", whose, leaf.Issuer, trusted(with))
	}
	return fmt.Sprintf("%s cannot be used: %s", whose, strings.TrimPrefix(err.Err.Error(), "x509: "))
}

// trusted names where the authorities of a peer's certificate are looked for.
func trusted(with Peer) string {
	if with == PeerBroker {
		return "upstream.tls.ca_file or, without one, the system's"
	}
	return "client_ca_file"
}

// maxNames bounds the names that stand in an error.
const maxNames = 5

// certificateNames lists what a certificate is for.
func certificateNames(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return "no host at all (it has no subject alternative names)"
	case len(names) > maxNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}
