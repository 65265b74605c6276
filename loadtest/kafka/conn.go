// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// maxFrame bounds a response that Conn reads, in bytes.
const maxFrame = 256 << 20

// Conn is a raw client on one TCP connection: it sends any request at any version, as
// many as wanted before the first answer, and hands out whole response frames.
//
// One goroutine may send while another receives. It knows nothing of retries, nodes or
// errors inside answers.
type Conn struct {
	conn      net.Conn
	reader    *bufio.Reader
	formatter *kmsg.RequestFormatter

	mu   sync.Mutex
	next int32 // correlation id of the next request
}

// Dial connects to addr. Requests carry clientID. The first correlation id is 1.
func Dial(ctx context.Context, addr, clientID string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewConn(conn, clientID), nil
}

// NewConn is Dial for a connection that is there. It takes conn over.
func NewConn(conn net.Conn, clientID string) *Conn {
	return &Conn{
		conn:      conn,
		reader:    bufio.NewReaderSize(conn, 64*1024),
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)),
		next:      1,
	}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Frame returns a request as a whole frame with the next correlation id, unsent. The
// request's version is taken as it is.
func (c *Conn) Frame(req kmsg.Request) (frame []byte, correlationID int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	return c.formatter.AppendRequest(nil, req, id), id
}

// Send sends requests in one write, pipelined, and returns their correlation ids.
func (c *Conn) Send(ctx context.Context, reqs ...kmsg.Request) ([]int32, error) {
	var out []byte
	var ids []int32
	for _, req := range reqs {
		frame, id := c.Frame(req)
		out, ids = append(out, frame...), append(ids, id)
	}
	return ids, c.SendBytes(ctx, out)
}

// SendBytes sends bytes as they are.
func (c *Conn) SendBytes(ctx context.Context, b []byte) error {
	deadline, _ := ctx.Deadline() // zero: none
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// Receive returns the next response frame, size field included. io.EOF means that the
// other side closed the connection between two frames.
func (c *Conn) Receive(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }) // fails once it is closed, as the read then does
	defer stop()
	frame, err := readFrame(c.reader)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("no response: %w", ctx.Err())
	}
	return frame, err
}

// Request sends one request and returns its decoded response. It must not be mixed with
// requests that are still unanswered.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ids, err := c.Send(ctx, req)
	if err != nil {
		return nil, err
	}
	frame, err := c.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	if got := codec.ResponseCorrelationID(frame); got != ids[0] {
		return nil, fmt.Errorf("%s: correlation id %d came back as %d", kmsg.NameForKey(req.Key()), ids[0], got)
	}
	return DecodeResponse(req.Key(), req.GetVersion(), frame)
}

// readFrame reads one whole frame. Every length is checked before it is allocated.
func readFrame(r io.Reader) ([]byte, error) {
	size := make([]byte, codec.SizeLen)
	if _, err := io.ReadFull(r, size); err != nil {
		return nil, err
	}
	n := codec.Size(size)
	if n < codec.ResponseFixedLen-codec.SizeLen || n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, codec.SizeLen+int(n))
	copy(frame, size)
	if _, err := io.ReadFull(r, frame[codec.SizeLen:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return frame, nil
}

// DecodeResponse decodes a whole response frame of an API at a version. Bytes that are
// left over are an error. ApiVersions never has a tag section in its header, and its
// UNSUPPORTED_VERSION answers have the form of version 0, whatever was asked (KIP-511).
func DecodeResponse(key, version int16, frame []byte) (kmsg.Response, error) {
	resp := kmsg.ResponseForKey(key)
	if resp == nil {
		return nil, fmt.Errorf("unknown API key %d", key)
	}
	if key == int16(kmsg.ApiVersions) && len(frame) >= codec.ResponseFixedLen+2 &&
		int16(binary.BigEndian.Uint16(frame[codec.ResponseFixedLen:])) == kerr.UnsupportedVersion.Code {
		version = 0
	}
	resp.SetVersion(version)
	header := codec.Classic
	if resp.IsFlexible() && key != int16(kmsg.ApiVersions) {
		header = codec.Flexible
	}
	body, err := codec.ResponseBody(frame, header)
	if err == nil {
		err = resp.ReadFrom(frame[body:])
	}
	if err == nil {
		if again := resp.AppendTo(nil); len(again) != len(frame)-body {
			err = fmt.Errorf("%d bytes decode to something of %d bytes", len(frame)-body, len(again))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s response v%d: %w: %x", kmsg.NameForKey(key), version, err, frame)
	}
	return resp, nil
}

// DecodeRequest decodes a whole request frame.
func DecodeRequest(frame []byte) (kmsg.Request, error) {
	if len(frame) < codec.RequestFixedLen {
		return nil, fmt.Errorf("request of %d bytes", len(frame))
	}
	key, version := codec.RequestKey(frame), codec.RequestVersion(frame)
	req := kmsg.RequestForKey(key)
	if req == nil {
		return nil, fmt.Errorf("unknown API key %d", key)
	}
	req.SetVersion(version)
	enc := codec.Classic
	if req.IsFlexible() {
		enc = codec.Flexible
	}
	_, body, err := codec.RequestBody(frame, enc)
	if err == nil {
		err = req.ReadFrom(frame[body:])
	}
	if err != nil {
		return nil, fmt.Errorf("%s request v%d: %w: %x", kmsg.NameForKey(key), version, err, frame)
	}
	return req, nil
}
