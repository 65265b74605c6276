// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

const mib = 1 << 20

// attack is a row of the table.
type attack struct {
	name string
	// words say what the attack does.
	words string
	// limits are lines of that block of the configuration, listener of the listener's.
	limits, listener string
	// maxBuffered is limits.max_buffered_bytes; 0 for the default.
	maxBuffered int64
	// files is the number of descriptors that tiergate may have; 0 for this process's.
	files int
	// tls: clients connect with TLS. stalled: stderr is a full pipe that nobody reads.
	tls, stalled bool
	// relayed: the attack is made on HAProxy as well.
	relayed bool
	// ordinary: what the attack asks for is legitimate, and must arrive.
	ordinary bool
	broker   script
	// accepted is why clients that are not served are no fault; empty if they are.
	accepted string
	run      func(ctx context.Context, s *scene)
}

func (a attack) buffered() int64 {
	return cmp.Or(a.maxBuffered, 512*mib)
}

// attacks returns the table.
func attacks() []attack {
	return []attack{
		{
			name: "half frames", words: "default limits; 17 connections announce a ListOffsets request of 32 MiB and stop 8 bytes before its end",
			relayed: true, run: halfFrames(17, 32*mib, 0),
		},
		{
			name: "slow half frames", words: "40 connections announce 32 MiB each and send 320 KiB every 100 ms", maxBuffered: 64 * mib,
			relayed: true, run: halfFrames(40, 320<<10, 100*time.Millisecond),
		},
		{
			name: "never read Metadata", words: "100 connections ask 5 times for 20 MB of Metadata and read nothing", maxBuffered: 64 * mib,
			broker: script{asked: metadata(largeClient), large: 20e6}, relayed: true, run: neverRead,
		},
		{
			name: "never read DescribeConfigs", words: "100 connections ask 5 times for 20 MB of DescribeConfigs and read nothing", maxBuffered: 64 * mib,
			broker: script{asked: frame(largeClient, kmsg.NewPtrDescribeConfigsRequest(), 4), large: 20e6}, relayed: true, run: neverRead,
		},
		{
			name: "never read Fetch", words: "100 connections fetch 20 MB 5 times and read nothing", maxBuffered: 64 * mib,
			broker: script{asked: frame(largeClient, kmsg.NewPtrFetchRequest(), 17), large: 20e6}, relayed: true, run: neverRead,
		},
		{
			name: "huge -6, broker silent", words: "12 connections ask for -6 of 1,000,000 partitions each; the broker does not respond to that", maxBuffered: 128 * mib,
			broker: script{silentAbove: mib}, relayed: true, run: pendingUploads(12, 1_000_000, 3*time.Second),
		},
		{
			name: "huge -6", words: "12 connections ask for -6 of 1,000,000 partitions each, again and again", maxBuffered: 128 * mib,
			relayed: true, run: pendingUploads(12, 1_000_000, 3*time.Second),
		},
		{
			name: "large -6", words: "4 connections ask for -6 of 100,000 partitions each, again and again", maxBuffered: 128 * mib,
			relayed: true, ordinary: true, run: pendingUploads(4, 100_000, 100*time.Millisecond),
		},
		{
			name: "Metadata 20 MB", words: "24 ordinary clients read 20 MB of Metadata, again and again after a second", maxBuffered: 64 * mib,
			broker: script{asked: metadata(largeClient), large: 20e6}, relayed: true, ordinary: true, run: largeResponses(24),
		},
		{
			name: "Metadata 100 MB", words: "4 ordinary clients read 100 MB of Metadata, again and again after a second", maxBuffered: 64 * mib,
			broker: script{asked: metadata(largeClient), large: 100e6}, relayed: true, ordinary: true, run: largeResponses(4),
		},
		{
			name: "20,000 brokers", words: "4 ordinary clients read Metadata that names 20,000 brokers, again and again after a second", maxBuffered: 64 * mib,
			broker: script{asked: metadata(largeClient), brokers: 20_000}, relayed: true, ordinary: true, run: largeResponses(4),
		},
		{
			name: "connect and close", words: "up to 2,000 connections a second, each reset at once",
			relayed: true, run: flood,
		},
		{
			name: "connect and idle", words: "2,000 connections that send nothing",
			relayed: true, run: idle(2000, nil),
		},
		{
			name: "one byte TLS", words: "512 connections send one byte to a TLS listener and wait; each is replaced when it is closed",
			tls: true, run: oneByte,
		},
		{
			name: "PROXY garbage", words: "300 connections send wrong, torn and half PROXY headers to a listener that requires one, again every second",
			listener: "proxy_protocol: required", run: garbage(300, time.Second, headers()),
		},
		{
			name: "log reader stalled", words: "stderr is a pipe that nobody reads; 16 connections send wrong frames, again and again",
			stalled: true, run: garbage(16, 50*time.Millisecond, []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff"}),
		},
		{
			name: "silent broker", words: "100 connections wait for a broker that responds to ApiVersions only, for -6 and Metadata, and leave after a second",
			broker: script{second: true}, run: silentBroker,
		},
		{
			name: "self-dialing", words: "the cluster advertises a node at an address of tiergate itself; 4 clients connect to that node; ulimit -n 4000",
			broker: script{selfDial: true}, files: 4000, run: selfDial,
		},
		{
			name: "descriptors, limited", words: "ulimit -n 400, max_sessions_per_client: 100; 600 idle connections of one client address",
			files: 400, limits: "max_sessions_per_client: 100", run: idle(600, apiVersions()),
		},
		{
			name: "descriptors, unlimited", words: "the same without max_sessions_per_client",
			files: 400, run: idle(600, apiVersions()),
		},
		{
			name: "admin flood", words: "380 idle keep-alive connections to the admin port; ulimit -n 400",
			files: 400, run: adminFlood,
		},
	}
}

// greet makes a session of a client that has had its first responses.
func greet(c net.Conn) bool {
	for _, request := range [][]byte{apiVersions(), metadata(ordinaryClient)} {
		if _, err := ask(c, request); err != nil {
			return false
		}
	}
	return true
}

// halfFrames announces a request that is collected whole, and sends it piece by piece,
// all but its last bytes. Every second connection has had responses before.
func halfFrames(n, piece int, pause time.Duration) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) {
		request := make([]byte, 32*mib)
		copy(request, listOffsets(1))
		codec.PutSize(request)
		request = request[:len(request)-8]
		s.attackers(ctx, s.address, n, time.Second, func(ctx context.Context, i int, c *net.TCPConn) {
			if i%2 == 0 && !greet(c) {
				return
			}
			for left := request; len(left) > 0; {
				next := left[:min(piece, len(left))]
				if _, err := c.Write(next); err != nil || !wait(ctx, pause) {
					return
				}
				left = left[len(next):]
			}
			untilClosed(c)
		})
	}
}

