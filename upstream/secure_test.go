// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/authority"
)

// broker is a certificate for brokers, and what the service client trusts.
func brokerCertificate(t *testing.T, hosts ...string) (*authority.Authority, *tls.Config) {
	t.Helper()
	ca, err := authority.New("brokers")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(authority.Leaf{Name: "broker", Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return ca, &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
}

// asked is a Security.TLS that notes the names that it is asked for.
type asked struct {
	mu    sync.Mutex
	ca    *authority.Authority
	names []string
}

func (a *asked) config(serverName string) *tls.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.names, serverName) {
		a.names = append(a.names, serverName)
	}
	return &tls.Config{RootCAs: a.ca.Pool(), ServerName: serverName}
}

func password(p string) func() (string, error) { return func() (string, error) { return p, nil } }

func TestServiceClientWithTLSAndSASL(t *testing.T) {
	ca, server := brokerCertificate(t, "kafka.invalid", "127.0.0.1")
	for _, mechanism := range []Mechanism{MechanismPlain, MechanismScramSHA256, MechanismScramSHA512} {
		t.Run(string(mechanism), func(t *testing.T) {
			k := newKafka(t, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser(string(mechanism), "tiergate", "secret"))
			k.tiered("orders")
			k.system("true", "true", "true")
			_, port, _ := net.SplitHostPort(k.ListenAddrs()[0])
			wanted := asked{ca: ca}
			c := newTestCluster(t, Options{
				BootstrapServers: []string{"kafka.invalid:" + port},
				LookupHost:       (&names{hosts: map[string][]string{"kafka.invalid": {"127.0.0.1"}}}).lookup,
				Security: Security{
					TLS:  wanted.config,
					SASL: &SASL{Mechanism: mechanism, Username: "tiergate", Password: password("secret")},
				},
			}, time.Now)
			if err := c.refresh(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if err := c.Ready(); err != nil {
				t.Error(err)
			}
			if got := c.ResolveRemoteStorage(testContext(t), []string{"orders"}); !got["orders"] {
				t.Errorf("statuses %v, want orders tiered", got)
			}
			for _, row := range c.Capabilities(testContext(t)) {
				if row.Err != nil || row.RemoteStorage != codec.RemoteStorageEnabled {
					t.Errorf("capability %+v, want an answer and tiered storage", row)
				}
			}
			wanted.mu.Lock()
			defer wanted.mu.Unlock()
			if got := fmt.Sprint(wanted.names); got != "[kafka.invalid 127.0.0.1]" {
				t.Errorf("certificates were wanted for %s, want the hosts as configured and as advertised", got)
			}
		})
	}
}

// Dials for sessions say which name they are for, and send nothing.
func TestDialedConnectionsHaveAName(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	c := newTestCluster(t, Options{
		BootstrapServers: []string{"kafka.invalid:" + live.port()},
		LookupHost:       (&names{hosts: map[string][]string{"kafka.invalid": {"127.0.0.1"}}}).lookup,
		Security:         Security{Preamble: []byte("PROXY UNKNOWN\r\n")},
	}, time.Now)
	c.ObserveNodes(Node{NodeID: 7, Host: "127.0.0.1", Port: int32(live.Addr().(*net.TCPAddr).Port)})
	f := func(conn net.Conn, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.(interface{ ServerName() string }).ServerName(); got != want {
			t.Errorf("server name %q, want %q", got, want)
		}
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	conn, err := c.DialBootstrap(testContext(t))
	f(conn, err, "kafka.invalid")
	conn, err = c.DialNode(testContext(t), 7)
	f(conn, err, "127.0.0.1")
	eventually(t, "both connections", func() bool { return live.count() == 2 })
	for _, accepted := range live.accepted {
		if got, err := io.ReadAll(accepted); len(got) > 0 || err != nil {
			t.Errorf("dialing sent %q (%v), want nothing", got, err)
		}
	}
}

// The service client begins with the preamble, and speaks TLS behind it.
func TestPreamble(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	preamble := "PROXY UNKNOWN\r\n"
	got := make(chan string, 1)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, len(preamble)+1)
			_, _ = io.ReadFull(conn, buf)
			select {
			case got <- string(buf):
			default:
			}
			_ = conn.Close()
		}
	}()
	ca, _ := brokerCertificate(t)
	c := newTestCluster(t, Options{
		BootstrapServers: []string{ln.Addr().String()},
		Security:         Security{TLS: (&asked{ca: ca}).config, Preamble: []byte(preamble)},
	}, time.Now)
	if err := c.refresh(testContext(t)); err == nil {
		t.Error("a broker list from a listener that closes")
	}
	if begin, want := <-got, preamble+"\x16"; begin != want {
		t.Errorf("a connection begins with %q, want %q", begin, want)
	}
}

