// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"tiergate/internal/testkit/authority"
	gates "tiergate/internal/testkit/stand"
	"tiergate/loadtest/kafka"
)

// Listeners of a secured broker beside PLAINTEXT.
const (
	saslListener   = "SASL"    // SASL_PLAINTEXT
	saslTLS        = "SASLTLS" // SASL_SSL
	mutualListener = "MUTUAL"  // SSL with client certificates
	reauthListener = "REAUTH"  // SASL_SSL with connections.max.reauth.ms
)

// reauthEvery is connections.max.reauth.ms of reauthListener. franz-go begins a second
// before, the Java client at 85 to 95 %.
const reauthEvery = 3 * time.Second

// Users of a secured broker. alice may DESCRIBE, READ and WRITE topics that begin with
// openPrefix and nothing else; the service client may ask for configs, and
// serviceWithoutConfigs for nothing.
const (
	alice                 = "alice"
	serviceUser           = "tiergate"
	serviceWithoutConfigs = "blind"
	openPrefix            = "open"
)

func passwordOf(user string) string { return user + "-secret" }

// secured is one broker with all listeners, ACLs and users, and the authority that all
// certificates are of.
type secured struct {
	cluster *kafka.Cluster
	ca      *authority.Authority
	// gatePair is the certificate of every tiergate, for clients and for brokers.
	gatePair authority.Pair
	// kdc is nil where there is no GSSAPI.
	kdc  *kafka.KDC
	dir  string
	logs []kafka.StateLog
}

// GSSAPI says whether a secured broker has it.
type gssapi uint8

const (
	withoutGSSAPI gssapi = iota
	withGSSAPI
)

// kafkaPrincipal is the broker's, by the name that clients know it by: that of tiergate.
const kafkaPrincipal = "kafka/localhost"

// newSecured starts the broker and brings one topic into each of a few states.
func newSecured(t *testing.T, ctx context.Context, version string, kerberos gssapi) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir()}
	var err error
	s.ca, err = authority.New("test")
	must(t, err)
	broker, err := s.ca.Issue(authority.Leaf{Name: "kafka", Hosts: []string{"127.0.0.1"}})
	must(t, err)
	s.gatePair, err = s.ca.Issue(authority.Leaf{Name: serviceUser, Hosts: []string{"127.0.0.1", "localhost"}})
	must(t, err)
	for name, text := range map[string][]byte{
		"broker.pem": broker.Keystore(), "ca.pem": s.ca.PEM(), "gate.pem": s.gatePair.CertPEM, "gate.key": s.gatePair.KeyPEM,
		serviceUser: []byte(passwordOf(serviceUser) + "\n"), serviceWithoutConfigs: []byte(passwordOf(serviceWithoutConfigs) + "\n"),
	} {
		must(t, authority.Write(s.file(name), text))
	}
	options := kafka.Options{
		Version: version, TieredStorage: kafka.TieredStorageOn, Logger: progress(), Properties: s.properties(),
		Nodes: []kafka.NodeOptions{{NodeID: nodeID, Listeners: []kafka.Listener{
			{Name: saslListener, Protocol: "SASL_PLAINTEXT"},
			{Name: saslTLS, Protocol: "SASL_SSL"},
			{Name: mutualListener, Protocol: "SSL"},
			{Name: reauthListener, Protocol: "SASL_SSL"},
		}}},
	}
	if kerberos == withGSSAPI {
		var err error
		s.kdc, err = kafka.StartKDC(ctx, t.TempDir(), progress(), kafkaPrincipal, alice)
		must(t, err)
		t.Cleanup(s.kdc.Close)
		options.JVM = s.kdc.JVM()
		maps.Copy(options.Properties, s.kdc.GSSAPIProperties(saslListener, kafkaPrincipal))
		maps.Copy(options.Properties, s.kdc.GSSAPIProperties(saslTLS, kafkaPrincipal))
	}
	s.cluster = gates.Brokers(t, options)
	s.addUsers(t, ctx)
	s.logs, err = s.cluster.BuildLogStates(ctx, openPrefix, statesNamed("uploaded, all still local", "tiered, only the active segment", kafka.NotTiered))
	must(t, err)
	return s
}

