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
	"time"

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
	s := newServer(t, newEcho(t).dial, rewrite.Rules{}, append(change, tlsFor(cert), func(o *Options) { o.FirstRequestTimeout = time.Hour })...)
	raw := connect(t, s)
	u := newUpdater(t, raw, &tls.Config{RootCAs: pool, ServerName: "broker.test"})
	awaitSession(t, s, "the session is open", func(se *session) bool { return se.state == stateOpen })
	return s, raw, u
}

// flood has a client send key updates while the loop stands still, until n bytes wait to
// be read, and then runs f on the loop with the session. waiting says how many wait.
func flood(t *testing.T, s *Server, raw *net.TCPConn, u *updater, n int, f func(se *session, waiting func() int)) {
	t.Helper()
	out := append(u.begin(), u.updates(1<<20)...)
	l, stands, resume, ran := s.loops[0], make(chan func() int), make(chan struct{}), make(chan struct{})
	// One task: between two the loop would serve the socket.
	l.post(func() {
		defer close(ran)
		se := only(l)
		_ = unix.SetsockoptInt(se.client.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
		waiting := func() int {
			n, _ := unix.IoctlGetInt(se.client.fd, unix.TIOCINQ)
			return n
		}
		stands <- waiting
		<-resume
		f(se, waiting)
	})
	waiting := <-stands
	var sender sync.WaitGroup
	sender.Go(func() { _, _ = raw.Write(out) })
	defer sender.Wait()
	await(t, "much waits to be read", func() bool { return waiting() > n })
	close(resume)
	<-ran
	raw.Close()
}

// A TLS client that sends little but key updates and reads none of the answers is ended
// before the answers take memory without bound. That its socket takes no more is played:
// a kernel may well stop a client that does not read by itself.
func TestKeyUpdatesThatAreNotRead(t *testing.T) {
	j := &journal{}
	s, raw, u := floodedServer(t, loggingTo(j))
	flood(t, s, raw, u, 2*maxAnswers, func(se *session, _ func() int) {
		se.client.readable, se.client.writable = true, false
		se.advance(&se.requests)
		if se.state != stateClosing || se.client.pending() != 0 {
			t.Errorf("the session is in state %d and owes %d bytes", se.state, se.client.pending())
		}
	})
	j.awaitLine(t, sentenceMalformed, "TLS is broken: the peer asks for key updates and does not read the answers")
	awaitSessions(t, s, 0)
}

// Nor does such a client hold the loop: a read and a pump take a bounded number of bytes.
func TestKeyUpdatesTakeTurns(t *testing.T) {
	// What crypto/tls reads ahead of a record, and the records that one byte of data ends.
	const slack = 4 << 10
	for _, c := range []struct {
		name  string
		take  func(*session) error
		bound int
	}{
		{"read", func(se *session) error {
			_, err := se.client.read(se.loop.buf)
			return err
		}, maxTaken + slack},
		{"pump", func(se *session) error { return se.requests.pump() }, tlsBudget + maxTaken + slack},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, raw, u := floodedServer(t, loggingTo(&journal{}))
			out := append(u.begin(), u.updates(2*tlsBudget)...)
			onLoop(t, s.loops[0], func() {
				se := only(s.loops[0])
				w := se.client.tls.wire
				// As if the socket had given all of it: no kernel would.
				w.in, se.client.tls.pending = out, true
				if err := c.take(se); err != nil {
					t.Error(err)
				}
				if n := len(out) - len(w.in); n > c.bound || n < maxTaken {
					t.Errorf("%d bytes were taken, %d are the bound", n, c.bound)
				}
			})
			raw.Close()
			awaitSessions(t, s, 0)
		})
	}
}

// Key updates of a client that reads do no harm, however many.
func TestKeyUpdatesThatAreAnswered(t *testing.T) {
	s, raw, u := floodedServer(t)
	mustWrite(t, raw, u.begin())
	var sender sync.WaitGroup
	defer sender.Wait()
	const sent = 1 << 20
	sender.Go(func() { _, _ = raw.Write(u.updates(sent)) })
	// The answers are the same records without the data.
	if _, err := io.CopyN(io.Discard, raw, sent*9/10); err != nil {
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
