// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite"
)

// produceVersions are those where the layout before the acks field changes, and the
// last before and after.
var produceVersions = []int16{0, 2, 3, 8, 9, 12}

// produce makes a Produce request frame with kmsg. A nil client id or transactional
// id is null.
func produce(version int16, id int32, acks int16, clientID, transactionalID *string, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks = acks
	if version >= 3 {
		req.TransactionID = transactionalID
	}
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = records
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	formatter := kmsg.NewRequestFormatter()
	if clientID != nil {
		formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
	}
	return formatter.AppendRequest(nil, req, id)
}

// text returns a pointer to n letters.
func text(n int) *string {
	s := string(bytes.Repeat([]byte{'x'}, n))
	return &s
}

// step is one request of a script and the answer that its broker gives, nil for none.
type step struct{ request, answer []byte }

// perform is a broker that expects the script's requests byte for byte and gives its
// answers, in pieces of random sizes, until the client ends.
func perform(t *testing.T, script []step, seed uint64) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		if err := performOn(c, c, script, seed); err != nil {
			t.Error(err)
		}
	}
}

// performOn is perform with the two directions apart.
func performOn(r io.Reader, w io.Writer, script []step, seed uint64) error {
	out := chopper{w: w, rnd: rand.New(rand.NewPCG(seed, 1))}
	for i, s := range script {
		frame, err := readFrame(r)
		if err != nil || !bytes.Equal(frame, s.request) {
			return fmt.Errorf("request %d: got %d bytes, want %d, first difference at %d (%w)",
				i, len(frame), len(s.request), firstDifference(frame, s.request), err)
		}
		if err = out.write(s.answer); err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
	}
	if err := out.flush(); err != nil {
		return fmt.Errorf("last answers: %w", err)
	}
	if n, err := io.Copy(io.Discard, r); n != 0 || err != nil {
		return fmt.Errorf("%d bytes after the last request (%w)", n, err)
	}
	return nil
}

// chopper writes in pieces that have nothing to do with frames: up to 100,000 bytes,
// small ones more often.
type chopper struct {
	w    io.Writer
	rnd  *rand.Rand
	held []byte
}

func (c *chopper) write(b []byte) error {
	c.held = append(c.held, b...)
	for {
		n := 1 + c.rnd.IntN(1+c.rnd.IntN(100_000))
		if n > len(c.held) || len(c.held) == 0 {
			return c.flush()
		}
		if _, err := c.w.Write(c.held[:n]); err != nil {
			return err
		}
		c.held = c.held[n:]
	}
}

func (c *chopper) flush() error {
	_, err := c.w.Write(c.held)
	c.held = c.held[:0]
	return err
}

// play sends the requests of a script all at once, ends its direction, and checks that
// the answers come in order and are all there.
func play(t *testing.T, c *net.TCPConn, script []step, seed uint64) {
	t.Helper()
	if err := playOn(c, script, seed); err != nil {
		t.Fatal(err)
	}
}

// closeWriter is a connection whose one direction can be ended.
type closeWriter interface {
	io.ReadWriter
	CloseWrite() error
}

