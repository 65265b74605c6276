// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tiergate/config"
	"tiergate/internal/testkit/authority"
)

// day is a fixed time that the certificates of a test are of.
func day(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }

// bed is a store with its files, log and clock.
type bed struct {
	*Store
	t       *testing.T
	dir     string
	log     bytes.Buffer
	metrics *prometheus.Registry
	clock   time.Time
}

// newBed makes a store from the blocks of a configuration. Files in them are those of
// files, which the authority has to make first.
func newBed(t *testing.T, upstream, listener string, files map[string][]byte) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), metrics: prometheus.NewRegistry(), clock: day(10)}
	for name, text := range files {
		b.write(name, text)
	}
	yaml := "upstream:\n  bootstrap_servers: [\"kafka-0:9092\"]\n" + upstream +
		"listeners:\n  - name: clients\n    direct: {\"127.0.0.1:9092\": \"kafka-0:9092\"}\n" + listener
	c, err := config.Parse(filepath.Join(b.dir, "tiergate.yaml"), []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	if b.Store, err = newStore(c, log, b.metrics, func() time.Time { return b.clock }); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) write(name string, text []byte) {
	b.t.Helper()
	if err := authority.Write(filepath.Join(b.dir, name), text); err != nil {
		b.t.Fatal(err)
	}
}

