// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math"
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

// A header of either version names the client, in any pieces, with a request in the same
// segment or behind it; without a header the connection is served if it is optional.
func TestProxyProtocolHeader(t *testing.T) {
	for _, mode := range []ProxyProtocol{ProxyProtocolOptional, ProxyProtocolRequired} {
		for _, version := range []byte{1, 2} {
			j := &journal{}
			s := newServer(t, newEcho(t).dial, rewrite.Rules{}, proxyProtocol(mode), loggingTo(j))
			header := headerOf(t, version)
			out := append(header, request(30, 1, 1, 'b')...)
			for cut := 1; cut <= len(out); cut += 3 {
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

// headerV2 is a header of version 2 from its parts.
func headerV2(command, family byte, block []byte) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), command, family)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(block))), block...)
}

// What the specification allows besides is served: extensions as long as the length field
// can say, and headers without an address, of a client that is then the balancer itself.
func TestProxyProtocolHeaderShapes(t *testing.T) {
	addresses := []byte{203, 0, 113, 9, 192, 0, 2, 1, 5555 >> 8, 5555 & 0xff, 9092 >> 8, 9092 & 0xff}
	long := make([]byte, math.MaxUint16-12)
	binary.BigEndian.PutUint16(long[1:], uint16(len(long)-3)) // PP2_TYPE_NOOP would be 4; 0 is nobody's
	for name, c := range map[string]struct {
		header []byte
		claims bool
	}{
		"extensions":             {headerV2(0x21, 0x11, append(addresses, long...)), true},
		"unspecified":            {headerV2(0x21, 0x00, nil), false},
		"unspecified, with more": {headerV2(0x21, 0x00, long), false},
		"local":                  {headerV2(0x20, 0x00, nil), false},
		"local, with addresses":  {headerV2(0x20, 0x11, addresses), false},
		"local, with half":       {headerV2(0x20, 0x11, addresses[:5]), false},
		"unix":                   {headerV2(0x21, 0x31, make([]byte, 216)), false},
		"unknown":                {[]byte("PROXY UNKNOWN\r\n"), false},
		"unknown, with more":     {[]byte("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			s := newServer(t, newEcho(t).dial, rewrite.Rules{}, proxyProtocol(ProxyProtocolRequired), loggingTo(j))
			conn := connect(t, s)
			client := conn.LocalAddr().String()
			if c.claims {
				client = claimed.String()
			}
			out := append(c.header, request(30, 1, 1, 'b')...)
			mustWrite(t, conn, out[:len(c.header)/2], out[len(c.header)/2:])
			got, err := readFrame(conn)
			if err != nil {
				t.Fatalf("%v; %q", err, j.with(""))
			}
			compare(t, "an exchange", got, response(1, 0, 1, 'c', 'b'))
			conn.Close()
			j.awaitLine(t, "session ended", "client="+client)
		})
	}
}

// A health check that connects and closes, or resets, is no fault, at any port, nor is one
// that sends a header and no more.
func TestHealthChecks(t *testing.T) {
	cert, _ := testCert(t)
	local := headerV2(0x20, 0x00, nil)
	for _, c := range []struct {
		header []byte
		change []func(*Options)
	}{
		{nil, []func(*Options){proxyProtocol(ProxyProtocolRequired)}},
		{nil, []func(*Options){proxyProtocol(ProxyProtocolOptional)}},
		{nil, []func(*Options){tlsFor(cert)}},
		{nil, []func(*Options){tlsFor(cert), proxyProtocol(ProxyProtocolRequired)}},
		{local, []func(*Options){tlsFor(cert), proxyProtocol(ProxyProtocolRequired)}},
	} {
		j := &journal{}
		s := newServer(t, refuse, rewrite.Rules{}, append(c.change, loggingTo(j))...)
		for i, leave := range []func(*net.TCPConn){reset, func(c *net.TCPConn) { c.Close() }} {
			conn := connect(t, s)
			mustWrite(t, conn, c.header)
			waiting(t, s, 1)
			leave(conn)
			await(t, "a debug line", func() bool { return len(j.with("DEBUG connection closed before sending any data")) == i+1 })
		}
		if got := j.with("WARN"); len(got) != 0 {
			t.Errorf("warnings of a health check: %q", got)
		}
	}
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
