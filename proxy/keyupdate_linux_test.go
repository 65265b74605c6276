// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tiergate/rewrite"
)

// updater makes TLS 1.3 records that crypto/tls has no call for: key updates that want an
// answer. It goes on where a handshake of crypto/tls ended (RFC 8446, 4.6.3, 5.2, 7.2).
type updater struct {
	t      *testing.T
	secret []byte
	hash   func() hash.Hash
	keyLen int
	// aead and iv are those of the secret; sequence counts records under it.
	aead     cipher.AEAD
	iv       []byte
	sequence byte
}

// newUpdater does a handshake over raw and takes its client's secret.
func newUpdater(t *testing.T, raw net.Conn, config *tls.Config) *updater {
	t.Helper()
	var keys bytes.Buffer
	config.KeyLogWriter = &keys
	c := tls.Client(raw, config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	u := &updater{t: t}
	switch suite := c.ConnectionState().CipherSuite; suite {
	case tls.TLS_AES_128_GCM_SHA256:
		u.hash, u.keyLen = sha256.New, 16
	case tls.TLS_AES_256_GCM_SHA384:
		u.hash, u.keyLen = sha512.New384, 32
	default:
		missing(t, tls.CipherSuiteName(suite)+" was chosen: run on a processor with AES instructions")
	}
	for line := range bytes.Lines(keys.Bytes()) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "CLIENT_TRAFFIC_SECRET_0" {
			u.secret = make([]byte, hex.DecodedLen(len(fields[2])))
			if _, err := hex.Decode(u.secret, fields[2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.rekey()
	return u
}

// expand is HKDF-Expand-Label with no context.
func (u *updater) expand(label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len("tls13 "+label)))
	info = append(info, "tls13 "+label...)
	out, err := hkdf.Expand(u.hash, u.secret, string(append(info, 0)), n)
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// rekey goes on to the key of the secret.
func (u *updater) rekey() {
	block, err := aes.NewCipher(u.expand("key", u.keyLen))
	if err == nil {
		u.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	u.iv, u.sequence = u.expand("iv", u.aead.NonceSize()), 0
}

// record returns a record with content of a type.
func (u *updater) record(kind byte, content ...byte) []byte {
	content = append(content, kind)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+u.aead.Overhead()))
	nonce := bytes.Clone(u.iv)
	nonce[len(nonce)-1] ^= u.sequence
	u.sequence++
	return u.aead.Seal(head, nonce, content, head)
}

// update returns the record of a key update that wants an answer.
func (u *updater) update() []byte {
	const handshake, keyUpdate, requested = 22, 24, 1
	r := u.record(handshake, keyUpdate, 0, 0, 1, requested)
	u.secret = u.expand("traffic upd", u.hash().Size())
	u.rekey()
	return r
}

// updates returns a flood of n bytes: key updates, as many as crypto/tls takes, between
// single bytes of the body of a request.
func (u *updater) updates(n int) []byte {
	const data = 23
	var out []byte
	for len(out) < n {
		for range 15 {
			out = append(out, u.update()...)
		}
		out = append(out, u.record(data, 'b')...)
	}
	return out
}

// begin returns the start of a request that does not end.
func (u *updater) begin() []byte {
	const data = 23
	head := request(1, 11, 1)
	binary.BigEndian.PutUint32(head, 100<<20)
	return u.record(data, head...)
}

// floodedServer starts a proxy with TLS and a session whose client can send key updates.
func floodedServer(t *testing.T, change ...func(*Options)) (*Server, *net.TCPConn, *updater) {
	t.Helper()
	cert, pool := testCert(t)
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, append(change, tlsFor(cert))...)
	raw := connect(t, s)
	_ = raw.SetReadBuffer(64 << 10)
	u := newUpdater(t, raw, &tls.Config{RootCAs: pool, ServerName: "broker.test"})
	awaitSession(t, s, "the session is open", func(se *session) bool { return se.state == stateOpen })
	return s, raw, u
}

// setClientBuffer sets a buffer of the socket on which the only session has its client.
func setClientBuffer(t *testing.T, s *Server, option, size int) {
	t.Helper()
	onLoop(t, s.loops[0], func() { _ = unix.SetsockoptInt(only(s.loops[0]).client.fd, unix.SOL_SOCKET, option, size) })
}

// A TLS client that sends little but key updates and reads none of the answers is ended
// before the answers take memory without bound.
func TestKeyUpdatesThatAreNotRead(t *testing.T) {
	j := &journal{}
	s, raw, u := floodedServer(t, loggingTo(j))
	setClientBuffer(t, s, unix.SO_SNDBUF, 64<<10)
	flood := append(u.begin(), u.updates(1<<20)...)
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() { _, _ = raw.Write(flood) })
	awaitOnLoop(t, s, "the session ends", func(l *loop) bool {
		if se := only(l); se != nil && len(se.client.owed) > maxAnswers+2*readSize {
			t.Errorf("%d bytes of answers wait for the client", len(se.client.owed))
		}
		return only(l) == nil || only(l).state == stateClosing
	})
	raw.Close()
	j.awaitLine(t, sentenceMalformed, "TLS is broken: the peer asks for key updates and does not read the answers")
	awaitSessions(t, s, 0)
}