// logged compares what was logged since the last call.
func (b *bed) logged(want ...string) {
	b.t.Helper()
	got := strings.ReplaceAll(strings.TrimSuffix(b.log.String(), "\n"), b.dir+"/", "")
	b.log.Reset()
	if got != strings.Join(want, "\n") {
		b.t.Errorf("log:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// shown is the name in the certificate that clients see.
func (b *bed) shown() string {
	b.t.Helper()
	pair := b.Listener("clients")().Certificates[0]
	if pair.Leaf.Subject.CommonName != b.Certificate("clients").Subject.CommonName {
		b.t.Errorf("Certificate is %v, clients are shown %v", b.Certificate("clients").Subject, pair.Leaf.Subject)
	}
	return pair.Leaf.Subject.CommonName
}

func newAuthority(t *testing.T, name string) *authority.Authority {
	t.Helper()
	ca, err := authority.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *authority.Authority, name string, last int) authority.Pair {
	t.Helper()
	pair, err := ca.Issue(authority.Leaf{Name: name, Hosts: []string{"kafka.example.com"}, NotBefore: day(5), NotAfter: day(last)})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

const listenerBlock = "    tls: {cert_file: tls.crt, key_file: tls.key}\n"

func pairFiles(p authority.Pair) map[string][]byte {
	return map[string][]byte{"tls.crt": p.CertPEM, "tls.key": p.KeyPEM}
}

func readAgain(name, expires string) string {
	return fmt.Sprintf(`level=INFO msg="TLS files were read again; new connections use them" for="listener \"clients\"" `+
		`cert_file="CN=%s" cert_file_expires=%s`, name, expires)
}

func (b *bed) wantReloads(ok, failed int) {
	b.t.Helper()
	if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(fmt.Sprintf(`
# HELP tiergate_tls_reloads_total TLS files read again because they have changed or SIGHUP came, by result; failed: what was read before stays in use.
# TYPE tiergate_tls_reloads_total counter
tiergate_tls_reloads_total{result="failed"} %d
tiergate_tls_reloads_total{result="ok"} %d
`, failed, ok)), "tiergate_tls_reloads_total"); err != nil {
		b.t.Error(err)
	}
}

func TestRotation(t *testing.T) {
	ca := newAuthority(t, "ca")
	b := newBed(t, "", listenerBlock, pairFiles(issue(t, ca, "one", 20)))
	b.poll()
	b.logged()
	first := b.Listener("clients")()

	// Certificate and key one after the other, with a look between.
	two := issue(t, ca, "two", 21)
	b.write("tls.crt", two.CertPEM)
	b.poll()
	b.logged()
	b.write("tls.key", two.KeyPEM)
	b.poll()
	b.logged(readAgain("two", "2026-01-21T00:00:00Z"))
	b.wantReloads(1, 0)
	if b.shown() != "two" || first == b.Listener("clients")() {
		t.Errorf("clients are shown %s, want two in a new configuration", b.shown())
	}

	// One that cannot be used: one warning, and the old one stays.
	b.write("tls.crt", []byte("half a certif"))
	b.poll()
	b.logged()
	for range 3 {
		b.poll()
	}
	b.logged(`level=WARN msg="TLS files have changed and cannot be used; what was read before stays in use" for="listener \"clients\"" ` +
		`error="\"tls.crt\" is not a PEM file; want one that begins with -----BEGIN CERTIFICATE-----"`)
	if err := os.Remove(filepath.Join(b.dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	b.poll()
	b.poll()
	b.logged(`level=WARN msg="TLS files have changed and cannot be used; what was read before stays in use" for="listener \"clients\"" ` +
		`error="\"tls.crt\" is not a PEM file; want one that begins with -----BEGIN CERTIFICATE-----"`)
	if b.shown() != "two" {
		t.Errorf("clients are shown %s, want two", b.shown())
	}
	b.wantReloads(1, 2)

	// And back again.
	three := issue(t, ca, "three", 22)
	b.write("tls.crt", three.CertPEM)
	b.write("tls.key", three.KeyPEM)
	b.poll()
	b.logged(readAgain("three", "2026-01-22T00:00:00Z"))
	b.wantReloads(2, 2)
}

// A secret of Kubernetes: the files are links through ..data, and that is exchanged.
func TestRotationOfAKubernetesSecret(t *testing.T) {
	ca := newAuthority(t, "ca")
	secret := t.TempDir()
	version := func(name string, p authority.Pair) {
		t.Helper()
		dir := filepath.Join(secret, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range pairFiles(p) {
			if err := authority.Write(filepath.Join(dir, file), text); err != nil {
				t.Fatal(err)
			}
		}
		next := filepath.Join(secret, "..data_tmp")
		if err := os.Symlink(name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(secret, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", issue(t, ca, "one", 20))
	for _, file := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(secret, file)); err != nil {
			t.Fatal(err)
		}
	}
	b := newBed(t, "", strings.ReplaceAll(listenerBlock, "tls.", secret+"/tls."), nil)
	version("..2", issue(t, ca, "two", 21))
	b.poll()
	b.logged(readAgain("two", "2026-01-21T00:00:00Z"))
	if b.shown() != "two" {
		t.Errorf("clients are shown %s, want two", b.shown())
	}
}

// SIGHUP reads everything again, and complains at once.
func TestReload(t *testing.T) {
	ca := newAuthority(t, "ca")
	b := newBed(t, "", listenerBlock, pairFiles(issue(t, ca, "one", 20)))
	b.Reload()
	b.logged(readAgain("one", "2026-01-20T00:00:00Z"))
	b.write("tls.key", issue(t, ca, "other", 20).KeyPEM)
	b.Reload()
	b.logged(`level=WARN msg="TLS files have changed and cannot be used; what was read before stays in use" for="listener \"clients\"" ` +
		`error="\"tls.key\" is not the key of the certificate in \"tls.crt\"; want the matching key"`)
	b.poll()
	b.logged()
	b.wantReloads(1, 1)

	none := newBed(t, "", "", nil)
	none.Reload()
	none.logged(`level=INFO msg="no TLS files to read again; the configuration itself is read at the start only"`)
	if none.Listener("clients") != nil || none.Broker("") != nil || none.Certificate("clients") != nil {
		t.Error("TLS without a block")
	}
}

// New authorities count for the next handshake, on both sides.
func TestRotationOfAuthorities(t *testing.T) {
	old, young := newAuthority(t, "old"), newAuthority(t, "young")
	files := pairFiles(issue(t, old, "server", 20))
	files["ca.pem"] = old.PEM()
	b := newBed(t, "  tls: {ca_file: ca.pem}\n", strings.Replace(listenerBlock, "}", ", client_ca_file: ca.pem}", 1), files)
	trusted := func() string {
		var both []string
		for _, pool := range []*x509.CertPool{b.Listener("clients")().ClientCAs, b.Broker("")("kafka-0").RootCAs} {
			which := "both"
			if pool.Equal(old.Pool()) {
				which = "old"
			} else if pool.Equal(young.Pool()) {
				which = "young"
			}
			both = append(both, which)
		}
		return strings.Join(both, ", ")
	}
	if got := trusted(); got != "old, old" {
		t.Errorf("before: %s", got)
	}
	b.write("ca.pem", append(old.PEM(), young.PEM()...))
	b.poll()
	if got := trusted(); got != "both, both" {
		t.Errorf("with both: %s", got)
	}
	b.write("ca.pem", young.PEM())
	b.poll()
	if got := trusted(); got != "young, young" {
		t.Errorf("after: %s", got)
	}
	b.wantReloads(4, 0)
}

// Certificates outside their life are used and warned of, once.
func TestExpiry(t *testing.T) {
	ca := newAuthority(t, "ca")
	one := issue(t, ca, "one", 20)
	early := issue(t, ca, "early", 12)
	files := pairFiles(one)
	files["tls.crt"] = append(one.CertPEM, early.CertPEM...) // as if it were an intermediate
	b := newBed(t, "", listenerBlock, files)

	b.clock = day(12)
	b.poll()
	b.logged()
	if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(fmt.Sprintf(`
# HELP tiergate_certificate_expiry_timestamp_seconds When the certificates of a file expire, in Unix time: in cert_file the first one, among authorities the last one.
# TYPE tiergate_certificate_expiry_timestamp_seconds gauge
tiergate_certificate_expiry_timestamp_seconds{file="cert_file",listener="clients",use="listener"} %g
`, float64(day(12).Unix()))), "tiergate_certificate_expiry_timestamp_seconds"); err != nil {
		t.Error(err)
	}
	b.clock = day(12).Add(time.Second)
	b.poll()
	b.poll()
	b.logged(`level=WARN msg="a certificate has expired" for="listener \"clients\"" file=cert_file certificate="CN=early" at=2026-01-12T00:00:00Z`)
	b.clock = day(1)
	b.poll()
	b.poll()
	b.logged(`level=WARN msg="a certificate is not valid yet" for="listener \"clients\"" file=cert_file certificate="CN=early" at=2026-01-05T00:00:00Z`)
}

func TestConfigurations(t *testing.T) {
	ca := newAuthority(t, "ca")
	files := pairFiles(issue(t, ca, "both", 20))
	files["ca.pem"] = ca.PEM()
	f := func(upstream, listener string, check func(b *bed) string, want string) {
		t.Helper()
		if got := check(newBed(t, upstream, listener, files)); got != want {
			t.Errorf("%s%s: got %s, want %s", upstream, listener, got, want)
		}
	}
	side := func(c *tls.Config) string {
		return fmt.Sprintf("%s from %s, skip %v, roots %v, ALPN %v", c.ServerName, tls.VersionName(c.MinVersion), c.InsecureSkipVerify,
			c.RootCAs != nil, c.NextProtos)
	}
	broker := func(b *bed) string { return side(b.Broker("")("kafka-0")) + "; " + side(b.Broker("")("kafka-1")) }
	client := func(b *bed) string {
		c := b.Listener("clients")()
		return fmt.Sprintf("%v, authorities %v, from %s, ALPN %v, tickets %v", c.ClientAuth, c.ClientCAs != nil, tls.VersionName(c.MinVersion),
			c.NextProtos, !c.SessionTicketsDisabled && c.DynamicRecordSizingDisabled)
	}

	f("  tls: {}\n", "", broker, "kafka-0 from TLS 1.2, skip false, roots false, ALPN []; kafka-1 from TLS 1.2, skip false, roots false, ALPN []")
	f("  tls: {ca_file: ca.pem, server_name: kafka, min_version: \"1.3\"}\n", "", broker,
		"kafka from TLS 1.3, skip false, roots true, ALPN []; kafka from TLS 1.3, skip false, roots true, ALPN []")
	f("  tls: {insecure_skip_verify: true}\n", "", broker,
		"kafka-0 from TLS 1.2, skip true, roots false, ALPN []; kafka-1 from TLS 1.2, skip true, roots false, ALPN []")
	f("  tls: {cert_file: tls.crt, key_file: tls.key}\n", "", func(b *bed) string {
		c, err := b.Broker("")("kafka-0").GetClientCertificate(&tls.CertificateRequestInfo{})
		return fmt.Sprint(c.Leaf.Subject, err)
	}, "CN=both <nil>")
	f("", listenerBlock, client, "NoClientCert, authorities false, from TLS 1.2, ALPN [], tickets true")
	f("", "    tls: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.pem, min_version: \"1.3\"}\n", client,
		"RequireAndVerifyClientCert, authorities true, from TLS 1.3, ALPN [], tickets true")
	f("", "    tls: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.pem, client_auth: request}\n", client,
		"VerifyClientCertIfGiven, authorities true, from TLS 1.2, ALPN [], tickets true")
}

// Watch needs no more than a change of the files.
func TestWatchEndsWithItsContext(t *testing.T) {
	b := newBed(t, "", listenerBlock, pairFiles(issue(t, newAuthority(t, "ca"), "one", 20)))
	b.Watch(canceled(t)) // returns
	newBed(t, "", "", nil).Watch(t.Context())
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
