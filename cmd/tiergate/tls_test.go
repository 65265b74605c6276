// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/config"
	"tiergate/internal/testkit/authority"
	"tiergate/internal/testkit/sim"
)

// secured is a simulated cluster that speaks TLS, and what else a test of it needs.
type secured struct {
	*sim.Cluster
	dir string
	// shown is the certificate of the brokers; it may be exchanged.
	shown atomic.Pointer[tls.Certificate]
}

// startSecured starts a broker with the certificate shown; none is plaintext.
func startSecured(t *testing.T, shown *authority.Pair) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir()}
	opts := sim.Options{Version: sim.Kafka41, Brokers: 1, Topics: sim.SampleTopics(), SystemRemoteStorage: codec.RemoteStorageEnabled}
	if shown != nil {
		s.show(*shown)
		opts.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.shown.Load(), nil }}
		opts.Client = []kgo.Opt{kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true})}
	}
	var err error
	if s.Cluster, err = sim.New(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *secured) show(p authority.Pair) {
	c := p.TLS()
	s.shown.Store(&c)
}

func (s *secured) write(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := authority.Write(filepath.Join(s.dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
}

// served is a tiergate that runs in the process.
type served struct {
	bootstrap, admin string
	node             string
	log              lockedBuffer
	hide             *strings.Replacer
}

// serveBefore runs tiergate before the cluster, with blocks for the upstream and for the
// listener, until the test ends.
func (s *secured) serveBefore(t *testing.T, upstream, listener string) *served {
	t.Helper()
	return s.serveTo(t, s.Addresses()[0], upstream, listener)
}

// serveTo is serveBefore with another bootstrap server.
func (s *secured) serveTo(t *testing.T, server, upstream, listener string) *served {
	t.Helper()
	first, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", first+i) }
	g := &served{bootstrap: at(0), node: at(1), admin: at(2)}
	g.hide = strings.NewReplacer(g.bootstrap, "BOOTSTRAP", g.node, "NODE", s.Addresses()[0], "BROKER", s.dir+"/", "")
	cfg, err := config.Parse(filepath.Join(s.dir, "tiergate.yaml"), fmt.Appendf(nil, `
upstream:
  bootstrap_servers: [%q]
%slisteners:
  - name: clients
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    advertised_host: 127.0.0.1
%sadmin: {address: %q}
`, server, upstream, g.bootstrap, first+1, first+1, listener, g.admin))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out lockedBuffer
	ended := make(chan error, 1)
	stderr := queued(t, &g.log)
	go func() { ended <- serve(cfg, 0, Stop{Soon: ctx, Now: ctx}, &Streams{Out: &out, Err: stderr}) }()
	t.Cleanup(func() {
		cancel()
		var exit *exitError
		if err := <-ended; err != nil && !errors.As(err, &exit) { // a session under way is cut
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of tiergate:\n%s", g.log.String())
		}
	})
	await(t, "the map of addresses", func() bool { return out.String() != "" })
	return g
}

// warnings are the lines of the log at WARN and above, without what is new each time.
func (g *served) warnings() []string {
	var lines []string
	for line := range strings.Lines(g.hide.Replace(g.log.String())) {
		_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "level=")
		if level, rest, _ := strings.Cut(line, " "); level == "WARN" || level == "ERROR" {
			rest = regexp.MustCompile(` client=127\.0\.0\.1:[0-9]+`).ReplaceAllString(rest, "")
			// The length of a ClientHello.
			rest = regexp.MustCompile(`are 160301[0-9a-f]{2}`).ReplaceAllString(rest, "are 160301xx")
			lines = append(lines, rest)
		}
	}
	return lines
}

// wantWarnings waits for as many warnings as there are wanted, and compares them.
func (g *served) wantWarnings(t *testing.T, want ...string) {
	t.Helper()
	await(t, "as many warnings", func() bool { return len(g.warnings()) >= len(want) })
	if got := strings.Join(g.warnings(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// metric returns the value of a line of /metrics.
func (g *served) metric(t *testing.T, series string) string {
	t.Helper()
	resp, err := http.Get("http://" + g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	t.Fatalf("no line %s in\n%s", series, text)
	return ""
}

// metadataRequest is a whole frame.
func metadataRequest() []byte {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 1)
}

// knock connects to address, with TLS if there is a configuration, sends a request, and
// returns what came back, or why nothing did.
func knock(t *testing.T, address string, c *tls.Config) ([]byte, error) {
	t.Helper()
	var conn net.Conn
	conn, err := net.Dial("tcp", address)
	switch {
	case errors.Is(err, syscall.ECONNRESET): // the reset may be there before Dial looks
		return nil, err
	case err != nil:
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if c != nil {
		conn = tls.Client(conn, c)
	}
	if _, err := conn.Write(metadataRequest()); err != nil {
		return nil, err
	}
	size := make([]byte, 4)
	n, err := conn.Read(size)
	return size[:n], err
}

func wantRefused(t *testing.T, address string, c *tls.Config) {
	t.Helper()
	if got, err := knock(t, address, c); err == nil {
		t.Errorf("got an answer that begins with %x, want none", got)
	}
}

func newAuthority(t *testing.T, name string) *authority.Authority {
	t.Helper()
	ca, err := authority.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue makes a certificate; without an authority one that signs itself.
func issue(t *testing.T, ca *authority.Authority, leaf authority.Leaf) authority.Pair {
	t.Helper()
	issue := authority.SelfSigned
	if ca != nil {
		issue = ca.Issue
	}
	pair, err := issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func loopback(name string) authority.Leaf {
	return authority.Leaf{Name: name, Hosts: []string{"127.0.0.1"}}
}

// What is wrong between clients and tiergate is one sentence in the log.
func TestClientSideTLSFaults(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	server, client := issue(t, ca, loopback("tiergate")), issue(t, ca, authority.Leaf{Name: "app"})
	past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	expired := issue(t, ca, authority.Leaf{Name: "app", NotBefore: past, NotAfter: past.AddDate(1, 0, 0)})
	stranger := issue(t, other, authority.Leaf{Name: "app"})
	cluster := startSecured(t, nil)
	cluster.write(t, map[string][]byte{"tls.crt": server.CertPEM, "tls.key": server.KeyPEM, "ca.pem": ca.PEM()})
	const mutual = "    tls: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.pem}\n"
	const oneSided = "    tls: {cert_file: tls.crt, key_file: tls.key}\n"
	with := func(roots *x509.CertPool, pairs ...authority.Pair) *tls.Config {
		c := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
		if len(pairs) > 0 {
			pair := pairs[0].TLS()
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return c
	}
	const refused = `msg="connection refused" listener=clients error="TLS handshake: `
	for _, c := range []struct {
		name, listener string
		client         *tls.Config
		want           string // empty: served
	}{
		{"well", oneSided, with(ca.Pool()), ""},
		{"well, mutual", mutual, with(ca.Pool(), client), ""},
		{"requested, none", strings.Replace(mutual, "}", ", client_auth: request}", 1), with(ca.Pool()), ""},
		{"plaintext to a TLS port", oneSided, nil, refused + `plaintext Kafka bytes on a TLS port: the first bytes are 0000001300" suppressed=0`},
		{
			"TLS to a plaintext port", "", with(ca.Pool()), `msg="session closed: the peer does not speak plaintext Kafka here" listener=clients ` +
				`broker=bootstrap reason=not_kafka error="from the client: TLS bytes on a plaintext port: the first bytes are 160301xx" suppressed=0`,
		},
		{
			"no certificate", mutual, with(ca.Pool()),
			refused + `the client sent no certificate, and this listener wants one (client_auth: require)" suppressed=0`,
		},
		{
			"certificate of a stranger", mutual, with(ca.Pool(), stranger),
			refused + `the client's certificate (CN=app) comes from an authority (CN=other) that is not in client_ca_file" suppressed=0`,
		},
		{
			"requested, expired", strings.Replace(mutual, "}", ", client_auth: request}", 1), with(ca.Pool(), expired),
			refused + `the client's certificate (CN=app) has expired: it was valid until 2021-01-01T00:00:00Z" suppressed=0`,
		},
		{
			"client that does not know the authority", oneSided, with(other.Pool()),
			refused + `the client does not accept this listener's certificate (alert: bad certificate)" suppressed=0`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := cluster.serveBefore(t, "", c.listener)
			if c.want == "" {
				if _, err := knock(t, g.bootstrap, c.client); err != nil {
					t.Error(err)
				}
				g.wantWarnings(t)
				return
			}
			wantRefused(t, g.bootstrap, c.client)
			g.wantWarnings(t, c.want)
		})
	}
}

// A health check of a balancer connects and leaves: no fault, on a TLS port either.
func TestHealthChecksAreNoFaults(t *testing.T) {
	server := issue(t, newAuthority(t, "ca"), loopback("tiergate"))
	cluster := startSecured(t, nil)
	cluster.write(t, map[string][]byte{"tls.crt": server.CertPEM, "tls.key": server.KeyPEM})
	for _, listener := range []string{"    tls: {cert_file: tls.crt, key_file: tls.key}\n", "    proxy_protocol: required\n"} {
		g := cluster.serveBefore(t, "", listener+"log: {level: debug}\n")
		conn, err := net.Dial("tcp", g.bootstrap)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		await(t, "the line about it", func() bool {
			return strings.Contains(g.log.String(), `level=DEBUG msg="connection closed before sending any data"`)
		})
		g.wantWarnings(t)
	}
}

// What is wrong between tiergate and brokers is one sentence of the service client, and one
// of each session.
func TestBrokerSideTLSFaults(t *testing.T) {
	ca := newAuthority(t, "ca")
	past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	good, expired := issue(t, ca, loopback("kafka")), authority.Leaf{Name: "kafka", Hosts: []string{"127.0.0.1"}, NotBefore: past, NotAfter: past.AddDate(1, 0, 0)}
	file := map[string][]byte{"ca.pem": ca.PEM()}
	const block = "  tls: {ca_file: ca.pem}\n"
	const plainFirst = "the broker closed the connection at the first request, as one does that wants TLS (upstream.tls) or SASL (upstream.sasl): EOF"
	for _, c := range []struct {
		name     string
		broker   *authority.Pair
		upstream string
		// want is the sentence, behind the address; empty: served.
		want string
	}{
		{"well", &good, block, ""},
		{"well, by name", ptr(issue(t, ca, authority.Leaf{Name: "kafka", Hosts: []string{"kafka.internal"}})), "  tls: {ca_file: ca.pem, server_name: kafka.internal}\n", ""},
		{"expired, unchecked", ptr(issue(t, nil, expired)), "  tls: {insecure_skip_verify: true}\n", ""},
		{"expired", ptr(issue(t, ca, expired)), block, "the broker's certificate (CN=kafka) has expired: it was valid until 2021-01-01T00:00:00Z"},
		{
			"wrong host", ptr(issue(t, ca, authority.Leaf{Name: "kafka", Hosts: []string{"kafka.internal"}})), block,
			"the broker's certificate (CN=kafka) is for kafka.internal and not for 127.0.0.1",
		},
		{
			"self-signed", ptr(issue(t, nil, loopback("kafka"))), block,
			"the broker's certificate (CN=kafka) is self-signed and not in upstream.tls.ca_file or, without one, the system's",
		},
		{
			"unknown authority", &good, "  tls: {}\n",
			"the broker's certificate (CN=kafka) comes from an authority (CN=ca) that is not in upstream.tls.ca_file or, without one, the system's",
		},
		{
			"TLS to a plaintext port", nil, block,
			"the broker closed the connection during the handshake, as one does that speaks no TLS on this port",
		},
		{"plaintext to a TLS port", &good, "", plainFirst},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := startSecured(t, c.broker)
			cluster.write(t, file)
			g := cluster.serveBefore(t, c.upstream, "")
			service := `msg="no broker list from the cluster; trying again until there is one" error="no broker list: `
			session := `msg="session closed: the broker cannot be reached" listener=clients broker=bootstrap reason=dial_failed error="`
			if c.want == "" {
				if _, err := knock(t, g.bootstrap, nil); err != nil {
					t.Error(err)
				}
				if strings.Contains(c.upstream, "insecure") {
					g.wantWarnings(t, `msg="INSECURE: upstream.tls.insecure_skip_verify is on: brokers' certificates are not checked, `+
						`so whoever stands between can read and change everything, passwords among it"`)
					return
				}
				g.wantWarnings(t)
				return
			}
			await(t, "the warning of the service client", func() bool { return len(g.warnings()) == 1 })
			wantRefused(t, g.bootstrap, nil)
			if c.want == plainFirst { // the simulated broker closes without a word; to the session that is an end like any other
				g.wantWarnings(t, service+c.want+`"`)
				return
			}
			g.wantWarnings(t, service+`BROKER: TLS handshake: `+c.want+`"`, session+`BROKER: TLS handshake: `+c.want+`" suppressed=0`)
		})
	}
}

func ptr(p authority.Pair) *authority.Pair { return &p }

// TLS on both sides, with addresses rewritten: a client finds every record and the -6
// offset. Then all certificates are exchanged under it, those of the listener by SIGHUP,
// the brokers' authority by a change of its file, and nothing is restarted.
func TestTLSOnBothSidesAndRotation(t *testing.T) {
	brokerCA, clientCA := newAuthority(t, "brokers"), newAuthority(t, "clients")
	cluster := startSecured(t, ptr(issue(t, brokerCA, loopback("kafka"))))
	first := issue(t, clientCA, loopback("first"))
	cluster.write(t, map[string][]byte{
		"tls.crt": first.CertPEM, "tls.key": first.KeyPEM, "clients.pem": clientCA.PEM(), "brokers.pem": brokerCA.PEM(),
	})
	g := cluster.serveBefore(t, "  tls: {ca_file: brokers.pem}\n", "    tls: {cert_file: tls.crt, key_file: tls.key, client_ca_file: clients.pem}\n")
	app := issue(t, clientCA, authority.Leaf{Name: "app"}).TLS()
	client := &tls.Config{RootCAs: clientCA.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{app}}
	wantPendingUpload(t, g, client)
	at := g.metric(t, `tiergate_certificate_expiry_timestamp_seconds{file="cert_file",listener="clients",use="listener"}`)
	if want := strconv.FormatFloat(float64(first.Certificate.NotAfter.Unix()), 'g', -1, 64); at != want {
		t.Errorf("the metric says that the certificate expires at %s, want %s", at, want)
	}

	// The listener's certificate, by SIGHUP.
	second := issue(t, clientCA, loopback("second"))
	cluster.write(t, map[string][]byte{"tls.crt": second.CertPEM, "tls.key": second.KeyPEM})
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the new certificate", func() bool { return g.shows(t, client) == "second" })

	// The authority of the brokers, by the change of its file.
	nextCA := newAuthority(t, "next brokers")
	cluster.show(issue(t, nextCA, loopback("kafka")))
	cluster.CloseConnections()
	wantRefused(t, g.bootstrap, client)
	cluster.write(t, map[string][]byte{"brokers.pem": nextCA.PEM()})
	await(t, "a session with the new authority", func() bool {
		_, err := knock(t, g.bootstrap, client)
		return err == nil
	})
	wantPendingUpload(t, g, client)
	// SIGHUP reads both blocks, the change one.
	if n := g.metric(t, `tiergate_tls_reloads_total{result="ok"}`); n != "3" {
		t.Errorf("%s reloads, want 3", n)
	}
}

// shows is the name in the certificate that clients are shown.
func (g *served) shows(t *testing.T, c *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", g.bootstrap, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// wantPendingUpload asks for -6 of orders-0 with a client that follows the addresses in
// answers, and reads the records behind it.
func wantPendingUpload(t *testing.T, g *served, c *tls.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(g.bootstrap), kgo.DialTLSConfig(c), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(4200)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -6
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != 4200 || got.LeaderEpoch != 4 {
		t.Errorf("-6 gives %+v, want offset 4200 of epoch 4", got)
	}
	records := 0
	for records < 1000 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		records += fetches.NumRecords()
	}
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if b := metadata.Brokers[0]; len(metadata.Brokers) != 1 || fmt.Sprintf("%s:%d", b.Host, b.Port) != g.node {
		t.Errorf("clients are told %+v, want only %s", metadata.Brokers, g.node)
	}
}

// Tickets of one connection resume the next one.
func TestTLSSessionsAreResumed(t *testing.T) {
	ca := newAuthority(t, "ca")
	server := issue(t, ca, loopback("tiergate"))
	cluster := startSecured(t, nil)
	cluster.write(t, map[string][]byte{"tls.crt": server.CertPEM, "tls.key": server.KeyPEM})
	g := cluster.serveBefore(t, "", "    tls: {cert_file: tls.crt, key_file: tls.key}\n")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for i, want := range []bool{false, true} {
			conn, err := tls.Dial("tcp", g.bootstrap, c)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(metadataRequest())
			if _, err := conn.Read(make([]byte, 4)); err != nil { // takes the ticket of TLS 1.3 in
				t.Error(err)
			}
			if got := conn.ConnectionState().DidResume; got != want {
				t.Errorf("%s, connection %d: resumed %v, want %v", tls.VersionName(version), i, got, want)
			}
			_ = conn.Close()
		}
	}
}