// Nor does such a client hold the loop: one read takes a bounded number of bytes.
func TestKeyUpdatesTakeTurns(t *testing.T) {
	s, raw, u := floodedServer(t)
	setClientBuffer(t, s, unix.SO_SNDBUF, 8<<20)
	setClientBuffer(t, s, unix.SO_RCVBUF, 8<<20)
	flood := append(u.begin(), u.updates(1<<20)...)
	l, stands, resume := s.loops[0], make(chan struct{}), make(chan struct{})
	fd := 0
	l.post(func() {
		fd = only(l).client.fd
		close(stands)
		<-resume
	})
	<-stands
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() { _, _ = raw.Write(flood) })
	waiting := func() int {
		n, _ := unix.IoctlGetInt(fd, unix.TIOCINQ)
		return n
	}
	const bound = maxTaken + readSize
	await(t, "much waits to be read", func() bool { return waiting() > bound+(16<<10) })
	taken := make(chan int, 1)
	l.post(func() {
		se := only(l)
		se.client.readable = true
		before := waiting()
		_, _ = se.client.read(l.buf)
		taken <- before - waiting()
	})
	close(resume)
	if n := <-taken; n > bound {
		t.Errorf("one read has taken %d bytes, %d are the bound", n, bound)
	}
	raw.Close()
	awaitSessions(t, s, 0)
}

// Key updates of a client that reads do no harm, however many.
func TestKeyUpdatesThatAreAnswered(t *testing.T) {
	s, raw, u := floodedServer(t)
	mustWrite(t, raw, u.begin())
	var sender sync.WaitGroup
	defer sender.Wait()
	const flood = 1 << 20
	sender.Go(func() { _, _ = raw.Write(u.updates(flood)) })
	// The answers are the same records without the data.
	if _, err := io.CopyN(io.Discard, raw, flood*9/10); err != nil {
		t.Fatal(err)
	}
	awaitSession(t, s, "the session lives", func(se *session) bool { return se.state == stateOpen })
}

// A record that is none ends its session with a line that says so.
func TestBrokenTLSRecord(t *testing.T) {
	j := &journal{}
	s, raw, u := floodedServer(t, loggingTo(j))
	record := u.begin()
	record[len(record)-1]++
	mustWrite(t, raw, record)
	if _, err := io.Copy(io.Discard, raw); err != nil {
		t.Fatalf("the client saw %v, want an alert and the end", err)
	}
	raw.Close()
	awaitSessions(t, s, 0)
	oneLine(t, j, sentenceMalformed, "TLS is broken: local error: tls: bad record MAC")
}
