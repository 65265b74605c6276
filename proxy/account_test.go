// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite"
)

// pendingRequest is a whole ListOffsets v11 request for -6 of the first n partitions of
// one topic.
func pendingRequest(id int32, n int) []byte {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 11, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "topic"
	for i := range n {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = int32(i), -6
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, id)
}

// versionsThenSilence is a broker of Kafka 4.1 that answers ApiVersions and, as long as
// budget lasts, requests of other keys; then nothing.
func versionsThenSilence(answered int) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			id := codec.RequestCorrelationID(frame)
			switch {
			case codec.RequestKey(frame) == apiVersionsKey:
				_, err = c.Write(answerFrame(id, versionsAnswer(codec.RequestVersion(frame), 10)))
			case answered > 0:
				answered--
				_, err = c.Write(response(id, 'o', 'k'))
			}
			if err != nil {
				return
			}
		}
	}
}

// greet opens a connection that has had an answer to ApiVersions and to one other request.
func greet(t *testing.T, s *Server) *net.TCPConn {
	t.Helper()
	c := connect(t, s)
	mustWrite(t, c, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
	mustRead(t, c)
	mustWrite(t, c, request(30, 1, 2))
	mustRead(t, c)
	return c
}

// A request that must be collected is bounded by max_unauthenticated_bytes until the
// broker has answered a request of the client that SASL guards, and by max_held_bytes then.
func TestLargeRequestBeforeAuthentication(t *testing.T) {
	j := &journal{}
	s := newServer(t, newBroker(t, versionsThenSilence(1)).dial, rewrite.Rules{}, loggingTo(j),
		func(o *Options) { o.MaxUnauthenticatedBytes = 1000 })
	big := append(sized(1001-codec.SizeLen), request(2, 11, 3)[codec.SizeLen:]...)
	early := connect(t, s)
	mustWrite(t, early, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
	mustRead(t, early)
	mustWrite(t, early, big)
	_ = ending(t, early)
	oneLine(t, j, "session closed: a frame that must be changed is larger than max_held_bytes",
		"1001 bytes before the broker has accepted any request of the client but SASL's; max_unauthenticated_bytes is 1000")
	late := greet(t, s)
	mustWrite(t, late, big)
	awaitSession(t, s, "the frame is being collected", func(se *session) bool { return se.requests.left > 0 && se.requests.part == partHold })
}

// Clients that announce large frames and stop a few bytes before their end cannot keep
// others from being served: small frames need no room, and what the large ones take is
// bounded, first by waiting and then by closing the largest.
func TestHalfSentFramesStopNobody(t *testing.T) {
	const frame, limit = 256 << 10, 4 << 20
	j := &journal{}
	s := newServer(t, newBroker(t, versionsThenSilence(1000)).dial, rewrite.Rules{}, loggingTo(j),
		func(o *Options) { o.MaxBufferedBytes = limit })
	piece := make([]byte, frame-100)
	copy(piece, append(sized(frame), request(2, 11, 3)[codec.SizeLen:]...))
	for range 8 { // of which each takes frame*requestCost: twice the limit together
		c := greet(t, s)
		go func() { _, _ = c.Write(piece) }()
	}
	await(t, "frames wait for room", func() bool { return s.account.waiting.Load() > 0 })
	for range 20 {
		if total := s.account.total.Load(); total > limit {
			t.Fatalf("%d bytes are kept, %d are the limit", total, limit)
		}
		small := greet(t, s)
		mustWrite(t, small, request(apiVersionsKey, 3, 4, 0, 1, 1, 0))
		compare(t, "a small response", mustRead(t, small), answerFrame(4, versionsAnswer(3, 11)))
		small.Close()
	}
	line := j.awaitLine(t, "session closed: max_buffered_bytes is reached", "reason=buffer_full")
	t.Log(line)
	await(t, "nothing waits for room any more", func() bool { return s.account.waiting.Load() == 0 })
	if total := s.account.total.Load(); total > limit {
		t.Fatalf("%d bytes are kept, %d are the limit", total, limit)
	}
}

// A frame that waits for room goes on when another session gives its own back, and nothing
// of it is lost.
func TestFrameWaitsForRoom(t *testing.T) {
	answer := versionsAnswer(3, 10).(*kmsg.ApiVersionsResponse)
	for range 20_000 {
		answer.ApiKeys = append(answer.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 9999, MaxVersion: 1})
	}
	frame := answerFrame(1, answer)
	p := &pieces{answer: frame, cut: len(frame) - 1, second: make(chan struct{}, 2)}
	s := newServerWithoutTicks(t, newBroker(t, p.serve).dial, rewrite.Rules{},
		func(o *Options) { o.MaxBufferedBytes = int64(len(frame)) * 4 })
	first := connect(t, s)
	mustWrite(t, first, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
	awaitSession(t, s, "a frame is being collected", func(se *session) bool { return len(se.responses.held) == p.cut })
	second := connect(t, s)
	mustWrite(t, second, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
	await(t, "the second waits", func() bool { return s.account.waiting.Load() == 1 })
	p.second <- struct{}{}
	p.second <- struct{}{}
	answer.ApiKeys[2].MaxVersion = 11
	want := answerFrame(1, answer)
	compare(t, "the first's response", mustRead(t, first), want)
	compare(t, "the second's response", mustRead(t, second), want)
	await(t, "nothing is kept", func() bool { return s.account.total.Load() == 0 && s.account.waiting.Load() == 0 })
}

// bodyOf is a broker that answers every request with a body of n bytes.
func bodyOf(n int) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			if _, err = c.Write(response(codec.RequestCorrelationID(frame), make([]byte, n)...)); err != nil {
				return
			}
		}
	}
}

