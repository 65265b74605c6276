// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

// ClientCertificates says whether a TLS listener asks its clients for certificates.
type ClientCertificates string

const (
	// ClientCertificatesNone asks for none.
	ClientCertificatesNone ClientCertificates = "none"
	// ClientCertificatesRequired refuses clients without.
	ClientCertificatesRequired ClientCertificates = "required"
)

// TLSProperties are what a listener of protocol SSL or SASL_SSL needs: PEM files (KIP-651)
// with key and certificate, and with the authorities of clients' certificates.
func TLSProperties(listener, keystore, truststore string, clients ClientCertificates) map[string]string {
	return of(listener, map[string]string{
		"ssl.keystore.type":       "PEM",
		"ssl.keystore.location":   keystore,
		"ssl.truststore.type":     "PEM",
		"ssl.truststore.location": truststore,
		"ssl.client.auth":         string(clients),
	})
}

// SASLProperties are what a listener of protocol SASL_PLAINTEXT or SASL_SSL needs for
// PLAIN with the given users and passwords, SCRAM with those of AddScramUser, and
// OAUTHBEARER with any UnsecuredToken. maxReauth is connections.max.reauth.ms (KIP-368);
// 0: authentication lasts.
func SASLProperties(listener string, users map[string]string, maxReauth time.Duration) map[string]string {
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, user := range slices.Sorted(maps.Keys(users)) {
		plain += fmt.Sprintf(" user_%s=%q", user, users[user])
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	return of(listener, map[string]string{
		"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"plain.sasl.jaas.config":         plain + ";",
		"scram-sha-256.sasl.jaas.config": scram,
		"scram-sha-512.sasl.jaas.config": scram,
		"oauthbearer.sasl.jaas.config":   `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		"connections.max.reauth.ms":      fmt.Sprint(maxReauth.Milliseconds()),
	})
}

// AuthorizerProperties switch ACLs on. The PLAINTEXT listeners, the launcher's own, may do
// everything.
func AuthorizerProperties() map[string]string {
	return map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}
}

// of gives properties the prefix of a listener.
func of(listener string, properties map[string]string) map[string]string {
	prefixed := make(map[string]string, len(properties))
	for key, value := range properties {
		prefixed["listener.name."+strings.ToLower(listener)+"."+key] = value
	}
	return prefixed
}

// AddScramUser gives a user a password, for both SCRAM mechanisms.
func (c *Cluster) AddScramUser(ctx context.Context, user, password string) error {
	cl, err := c.own()
	if err != nil {
		return err
	}
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // a request may name a user once
		altered, err := kadm.NewClient(cl).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
			{User: user, Mechanism: mechanism, Iterations: 4096, Password: password},
		})
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			return fmt.Errorf("SCRAM user %s: %w", user, err)
		}
	}
	return nil
}

// Allow adds ACLs: a user may do these operations on all topics whose names have that
// prefix; "*" is all topics.
func (c *Cluster) Allow(ctx context.Context, user, topicPrefix string, operations ...kadm.ACLOperation) error {
	pattern := kadm.ACLPatternPrefixed
	if topicPrefix == "*" {
		pattern = kadm.ACLPatternLiteral
	}
	return c.allow(ctx, kadm.NewACLs().Allow("User:"+user).AllowHosts("*").Topics(topicPrefix).
		ResourcePatternType(pattern).Operations(operations...))
}

// AllowCluster adds ACLs: a user may do these operations on the cluster.
func (c *Cluster) AllowCluster(ctx context.Context, user string, operations ...kadm.ACLOperation) error {
	return c.allow(ctx, kadm.NewACLs().Allow("User:"+user).AllowHosts("*").Clusters().
		ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...))
}

func (c *Cluster) allow(ctx context.Context, acls *kadm.ACLBuilder) error {
	cl, err := c.own()
	if err != nil {
		return err
	}
	created, err := kadm.NewClient(cl).CreateACLs(ctx, acls)
	if err != nil {
		return fmt.Errorf("create ACLs: %w", err)
	}
	for _, one := range created {
		if one.Err != nil {
			return fmt.Errorf("create ACL %+v: %w", one, one.Err)
		}
	}
	return nil
}

// UnsecuredToken is an OAUTHBEARER token without a signature, which brokers take by
// default (OAuthBearerUnsecuredValidatorCallbackHandler): an hour for the user.
func UnsecuredToken(user string) string {
	now := time.Now().Unix()
	part := func(v map[string]any) string {
		text, _ := json.Marshal(v) // strings and numbers only
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]any{"alg": "none"}) + "." + part(map[string]any{"sub": user, "iat": now, "exp": now + 3600}) + "."
}

// DialTLS connects to addr with TLS.
func DialTLS(ctx context.Context, addr, clientID string, config *tls.Config) (*Conn, error) {
	d := tls.Dialer{Config: config}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewConn(conn, clientID), nil
}

// SASLHandshake is the version of SaslHandshake, and with it how tokens travel.
type SASLHandshake int16

const (
	// SASLHandshakeV0 is followed by tokens that are framed by their size and nothing
	// else (KIP-43). Kafka 4.0 has it no more (KIP-896).
	SASLHandshakeV0 SASLHandshake = 0
	// SASLHandshakeV1 is followed by SaslAuthenticate requests (KIP-152).
	SASLHandshakeV1 SASLHandshake = 1
)

// Authenticate authenticates the connection, for the first time or again. It returns how
// long that lasts; 0: for ever, or not known.
func (c *Conn) Authenticate(ctx context.Context, as SASLHandshake, mechanism sasl.Mechanism) (time.Duration, error) {
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = int16(as), mechanism.Name()
	resp, err := c.Request(ctx, handshake)
	if err == nil {
		err = kerr.ErrorForCode(resp.(*kmsg.SASLHandshakeResponse).ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("SaslHandshake v%d for %s: %w", as, mechanism.Name(), err)
	}
	session, token, err := mechanism.Authenticate(ctx, "")
	var lifetime time.Duration
	for done := false; err == nil && (!done || len(token) > 0); {
		var challenge []byte
		if as == SASLHandshakeV0 {
			challenge, err = c.rawToken(ctx, token)
		} else {
			challenge, lifetime, err = c.token(ctx, token)
		}
		token = nil
		if err == nil && !done {
			done, token, err = session.Challenge(challenge)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s after SaslHandshake v%d: %w", mechanism.Name(), as, err)
	}
	return lifetime, nil
}

// rawToken sends a token and returns the next one.
func (c *Conn) rawToken(ctx context.Context, token []byte) ([]byte, error) {
	if err := c.SendBytes(ctx, append(binary.BigEndian.AppendUint32(nil, uint32(len(token))), token...)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.reader, size); err != nil {
		return nil, fmt.Errorf("no answer to a token: %w", err)
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxFrame {
		return nil, fmt.Errorf("token of %d bytes", n)
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(c.reader, answer)
	return answer, err
}

// token sends a token in a SaslAuthenticate request.
func (c *Conn) token(ctx context.Context, token []byte) (challenge []byte, lifetime time.Duration, err error) {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 2, token
	resp, err := c.Request(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	answer := resp.(*kmsg.SASLAuthenticateResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, 0, fmt.Errorf("%w (%s)", err, deref(answer.ErrorMessage))
	}
	return answer.SASLAuthBytes, time.Duration(answer.SessionLifetimeMillis) * time.Millisecond, nil
}