// playOn is play for any goroutine.
func playOn(c closeWriter, script []step, seed uint64) error {
	sent := make(chan error, 1)
	var want []byte
	for _, s := range script {
		want = append(want, s.answer...)
	}
	go func() {
		out := chopper{w: c, rnd: rand.New(rand.NewPCG(seed, 2))}
		for _, s := range script {
			if err := out.write(s.request); err != nil {
				sent <- err
				return
			}
		}
		_ = out.flush()
		sent <- c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if sendErr := <-sent; err != nil || sendErr != nil {
		return fmt.Errorf("receiving: %w; sending: %w", err, sendErr)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("got %d bytes, want %d; first difference at %d", len(got), len(want), firstDifference(got, want))
	}
	return nil
}

// mixedScript makes n steps: ordinary requests of every size, and Produce requests
// that are owed an answer and that are not.
func mixedScript(n int, seed uint64) []step {
	rnd := rand.New(rand.NewPCG(seed, 3))
	bytesOf := func(limit int) []byte {
		b := make([]byte, rnd.IntN(1+rnd.IntN(limit)))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	ids := []*string{nil, text(0), text(3), text(300)}
	script := make([]step, n)
	for i := range script {
		id := int32(rnd.Uint32())
		s := step{answer: response(id, bytesOf(4000)...)}
		switch kind := rnd.IntN(10); {
		case kind < 4:
			acks := int16(rnd.IntN(3) - 1)
			s.request = produce(produceVersions[rnd.IntN(len(produceVersions))], id, acks, ids[rnd.IntN(4)], ids[rnd.IntN(4)], bytesOf(5000))
			if acks == 0 {
				s.answer = nil
			}
		case kind < 9:
			s.request = request(int16(3+rnd.IntN(5)), int16(rnd.IntN(9)), id, bytesOf(3000)...)
		default:
			s.request = request(1, 11, id, bytesOf(400)...)
			s.answer = response(id, bytesOf(400_000)...)
		}
		script[i] = s
	}
	return script
}

// Answers come in order, whatever the sizes, the pieces and the number of exchanges
// that are allowed at once.
func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	for _, inflight := range []int{1, 2, 7, 1024} {
		t.Run(fmt.Sprint(inflight), func(t *testing.T) {
			script := mixedScript(1500/shrink, uint64(inflight))
			b := newBroker(t, perform(t, script, uint64(inflight)))
			s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = inflight })
			play(t, connect(t, s), script, uint64(inflight))
			awaitSessions(t, s, 0)
		})
	}
}

// A Produce request with acks 0 is owed nothing, in every layout of its head, wherever
// the head is cut. A misread one would make the answer behind it come out of order.
func TestAcksZeroOwesNothingCutAtEachByte(t *testing.T) {
	for _, version := range produceVersions {
		for _, ids := range [][2]*string{{nil, nil}, {text(0), text(0)}, {text(5), nil}, {nil, text(7)}} {
			t.Run(fmt.Sprint(version), func(t *testing.T) {
				b := newBroker(t, echoOwed)
				s := newServer(t, b.dial, rewrite.Rules{})
				c := connect(t, s)
				silent := produce(version, 1, 0, ids[0], ids[1], []byte("records"))
				after := request(3, 1, 2, 'm')
				want := response(2, 0, 1, 'c', 'm')
				for cut := 1; cut < acksEnd(version, ids); cut++ {
					mustWrite(t, c, silent[:cut])
					awaitOnLoop(t, s, fmt.Sprintf("%d bytes are carried", cut), func(l *loop) bool {
						return only(l) != nil && len(only(l).requests.carry) == cut
					})
					mustWrite(t, c, silent[cut:], after)
					if got := mustRead(t, c); !bytes.Equal(got, want) {
						t.Fatalf("cut at %d: got %x, want %x", cut, got, want)
					}
				}
			})
		}
	}
}

// acksEnd is where the acks field of a produce frame ends.
func acksEnd(version int16, ids [2]*string) int {
	n := codec.RequestFixedLen + 2 + 2
	if ids[0] != nil {
		n += len(*ids[0])
	}
	if version >= 9 {
		n++ // header tags
	}
	switch {
	case version < 3:
		return n
	case version >= 9:
		n++
	default:
		n += 2
	}
	if ids[1] != nil {
		n += len(*ids[1])
	}
	return n
}