// What many sessions keep that none of them collects, one read's worth each of a stream
// that is not taken, is bounded too: those in which nothing moves are closed.
func TestManySmallBacklogs(t *testing.T) {
	const limit = 1 << 20
	j := &journal{}
	s := newServer(t, newBroker(t, bodyOf(8<<20)).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxBufferedBytes, o.MaxPipes = limit, -1 })
	for range 60 {
		c := connect(t, s)
		_ = c.SetReadBuffer(4 << 10)
		mustWrite(t, c, request(30, 1, 1))
	}
	j.awaitLine(t, "session closed: max_buffered_bytes is reached", "reason=buffer_full")
	await(t, "what is kept is below the limit", func() bool { return s.account.total.Load() <= limit })
	c := connect(t, s)
	mustWrite(t, c, request(30, 1, 1))
	if got := mustRead(t, c); len(got) != 8<<20+8 {
		t.Fatalf("got %d bytes", len(got))
	}
}

// The order in which sessions are closed for their memory: magnitude, then who was active
// longest ago; and no more than needed.
func TestLargest(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	all := []holder{
		{nil, 5000, at(1), 1},
		{nil, 70_000, at(9), 9},
		{nil, 9_000_000, at(9), 9},
		{nil, 100_000, at(3), 4},
		{nil, 8_500_000, at(2), 2},
		{nil, 90_000, at(3), 3},
	}
	for _, c := range []struct {
		enough int64
		want   []int64
	}{
		{1, []int64{8_500_000}},
		{8_500_001, []int64{8_500_000, 9_000_000}},
		{17_500_001, []int64{8_500_000, 9_000_000, 5000}},
		{1 << 40, []int64{8_500_000, 9_000_000, 5000, 90_000, 100_000, 70_000}},
	} {
		var got []int64
		for _, h := range largest(append([]holder(nil), all...), c.enough) {
			got = append(got, h.bytes)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("largest(%d): %d, want %d", c.enough, got, c.want)
		}
	}
}

// progressCase is a session in which a peer keeps memory of the proxy occupied.
type progressCase struct {
	name   string
	begin  func(t *testing.T) (*Server, *net.TCPConn, *journal)
	reason string
	text   string
	// ending is what the client sees; nothing where it reads nothing.
	ending string
}

