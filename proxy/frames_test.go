// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"tiergate/rewrite"
)

// sized is a size field.
func sized(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// The start of a TLS handshake, of a TLS alert, and what else is sent to wrong ports.
var (
	clientHello = []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03}
	tlsAlert    = []byte{0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46}
	httpGet     = []byte("GET / HTTP/1.1\r\nHost: kafka:9092\r\n\r\n")
	httpAnswer  = []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
)

// badFrames are bytes where a frame should start, and what is said of them.
type badFrame struct {
	name  string
	bytes []byte
	want  []string
}

const (
	sentenceForeign   = "session closed: the peer does not speak plaintext Kafka here"
	sentenceMalformed = "session closed: a frame cannot be understood"
	sentenceTooLarge  = "session closed: a frame is larger than the limit"
	sentenceOrder     = "session closed: the broker answered out of order"
)

// bystander is a session that must not notice what happens to others.
func bystander(t *testing.T, s *Server) func() {
	t.Helper()
	c := connect(t, s)
	id := int32(0)
	lives := func() {
		t.Helper()
		id++
		mustWrite(t, c, request(30, 1, id))
		if got, want := mustRead(t, c), response(id, 0, 1, 'c'); !bytes.Equal(got, want) {
			t.Fatalf("bystander: got %x, want %x", got, want)
		}
	}
	lives()
	return lives
}

// oneLine checks that a journal got one line of at least warning level, which contains
// all parts.
func oneLine(t *testing.T, j *journal, parts ...string) {
	t.Helper()
	j.awaitLine(t, "session closed")
	if all := append(j.with("WARN"), j.with("ERROR")...); len(all) != 1 || len(j.with(parts...)) != 1 {
		t.Fatalf("got lines %q, want one with %q", all, parts)
	}
}

// What is no Kafka request ends its session with one plain sentence, as the first bytes
// and later, and no other session.
func TestClientSendsWhatIsNoFrame(t *testing.T) {
	for _, bad := range []badFrame{
		{"negative", sized(-1), []string{sentenceMalformed, "from the client: impossible frame size: -1 bytes, at least 8 are needed"}},
		{"least", sized(-1 << 31), []string{sentenceMalformed, "-2147483648 bytes"}},
		{"zero", sized(0), []string{sentenceMalformed, "0 bytes, at least 8 are needed"}},
		{"three", sized(3), []string{sentenceMalformed, "3 bytes, at least 8 are needed"}},
		{"seven", sized(7), []string{sentenceMalformed, "7 bytes, at least 8 are needed"}},
		{"above the limit", sized(1<<20 + 1), []string{sentenceTooLarge, "1048577 bytes, the limit is 1048576", "reason=frame_too_large"}},
		{"greatest", sized(1<<31 - 1), []string{sentenceTooLarge, "2147483647 bytes, the limit is 1048576"}},
		{"TLS", clientHello, []string{sentenceForeign, "from the client: TLS bytes on a plaintext port", "16030102", "reason=not_kafka"}},
		{"HTTP", httpGet, []string{sentenceForeign, "from the client: HTTP request on a Kafka port", `GET `}},
		{"impossible client id", frameOf(0, 0, 0, 3, 0, 0, 0, 1, 0x80, 0, 0, 0, 0), []string{sentenceMalformed, "produce v3 request"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			j := &journal{}
			s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxRequestBytes = 1 << 20 })
			lives := bystander(t, s)
			c := connect(t, s)
			mustWrite(t, c, bad.bytes)
			_ = ending(t, c)
			oneLine(t, j, bad.want...)
			awaitSessions(t, s, 1)
			lives()
		})
	}
}

// The same size fields are as bad behind good frames; TLS and HTTP bytes are there only
// frames of impossible size.
func TestClientSendsWhatIsNoFrameLater(t *testing.T) {
	j := &journal{}
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j))
	lives := bystander(t, s)
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	mustRead(t, c)
	mustWrite(t, c, clientHello)
	_ = ending(t, c)
	oneLine(t, j, sentenceTooLarge, "369295618 bytes, the limit is 268435456")
	lives()
}

// Sizes at the limits pass.
func TestFramesAtTheLimits(t *testing.T) {
	const limit = 1 << 20
	script := []step{
		{frameOf(0, 3, 0, 1, 0, 0, 0, 1), frameOf(0, 0, 0, 1)},
		{request(3, 1, 2, make([]byte, limit-11)...), response(2, make([]byte, limit-4)...)},
		{request(3, 1, 3), response(3)},
	}
	s := newServer(t, newBroker(t, perform(t, script, 1)).dial, rewrite.Rules{}, func(o *Options) {
		o.MaxRequestBytes, o.MaxResponseBytes = limit, limit
	})
	play(t, connect(t, s), script, 1)
}