// neverRead asks for the large response five times and reads nothing.
func neverRead(ctx context.Context, s *scene) {
	all := slices.Concat(apiVersions(), bytes.Repeat(s.attack.broker.asked, 5))
	s.attackers(ctx, s.address, 100, time.Second, func(ctx context.Context, _ int, c *net.TCPConn) {
		_ = c.SetReadBuffer(4096)
		if _, err := c.Write(all); err == nil {
			<-ctx.Done()
		}
	})
}

// pendingUploads asks for -6 of so many partitions again and again.
func pendingUploads(n, partitions int, pause time.Duration) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) { s.askAgain(ctx, n, listOffsets(partitions), pause) }
}

// largeResponses asks for the large response again and again.
func largeResponses(n int) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) { s.askAgain(ctx, n, s.attack.broker.asked, time.Second) }
}

// askAgain sends a request again and again, and reads each response to its end.
func (s *scene) askAgain(ctx context.Context, n int, request []byte, pause time.Duration) {
	s.attackers(ctx, s.address, n, time.Second, func(ctx context.Context, _ int, c *net.TCPConn) {
		for ok := greet(c); ok; ok = wait(ctx, pause) {
			switch err := exchange(c, request); {
			case err == nil:
				s.responses.Add(1)
			case ctx.Err() == nil:
				s.refused.Add(1)
				return
			}
		}
	})
}

