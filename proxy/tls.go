// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// tlsLayer is the TLS side of a conn: crypto/tls over memory instead of a socket. The
// loop puts ciphertext that it read into wire.in and takes ciphertext to send out of
// wire.out.
type tlsLayer struct {
	conn *tls.Conn
	wire *wire
	with Peer
	// sealed are records that the socket did not take yet.
	sealed backlog
	// pending: reading may give plaintext although the socket has nothing, since
	// ciphertext was read ahead.
	pending bool
	// notified: close_notify was sent.
	notified bool
	// answers is how many bytes of answers to key updates were written since the peer took
	// all that it was owed.
	answers int
}

// wire is what crypto/tls takes for its connection. During the handshake, which runs on
// a goroutine of its own, it is the real one; afterwards it is memory.
type wire struct {
	net net.Conn
	in  []byte
	out []byte
	// err is what reading ends in once in is empty.
	err error
	// taken is how many bytes the last call of readTLS has taken from in.
	taken int
}

// againError says that there is no more ciphertext now. Because it is temporary,
// crypto/tls does not take it for the end of the connection (tls.Conn, readFromUntil
// and readRecordOrCCS).
type againError struct{}

func (againError) Error() string   { return "no ciphertext now" }
func (againError) Timeout() bool   { return false }
func (againError) Temporary() bool { return true }

func (w *wire) Read(p []byte) (int, error) {
	switch {
	case len(w.in) > 0:
		n := copy(p, w.in)
		w.in = w.in[n:]
		w.taken += n
		return n, nil
	case w.net != nil:
		return w.net.Read(p)
	case w.err != nil:
		return 0, w.err
	default:
		return 0, againError{}
	}
}

// Write takes everything: crypto/tls could not go on after a failed write. What is fed
// in is bounded by sealedPiece.
func (w *wire) Write(p []byte) (int, error) {
	if w.net != nil {
		return w.net.Write(p)
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

// Close is called by crypto/tls when a handshake's context ends.
func (w *wire) Close() error {
	if w.net != nil {
		return w.net.Close()
	}
	return nil
}

func (w *wire) LocalAddr() net.Addr              { return nil }
func (w *wire) RemoteAddr() net.Addr             { return nil }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// errSilent is a peer that left before it said anything: a health check, nearly always.
var errSilent = errors.New("the peer left before it said anything")

// handshake runs a TLS handshake over c, off the loops, and then takes the descriptor
// out of c. prefix was read from c already. c is closed in any case; on success its
// descriptor lives on. Bytes that the handshake read ahead stay in the layer.
func handshake(ctx context.Context, c net.Conn, prefix []byte, with Peer, config *tls.Config) (int, *tlsLayer, error) {
	w := &wire{net: c, in: prefix}
	if !config.DynamicRecordSizingDisabled {
		// Kafka frames are bulk: small records would only cost CPU.
		config = config.Clone()
		config.DynamicRecordSizingDisabled = true
	}
	side := tls.Server
	if with == PeerBroker {
		side = tls.Client
	}
	layer := &tlsLayer{conn: side(w, config), wire: w, with: with, pending: true}
	if err := layer.conn.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return -1, nil, fmt.Errorf("TLS handshake: %w", ExplainTLS(with, err))
	}
	fd, err := detach(c)
	w.net = nil
	return fd, layer, err
}

// mayRead reports whether reading may give bytes now.
func (c *conn) mayRead() bool {
	return c.readable || c.tls != nil && c.tls.pending
}

// cost is how many bytes the last read has really taken from the socket, where that may
// be far more than it gave.
func (c *conn) cost() int {
	if c.tls == nil {
		return 0
	}
	return c.tls.wire.taken
}

// readTLS fills p with plaintext, like read.
func (c *conn) readTLS(p []byte) (n int, err error) {
	w := c.tls.wire
	w.taken = 0
	for n < len(p) && w.taken <= maxTaken {
		m, err := c.tls.conn.Read(p[n:])
		n += m
		if err := c.answerTLS(); err != nil {
			c.ended, c.tls.pending = true, false
			return 0, err
		}
		switch {
		case err == nil:
		case errors.As(err, new(againError)):
			if !c.readable {
				c.tls.pending = false
				return n, nil
			}
			room := len(p) - n - maxRecord
			if n > 0 && room < maxRecord {
				// The rest of the socket's bytes are for the next call.
				return n, nil
			}
			in := c.session.loop.cipherIn
			m, err := c.readRaw(in[:min(max(room, maxRecord), len(in))])
			if err != nil {
				w.err = io.EOF
				if !errors.Is(err, errPeerClosed) {
					w.err = err
				}
			}
			w.in = in[:m]
		case n > 0:
			// The same error comes again when nothing is left to give.
			c.tls.pending = true
			return n, nil
		default:
			c.ended, c.tls.pending = true, false
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return 0, errPeerClosed
			}
			c.tls.alerted(c.session, err)
			if c.session.alert == nil && w.err == nil {
				c.session.alert = fmt.Errorf("%w: %w", errTLSBroken, err)
			}
			return 0, fmt.Errorf("TLS: %w", err)
		}
	}
	// The loop's buffer is another session's next. Only a small p, or a peer that sends
	// little but key updates, leaves something.
	w.in = bytes.Clone(w.in)
	c.tls.pending = true
	return n, nil
}