func progressCases() []progressCase {
	half := func(t *testing.T, dial Dial, first ...[]byte) (*Server, *net.TCPConn, *journal) {
		j := &journal{}
		s := newServerWithoutTicks(t, dial, rewrite.Rules{Addresses: proxied}, loggingTo(j), func(o *Options) { o.FirstRequestTimeout = 100 * time.Hour })
		c := connect(t, s)
		mustWrite(t, c, first...)
		return s, c, j
	}
	return []progressCase{
		{"half of a request that is collected", func(t *testing.T) (*Server, *net.TCPConn, *journal) {
			s, c, j := half(t, newBroker(t, silence).dial, pendingRequest(1, 1000)[:5000])
			awaitSession(t, s, "it is being collected", func(se *session) bool { return len(se.requests.held) == 5000 })
			return s, c, j
		}, "no_progress", "the client sent less than 65536 bytes of an incomplete frame within 30s", "reset"},
		{"half of a head", func(t *testing.T) (*Server, *net.TCPConn, *journal) {
			s, c, j := half(t, newBroker(t, silence).dial, []byte{0, 0, 0})
			awaitSession(t, s, "it has come", func(se *session) bool { return len(se.requests.carry) == 3 })
			return s, c, j
		}, "no_progress", "the client sent less than 65536 bytes of an incomplete frame within 30s", "reset"},
		{"half of a response that is collected", func(t *testing.T) (*Server, *net.TCPConn, *journal) {
			s, c, j := half(t, newBroker(t, func(c *net.TCPConn) {
				_, _ = readFrame(c)
				_, _ = c.Write(metadataAnswer(1, 3, "broker-3.internal", 29092)[:20])
				silence(c)
			}).dial, request(3, 1, 1))
			awaitSession(t, s, "it is being collected", func(se *session) bool { return len(se.responses.held)+len(se.responses.carry) == 20 })
			return s, c, j
		}, "no_progress", "the broker sent less than 65536 bytes of an incomplete frame within 30s", "end"},
		{"a collected response that is not read", func(t *testing.T) (*Server, *net.TCPConn, *journal) {
			answer := kmsg.NewPtrDescribeClusterResponse()
			for range 20_000 {
				answer.Brokers = append(answer.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: 1, Host: *text(500), Port: 1})
			}
			j := &journal{}
			s := newServerWithoutTicks(t, newBroker(t, scripted(map[int16][]byte{60: answerFrame(1, answer)})).dial,
				rewrite.Rules{Addresses: rewrite.PortRange{Host: *text(500), FirstPort: 9200, Count: 10}}, loggingTo(j))
			c := connect(t, s)
			_ = c.SetReadBuffer(4 << 10)
			mustWrite(t, c, request(60, 0, 1, 0, 0))
			awaitSession(t, s, "the response waits", func(se *session) bool { return se.client.pending() > bufferSize && !se.client.writable })
			return s, c, j
		}, "no_progress", "bytes within 30s", ""},
		{"a lookup at a broker that is silent", func(t *testing.T) (*Server, *net.TCPConn, *journal) {
			j := &journal{}
			s := newServerWithoutTicks(t, newBroker(t, versionsThenSilence(0)).dial, rewrite.Rules{}, loggingTo(j))
			c := connect(t, s)
			mustWrite(t, c, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
			mustRead(t, c)
			mustWrite(t, c, pendingRequest(2, 1))
			awaitSession(t, s, "the lookups are under way", func(se *session) bool { return se.lookup != nil && se.exchanges.len() == 4 })
			return s, c, j
		}, "lookup_timeout", "no response to a lookup request within 20s", "reset"},
	}
}

