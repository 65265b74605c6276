// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"tiergate/config"
	"tiergate/internal/testkit/sim"
)

// The passwords of this test: of the service client, of a client, and of a client that is refused.
const (
	servicePassword = "servicewordZQ7"
	clientPassword  = "clientwordKX3"
	wrongPassword   = "wrongwordVJ9"
)

// wantNoSecrets fails the test when one of the passwords is in text: as it is, in
// hexadecimal, in base64 at any offset, or escaped as Go prints a slice of bytes.
func wantNoSecrets(t *testing.T, what, text string) {
	t.Helper()
	lower := strings.ToLower(text)
	for _, secret := range []string{servicePassword, clientPassword, wrongPassword} {
		forms := []string{strings.ToLower(secret), hex.EncodeToString([]byte(secret)), strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]")}
		for offset := range 3 {
			// The characters that hold bits of what stands before and after differ.
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
			forms = append(forms, strings.ToLower(encoded[4:len(encoded)-4]))
		}
		for _, form := range forms {
			if strings.Contains(lower, form) {
				t.Errorf("%s has a password (%q):\n%s", what, form, text)
			}
		}
	}
}

// command runs tiergate to its end and returns what it wrote.
func command(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "tiergate" // TestMain runs the command of that name
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// No password is in the log at level debug, in standard output, or in the metrics: not the
// service client's, whether brokers accept it or not, and not those that clients send.
func TestNoSecretIsLogged(t *testing.T) {
	cluster := startSim(t, sim.Options{
		Brokers: 1, Topics: sim.SampleTopics(),
		Kfake: []kfake.Opt{
			kfake.EnableSASL(), kfake.Superuser("PLAIN", "tiergate", servicePassword), kfake.Superuser("PLAIN", "alice", clientPassword),
		},
		Client: []kgo.Opt{kgo.SASL(plain.Auth{User: "alice", Pass: clientPassword}.AsMechanism())},
	})
	for _, user := range []struct{ name, password string }{{"accepted", servicePassword}, {"refused", wrongPassword}} {
		t.Run(user.name, func(t *testing.T) {
			first, err := freePorts(3)
			if err != nil {
				t.Fatal(err)
			}
			bootstrap, admin := fmt.Sprintf("127.0.0.1:%d", first), fmt.Sprintf("127.0.0.1:%d", first+2)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "password"), []byte(user.password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := newProcess(t, dir, admin, fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
  sasl: {mechanism: PLAIN, username: tiergate, password_file: password}
listeners: [{name: clients, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: 127.0.0.1}]
log: {level: debug}
`, cluster.Addresses()[0], bootstrap, first+1, first+1))
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
			await(t, "the map of addresses", func() bool { return p.out.String() != "" })

			if err := authenticate(t, bootstrap, clientPassword); err != nil {
				t.Errorf("a client with its password: %v", err)
			}
			if err := authenticate(t, bootstrap, wrongPassword); err == nil {
				t.Error("a client with a wrong password was accepted")
			}
			sendRaw(t, bootstrap, clientPassword) // a client that speaks something else
			sendRaw(t, bootstrap, "\x00\x00\x00\x40\x00\x24\x00\x7f\x00\x00\x00\x01\xff\xff"+clientPassword+strings.Repeat(" ", 37))
			if user.password == wrongPassword {
				await(t, "the refusal in the log", func() bool { return len(p.lines("no broker list from the cluster")) > 0 })
			} else {
				await(t, "the service client in the log", func() bool { return len(p.lines("service client: ")) > 0 && len(p.lines("session")) > 0 })
			}
			wantNoSecrets(t, "the log", p.log.String())
			wantNoSecrets(t, "standard output", p.out.String())
			wantNoSecrets(t, "/metrics", p.get(t, "/metrics"))
			wantNoSecrets(t, "/readyz", p.get(t, "/readyz"))

			check, err := command(t, "check", "--config", filepath.Join(dir, "tiergate.yaml"))
			if accepted := user.password == servicePassword; (err == nil) != accepted || check == "" {
				t.Errorf("tiergate check: %v\n%s", err, check)
			}
			wantNoSecrets(t, "tiergate check", check)
		})
	}
}

// authenticate sends a request through the proxy as user alice.
func authenticate(t *testing.T, address, password string) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.SASL(plain.Auth{User: "alice", Pass: password}.AsMechanism()), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	return err
}

// sendRaw sends bytes and waits until the proxy closes the connection.
func sendRaw(t *testing.T, address, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn) // an end or a reset
}

// A password in a configuration that is refused is in no error, of any command.
func TestNoSecretInFaultsOfAConfiguration(t *testing.T) {
	for _, sasl := range []string{
		"{mechanism: PLAIN, username: u, password: " + servicePassword + "}",
		"{mechanism: PLAIN, username: u, password_env: " + servicePassword + "}",
		"{mechanism: PLAIN, username: u, password_file: " + servicePassword + "}",
		"{mechanism: PLAIN, username: u, password_file: [" + servicePassword,
		servicePassword,
	} {
		file := filepath.Join(t.TempDir(), "tiergate.yaml")
		text := "upstream:\n  bootstrap_servers: [\"127.0.0.1:7\"]\n  sasl: " + sasl + "\nlisteners: [{name: c, direct: {\"127.0.0.1:9\": \"127.0.0.1:8\"}}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"serve", "--config", file}, {"serve", "--dry-run", "--config", file}, {"check", "--config", file}} {
			output, err := command(t, args...)
			if err == nil || output == "" {
				t.Errorf("%s: %v: %q, want an error", strings.Join(args[:len(args)-1], " "), err, output)
			}
			wantNoSecrets(t, strings.Join(args[:len(args)-1], " "), output)
		}
	}
}

// What is printed of a whole configuration, by whichever verb, has no password: it holds
// only the name of the place where the password is.
func TestNoSecretInAPrintedConfiguration(t *testing.T) {
	t.Setenv("TIERGATE_TEST_SECRET", servicePassword)
	cfg, err := config.Parse("tiergate.yaml", []byte(`
upstream:
  bootstrap_servers: ["127.0.0.1:7"]
  sasl: {mechanism: PLAIN, username: u, password_env: TIERGATE_TEST_SECRET}
listeners: [{name: c, direct: {"127.0.0.1:9": "127.0.0.1:8"}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cfg.Upstream.SASL.Password(); got != servicePassword || err != nil {
		t.Fatalf("password %q, %v", got, err)
	}
	wantNoSecrets(t, "the configuration", fmt.Sprintf("%v %+v %#v %+v", cfg, cfg, cfg, cfg.Upstream.SASL))
}