// What is no Kafka response, or not the one that is owed, ends its session with one
// plain sentence. What came before it and is answered stays right.
func TestBrokerSendsWhatIsNotOwed(t *testing.T) {
	for _, bad := range []badFrame{
		{"negative", sized(-5), []string{sentenceMalformed, "from the broker: impossible frame size: -5 bytes, at least 4 are needed"}},
		{"three", sized(3), []string{sentenceMalformed, "3 bytes, at least 4 are needed"}},
		{"above the limit", sized(1<<20 + 1), []string{sentenceTooLarge, "from the broker: frame too large: 1048577 bytes, the limit is 1048576"}},
		{"TLS alert", tlsAlert, []string{sentenceForeign, "from the broker: TLS bytes on a plaintext port", "15030300"}},
		{"HTTP", httpAnswer, []string{sentenceForeign, "from the broker: HTTP"}},
		{"another id", response(8), []string{sentenceOrder, "the broker sent correlation id 8, next is 7", "reason=out_of_order"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			j := &journal{}
			broken := newBroker(t, func(c *net.TCPConn) {
				frame, err := readFrame(c)
				if err == nil && frame[5] == 30 {
					_, _ = c.Write(response(1, 0, 1, 'c'))
					echo(c)
					return
				}
				_, _ = c.Write(bad.bytes)
				silence(c)
			})
			s := newServer(t, broken.dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxResponseBytes = 1 << 20 })
			lives := bystander(t, s)
			c := connect(t, s)
			mustWrite(t, c, request(3, 1, 7), request(3, 1, 8))
			_ = ending(t, c)
			oneLine(t, j, bad.want...)
			awaitSessions(t, s, 1)
			lives()
		})
	}
}

// Whole frames before a bad one in the same read are passed on.
func TestGoodFramesBeforeABadOne(t *testing.T) {
	silent := produce(3, 1, 0, nil, nil, []byte("records"))
	received := make(chan []byte, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		received <- all
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	mustWrite(t, connect(t, s), append(bytes.Clone(silent), sized(-1)...))
	if got := <-received; !bytes.Equal(got, silent) {
		t.Fatalf("the broker got %x, want %x", got, silent)
	}
	b = newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		_, _ = c.Write(append(response(1, 'g', 'o', 'o', 'd'), sized(-1)...))
		silence(c)
	})
	s = newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	if got, err := io.ReadAll(c); !bytes.Equal(got, response(1, 'g', 'o', 'o', 'd')) {
		t.Fatalf("the client got %x (%v)", got, err)
	}
}

// A response that nobody asked for ends the session.
func TestBrokerAnswersUnasked(t *testing.T) {
	j := &journal{}
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		_, _ = c.Write(response(1))
		_, _ = readFrame(c) // acks 0
		_, _ = c.Write(response(2))
		silence(c)
	})
	s := newServer(t, b.dial, rewrite.Rules{}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	mustRead(t, c)
	mustWrite(t, c, produce(8, 2, 0, nil, nil, nil))
	_ = ending(t, c)
	oneLine(t, j, sentenceOrder, "the broker sent correlation id 2, and no response is owed")
	awaitSessions(t, s, 0)
}

// A response that ends in its middle reaches the client as far as it came, and then
// the end: what the client would see without the proxy.
func TestBrokerEndsInTheMiddleOfAnAnswer(t *testing.T) {
	whole := response(1, make([]byte, 300_000)...)
	for _, cut := range []int{1, 3, 4, 7, 8, 9, 200_000, len(whole) - 1} {
		b := newBroker(t, func(c *net.TCPConn) {
			_, _ = readFrame(c)
			_, _ = c.Write(whole[:cut])
		})
		s := newServer(t, b.dial, rewrite.Rules{})
		c := connect(t, s)
		mustWrite(t, c, request(3, 1, 1))
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, whole[:cut]) {
			t.Fatalf("cut at %d: got %d bytes (%v)", cut, len(got), err)
		}
		c.Close()
		awaitSessions(t, s, 0)
	}
}

// The same for a request.
func TestClientEndsInTheMiddleOfARequest(t *testing.T) {
	whole := produce(9, 1, 0, text(5), nil, make([]byte, 300_000))
	for _, cut := range []int{1, 3, 4, 11, 12, 15, 30, 200_000, len(whole) - 1} {
		received := make(chan []byte, 1)
		b := newBroker(t, func(c *net.TCPConn) {
			got, _ := io.ReadAll(c)
			received <- got
		})
		s := newServer(t, b.dial, rewrite.Rules{})
		c := connect(t, s)
		mustWrite(t, c, whole[:cut])
		c.Close()
		if got := <-received; !bytes.Equal(got, whole[:cut]) {
			t.Fatalf("cut at %d: the broker got %d bytes", cut, len(got))
		}
		awaitSessions(t, s, 0)
	}
}