func statesNamed(names ...string) []kafka.LogState {
	var states []kafka.LogState
	for _, s := range kafka.LogStates() {
		for _, name := range names {
			if s.Name == name {
				states = append(states, s)
			}
		}
	}
	return states
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

func (s *secured) properties() map[string]string {
	users := map[string]string{alice: passwordOf(alice), serviceUser: passwordOf(serviceUser)}
	p := kafka.AuthorizerProperties()
	for _, listener := range []string{saslTLS, mutualListener, reauthListener} {
		clients := kafka.ClientCertificatesNone
		if listener == mutualListener {
			clients = kafka.ClientCertificatesRequired
		}
		maps.Copy(p, kafka.TLSProperties(listener, s.file("broker.pem"), s.file("ca.pem"), clients))
	}
	for listener, reauth := range map[string]time.Duration{saslListener: 0, saslTLS: 0, reauthListener: reauthEvery} {
		maps.Copy(p, kafka.SASLProperties(listener, users, reauth))
	}
	return p
}

func (s *secured) addUsers(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, user := range []string{alice, serviceUser, serviceWithoutConfigs} {
		must(t, s.cluster.AddScramUser(ctx, user, passwordOf(user)))
	}
	must(t, s.cluster.Allow(ctx, alice, openPrefix, kadm.OpDescribe, kadm.OpRead, kadm.OpWrite))
	// Over mTLS everybody is the certificate of tiergate.
	for _, user := range []string{serviceUser, "CN=" + serviceUser} {
		must(t, s.cluster.Allow(ctx, user, "*", kadm.OpDescribeConfigs))
		must(t, s.cluster.AllowCluster(ctx, user, kadm.OpDescribeConfigs))
	}
	must(t, s.cluster.Allow(ctx, "CN="+serviceUser, openPrefix, kadm.OpDescribe))
}

// side is how a tiergate before a secured broker speaks.
type side struct {
	// listener of the broker.
	listener string
	// client and upstream are the blocks of the configuration.
	client, upstream string
	// mode is earliest_pending_upload.
	mode string
	// user of the service client; empty: none.
	user string
	// listen and advertised are hosts of tiergate's own; default 127.0.0.1.
	listen, advertised string
}

// tlsBlocks are those of both sides.
func (s *secured) tlsSide(listener, mode string) side {
	return side{
		listener: listener, mode: mode, user: serviceUser,
		client:   fmt.Sprintf("    tls: {cert_file: %q, key_file: %q}\n", s.file("gate.pem"), s.file("gate.key")),
		upstream: fmt.Sprintf("  tls: {ca_file: %q}\n", s.file("ca.pem")),
	}
}

// guard is a tiergate before a secured broker.
type guard struct {
	*gate
	// bootstrap and node are its addresses.
	bootstrap, node string
	// tls is what clients need; nil for plaintext.
	tls *tls.Config
}

// config is the configuration of a tiergate on that side, and its addresses as clients
// know them.
func (s *secured) config(t *testing.T, on side) (yaml, bootstrap, node string) {
	t.Helper()
	listen, advertised := cmp.Or(on.listen, "127.0.0.1"), cmp.Or(on.advertised, "127.0.0.1")
	ports, err := kafka.FreePorts(2)
	must(t, err)
	sasl := ""
	if on.user != "" {
		sasl = fmt.Sprintf("  sasl: {mechanism: SCRAM-SHA-512, username: %q, password_file: %q}\n", on.user, s.file(on.user))
	}
	return fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
%s%slisteners:
  - name: clients
    bootstrap: "%s:%d"
    nodes: "%s:%d-%d"
    first_node_id: %d
    advertised_host: %q
%searliest_pending_upload: %s
`, s.cluster.Node(nodeID).ListenerAddress(on.listener), on.upstream, sasl, listen, ports[0], listen, ports[1], ports[1], nodeID,
			advertised, on.client, on.mode),
		net.JoinHostPort(advertised, strconv.Itoa(ports[0])), net.JoinHostPort(advertised, strconv.Itoa(ports[1]))
}

// guard starts a tiergate and waits until it is ready.
func (s *secured) guard(t *testing.T, ctx context.Context, on side) *guard {
	t.Helper()
	yaml, bootstrap, node := s.config(t, on)
	g := &guard{gate: startGate(t, ctx, yaml), bootstrap: bootstrap, node: node}
	if on.client != "" {
		g.tls = s.clientTLS()
	}
	return g
}

// clientTLS is what clients of a TLS listener need, the broker's or tiergate's.
func (s *secured) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.ca.Pool(), ServerName: "127.0.0.1"}
}

// dialAs opens a raw connection, with TLS if there is a configuration.
func dialAs(t *testing.T, ctx context.Context, addr string, config *tls.Config) *kafka.Conn {
	t.Helper()
	if config == nil {
		return dial(t, ctx, addr)
	}
	c, err := kafka.DialTLS(ctx, addr, "endtoend", config)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
