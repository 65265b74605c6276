// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
)

// patience bounds every wait of these tests; none depends on how long it takes.
const patience = 20 * time.Second

// frameOf makes a frame of the bytes after the size field.
func frameOf(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// request makes a request frame with a client id "c" and a body.
func request(key, version int16, id int32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = append(b, 0, 1, 'c')
	return frameOf(append(b, body...)...)
}

// response makes a response frame.
func response(id int32, body ...byte) []byte {
	return frameOf(append(binary.BigEndian.AppendUint32(nil, uint32(id)), body...)...)
}

// readFrame reads one frame, size field included.
func readFrame(r io.Reader) ([]byte, error) {
	size := make([]byte, codec.SizeLen)
	if _, err := io.ReadFull(r, size); err != nil {
		return nil, err
	}
	frame := append(size, make([]byte, codec.Size(size))...)
	_, err := io.ReadFull(r, frame[codec.SizeLen:])
	return frame, err
}

// broker is a scripted broker on loopback: serve runs once per connection.
type broker struct {
	listener net.Listener
	conns    sync.WaitGroup
}

// newBroker starts a broker that runs serve for each connection and closes it after.
func newBroker(t *testing.T, serve func(*net.TCPConn)) *broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{listener: ln}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.conns.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-accepted
		b.conns.Wait()
	})
	return b
}

// dial is a Dial for this broker.
func (b *broker) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", b.listener.Addr().String())
}

// echo answers every request with its body, in order, until the client ends.
func echo(c io.ReadWriteCloser) {
	defer c.Close()
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		if _, err = c.Write(response(codec.RequestCorrelationID(frame), frame[codec.RequestFixedLen:]...)); err != nil {
			return
		}
	}
}

// noVerdicts knows nothing.
type noVerdicts struct{}

func (noVerdicts) CachedRemoteStorage(string) (enabled, known bool) { return false, false }
func (noVerdicts) ResolveRemoteStorage(context.Context, []string) map[string]bool {
	return nil
}
func (noVerdicts) ObserveRemoteStorage([]string) {}

// newServer starts a proxy with one endpoint, and closes it at the end of the test.
func newServer(t *testing.T, dial Dial, rules rewrite.Rules, change ...func(*Options)) *Server {
	t.Helper()
	opts := Options{
		Endpoints: []Endpoint{{Listener: "test", Address: "127.0.0.1:0", Broker: "broker", Dial: dial, Rules: rules}},
		Verdicts:  noVerdicts{},
		Loops:     1,
		Logger:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&opts)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connect opens a client connection to the server's first endpoint.
func connect(t *testing.T, s *Server) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr(0).String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system has no /proc/self/fd")
	}
	return len(names)
}
