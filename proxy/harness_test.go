// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tiergate/codec"
	"tiergate/rewrite"
)

// patience bounds every wait of these tests; none depends on how long it takes.
const patience = 20 * time.Second

// TestMain fails the package when a goroutine is left. As a child of a test it is that
// child's main instead.
func TestMain(m *testing.M) {
	if address := os.Getenv(scarceEnv); address != "" {
		if err := scarce(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

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
	mu       sync.Mutex
	open     map[net.Conn]struct{}
}

// serve runs f for a connection and closes it after.
func (b *broker) serve(c net.Conn, f func(*net.TCPConn)) {
	b.mu.Lock()
	b.open[c] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.open, c)
		b.mu.Unlock()
		c.Close()
	}()
	f(c.(*net.TCPConn))
}

// cut closes what is open.
func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		c.Close()
	}
}

// newBroker starts a broker that runs serve for each connection and closes it after.
func newBroker(t *testing.T, serve func(*net.TCPConn)) *broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{listener: ln, open: map[net.Conn]struct{}{}}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.conns.Go(func() { b.serve(c, serve) })
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-accepted
		served := make(chan struct{})
		go func() {
			defer close(served)
			b.conns.Wait()
		}()
		select {
		case <-served:
		case <-time.After(patience):
			t.Error("a broker connection was left open")
			b.cut()
			<-served
		}
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

// newEcho starts a broker that echoes.
func newEcho(t *testing.T) *broker {
	t.Helper()
	return newBroker(t, func(c *net.TCPConn) { echo(c) })
}

// noRemoteStorage knows nothing.
type noRemoteStorage struct{}

func (noRemoteStorage) CachedRemoteStorage(string) (enabled, known bool) { return false, false }
func (noRemoteStorage) ResolveRemoteStorage(context.Context, []string) map[string]bool {
	return nil
}
func (noRemoteStorage) ObserveRemoteStorage([]string) {}

// newServer starts a proxy with one endpoint, and closes it at the end of the test.
func newServer(t *testing.T, dial Dial, rules rewrite.Rules, change ...func(*Options)) *Server {
	t.Helper()
	s := unstarted(t, dial, rules, change...)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newServerWithoutTicks is newServer for tests that move the clock with tickAfter.
func newServerWithoutTicks(t *testing.T, dial Dial, rules rewrite.Rules, change ...func(*Options)) *Server {
	t.Helper()
	s := unstarted(t, dial, rules, change...)
	s.tickEvery = 1000 * time.Hour
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// tickAfter lets the clock of a server's first loop show a time from now on, and runs
// its deadlines.
func tickAfter(t *testing.T, s *Server, d time.Duration) {
	t.Helper()
	onLoop(t, s.loops[0], func() { s.loops[0].tick(time.Now().Add(d)) })
}

// eventLoop is the event loop of these tests: `make unit` runs them with each.
func eventLoop() EventLoop {
	if os.Getenv("TIERGATE_EVENT_LOOP") == "epoll" {
		return EventLoopEpoll
	}
	return EventLoopGnet
}

// unstarted makes the proxy of newServer.
func unstarted(t *testing.T, dial Dial, rules rewrite.Rules, change ...func(*Options)) *Server {
	t.Helper()
	opts := Options{
		Endpoints: []Endpoint{{Listener: "test", Address: "127.0.0.1:0", Broker: "broker", Dial: dial, Rules: rules, RemoteStorage: noRemoteStorage{}}},
		Loops:     1,
		EventLoop: eventLoop(),
		Logger:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&opts)
	}
	s, err := New(opts)
	if err != nil {
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
		missing(t, "descriptors are counted in /proc/self/fd, which this system does not have: run on Linux")
	}
	return len(names)
}

// onLoop runs f on a loop and waits for it.
func onLoop(t *testing.T, l *loop, f func()) {
	t.Helper()
	ran := make(chan struct{})
	l.post(func() {
		defer close(ran)
		f()
	})
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("the loop does not run what was posted")
	}
}

// await polls until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// awaitOnLoop polls a condition that must be looked at on the server's first loop.
func awaitOnLoop(t *testing.T, s *Server, what string, holds func(l *loop) bool) {
	t.Helper()
	await(t, what, func() (ok bool) {
		onLoop(t, s.loops[0], func() { ok = holds(s.loops[0]) })
		return ok
	})
}

// awaitSession polls a condition on the only session of the server's first loop.
func awaitSession(t *testing.T, s *Server, what string, holds func(se *session) bool) {
	t.Helper()
	awaitOnLoop(t, s, what, func(l *loop) bool { return only(l) != nil && holds(only(l)) })
}

// awaitSessions waits until the server has n sessions.
func awaitSessions(t *testing.T, s *Server, n int) {
	t.Helper()
	got := 0
	await(t, "the number of sessions", func() bool {
		got = 0
		for _, l := range s.loops {
			onLoop(t, l, func() { got += len(l.sessions) })
		}
		return got == n
	})
}

// only returns a loop's only session, or nil.
func only(l *loop) *session {
	for s := range l.sessions {
		if len(l.sessions) == 1 {
			return s
		}
	}
	return nil
}

// journal is a log handler that keeps every line.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (*journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler     { return j }
func (j *journal) WithGroup(string) slog.Handler          { return j }

// Handle keeps a line as "LEVEL message key=value ...".
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.String())
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, b.String())
	return nil
}

// with returns the lines so far that contain all parts.
func (j *journal) with(parts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
lines:
	for _, line := range j.lines {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// awaitLine waits for a line that contains all parts and returns it.
func (j *journal) awaitLine(t *testing.T, parts ...string) string {
	t.Helper()
	await(t, "a log line with "+strings.Join(parts, ", "), func() bool { return len(j.with(parts...)) > 0 })
	return j.with(parts...)[0]
}

// loggingTo makes a server log to j.
func loggingTo(j *journal) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(j) }
}

// reset closes a connection with a reset: no FIN, what is unsent is lost.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// mustRead reads one frame.
func mustRead(t *testing.T, r io.Reader) []byte {
	t.Helper()
	frame, err := readFrame(r)
	if err != nil {
		t.Fatalf("reading a frame: %v", err)
	}
	return frame
}

// mustWrite writes all of b.
func mustWrite(t *testing.T, w io.Writer, b ...[]byte) {
	t.Helper()
	for _, piece := range b {
		if _, err := w.Write(piece); err != nil {
			t.Fatalf("writing %d bytes: %v", len(piece), err)
		}
	}
}

// ending says how a connection ended: nothing more comes, or a reset.
func ending(t *testing.T, c net.Conn) error {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n > 0 {
		t.Fatalf("%d stray bytes before the end", n)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection was not closed")
	}
	return err
}

// missing skips a test for want of something, and fails it where nothing may be skipped.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