// A peer that keeps memory occupied and moves nothing for its deadline loses its session,
// not before. A client without a response is reset, so that it tries again.
func TestProgressDeadlines(t *testing.T) {
	for _, c := range progressCases() {
		t.Run(c.name, func(t *testing.T) {
			s, conn, j := c.begin(t)
			tickAfter(t, s, time.Second)
			tickAfter(t, s, 19*time.Second)
			awaitSessions(t, s, 1)
			tickAfter(t, s, time.Minute)
			awaitSessions(t, s, 0)
			oneLine(t, j, "session closed", "reason="+c.reason, c.text)
			if c.ending == "" {
				return
			}
			if err := ending(t, conn); errors.Is(err, syscall.ECONNRESET) != (c.ending == "reset") {
				t.Errorf("the client saw %v, want its %s", err, c.ending)
			}
		})
	}
}

// Bytes that go on to come keep a session for as long as 64 KiB come within each
// progress_timeout, and so does a stream whose reader sleeps.
func TestProgressIsMade(t *testing.T) {
	j := &journal{}
	s := newServerWithoutTicks(t, newBroker(t, versionsThenSilence(1)).dial, rewrite.Rules{}, loggingTo(j))
	c := greet(t, s)
	req := pendingRequest(3, 20_000)
	for at, i := 0, 1; at < len(req)-(64<<10); i++ {
		mustWrite(t, c, req[at:at+64<<10])
		at += 64 << 10
		awaitSession(t, s, "it has come", func(se *session) bool { return len(se.requests.held)+len(se.requests.carry) == at })
		tickAfter(t, s, time.Duration(i)*29*time.Second)
	}
	awaitSessions(t, s, 1)
	asleep := newServerWithoutTicks(t, newBroker(t, bodyOf(64<<20)).dial, rewrite.Rules{}, loggingTo(j))
	reader := connect(t, asleep)
	mustWrite(t, reader, request(30, 1, 1))
	awaitSession(t, asleep, "the reader sleeps", func(se *session) bool { return se.client.owes() && se.broker.readable })
	for i := range time.Duration(10) {
		tickAfter(t, asleep, i*time.Minute)
	}
	if got := mustRead(t, reader); len(got) != 64<<20+8 {
		t.Fatalf("got %d bytes", len(got))
	}
}

// A client that sends no request is reset after first_request_timeout; one that has sent
// its first may be silent.
func TestFirstRequestTimeout(t *testing.T) {
	j := &journal{}
	s := newServerWithoutTicks(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j))
	silent, spoken := connect(t, s), connect(t, s)
	mustWrite(t, spoken, request(30, 1, 1))
	mustRead(t, spoken)
	awaitOnLoop(t, s, "both are open", func(l *loop) bool {
		open := 0
		for se := range l.sessions {
			if se.state == stateOpen {
				open++
			}
		}
		return open == 2
	})
	tickAfter(t, s, 59*time.Second)
	awaitSessions(t, s, 2)
	tickAfter(t, s, 62*time.Second)
	awaitSessions(t, s, 1)
	if err := ending(t, silent); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the silent client saw %v, want a reset", err)
	}
	oneLine(t, j, "session closed: the client sent no request within first_request_timeout", "reason=no_request")
	mustWrite(t, spoken, request(30, 1, 2))
	compare(t, "the other's response", mustRead(t, spoken), response(2, 0, 1, 'c'))
}

// Half of an opaque frame keeps no session from being idle.
func TestHalfOfAFrameIsIdle(t *testing.T) {
	j := &journal{}
	s := newServerWithoutTicks(t, newBroker(t, silence).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.IdleTimeout = time.Hour })
	c := connect(t, s)
	mustWrite(t, c, produce(3, 1, 0, nil, nil, make([]byte, 10_000))[:5000])
	awaitSession(t, s, "half of the frame has passed", func(se *session) bool { return se.requests.left > 0 })
	tickAfter(t, s, 59*time.Minute)
	awaitSessions(t, s, 1)
	tickAfter(t, s, 2*time.Hour)
	_ = ending(t, c)
	c.Close()
	awaitSessions(t, s, 0)
	j.awaitLine(t, "DEBUG session ended", "reason=idle")
}

