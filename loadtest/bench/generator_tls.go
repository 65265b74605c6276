// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tiergate/codec"
)

// tlsSuite is what both ends of every TLS connection must agree on.
const tlsSuite = tls.TLS_AES_128_GCM_SHA256

// tlsGenerator keeps requests in flight over TLS, with one goroutine for each
// connection: crypto/tls blocks.
type tlsGenerator struct {
	exchange Exchange
	pipeline int
	pattern  *pattern
	conns    []*tlsClient
	work     sync.WaitGroup
	// failed holds the first error.
	failed chan error
}

// tlsClient is one connection. Only its goroutine touches what is not atomic, until the
// generator has ended.
type tlsClient struct {
	conn     *tls.Conn
	measures atomic.Bool
	bytes    atomic.Int64
	requests atomic.Int64
	latency  histogram
	since    []time.Time
	sent     int32
	answered int32
	head     []byte
	left     int
	out      []byte
}

// connect opens n connections and starts their goroutines.
func (g *tlsGenerator) connect(ctx context.Context, address string, n int, config *tls.Config) error {
	g.failed = make(chan error, 1)
	dialer := tls.Dialer{Config: config}
	for range n {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("TLS connection to %s: %w", address, err)
		}
		c := &tlsClient{conn: conn.(*tls.Conn), since: make([]time.Time, g.pipeline)}
		g.conns = append(g.conns, c)
		if suite := c.conn.ConnectionState().CipherSuite; suite != tlsSuite {
			return fmt.Errorf("%s speaks %s, and the comparison is about %s", address, tls.CipherSuiteName(suite), tls.CipherSuiteName(tlsSuite))
		}
	}
	for _, c := range g.conns {
		g.work.Go(func() {
			err := c.exchange(g)
			select {
			case g.failed <- err:
			default:
			}
		})
	}
	return nil
}

// close ends all connections and waits for their goroutines.
func (g *tlsGenerator) close() {
	for _, c := range g.conns {
		raw := c.conn.NetConn().(*net.TCPConn)
		_ = raw.SetLinger(0)
		_ = raw.Close()
	}
	g.work.Wait()
}

// run lets the connections work for d.
func (g *tlsGenerator) run(ctx context.Context, d time.Duration) error {
	select {
	case err := <-g.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// reset starts the count anew.
func (g *tlsGenerator) reset() {
	for _, c := range g.conns {
		c.bytes.Store(0)
		c.requests.Store(0)
		c.measures.Store(true)
	}
}

// stop ends the count and returns it but for latencies, which merge adds after close.
func (g *tlsGenerator) stop() tally {
	for _, c := range g.conns {
		c.measures.Store(false)
	}
	return g.count()
}

// count returns what was done since reset, but for latencies.
func (g *tlsGenerator) count() (total tally) {
	for _, c := range g.conns {
		total.bytes += c.bytes.Load()
		total.requests += c.requests.Load()
	}
	return total
}

// merge adds the latencies to total.
func (g *tlsGenerator) merge(total *tally) {
	for _, c := range g.conns {
		total.latency.merge(&c.latency)
	}
}

// exchange sends and receives until the connection ends.
func (c *tlsClient) exchange(g *tlsGenerator) error {
	if err := c.send(g, g.pipeline); err != nil {
		return err
	}
	in := make([]byte, readSize)
	for {
		n, err := c.conn.Read(in)
		if err != nil {
			return fmt.Errorf("read after %d answers: %w", c.answered, err)
		}
		before := c.answered
		if err = c.take(g, in[:n]); err != nil {
			return err
		}
		if err = c.send(g, int(c.answered-before)); err != nil {
			return err
		}
	}
}

// send sends n requests in as few writes as it can.
func (c *tlsClient) send(g *tlsGenerator, n int) error {
	out, length := c.out[:0], g.exchange.Request
	for range n {
		c.since[int(c.sent)%g.pipeline] = time.Now()
		start := len(out)
		if g.exchange.Key == produceKey {
			out = appendProduceHead(out, c.sent, length)
		} else {
			out = appendFetchHead(out, c.sent, length, g.exchange.Answer)
		}
		head := len(out) - start
		for at := head; at < length; {
			piece := g.pattern.at(c.sent, int64(at), min(length-at, readSize))
			out = append(out, piece...)
			at += len(piece)
			if len(out) >= readSize {
				if err := c.write(out); err != nil {
					return err
				}
				out = out[:0]
			}
		}
		c.sent++
	}
	c.out = out
	return c.write(out)
}

func (c *tlsClient) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := c.conn.Write(p); err != nil {
		return fmt.Errorf("write after %d requests: %w", c.sent, err)
	}
	return nil
}

// take looks at what was read.
func (c *tlsClient) take(g *tlsGenerator, in []byte) error {
	for len(in) > 0 {
		if c.left == 0 {
			n := min(len(in), codec.ResponseFixedLen-len(c.head))
			c.head = append(c.head, in[:n]...)
			in = in[n:]
			if len(c.head) < codec.ResponseFixedLen {
				continue
			}
			length, id := codec.SizeLen+int(codec.Size(c.head)), codec.ResponseCorrelationID(c.head)
			if length != g.exchange.Answer || id != c.answered {
				return fmt.Errorf("answer %d of %d bytes, want %d of %d", id, length, c.answered, g.exchange.Answer)
			}
			c.left, c.head = length-codec.ResponseFixedLen, c.head[:0]
			continue
		}
		n := min(len(in), c.left)
		c.left -= n
		in = in[n:]
		c.arrived(g, n)
	}
	return nil
}

// arrived counts n bytes of an answer's body, and the answer when they are the last.
func (c *tlsClient) arrived(g *tlsGenerator, n int) {
	if !g.exchange.upload() {
		c.bytes.Add(int64(n))
	}
	if c.left > 0 {
		return
	}
	if g.exchange.upload() {
		c.bytes.Add(int64(g.exchange.Request))
	}
	if c.measures.Load() {
		c.latency.add(time.Since(c.since[int(c.answered)%g.pipeline]))
	}
	c.requests.Add(1)
	c.answered++
}