// echoOwed answers like echo, and Produce with acks 0 not at all: it reads acks with
// kmsg.
func echoOwed(c *net.TCPConn) {
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		if codec.RequestKey(frame) == 0 {
			req := kmsg.NewPtrProduceRequest()
			req.Version = codec.RequestVersion(frame)
			_, body, err := codec.RequestBody(frame, codec.EncodingOf(req.Version, 9))
			if err != nil || req.ReadFrom(frame[body:]) != nil {
				return
			}
			if req.Acks == 0 {
				continue
			}
		}
		if _, err = c.Write(response(codec.RequestCorrelationID(frame), frame[codec.RequestFixedLen:]...)); err != nil {
			return
		}
	}
}

// The longest head that there can be: client id and transactional id of 32,767 bytes.
// It stands behind frames of different sizes, so that reads cut it differently.
func TestLongestProduceHead(t *testing.T) {
	var script []step
	for i, before := range []int{0, 1, 60_000, 65_500, 65_536, 131_000} {
		id := int32(10 * i)
		script = append(script,
			step{request(3, 1, id, make([]byte, before)...), response(id)},
			step{produce(9, id+1, 0, text(32_767), text(32_767), make([]byte, 200_000)), nil},
			step{produce(8, id+2, 0, text(32_767), text(32_767), []byte("r")), nil},
			step{produce(8, id+3, 1, text(32_767), text(32_767), nil), response(id+3, 1)},
		)
	}
	b := newBroker(t, perform(t, script, 5))
	s := newServer(t, b.dial, rewrite.Rules{})
	play(t, connect(t, s), script, 5)
}

// While as many exchanges as allowed are under way the client is not read; when half
// of them are answered it is, and not before.
func TestInflightIsBoundedByNotReading(t *testing.T) {
	const inflight = 6
	conns, over := make(chan *net.TCPConn, 1), make(chan struct{})
	defer close(over)
	b := newBroker(t, func(c *net.TCPConn) {
		conns <- c
		<-over
	})
	s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = inflight })
	c := connect(t, s)
	for id := range int32(20) {
		mustWrite(t, c, request(3, 1, id))
	}
	brokerSide := <-conns
	_ = brokerSide.SetDeadline(time.Now().Add(patience))
	asked, answered := int32(0), int32(0)
	ask := func(n int32) {
		for range n {
			compare(t, fmt.Sprintf("request %d", asked), mustRead(t, brokerSide), request(3, 1, asked))
			asked++
		}
		awaitSession(t, s, "the requests are stalled with 6 under way", func(se *session) bool {
			return se.exchanges.len() == inflight && se.requests.stall == stallInflight
		})
	}
	ask(inflight)
	for range 3 {
		for _, left := range []int{5, 4} {
			mustWrite(t, brokerSide, response(answered))
			compare(t, "answer", mustRead(t, c), response(answered))
			answered++
			awaitSession(t, s, "the requests stay stalled", func(se *session) bool {
				return se.exchanges.len() == left && se.requests.stall == stallInflight
			})
		}
		mustWrite(t, brokerSide, response(answered))
		compare(t, "answer", mustRead(t, c), response(answered))
		answered++
		ask(inflight / 2)
	}
}

// What the client sends before the broker connection is open waits, unread, and none
// of it is lost.
func TestClientPipelinesBeforeTheBrokerIsThere(t *testing.T) {
	script := mixedScript(800/shrink, 9)
	b := newBroker(t, perform(t, script, 9))
	open := make(chan struct{})
	s := newServer(t, func(ctx context.Context) (net.Conn, error) {
		<-open
		return b.dial(ctx)
	}, rewrite.Rules{})
	c := connect(t, s)
	played := make(chan error, 1)
	go func() { played <- playOn(c, script, 9) }()
	awaitSession(t, s, "the client's bytes arrive", func(se *session) bool { return se.client.readable })
	onLoop(t, s.loops[0], func() {
		if se := only(s.loops[0]); se.state != stateDialing || se.requests.carry != nil || se.client.pending() != 0 {
			t.Errorf("the client was read before the broker connection was open: %+v", se.requests)
		}
	})
	close(open)
	if err := <-played; err != nil {
		t.Fatal(err)
	}
}
