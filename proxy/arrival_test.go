// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/pires/go-proxyproto"

	"tiergate/rewrite"
)

// tlsFor makes the endpoint speak TLS with a certificate.
func tlsFor(cert tls.Certificate) func(*Options) {
	return func(o *Options) {
		o.Endpoints[0].TLS = func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{cert}} }
	}
}

// tlsClient is the client's side of TLS.
func tlsClient(c net.Conn, pool *x509.CertPool) *tls.Conn {
	return tls.Client(c, &tls.Config{RootCAs: pool, ServerName: "broker.test"})
}

// proxyProtocol makes the endpoint read headers.
func proxyProtocol(p ProxyProtocol) func(*Options) {
	return func(o *Options) { o.Endpoints[0].ProxyProtocol = p }
}

// claimed is the address that the tests' headers claim.
var (
	claimed     = &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9).To4(), Port: 5555}
	destination = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 9092}
)

// headerOf is a PROXY protocol header.
func headerOf(t *testing.T, version byte) []byte {
	t.Helper()
	b, err := proxyproto.HeaderProxyFromAddrs(version, claimed, destination).Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A header of either version names the client, with a request in the same segment or
// behind it; without a header the connection is served if it is optional. A header of
// version 2 may come in pieces; one of version 1 may not, as its specification lets a
// receiver decide ("the sender must always ensure that the header is sent at once").
func TestProxyProtocolHeader(t *testing.T) {
	for _, mode := range []ProxyProtocol{ProxyProtocolOptional, ProxyProtocolRequired} {
		for _, version := range []byte{1, 2} {
			j := &journal{}
			s := newServer(t, newEcho(t).dial, rewrite.Rules{}, proxyProtocol(mode), loggingTo(j))
			header := headerOf(t, version)
			first := map[byte]int{1: len(header), 2: 1}[version]
			out := append(header, request(30, 1, 1, 'b')...)
			for cut := first; cut <= len(out); cut += 3 {
				c := connect(t, s)
				mustWrite(t, c, out[:cut], out[cut:])
				got, err := readFrame(c)
				if err != nil {
					t.Fatalf("mode %d, version %d, cut at %d: %v; %q", mode, version, cut, err, j.with(""))
				}
				compare(t, "an exchange", got, response(1, 0, 1, 'c', 'b'))
				c.Close()
				awaitSessions(t, s, 0)
			}
			if got, want := len(j.with("session ended", "client=203.0.113.9:5555")), len(j.with("session ended")); got != want {
				t.Fatalf("version %d: %d of %d sessions name the client as the header does", version, got, want)
			}
		}
	}
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, proxyProtocol(ProxyProtocolOptional))
	served(t, connect(t, s))
}

// TLS may follow a header, in the same segment too.
func TestProxyProtocolHeaderBeforeTLS(t *testing.T) {
	cert, pool := testCert(t)
	for _, version := range []byte{1, 2} {
		j := &journal{}
		s := newServer(t, newEcho(t).dial, rewrite.Rules{}, tlsFor(cert), proxyProtocol(ProxyProtocolRequired), loggingTo(j))
		raw := connect(t, s)
		c := tlsClient(&prefixed{TCPConn: raw, prefix: headerOf(t, version)}, pool)
		served(t, c)
		c.Close()
		j.awaitLine(t, "session ended", "client=203.0.113.9:5555")
	}
}

// prefixed puts bytes before the first that are written.
type prefixed struct {
	*net.TCPConn
	prefix []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	if p.prefix == nil {
		return p.TCPConn.Write(b)
	}
	out := append(p.prefix, b...)
	p.prefix = nil
	_, err := p.TCPConn.Write(out)
	return len(b), err
}

// A connection without the header that is required, or with a broken one, is refused and
// counted; so is a header where none is expected, as the frame that it is not.
func TestProxyProtocolRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  ProxyProtocol
		bytes []byte
		line  string
	}{
		{"missing", ProxyProtocolRequired, request(30, 1, 1), "connection refused"},
		{"broken", ProxyProtocolOptional, []byte("PROXY TCP4 nonsense\r\n"), "connection refused"},
		{"not expected", ProxyProtocolOff, headerOf(t, 1), "session closed: a frame is larger than the limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &journal{}
			s := newServer(t, newEcho(t).dial, rewrite.Rules{}, proxyProtocol(c.mode), loggingTo(j))
			conn := connect(t, s)
			mustWrite(t, conn, c.bytes)
			_ = ending(t, conn)
			j.awaitLine(t, "WARN "+c.line)
			awaitSessions(t, s, 0)
		})
	}
}

// A broker is sent a header that names the client, before anything else.
func TestProxyProtocolIsSent(t *testing.T) {
	for _, version := range []SendProxy{SendProxyV1, SendProxyV2} {
		headers := make(chan *proxyproto.Header, 1)
		b := newBroker(t, func(c *net.TCPConn) {
			r := bufio.NewReader(c)
			h, err := proxyproto.Read(r)
			if err != nil {
				t.Error(err)
				return
			}
			headers <- h
			frame, err := readFrame(r)
			if err == nil {
				_, _ = c.Write(response(1, frame[12:]...))
			}
			silence(c)
		})
		s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.Endpoints[0].SendProxy = version })
		c := connect(t, s)
		served(t, c)
		h := <-headers
		if h.Version != byte(version) || h.SourceAddr.String() != c.LocalAddr().String() || h.DestinationAddr.String() != c.RemoteAddr().String() {
			t.Fatalf("version %d: got %+v, want %v to %v", version, h, c.LocalAddr(), c.RemoteAddr())
		}
	}
}