// exchange sends a request and reads its response.
func exchange(c net.Conn, request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	size, err := readSize(c)
	if err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, c, int64(size))
	return err
}

// flood resets connections as soon as they are there.
func flood(ctx context.Context, s *scene) {
	const n, rate = 20, 2000
	s.attackers(ctx, s.address, n, n*time.Second/rate, func(_ context.Context, _ int, c *net.TCPConn) { _ = c.SetLinger(0) })
}

// idle sends a request at most, and waits.
func idle(n int, request []byte) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) {
		s.attackers(ctx, s.address, n, time.Second, func(_ context.Context, _ int, c *net.TCPConn) {
			if _, err := c.Write(request); err == nil {
				untilClosed(c)
			}
		})
	}
}

// oneByte sends the first byte of a TLS record.
func oneByte(ctx context.Context, s *scene) {
	s.attackers(ctx, s.address, 512, 5*time.Millisecond, func(_ context.Context, _ int, c *net.TCPConn) {
		if _, err := c.Write([]byte{22}); err == nil {
			untilClosed(c)
		}
	})
}

// garbage sends texts in turns, and waits for hold before it closes.
func garbage(n int, hold time.Duration, texts []string) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) {
		s.attackers(ctx, s.address, n, 50*time.Millisecond, func(ctx context.Context, i int, c *net.TCPConn) {
			_, _ = io.WriteString(c, texts[i%len(texts)])
			wait(ctx, hold)
			_ = c.SetLinger(0)
		})
	}
}

// headers are PROXY protocol headers that are wrong or not whole.
func headers() []string {
	const v2 = "\r\n\r\n\x00\r\nQUIT\n"
	return []string{
		"GET / HTTP/1.1\r\n\r\n",
		"PROXY TCP4 1",
		"PROXY TCP4 999.1.1.1 1.1.1.1 1 1\r\n",
		"PROXY UNKNOWN" + string(make([]byte, 200)),
		v2 + "\x21\x11\xff\xff" + string(make([]byte, 1000)), // 65,535 bytes announced
		v2 + "\x21\x11\x00\x01\x00",
		v2 + "\x2f\x11\x00\x00",
		v2[:7],
		proxyHeader + "\xff\xff\xff\xff\xff\xff\xff\xff",
		proxyHeader + proxyHeader,
	}
}

// silentBroker asks the second broker, which responds to ApiVersions only.
func silentBroker(ctx context.Context, s *scene) {
	s.attackers(ctx, s.second, 100, 100*time.Millisecond, func(ctx context.Context, i int, c *net.TCPConn) {
		if _, err := ask(c, apiVersions()); err != nil {
			return
		}
		request := metadata(ordinaryClient)
		if i%2 == 0 {
			request = listOffsets(10)
		}
		if _, err := c.Write(request); err == nil {
			wait(ctx, time.Second)
		}
	})
}

// selfDial connects to the node that is advertised at tiergate's own address.
func selfDial(ctx context.Context, s *scene) {
	s.attackers(ctx, s.second, 4, time.Second, func(_ context.Context, _ int, c *net.TCPConn) {
		if _, err := c.Write(apiVersions()); err == nil {
			untilClosed(c)
		}
	})
}

// adminFlood keeps HTTP connections alive after one request each.
func adminFlood(ctx context.Context, s *scene) {
	s.attackers(ctx, s.admin, 380, 100*time.Millisecond, func(_ context.Context, _ int, c *net.TCPConn) {
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: admin\r\n\r\n"); err == nil {
			untilClosed(c)
		}
	})
}
