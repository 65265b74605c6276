// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security is how brokers are spoken to. The zero value is plaintext without SASL.
type Security struct {
	// TLS gives the configuration for the next handshake of the service client with the
	// host that was dialed; nil is plaintext. Sessions do their own handshakes. It is
	// called concurrently, and may give a new configuration after a reload.
	TLS func(serverName string) *tls.Config
	// Explain puts the error of a handshake into plain words. Default: it stays as it is.
	Explain func(err error) error
	// HandshakeTimeout bounds one handshake of the service client. Default 10 s.
	HandshakeTimeout time.Duration
	// SASL is how the service client authenticates; nil: not at all.
	SASL *SASL
	// Preamble is what each connection of the service client begins with, before TLS: a
	// header of the PROXY protocol, for what stands before the brokers.
	Preamble []byte
}

// Mechanism is a SASL mechanism of the service client.
type Mechanism string

// The mechanisms that need a name and a password only.
const (
	MechanismPlain       Mechanism = "PLAIN"
	MechanismScramSHA256 Mechanism = "SCRAM-SHA-256"
	MechanismScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// SASL says who the service client is.
type SASL struct {
	Mechanism Mechanism
	Username  string
	// Password is asked at every authentication, the repeated ones of KIP-368 included.
	Password func() (string, error)
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case MechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, err
		}), nil
	case MechanismScramSHA256, MechanismScramSHA512:
		auth := func(context.Context) (scram.Auth, error) {
			password, err := s.password()
			return scram.Auth{User: s.Username, Pass: password}, err
		}
		if s.Mechanism == MechanismScramSHA256 {
			return scram.Sha256(auth), nil
		}
		return scram.Sha512(auth), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q is not known", s.Mechanism)
}

func (s *SASL) password() (string, error) {
	password, err := s.Password()
	if err != nil {
		return "", fmt.Errorf("password of SASL user %q: %w", s.Username, err)
	}
	return password, nil
}

// brokerConn is a dialed connection that knows which name the broker's certificate must
// have: proxy asks it.
type brokerConn struct {
	*net.TCPConn
	serverName string
}

// ServerName is the host that was dialed, as configured or as the broker advertises it.
func (c *brokerConn) ServerName() string { return c.serverName }

// secure makes a dialed connection one that the service client can speak Kafka on. It
// closes conn when it fails.
func (c *Cluster) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.HandshakeTimeout)
	defer cancel()
	if err := sendPreamble(ctx, conn, c.opts.Preamble); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if c.opts.TLS == nil {
		return conn, nil
	}
	name := ""
	if named, ok := conn.(*brokerConn); ok {
		name = named.serverName
	}
	secured := tls.Client(conn, c.opts.TLS(name))
	// A dial that succeeded has forgotten this address: the note is kept under a name of
	// its own, and nothing is refused by it.
	note := address + " TLS"
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		err = fmt.Errorf("%s: TLS handshake: %w", address, c.opts.Explain(err))
		c.failed.remember(note, err)
		return nil, err
	}
	c.failed.forget(note)
	c.reached()
	return secured, nil
}

func sendPreamble(ctx context.Context, conn net.Conn, preamble []byte) error {
	if len(preamble) == 0 {
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write(preamble); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

// explainAuth puts what brokers say to a client that is not, or wrongly, authenticated
// into plain words; nil when err is something else.
func (c *Cluster) explainAuth(err error) error {
	var first *kgo.ErrFirstReadEOF
	var remote *net.OpError
	s := c.opts.SASL
	switch {
	case s != nil && errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("the broker refuses user %q of upstream.sasl (%s): %w", s.Username, s.Mechanism, err)
	case s != nil && errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("the broker's port does not offer %s, the mechanism of upstream.sasl: %w", s.Mechanism, err)
	case s != nil && errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("the broker's port has no SASL, and upstream.sasl is set: %w", err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return c.opts.Explain(err)
	case c.opts.TLS == nil && strings.Contains(err.Error(), "tls alert record"): // kgo's text; it has no type for it
		return errors.New("the broker speaks TLS on this port, and there is no upstream.tls")
	case errors.As(err, &first):
		return fmt.Errorf("the broker closed the connection at the first request%s: %w", c.lacking(), first.Unwrap())
	}
	return nil
}

// lacking says what a broker may want that the configuration does not have.
func (c *Cluster) lacking() string {
	var wants []string
	if c.opts.TLS == nil {
		wants = append(wants, "TLS (upstream.tls)")
	}
	if c.opts.SASL == nil {
		wants = append(wants, "SASL (upstream.sasl)")
	}
	if len(wants) == 0 {
		return ""
	}
	return ", as one does that wants " + strings.Join(wants, " or ")
}