// maxRecord is more than the plaintext of a TLS record has (RFC 8446, 5.1: 2^14 bytes): what
// crypto/tls may hold back of an unfinished record. So much room is left in p when
// ciphertext is read: then all of it goes into p, and nothing is left to be kept.
const maxRecord = 17 << 10

// A peer may send key updates without end, 16 for each byte of data (crypto/tls,
// maxUselessRecords), and want an answer to each. So one call of readTLS takes little more
// than maxTaken bytes, and they count against a pump's budget, for the sake of the other
// sessions; and a peer that does not read its answers is ended when maxAnswers bytes wait
// for it.
const (
	// maxTaken is more than a read takes that gives what it can.
	maxTaken   = 2 * bufferSize
	maxAnswers = 64 << 10
)

// Faults of a peer's TLS after the handshake, other than an alert of its own.
var (
	errTLSBroken  = errors.New("TLS is broken")
	errKeyUpdates = fmt.Errorf("%w: the peer asks for key updates and does not read the answers", errTLSBroken)
)

// answerTLS sends what reading has made crypto/tls write: answers to key updates, or an
// alert.
func (c *conn) answerTLS() error {
	w := c.tls.wire
	if len(w.out) == 0 {
		return nil
	}
	if !c.owes() {
		c.tls.answers = 0
	}
	c.tls.answers += len(w.out)
	c.writeSealed(w.out)
	w.out = nil
	if c.owes() && c.tls.answers > maxAnswers {
		c.session.alert = errKeyUpdates
		return errKeyUpdates
	}
	return nil
}

// alerted notes that a peer ended TLS with an alert. In TLS 1.3 a broker says only after
// the handshake what it thinks of our certificate.
func (l *tlsLayer) alerted(s *session, err error) {
	var remote *net.OpError
	if s.alert == nil && errors.As(err, &remote) && remote.Op == "remote error" {
		s.alert = ExplainTLS(l.with, err)
	}
}

// encrypt returns the ciphertext of p, in a buffer of the loop that the next call uses
// again.
func (c *conn) encrypt(p []byte) []byte {
	l, w := c.session.loop, c.tls.wire
	w.out = l.cipherOut[:0]
	// It fails only after an alert, which reading reports.
	_, _ = c.tls.conn.Write(p)
	out := w.out
	w.out = nil
	if cap(out) <= maxCipherOut {
		l.cipherOut = out
	}
	return out
}

// maxCipherOut is the largest buffer for ciphertext that a loop keeps.
const maxCipherOut = 256 << 10

// notifyClose sends close_notify once.
func (c *conn) notifyClose() {
	if c.tls == nil || c.tls.notified {
		return
	}
	c.tls.notified = true
	_ = c.tls.conn.CloseWrite()
	c.writeSealed(c.tls.wire.out)
	c.tls.wire.out = nil
}

// sealedPiece is how much plaintext is encrypted at a time. What the socket does not take
// of it waits as records; what comes after waits as plaintext, so that a large response
// is in memory once.
const sealedPiece = 64 << 10

// writeSealed hands records to the socket, after those that wait.
func (c *conn) writeSealed(p []byte) {
	if c.shut {
		return
	}
	n := 0
	if c.tls.sealed.len() == 0 && c.writable {
		n = c.push(p, c.sys().send)
	}
	if n < len(p) && !c.shut {
		c.tls.sealed.add(p[n:])
	}
}

// flushSealed writes the records that wait.
func (c *conn) flushSealed() {
	sealed := &c.tls.sealed
	if sealed.len() == 0 || !c.writable {
		return
	}
	if n := c.push(sealed.front(), c.sys().send); !c.shut {
		sealed.drop(n)
	}
}
