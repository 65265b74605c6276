// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package recorder is a TCP relay that records whole frames in both directions.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// Direction says which side sent a frame.
type Direction uint8

const (
	// ToBroker is a request.
	ToBroker Direction = iota
	// ToClient is a response.
	ToClient
)

// String names the direction.
func (d Direction) String() string {
	if d == ToBroker {
		return "to broker"
	}
	return "to client"
}

// Frame is one recorded frame, whole, with its size field.
type Frame struct {
	Direction Direction
	Bytes     []byte
}

// Recorder is a TCP relay on loopback that passes every byte on as it came and keeps the
// frames of both directions. A frame is recorded before its last byte is passed on, so
// what it causes elsewhere is recorded later. All methods are safe for concurrent use.
type Recorder struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	sessions []*Session
	closed   bool
	running  sync.WaitGroup
}

// Session is what passed through one connection.
type Session struct {
	mu     sync.Mutex
	frames []Frame
	rest   [2][]byte // of each direction: bytes that are no whole frame yet
	ended  bool
	err    error
	conns  []net.Conn
}

// Start starts a relay from the address listen to the address target, which is dialed
// anew for every connection.
func Start(listen, target string) (*Recorder, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	r := &Recorder{listener: l, target: target}
	r.running.Go(r.accept)
	return r, nil
}

// Address is where the recorder listens.
func (r *Recorder) Address() string { return r.listener.Addr().String() }

// Close stops the relay, cuts its connections, and waits for its goroutines.
func (r *Recorder) Close() {
	r.mu.Lock()
	r.closed = true
	sessions := slices.Clone(r.sessions)
	r.mu.Unlock()
	r.listener.Close()
	for _, s := range sessions {
		s.cut()
	}
	r.running.Wait()
}

// Sessions returns all sessions so far, in the order of their connections.
func (r *Recorder) Sessions() []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sessions)
}

// Forget drops the sessions that have ended.
func (r *Recorder) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = slices.DeleteFunc(r.sessions, (*Session).Ended)
}

// AwaitEnd waits until every session so far has ended on both sides.
func (r *Recorder) AwaitEnd(ctx context.Context) error {
	return kafka.Poll(ctx, "the end of the recorded connections", func(context.Context) error {
		open := 0
		for _, s := range r.Sessions() {
			if !s.Ended() {
				open++
			}
		}
		if open > 0 {
			return fmt.Errorf("%d connections are open", open)
		}
		return nil
	})
}

func (r *Recorder) accept() {
	for {
		client, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(10 * time.Millisecond) // out of descriptors, for example
			continue
		}
		s := &Session{conns: []net.Conn{client}}
		r.mu.Lock()
		closed := r.closed
		r.sessions = append(r.sessions, s)
		r.mu.Unlock()
		if closed {
			client.Close()
			return
		}
		r.running.Go(func() { s.relay(r.target) })
	}
}

// relay joins both sides until both have closed.
func (s *Session) relay(target string) {
	client := s.conns[0]
	broker, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		client.Close()
		s.end(err)
		return
	}
	s.mu.Lock()
	s.conns = append(s.conns, broker)
	s.mu.Unlock()
	errs := make(chan error, 2)
	go func() { errs <- s.pass(ToBroker, broker, client) }()
	go func() { errs <- s.pass(ToClient, client, broker) }()
	err = errors.Join(<-errs, <-errs)
	client.Close()
	broker.Close()
	s.end(err)
}

// pass copies one direction. The end of one side is passed on as the end of writing.
func (s *Session) pass(d Direction, to, from net.Conn) error {
	buf := make([]byte, 64*1024)
	for {
		n, err := from.Read(buf)
		s.record(d, buf[:n])
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close() // whoever sends must see that nobody reads
				return fmt.Errorf("%v: %w", d, err)
			}
		}
		if err == nil {
			continue
		}
		_ = to.(*net.TCPConn).CloseWrite()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("%v: %w", d, err)
	}
}

// record cuts a direction's bytes into frames.
func (s *Session) record(d Direction, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := append(s.rest[d], b...)
	for len(rest) >= codec.SizeLen {
		n := codec.SizeLen + int(codec.Size(rest))
		if n < codec.SizeLen || n > len(rest) {
			break
		}
		s.frames = append(s.frames, Frame{Direction: d, Bytes: slices.Clone(rest[:n])})
		rest = rest[n:]
	}
	s.rest[d] = slices.Clone(rest)
}

func (s *Session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.err = true, err
}

func (s *Session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

// Ended says whether both sides have closed.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Frames returns the whole frames so far of one direction, in order.
func (s *Session) Frames(d Direction) []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	var frames []Frame
	for _, f := range s.frames {
		if f.Direction == d {
			frames = append(frames, f)
		}
	}
	return frames
}

// Rest returns the bytes of a direction after its last whole frame.
func (s *Session) Rest(d Direction) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rest[d])
}

// Exchange is a request and its response, nil while there is none, as for a Produce
// request with acks=0.
type Exchange struct {
	Request  []byte
	Response []byte
}

// Key returns the API key of the request.
func (e Exchange) Key() int16 { return codec.RequestKey(e.Request) }

// Version returns the API version of the request.
func (e Exchange) Version() int16 { return codec.RequestVersion(e.Request) }

// String names API and version.
func (e Exchange) String() string {
	return fmt.Sprintf("%s v%d, correlation id %d", kmsg.NameForKey(e.Key()), e.Version(), codec.RequestCorrelationID(e.Request))
}

// Exchanges pairs requests and responses by correlation id, in the order of requests. A
// response that answers no request before it, or that comes out of order, is an error.
func (s *Session) Exchanges() ([]Exchange, error) {
	var exchanges []Exchange
	for _, f := range s.Frames(ToBroker) {
		exchanges = append(exchanges, Exchange{Request: f.Bytes})
	}
	at := 0
	for _, f := range s.Frames(ToClient) {
		id := codec.ResponseCorrelationID(f.Bytes)
		for at < len(exchanges) && codec.RequestCorrelationID(exchanges[at].Request) != id {
			at++
		}
		if at == len(exchanges) {
			return nil, fmt.Errorf("response with correlation id %d answers no request that is due: %x", id, f.Bytes)
		}
		exchanges[at].Response = f.Bytes
		at++
	}
	return exchanges, nil
}
