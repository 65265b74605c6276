// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tiergate/internal/testkit/authority"
)

// files writes files into a new folder and returns it.
func files(t *testing.T, contents map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// certificateFiles are two pairs of one authority, and what can be wrong with a file.
func certificateFiles(t *testing.T) string {
	t.Helper()
	ca, err := authority.New("test CA")
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.Issue(authority.Leaf{Name: "a", Hosts: []string{"kafka.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := ca.Issue(authority.Leaf{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	return files(t, map[string][]byte{
		"ca.pem": ca.PEM(), "a.pem": a.CertPEM, "a.key": a.KeyPEM, "b.key": b.KeyPEM, "both.pem": a.Keystore(),
		"der": a.Certificate.Raw, "text": []byte("hello\n"), "empty": nil, "password": []byte("secret\r\n"), "newline": []byte("\n"),
		"locked.key": []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
		"torn.pem":   []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"odd.key":    []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
		"rsa.key":    rsaKey(t),
	})
}

// rsaKey is a key in the form before PKCS #8.
func rsaKey(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

// secured is a file with blocks put in at the places where they belong.
func secured(upstream, listener string) string {
	return "upstream:\n  bootstrap_servers: [\"kafka-0:9092\"]\n" + upstream +
		"listeners:\n  - name: a\n    direct: {\"0.0.0.0:9092\": \"kafka-0:9092\"}\n" + listener
}

func TestSecurity(t *testing.T) {
	dir := certificateFiles(t)
	t.Setenv("TIERGATE_TEST_PASSWORD", "from the environment")
	in := func(name string) File { return File(filepath.Join(dir, name)) }
	for _, c := range []struct {
		upstream, listener string
		wantUpstream       *UpstreamTLS
		wantSASL           *SASL
		wantListener       *ListenerTLS
	}{
		{"  tls: {}\n", "", &UpstreamTLS{MinVersion: "1.2"}, nil, nil},
		{
			"  tls: {ca_file: ca.pem, cert_file: both.pem, key_file: both.pem, server_name: kafka.internal, min_version: 1.3}\n", "",
			&UpstreamTLS{CAFile: in("ca.pem"), CertFile: in("both.pem"), KeyFile: in("both.pem"), ServerName: "kafka.internal", MinVersion: "1.3"},
			nil, nil,
		},
		{
			"  tls: {insecure_skip_verify: true}\n  sasl: {mechanism: PLAIN, username: u, password_file: password}\n", "",
			&UpstreamTLS{InsecureSkipVerify: true, MinVersion: "1.2"},
			&SASL{Mechanism: "PLAIN", Username: "u", PasswordFile: in("password")}, nil,
		},
		{
			"  sasl: {mechanism: SCRAM-SHA-512, username: \"42\", password_env: TIERGATE_TEST_PASSWORD}\n",
			"    tls: {cert_file: a.pem, key_file: a.key}\n", nil,
			&SASL{Mechanism: "SCRAM-SHA-512", Username: "42", PasswordEnv: "TIERGATE_TEST_PASSWORD"},
			&ListenerTLS{CertFile: in("a.pem"), KeyFile: in("a.key"), ClientAuth: "none", MinVersion: "1.2"},
		},
		{
			"", "    tls: {cert_file: " + dir + "/a.pem, key_file: a.key, client_ca_file: ca.pem, min_version: \"1.3\"}\n", nil, nil,
			&ListenerTLS{CertFile: in("a.pem"), KeyFile: in("a.key"), ClientCAFile: in("ca.pem"), ClientAuth: "require", MinVersion: "1.3"},
		},
		{
			"", "    tls: {cert_file: a.pem, key_file: a.key, client_ca_file: ca.pem, client_auth: request}\n", nil, nil,
			&ListenerTLS{CertFile: in("a.pem"), KeyFile: in("a.key"), ClientCAFile: in("ca.pem"), ClientAuth: "request", MinVersion: "1.2"},
		},
	} {
		got, err := Parse(filepath.Join(dir, "f"), []byte(secured(c.upstream, c.listener)))
		if err != nil {
			t.Errorf("%s%s: %v", c.upstream, c.listener, err)
			continue
		}
		if u, l := got.Upstream, got.Listeners[0].TLS; !reflect.DeepEqual(u.TLS, c.wantUpstream) || !reflect.DeepEqual(u.SASL, c.wantSASL) ||
			!reflect.DeepEqual(l, c.wantListener) {
			t.Errorf("%s%s: got %+v, %+v, %+v\nwant %+v, %+v, %+v", c.upstream, c.listener, u.TLS, u.SASL, l,
				c.wantUpstream, c.wantSASL, c.wantListener)
		}
	}
}

func TestSecurityFaults(t *testing.T) {
	dir := certificateFiles(t)
	t.Setenv("TIERGATE_TEST_PASSWORD", "")
	check := func(yaml string, want ...string) {
		t.Helper()
		_, err := Parse(filepath.Join(dir, "f"), []byte(yaml))
		got := "no fault"
		if err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", yaml, got, strings.Join(want, "\n"))
		}
	}
	const certWanted = "want a PEM file with the certificate, followed by its intermediates"
	const keyWanted = "want a PEM file with the private key of the certificate, without a passphrase"

	listener := func(block string, want ...string) { t.Helper(); check(secured("", "    tls: "+block+"\n"), want...) }
	keys := "a mapping with the keys cert_file, key_file, client_ca_file, client_auth, min_version"
	listener("", "f:6:10: listeners[0].tls: missing keys: want "+keys+", {} for all defaults, or remove the key")
	listener("true", "f:6:10: listeners[0].tls: invalid value true (a boolean): want "+keys)
	listener("{}", "f:6:10: listeners[0].tls.cert_file: missing: "+certWanted, "f:6:10: listeners[0].tls.key_file: missing: "+keyWanted)
	listener("{cert_file: a.pem}", "f:6:10: listeners[0].tls.key_file: missing: "+keyWanted)
	listener("{cert_file: a.pem, key_file: none.key}", `f:6:39: listeners[0].tls.key_file: "none.key" cannot be read: no such file or directory`)
	listener("{cert_file: none.pem, key_file: a.key}", `f:6:22: listeners[0].tls.cert_file: "none.pem" cannot be read: no such file or directory`)
	listener("{cert_file: ., key_file: a.key}", `f:6:22: listeners[0].tls.cert_file: "`+dir+`" cannot be read: is a directory`)
	listener("{cert_file: a.pem, key_file: b.key}", `f:6:39: listeners[0].tls.key_file: "b.key" is not the key of the certificate in "a.pem"; want the matching key`)
	listener("{cert_file: a.pem, key_file: rsa.key}", `f:6:39: listeners[0].tls.key_file: "rsa.key" is not the key of the certificate in "a.pem"; want the matching key`)
	listener("{cert_file: a.key, key_file: a.pem}",
		`f:6:22: listeners[0].tls.cert_file: "a.key" contains only PRIVATE KEY; want a CERTIFICATE block`)
	listener("{cert_file: a.pem, key_file: a.pem}",
		`f:6:22: listeners[0].tls.cert_file: "a.pem" contains only CERTIFICATE; want a PRIVATE KEY block`)
	listener("{cert_file: a.pem, key_file: locked.key}", `f:6:39: listeners[0].tls.key_file: "locked.key" contains a key with a passphrase; `+
		`want one without (openssl pkey -in OLD -out NEW)`)
	listener("{cert_file: a.pem, key_file: odd.key}",
		`f:6:39: listeners[0].tls.key_file: "odd.key" contains an invalid key: failed to parse private key`)
	listener("{cert_file: a.pem, key_file: text}",
		`f:6:39: listeners[0].tls.key_file: "text" is not a PEM file; want one that begins with -----BEGIN PRIVATE KEY-----`)
	listener("{cert_file: der, key_file: a.key}", `f:6:22: listeners[0].tls.cert_file: "der" is a binary file (DER or PKCS #12); `+
		`want PEM, which begins with -----BEGIN CERTIFICATE-----`)
	listener("{cert_file: torn.pem, key_file: a.key}",
		`f:6:22: listeners[0].tls.cert_file: "torn.pem" contains an invalid certificate, number 1: malformed certificate`)
	listener("{cert_file: a.pem, key_file: a.key, client_ca_file: empty}",
		`f:6:62: listeners[0].tls.client_ca_file: "empty" is not a PEM file; want one that begins with -----BEGIN CERTIFICATE-----`)
	listener("{cert_file: a.pem, key_file: a.key, client_auth: require}",
		`f:6:59: listeners[0].tls.client_auth: missing client_ca_file: "require" needs the authorities that issue client certificates`)
	listener("{cert_file: a.pem, key_file: a.key, client_ca_file: ca.pem, client_auth: none}",
		`f:6:62: listeners[0].tls.client_ca_file: has no effect with client_auth none: remove one of them`)
	listener("{cert_file: a.pem, key_file: a.key, client_auth: required, min_version: 1.1}",
		`f:6:59: listeners[0].tls.client_auth: invalid value "required": want none, request or require`,
		`f:6:82: listeners[0].tls.min_version: invalid value "1.1": want "1.2" or "1.3"`)
	listener("{cert: a.pem, key_file: a.key}", "f:6:10: listeners[0].tls.cert_file: missing: "+certWanted,
		`f:6:11: listeners[0].tls.cert: unknown key: want one of cert_file, key_file, client_ca_file, client_auth, min_version`)
	check(secured("", "    proxy_protocol: true\n"), `f:6:21: listeners[0].proxy_protocol: invalid value true (a boolean): want off, optional or required`)

	const envWanted = "want the name of an environment variable, e.g. KAFKA_PASSWORD, not the password itself"
	const fileWanted = "want the name of a file that contains the password, not the password itself"
	upstream := func(block string, want ...string) { t.Helper(); check(secured("  "+block+"\n", ""), want...) }
	upstream("tls:", "f:3:7: upstream.tls: missing keys: want a mapping with the keys ca_file, cert_file, key_file, server_name, "+
		"insecure_skip_verify, min_version, {} for all defaults, or remove the key")
	upstream("tls: {ca_file: none.pem}", `f:3:18: upstream.tls.ca_file: "none.pem" cannot be read: no such file or directory`)
	upstream("tls: {cert_file: a.pem}", "f:3:8: upstream.tls.key_file: missing next to cert_file: "+keyWanted)
	upstream("tls: {key_file: a.key}", "f:3:8: upstream.tls.cert_file: missing next to key_file: "+certWanted)
	upstream("tls: {cert_file: a.pem, key_file: b.key}", `f:3:37: upstream.tls.key_file: "b.key" is not the key of the certificate in "a.pem"; want the matching key`)
	upstream("tls: {insecure_skip_verify: yes}", `f:3:31: upstream.tls.insecure_skip_verify: invalid value "yes" (text): want true or false`)
	upstream("tls: {insecure_skip_verify: true, ca_file: ca.pem, server_name: \"*\"}",
		`f:3:46: upstream.tls.ca_file: has no effect with insecure_skip_verify, which accepts every certificate: remove one of them`,
		`f:3:67: upstream.tls.server_name: invalid host "*": want the name in the certificates of the brokers`)
	upstream("send_proxy_protocol: v3", `f:3:24: upstream.send_proxy_protocol: invalid value "v3": want off, v1 or v2`)
	upstream("sasl: {}", "f:3:9: upstream.sasl.mechanism: missing: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
		"f:3:9: upstream.sasl.username: missing: want text that is not empty (quote a number)",
		"f:3:9: upstream.sasl: missing password: want password_file, or password_env with the name of an environment variable")
	upstream("sasl: {mechanism: GSSAPI, username: 7, password_file: newline}",
		`f:3:21: upstream.sasl.mechanism: invalid value "GSSAPI": want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512`,
		"f:3:39: upstream.sasl.username: invalid value 7 (a number): want text that is not empty (quote a number)",
		"f:3:57: upstream.sasl.password_file: the file is empty: "+fileWanted)
	upstream("sasl: {mechanism: PLAIN, username: u, password_env: TIERGATE_TEST_NONE}",
		"f:3:55: upstream.sasl.password_env: the environment variable that password_env names is not set: "+envWanted)
	upstream("sasl: {mechanism: PLAIN, username: u, password_env: TIERGATE_TEST_PASSWORD}",
		"f:3:55: upstream.sasl.password_env: the environment variable that password_env names is empty: "+envWanted)
	upstream("sasl: {mechanism: PLAIN, username: u, password_file: password, password_env: TIERGATE_TEST_PASSWORD}",
		`f:3:80: upstream.sasl.password_env: conflicts with password_file: remove one of them`)
	upstream("sasl: {mechanism: PLAIN, username: u, password: secret}",
		"f:3:9: upstream.sasl: missing password: want password_file, or password_env with the name of an environment variable",
		`f:3:41: upstream.sasl.password: unknown key: want one of mechanism, username, password_file, password_env`)
}

// A password is read each time, without the end of the line behind it.
func TestPasswordIsReadEachTime(t *testing.T) {
	dir := files(t, map[string][]byte{"p": []byte(" one \r\n")})
	t.Setenv("TIERGATE_TEST_PASSWORD", "env\n")
	fromFile, fromEnv := &SASL{PasswordFile: File(dir + "/p")}, &SASL{PasswordEnv: "TIERGATE_TEST_PASSWORD"}
	f := func(s *SASL, want string) {
		t.Helper()
		if got, err := s.Password(); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	f(fromFile, " one ")
	f(fromEnv, "env\n")
	if err := authority.Write(dir+"/p", []byte("two\n\n")); err != nil {
		t.Fatal(err)
	}
	f(fromFile, "two\n")
}

// A secret that was pasted where its place is to be named is in no fault, whatever YAML
// makes of it.
func TestFaultsHideSecrets(t *testing.T) {
	f := func(block string) {
		t.Helper()
		_, err := Parse("f", []byte(secured("  "+block+"\n", "")))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s\ngot: %v", block, err)
		}
	}
	for _, key := range []string{"password_env", "password_file", "password", "pasword_env"} {
		for _, value := range []string{
			"hunter2", `"hunter2=x"`, `"hunter2 x"`, `"hunter2\nx"`, `"hunter2`, "'hunter2", "@hunter2", "`hunter2", "%hunter2", "!hunter2", "&hunter2",
			"*hunter2", "hunter2: x", "x: hunter2", "[hunter2", "[hunter2]", "{hunter2: x}", "{hunter2", "|\n      hunter2", "|hunter2", ">hunter2", "- hunter2",
			"\"\\hunter2\"", "hunter2\thunter2: x", "hunter2 #: x: y",
		} {
			f("sasl:\n    mechanism: PLAIN\n    username: u\n    " + key + ": " + value)
		}
	}
	f("sasl: hunter2")
	f("sasl: {mechanism: PLAIN, username: u, password_env: 0xhunter2}")
	f("tls: {cert_file: a.pem, key_file: \"-----BEGIN PRIVATE KEY----- hunter2\"}")
	f("tls:\n    cert_file: a.pem\n    key_file: |\n      -----BEGIN PRIVATE KEY-----\n      hunter2\n")
	f("tls:\n    ca_file: |\n      hunter2\n      hunter2\n")
	for _, number := range []string{"4711", "4711.5", "0x4711"} {
		for _, key := range []string{"password_env", "password_file"} {
			_, err := Parse("f", []byte(secured("  sasl: {mechanism: PLAIN, username: u, "+key+": "+number+"}\n", "")))
			if err == nil || strings.Contains(err.Error(), "4711") {
				t.Errorf("%s: %s\ngot: %v", key, number, err)
			}
		}
	}
}

// Editors put a byte order mark before a password or a certificate, too.
func TestFilesWithByteOrderMark(t *testing.T) {
	dir := files(t, map[string][]byte{"p": []byte("\xef\xbb\xbfsecret\r\n")})
	if got, err := (&SASL{PasswordFile: File(dir + "/p")}).Password(); got != "secret" || err != nil {
		t.Errorf("got %q, %v; want secret", got, err)
	}
}

// A FIFO without a writer is refused rather than waited for.
func TestFilesThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(name, want string) {
		t.Helper()
		_, err := ReadFile(File(dir + name))
		if err == nil || err.Error() != strconv.Quote(dir+name)+" cannot be read: "+want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	f("/fifo", "is a pipe, a socket or a device; want a regular file")
	f("", "is a directory")
	f("/none", "no such file or directory")
}
