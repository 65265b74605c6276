// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// ownClientID marks the requests of the simulation's own producer. They are neither
// counted nor shown to Options.OnRequest.
const ownClientID = "tiergate-sim-records"

// maxRequestBytes is Kafka's default of socket.request.max.bytes. kfake has no limit
// of its own and would allocate whatever the size field says.
const maxRequestBytes = 100 << 20

// listener stands under one kfake broker: every frame that goes in or out passes it.
type listener struct {
	net.Listener
	cluster *Cluster
	nodeID  int32
}

func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.cluster.track(&conn{Conn: nc, cluster: l.cluster, nodeID: l.nodeID})
}

// owed is a request that kfake has been given and has not answered yet.
type owed struct {
	correlationID int32
	// request is the client's request as it came, for the APIs whose answer changes,
	// and nil for all others.
	request kmsg.Request
}

// conn is one client connection. kfake reads a frame with one Read of four bytes and
// one of the rest, always from one goroutine at a time, and writes a frame with one
// Write, from another goroutine, in the order of the requests.
type conn struct {
	net.Conn
	cluster *Cluster
	nodeID  int32
	close   sync.Once

	unread []byte // of the frame that kfake is reading; its reading goroutine only

	mu   sync.Mutex
	owed []owed // oldest first
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		frame, err := readFrame(c.Conn)
		if err != nil {
			return 0, err
		}
		if c.unread, err = c.request(frame); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func readFrame(r io.Reader) ([]byte, error) {
	size := make([]byte, codec.SizeLen)
	if _, err := io.ReadFull(r, size); err != nil {
		return nil, err
	}
	if err := (codec.Limits{Min: codec.RequestFixedLen - codec.SizeLen, Max: maxRequestBytes}).Check(size); err != nil {
		return nil, err
	}
	frame := append(size, make([]byte, codec.Size(size))...)
	_, err := io.ReadFull(r, frame[codec.SizeLen:])
	return frame, err
}

// request notes what the frame will be owed and returns the frame that kfake gets.
// An error closes the connection, which is what a broker does with a request that it
// cannot read.
func (c *conn) request(frame []byte) ([]byte, error) {
	key, version := codec.RequestKey(frame), codec.RequestVersion(frame)
	kreq := kmsg.RequestForKey(key)
	if kreq == nil || version < 0 {
		return nil, fmt.Errorf("no API %d version %d", key, version) // kfake would panic
	}
	kreq.SetVersion(version)
	clientID, body, err := codec.RequestBody(frame, requestEncoding(kreq))
	if err != nil {
		return nil, err
	}
	if string(clientID) != ownClientID {
		c.cluster.count(c.nodeID, key, version, frame)
	}
	o := owed{correlationID: codec.RequestCorrelationID(frame)}
	switch key {
	case kmsg.Produce.Int16():
		if acks, err := codec.ProduceAcks(frame); err == nil && acks == 0 {
			return frame, nil
		}
	case kmsg.ListOffsets.Int16():
		if v := c.cluster.versionOf(c.nodeID); version < v.minListOffsets() || version > v.maxListOffsets() {
			return nil, fmt.Errorf("ListOffsets version %d", version)
		}
		fallthrough
	case kmsg.OffsetForLeaderEpoch.Int16(), kmsg.DescribeConfigs.Int16(), kmsg.DescribeTopicPartitions.Int16():
		if err := kreq.ReadFrom(frame[body:]); err != nil {
			return nil, err
		}
		o.request = kreq
		frame = lowered(frame, body, kreq)
	case kmsg.ApiVersions.Int16():
		o.request = kreq // its body may be of a version that nobody here can read
	}
	c.mu.Lock()
	c.owed = append(c.owed, o)
	c.mu.Unlock()
	return frame, nil
}

// lowered returns the frame that kfake gets in place of a ListOffsets of version 11:
// kfake ends at 10. -6 goes in as -5, so that every check which a broker makes before
// it looks at the log is kfake's own; answer puts the model's offset in.
func lowered(frame []byte, body int, request kmsg.Request) []byte {
	lo, ok := request.(*kmsg.ListOffsetsRequest)
	if !ok || lo.Version < 11 {
		return frame
	}
	low := *lo
	low.Version = 10
	low.Topics = make([]kmsg.ListOffsetsRequestTopic, len(lo.Topics))
	for i, t := range lo.Topics {
		low.Topics[i] = t
		low.Topics[i].Partitions = append([]kmsg.ListOffsetsRequestTopicPartition(nil), t.Partitions...)
		for j := range low.Topics[i].Partitions {
			if p := &low.Topics[i].Partitions[j]; p.Timestamp == codec.EarliestPendingUploadTimestamp {
				p.Timestamp = codec.LatestTieredTimestamp
			}
		}
	}
	out := append([]byte(nil), frame[:body]...)
	codec.PutRequestVersion(out, low.Version)
	out = low.AppendTo(out)
	codec.PutSize(out)
	return out
}

func (c *conn) Write(frame []byte) (int, error) {
	out, err := c.response(frame)
	if err != nil {
		return 0, err
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// response returns the frame that the client gets in place of kfake's.
func (c *conn) response(frame []byte) ([]byte, error) {
	request, err := c.settle(codec.ResponseCorrelationID(frame))
	if err != nil || request == nil {
		return frame, err
	}
	body, err := codec.ResponseBody(frame, responseEncoding(request))
	if err != nil {
		return nil, err
	}
	if request.Key() == kmsg.ApiVersions.Int16() && frame[body] == 0 && frame[body+1] == 35 {
		return frame, nil // KIP-511: a version 0 answer to a version that kfake lacks
	}
	resp := request.ResponseKind()
	if lo, ok := request.(*kmsg.ListOffsetsRequest); ok {
		resp.SetVersion(min(lo.Version, 10)) // versions 9, 10 and 11 have one layout
	}
	if err := resp.ReadFrom(frame[body:]); err != nil {
		return nil, fmt.Errorf("kfake's answer to %s: %w", kmsg.NameForKey(request.Key()), err)
	}
	if err := c.cluster.answer(c.nodeID, request, resp); err != nil {
		return nil, err
	}
	out := append([]byte(nil), frame[:body]...)
	out = resp.AppendTo(out)
	codec.PutSize(out)
	return out, nil
}

var errNotOwed = errors.New("sim: kfake answered a request that is not owed")

// settle takes the oldest request off the list; it must be the one that is answered.
func (c *conn) settle(correlationID int32) (kmsg.Request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owed) == 0 || c.owed[0].correlationID != correlationID {
		return nil, errNotOwed
	}
	o := c.owed[0]
	c.owed = c.owed[1:]
	return o.request, nil
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.close.Do(func() { c.cluster.untrack(c) })
	return err
}

// requestEncoding is the encoding of a request and of its header.
func requestEncoding(request kmsg.Request) codec.Encoding {
	if request.IsFlexible() {
		return codec.Flexible
	}
	return codec.Classic
}

// responseEncoding is the encoding of the header of a request's answer.
func responseEncoding(request kmsg.Request) codec.Encoding {
	if request.Key() == kmsg.ApiVersions.Int16() {
		return codec.Classic // KIP-511: any client must be able to read it
	}
	return requestEncoding(request)
}
