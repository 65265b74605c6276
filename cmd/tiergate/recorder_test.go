// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recorder stands at the client's side of connections. It decodes every response, notes
// each host and port in it and each address that is dialed, and which of them are not
// the proxy's.
type recorder struct {
	// proxys reports whether an address is one of the proxy's.
	proxys func(hostport string) bool
	// lookup gives the address to connect to instead of one that is dialed.
	lookup func(hostport string) string
	// tls is spoken where it is set, with the name that is dialed.
	tls *tls.Config

	mu    sync.Mutex
	leaks []string
	// addresses counts the addresses in responses, by API.
	addresses map[string]int
	// hosts are the addresses seen, each once.
	hosts []string
}

// dial is the kgo.Dialer of a client.
func (r *recorder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.see("dial", address)
	host, _, _ := net.SplitHostPort(address)
	if r.lookup != nil {
		address = r.lookup(address)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if r.tls != nil {
		config := r.tls.Clone()
		config.ServerName = host
		c = tls.Client(c, config)
	}
	return &recordedConn{Conn: c, recorder: r}, nil
}

// see notes an address.
func (r *recorder) see(where, hostport string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addresses == nil {
		r.addresses = map[string]int{}
	}
	r.addresses[where]++
	if !slices.Contains(r.hosts, hostport) {
		r.hosts = append(r.hosts, hostport)
	}
	if !r.proxys(hostport) {
		r.leaks = append(r.leaks, where+": "+hostport)
	}
}

// fault notes what could not be decoded: it might have had an address in it.
func (r *recorder) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaks = append(r.leaks, fmt.Sprintf(format, args...))
}

// wantNone fails the test when an address was not the proxy's, and when one of the APIs
// named had none at all: then the test shows nothing.
func (r *recorder) wantNone(t *testing.T, apis ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leaks) > 0 {
		t.Errorf("%d addresses that are not the proxy's, among them %s", len(r.leaks), r.leaks[0])
	}
	for _, api := range apis {
		if r.addresses[api] == 0 {
			t.Errorf("no address in any %s: the test shows nothing of it; seen were %v", api, r.addresses)
		}
	}
}

// recordedConn is a connection of a client.
type recordedConn struct {
	net.Conn
	recorder *recorder

	mu       sync.Mutex
	sent     []byte // what is not a whole frame yet
	received []byte
	owed     []kmsg.Request // in the order that responses come
	ids      []int32
}

func (c *recordedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent = append(c.sent, p...)
	for frame := cutFrame(&c.sent); frame != nil; frame = cutFrame(&c.sent) {
		c.owed = append(c.owed, requestOf(frame))
		c.ids = append(c.ids, int32(binary.BigEndian.Uint32(frame[8:])))
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, p[:n]...)
	for frame := cutFrame(&c.received); frame != nil; frame = cutFrame(&c.received) {
		c.response(frame)
	}
	return n, err
}

// cutFrame takes a whole frame off the front of b, or returns nil.
func cutFrame(b *[]byte) []byte {
	if len(*b) < 4 {
		return nil
	}
	n := 4 + int(binary.BigEndian.Uint32(*b))
	if len(*b) < n {
		return nil
	}
	frame := bytes.Clone((*b)[:n])
	*b = (*b)[n:]
	return frame
}

// requestOf returns an empty request of the frame's key and version.
func requestOf(frame []byte) kmsg.Request {
	req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame[4:])))
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[6:])))
	return req
}

// response looks into a whole response.
func (c *recordedConn) response(frame []byte) {
	if len(c.owed) == 0 || int32(binary.BigEndian.Uint32(frame[4:])) != c.ids[0] {
		c.recorder.fault("a response that is not owed: %x", frame)
		return
	}
	resp := c.owed[0].ResponseKind()
	c.owed, c.ids = c.owed[1:], c.ids[1:]
	if resp.Key() == int16(kmsg.ApiVersions) {
		return // no address is in it, and an error 35 comes in the form of version 0 (KIP-511)
	}
	name := kmsg.NameForKey(resp.Key())
	body := frame[8:]
	if resp.IsFlexible() {
		b := kbin.Reader{Src: body}
		for range b.Uvarint() { // tags of the header
			b.Uvarint()
			b.Span(int(b.Uvarint()))
		}
		body = b.Src
	}
	if err := resp.ReadFrom(body); err != nil {
		c.recorder.fault("%s v%d cannot be decoded: %v", name, resp.GetVersion(), err)
		return
	}
	c.walk(name, reflect.ValueOf(resp).Elem())
}

// walk finds every structure with a host and a port.
func (c *recordedConn) walk(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			c.walk(name, v.Index(i))
		}
	case reflect.Struct:
		host, port := v.FieldByName("Host"), v.FieldByName("Port")
		if host.IsValid() && port.IsValid() && host.String() != "" {
			c.recorder.see(name, net.JoinHostPort(host.String(), fmt.Sprint(port.Interface())))
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				c.walk(name, v.Field(i))
			}
		}
	}
}

// newClient is a client whose connections r records.
func (r *recorder) newClient(t *testing.T, seed string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.Dialer(r.dial), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// to127 connects to the ports of other hosts on this machine.
func to127(hostport string) string {
	return "127.0.0.1" + hostport[strings.LastIndex(hostport, ":"):]
}