// What is wrong with TLS or with SASL is one sentence of the log, and of `check`.
func TestServiceClientRefused(t *testing.T) {
	_, server := brokerCertificate(t, "127.0.0.1")
	stranger, _ := brokerCertificate(t)
	tlsPort := newKafka(t, kfake.NumBrokers(1), kfake.TLS(server)).ListenAddrs()[0]
	sasl := newKafka(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "tiergate", "secret"))
	saslPort := sasl.ListenAddrs()[0]
	plain := newKafka(t, kfake.NumBrokers(1))
	plainPort := plain.ListenAddrs()[0]
	// kfake only closes the connection; these are the answers of SaslServerAuthenticator
	// and of KafkaApis.handleSaslHandshakeRequest.
	sasl.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		sasl.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password")
		return resp, nil, true
	})
	handshake := func(k *kafka, code int16, mechanisms ...string) {
		k.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
			resp.SupportedMechanisms = mechanisms
			if slices.Contains(mechanisms, req.(*kmsg.SASLHandshakeRequest).Mechanism) {
				return nil, nil, false
			}
			resp.ErrorCode = code
			return resp, nil, true
		})
	}
	handshake(sasl, kerr.UnsupportedSaslMechanism.Code, "PLAIN")
	handshake(plain, kerr.IllegalSaslState.Code)
	user := func(mechanism Mechanism, pass string) *SASL {
		return &SASL{Mechanism: mechanism, Username: "tiergate", Password: password(pass)}
	}
	explain := func(err error) error {
		if errors.As(err, new(x509.UnknownAuthorityError)) {
			return errors.New("in plain words: no authority")
		}
		return err
	}
	for _, c := range []struct {
		name, server, want string
		security           Security
	}{
		{
			"unknown authority", tlsPort, tlsPort + ": TLS handshake: in plain words: no authority", Security{TLS: (&asked{ca: stranger}).config, Explain: explain},
		},
		{
			"plaintext to a TLS port", tlsPort,
			"the broker closed the connection at the first request, as one does that wants TLS (upstream.tls) or SASL (upstream.sasl): EOF",
			Security{},
		},
		{
			"no SASL", saslPort,
			"the broker closed the connection at the first request, as one does that wants TLS (upstream.tls) or SASL (upstream.sasl): EOF",
			Security{},
		},
		{
			"wrong password", saslPort, `the broker refuses user "tiergate" of upstream.sasl (PLAIN): SASL_AUTHENTICATION_FAILED: ` +
				"SASL Authentication failed.: Authentication failed: Invalid username or password",
			Security{SASL: user(MechanismPlain, "wrong")},
		},
		{
			"wrong mechanism", saslPort, "the broker's port does not offer SCRAM-SHA-256, the mechanism of upstream.sasl: " +
				"UNSUPPORTED_SASL_MECHANISM: The broker does not support the requested SASL mechanism.",
			Security{SASL: user(MechanismScramSHA256, "secret")},
		},
		{
			"SASL to a port without", plainPort, "the broker's port has no SASL, and upstream.sasl is set: " +
				"ILLEGAL_SASL_STATE: Request is not valid given the current SASL state.",
			Security{SASL: user(MechanismPlain, "secret")},
		},
		{
			"no password", saslPort, `password of SASL user "tiergate": gone`, Security{SASL: &SASL{
				Mechanism: MechanismPlain, Username: "tiergate",
				Password: func() (string, error) { return "", errors.New("gone") },
			}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &logged{}
			cluster := newTestCluster(t, Options{
				BootstrapServers: []string{c.server}, Security: c.security, Logger: log.logger(), RequestTimeout: 500 * time.Millisecond,
			}, time.Now)
			_ = cluster.refresh(testContext(t))
			lines := log.lines("no broker list")
			if len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf("error=%q", "no broker list: "+c.want)) {
				t.Errorf("log:\n%s\nwant one line with\n%s", strings.Join(lines, ""), c.want)
			}
			if got := fmt.Sprint(cluster.BrokerList(testContext(t))); got != "no broker list: "+c.want {
				t.Errorf("broker list: %s\nwant %s", got, c.want)
			}
			if c.security.TLS != nil && cluster.Ready() == nil {
				t.Error("ready, although no handshake succeeded")
			}
		})
	}
}
