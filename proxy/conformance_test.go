// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite"
)

// fill gives every field of a structure of kmsg a value, and every tag section a tag that
// nobody knows. Node ids are 1, errors 0.
func fill(v reflect.Value) {
	if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
		tags.Set(90, []byte("unknown")) // below the tags of padding
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Name == "ErrorCode", f.Name == "Version", !f.IsExported():
			default:
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1)
	}
}

// advertise replaces host and port of every structure that has a node id, a host and a
// port, or is in one that has a node id.
func advertise(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			advertise(v.Index(i))
		}
	case reflect.Struct:
		if host, port := v.FieldByName("Host"), v.FieldByName("Port"); host.IsValid() && port.IsValid() {
			host.SetString(proxied.Host)
			port.SetInt(int64(proxied.FirstPort + 1))
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				advertise(v.Field(i))
			}
		}
	}
}

// conforming is one request, the response of the broker to it, and what the client is to
// get; nothing where the version is not offered.
type conforming struct {
	name                string
	request, came, want []byte
}

// conformingFor makes the case of one key and version. What kmsg does not know is bytes.
func conformingFor(t *testing.T, key, version int16) conforming {
	t.Helper()
	c := conforming{name: fmt.Sprintf("%s (%d) v%d", rewrite.KeyName(key), key, version)}
	req := kmsg.RequestForKey(key)
	if req == nil || version < 0 || version > req.MaxVersion() {
		// No tags, no transactional id, acks 1: what is read of a Produce request of any version.
		c.request = request(key, version, 1, append([]byte{0, 0, 0, 1}, "any bytes at all"...)...)
		c.came = response(1, []byte("other bytes")...)
		c.want = c.came
	} else {
		fill(reflect.ValueOf(req).Elem())
		req.SetVersion(version)
		c.request = kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 1)
		codec.PutSize(c.request) // of ControlledShutdown v0 kmsg leaves it out
		resp := req.ResponseKind()
		fill(reflect.ValueOf(resp).Elem())
		resp.SetVersion(version)
		c.came = answerFrame(1, resp)
		c.want = c.came
	}
	for _, b := range rewrite.AddressBearers() {
		switch {
		case b.Key != key:
		case version > b.Known:
			c.want = nil
		case b.Rewritten && version >= b.FirstWith:
			resp := kmsg.ResponseForKey(key)
			resp.SetVersion(version)
			off, err := codec.ResponseBody(c.came, codec.EncodingOf(version, b.FirstFlexible))
			if err != nil || resp.ReadFrom(c.came[off:]) != nil {
				t.Fatalf("%s: kmsg does not read its own response", c.name)
			}
			advertise(reflect.ValueOf(resp).Elem())
			c.want = answerFrame(1, resp)
		}
	}
	return c
}

// Every API key and version that the message definitions of kmsg know, each and one more,
// and keys that nobody knows: requests reach the broker as they are, and responses the
// client as they are, or with broker addresses replaced and nothing else, unknown tags
// included. Versions of address APIs that cannot be rewritten are refused.
func TestConformance(t *testing.T) {
	var cases []conforming
	for key := int16(0); key <= kmsg.MaxKey+1; key++ {
		last := int16(0)
		if req := kmsg.RequestForKey(key); req != nil {
			last = req.MaxVersion()
		}
		for version := int16(0); version <= last+1; version++ {
			cases = append(cases, conformingFor(t, key, version))
		}
	}
	for _, key := range []int16{math.MinInt16, -1, 10_000, math.MaxInt16} {
		for _, version := range []int16{math.MinInt16, -1, 0, 1, math.MaxInt16} {
			cases = append(cases, conformingFor(t, key, version))
		}
	}
	if len(cases) < 400 {
		t.Fatalf("%d cases: kmsg knows fewer APIs than it did", len(cases))
	}
	next := make(chan conforming, 1)
	got := make(chan []byte, 1)
	b := newBroker(t, func(conn *net.TCPConn) {
		frame, err := readFrame(conn)
		if err != nil {
			return
		}
		got <- frame
		_, _ = conn.Write((<-next).came)
		silence(conn)
	})
	for _, mode := range []struct {
		name  string
		rules rewrite.Rules
	}{
		{"direct", rewrite.Rules{PendingUpload: rewrite.PendingUploadOff}},
		{"rewriting", rewrite.Rules{PendingUpload: rewrite.PendingUploadOff, Addresses: proxied}},
	} {
		s := newServer(t, b.dial, mode.rules)
		for _, c := range cases {
			if mode.name == "direct" {
				c.want = c.came
			}
			conn := connect(t, s)
			mustWrite(t, conn, c.request)
			if c.want == nil {
				_ = ending(t, conn)
				continue
			}
			select {
			case frame := <-got:
				if !bytes.Equal(frame, c.request) {
					t.Fatalf("%s, %s: the broker got\n%x, sent was\n%x", mode.name, c.name, frame, c.request)
				}
			case <-time.After(patience):
				t.Fatalf("%s, %s: the request does not reach the broker: %x", mode.name, c.name, c.request)
			}
			next <- c
			if frame := mustRead(t, conn); !bytes.Equal(frame, c.want) {
				t.Fatalf("%s, %s: the client got\n%x, want\n%x", mode.name, c.name, frame, c.want)
			}
			conn.Close()
		}
	}
}
