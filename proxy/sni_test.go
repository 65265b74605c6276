// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"tiergate/rewrite"
)

// The name that the client's handshake asks for reaches DialName, of resumed TLS sessions
// too; none is the empty name.
func TestServerNameChoosesTheBroker(t *testing.T) {
	cert, pool := testCert(t)
	b := newEcho(t)
	names := make(chan string, 1)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version, DynamicRecordSizingDisabled: true}
		s := newServer(t, nil, rewrite.Rules{}, func(o *Options) {
			o.Endpoints[0].TLS = func() *tls.Config { return server }
			o.Endpoints[0].DialName = func(ctx context.Context, name string) (net.Conn, error) {
				names <- name
				return b.dial(ctx)
			}
		})
		resumed := 0
		cache := tls.NewLRUClientSessionCache(8)
		for _, name := range []string{"broker.test", "broker.test", "127.0.0.1", "broker.test"} {
			client := tls.Client(connect(t, s), &tls.Config{RootCAs: pool, ServerName: name, ClientSessionCache: cache})
			if _, err := client.Write(request(1, 11, 7, 1, 2, 3)); err != nil {
				t.Fatal(err)
			}
			got, err := readFrame(client)
			if want := response(7, 0, 1, 'c', 1, 2, 3); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %x, %v; want %x", got, err, want)
			}
			want := name
			if net.ParseIP(name) != nil {
				want = "" // an IP address is not sent as SNI
			}
			if got := <-names; got != want {
				t.Errorf("%s, asked for %q: DialName was given %q", tls.VersionName(version), name, got)
			}
			if client.ConnectionState().DidResume {
				resumed++
			}
			client.Close()
		}
		if resumed == 0 {
			t.Errorf("%s: no session was resumed", tls.VersionName(version))
		}
	}
}

// A fault is logged with the name that led to it.
func TestServerNameInLog(t *testing.T) {
	cert, pool := testCert(t)
	for name, want := range map[string]string{"broker.test": "broker=by SNI: broker.test", "127.0.0.1": "broker=by SNI: none"} {
		j := &journal{}
		s := newServer(t, nil, rewrite.Rules{}, loggingTo(j), func(o *Options) {
			o.Endpoints[0].Broker = "by SNI"
			o.Endpoints[0].TLS = func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{cert}} }
			o.Endpoints[0].DialName = func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody there") }
		})
		client := tls.Client(connect(t, s), &tls.Config{RootCAs: pool, ServerName: name})
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		await(t, "the line", func() bool { return len(j.with("nobody there")) == 1 })
		if got := j.with("nobody there")[0]; !strings.Contains(got, want) {
			t.Errorf("got  %s\nwant %s in it", got, want)
		}
	}
}

func TestEndpointsNeedTheirDial(t *testing.T) {
	byName := func(context.Context, string) (net.Conn, error) { return nil, errors.New("unused") }
	f := func(e Endpoint, want string) {
		t.Helper()
		e.Address, e.RemoteStorage = "127.0.0.1:0", noRemoteStorage{}
		s, err := New(Options{Loops: 1, Endpoints: []Endpoint{e}, DialTimeout: time.Second})
		got := "none"
		if err != nil {
			got = err.Error()
		} else {
			_ = s.Close()
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f(Endpoint{}, "endpoint 127.0.0.1:0: Dial is missing")
	f(Endpoint{DialName: byName}, "endpoint 127.0.0.1:0: DialName needs TLS, which tells the name")
	f(Endpoint{DialName: byName, TLS: func() *tls.Config { return nil }}, "none")
}