// Requests before a bad frame reach the broker, and its responses to them the client,
// before the session is closed, as a broker would do it.
func TestWhatCameBeforeABadFrameIsAnswered(t *testing.T) {
	for _, bad := range [][]byte{sized(-1), sized(3), sized(math31), append(sized(1<<20), request(2, 11, 9)[codec.SizeLen:]...)} {
		j := &journal{}
		s := newServer(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j), func(o *Options) { o.MaxHeldBytes = 1 << 16 })
		c := connect(t, s)
		var all []byte
		for id := range int32(50) {
			all = append(all, request(0, 3, id, 0xff, 0xff, 0, 1, 'x')...) // acks 1
		}
		mustWrite(t, c, append(append(all, bad...), "more that is not read"...))
		for id := range int32(50) {
			compare(t, fmt.Sprintf("response %d before %x", id, bad[:4]), mustRead(t, c), response(id, 0, 1, 'c', 0xff, 0xff, 0, 1, 'x'))
		}
		if err := ending(t, c); err != nil {
			t.Errorf("after the last response the client saw %v, want the end", err)
		}
		c.Close()
		if lines := j.with("WARN session closed"); len(lines) > 1 {
			t.Errorf("got lines %q, want one", lines)
		}
		j.awaitLine(t, "WARN session closed", "from the client")
	}
}

const math31 = 1<<31 - 1

// A broker that never answers what came before a bad frame does not keep the session for
// longer than linger_timeout.
func TestBadFrameAndSilentBroker(t *testing.T) {
	j := &journal{}
	s := newServerWithoutTicks(t, newBroker(t, silence).dial, rewrite.Rules{}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, append(request(30, 1, 1), sized(-1)...))
	awaitSession(t, s, "the bad frame was seen", func(se *session) bool { return se.fault != nil })
	tickAfter(t, s, 29*time.Second)
	awaitSessions(t, s, 1)
	tickAfter(t, s, time.Minute)
	awaitSessions(t, s, 0)
	oneLine(t, j, "session closed: a frame cannot be understood", "reason=malformed", "from the client")
}

// The end of a client that sent a bad frame is passed on to a broker that still owes a
// response, so that the session ends without the help of a deadline.
func TestBadFrameAndClientThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){"end": func(c *net.TCPConn) { c.Close() }, "reset": reset} {
		t.Run(name, func(t *testing.T) {
			s := newServerWithoutTicks(t, newBroker(t, silence).dial, rewrite.Rules{})
			c := connect(t, s)
			mustWrite(t, c, append(append(request(30, 1, 1), sized(-1)...), make([]byte, 1000)...))
			awaitSession(t, s, "the bad frame was seen", func(se *session) bool { return se.fault != nil })
			leave(c)
			awaitSessions(t, s, 0)
		})
	}
}

// A broker that closes in the moment in which the next request of a client that has reset is
// taken up, a -6 that it will not see, leaves no session behind.
func TestLookupBehindTheEndOfTheBroker(t *testing.T) {
	last, left := make(chan struct{}), make(chan struct{})
	s := newServerWithoutTicks(t, newBroker(t, func(c *net.TCPConn) {
		frame, _ := readFrame(c)
		_, _ = c.Write(answerFrame(codec.RequestCorrelationID(frame), versionsAnswer(3, 10)))
		for range 2 {
			frame, _ = readFrame(c)
		}
		<-last
		_, _ = c.Write(response(codec.RequestCorrelationID(frame) - 1))
		_ = c.CloseWrite()
		left <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	}).dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = 2 })
	c := connect(t, s)
	mustWrite(t, c, request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
	mustRead(t, c)
	mustWrite(t, c, request(30, 1, 2), request(30, 1, 3), pendingRequest(4, 1))
	awaitSession(t, s, "its limit is reached", func(se *session) bool { return se.requests.stall == stallInflight })
	// Nothing more is heard of the client, and the response and the broker's end come to the
	// loop at once.
	reset(c)
	awaitSession(t, s, "the client's reset is heard", func(se *session) bool { return se.client.hungUp })
	onLoop(t, s.loops[0], func() {
		last <- struct{}{}
		<-left
	})
	awaitSessions(t, s, 0)
}

// A -6 request so large that it is worked on off the loop gets the response that a small
// one gets, and what is pipelined around it keeps its order.
func TestLargeLookup(t *testing.T) {
	const n = 20_000
	b := newBroker(t, func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			if _, err = c.Write(respondToLookup(frame)); err != nil {
				return
			}
		}
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	c := connect(t, s)
	mustWrite(t, c, request(apiVersionsKey, 3, 1, 0, 1, 1, 0), request(30, 1, 2), pendingRequest(3, n), request(30, 1, 4), pendingRequest(5, n))
	compare(t, "versions", mustRead(t, c), answerFrame(1, versionsAnswer(3, 11)))
	compare(t, "before", mustRead(t, c), response(2))
	for _, id := range []int32{3, 5} {
		got := mustRead(t, c)
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Version = 11
		if err := resp.ReadFrom(got[9:]); err != nil || binary.BigEndian.Uint32(got[4:]) != uint32(id) {
			t.Fatalf("response %x: %v", got[:16], err)
		}
		for i, p := range resp.Topics[0].Partitions {
			if p.Partition != int32(i) || p.ErrorCode != 0 || p.Offset != 51 || p.LeaderEpoch != 3 {
				t.Fatalf("partition %d: %+v", i, p)
			}
		}
		if len(resp.Topics[0].Partitions) != n {
			t.Fatalf("%d partitions, want %d", len(resp.Topics[0].Partitions), n)
		}
		if id == 3 {
			compare(t, "between", mustRead(t, c), response(4))
		}
	}
	await(t, "nothing is kept", func() bool { return s.account.total.Load() == 0 })
}

// respondToLookup is a broker's response: of a log with offsets from 0 to 100 of which 50
// is the last that was uploaded, all of epoch 3.
func respondToLookup(frame []byte) []byte {
	id, version := codec.RequestCorrelationID(frame), codec.RequestVersion(frame)
	switch codec.RequestKey(frame) {
	case apiVersionsKey:
		return answerFrame(id, versionsAnswer(version, 10))
	case 2:
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = version
		_, off, err := codec.RequestBody(frame, codec.Flexible)
		if err == nil {
			err = req.ReadFrom(frame[off:])
		}
		if err != nil {
			panic(err)
		}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Version = version
		for _, t := range req.Topics {
			topic := kmsg.NewListOffsetsResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition, partition.LeaderEpoch = p.Partition, 3
				partition.Offset = map[int64]int64{-1: 100, -2: 0, -4: 0, -5: 50}[p.Timestamp]
				topic.Partitions = append(topic.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return answerFrame(id, resp)
	default:
		return response(id)
	}
}

// Large frames under TLS wait as plaintext and arrive whole.
func TestBacklog(t *testing.T) {
	var b backlog
	b.add([]byte("abc"))
	b.drop(1)
	b.give([]byte("never kept")[:0])
	b.add([]byte("de"))
	if got := b.front(); !bytes.Equal(got, []byte("bcde")) || b.len() != 4 {
		t.Fatalf("got %q, %d", got, b.len())
	}
	b.drop(4)
	if b.len() != 0 || b.memory() != 0 {
		t.Fatalf("an empty backlog keeps %d bytes", b.memory())
	}
	given := []byte("given")
	b.give(given)
	b.drop(2)
	if &b.front()[0] != &given[2] {
		t.Fatal("what was given was copied")
	}
	b.give([]byte("!"))
	if got := b.front(); string(got) != "ven!" {
		t.Fatalf("got %q", got)
	}
}
