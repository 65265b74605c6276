// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
)

// The model of sessions: a loop with all of its sessions, driven without sockets. Peers
// send, read, end and reset at any time, in any pieces; jobs off the loop end late; calls
// are interrupted and fail; memory and pipes run out; the clock jumps. See TestSessionModel
// for what must hold.

// modelChecks is how many schedules run where -rapid.checks says nothing.
const modelChecks = 400

// world is one check of the model.
type world struct {
	*rapid.T
	os     *fakeSystem
	server *Server
	loop   *loop
	// broker is what all brokers know; status what is known of topic "v".
	broker  *oldBroker
	status  map[string]bool
	cached  bool
	pairs   []*pair
	reasons map[string]string
	// refuse: dials fail.
	refuse bool
	trace  []string
}

// pair is a client and its broker: the two peers of a session.
type pair struct {
	name           string
	client, broker *fakeSocket
	// unsent are the client's bytes that it has not sent yet; forward are the frames that
	// the broker is to get of it, with its replies; want is all that the client is to get,
	// of which it has got so much.
	unsent  []byte
	forward []forwarded
	want    []byte
	got     int
	ids     int32
	// received are the broker's bytes of an incomplete frame; replies are those of its own
	// that it has not sent yet.
	received, replies []byte
	// due is how much of want the broker has replied to; served: something else than
	// ApiVersions, which a client without any other response would not see either.
	due    int
	served bool
	// broken: the client has sent what is no frame; ended: it has ended its direction.
	// disturbed: something happened after which not all that was sent need arrive.
	broken, ended, disturbed bool
	// crazy: the broker has sent what is no frame.
	crazy bool
}

// forwarded is a request that the broker is to get, and its reply, maybe none.
type forwarded struct {
	frame, reply []byte
	// end is where the reply ends in what the client is to get.
	end int
}

// largeLookup is a -6 request that is worked on off the loop, and its response.
var largeLookup = sync.OnceValues(func() (req, resp []byte) {
	const n = 8000
	req = pendingRequest(0, n)
	r := kmsg.NewPtrListOffsetsResponse()
	r.Version = 11
	topic := kmsg.NewListOffsetsResponseTopic()
	topic.Topic = "topic"
	for i := range n {
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = int32(i), 51, 3
		topic.Partitions = append(topic.Partitions, p)
	}
	r.Topics = append(r.Topics, topic)
	return req, answerFrame(0, r)
})

// withID is a copy of a frame with a correlation id; at is where it stands.
func withID(frame []byte, at int, id int32) []byte {
	frame = bytes.Clone(frame)
	copy(frame[at:], []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)})
	return frame
}

// number draws from 0 to n-1, each as likely as the other.
func (w *world) number(n int, label string) int {
	return rapid.Custom(func(t *rapid.T) int {
		v := 0
		for range bits.Len(uint(n)) + 3 {
			v <<= 1
			if rapid.Bool().Draw(t, "bit") {
				v++
			}
		}
		return v % n
	}).Draw(w.T, label)
}

// size draws a number of bytes: mostly few, sometimes many.
func (w *world) size(label string) int {
	return []int{1, 3, 7, 20, 100, 1000, 5000, 70_000, 200_000, 1 << 30}[w.number(10, label)]
}

// The server's surroundings.

func (w *world) CachedRemoteStorage(topic string) (enabled, known bool) {
	if !w.cached {
		return false, false
	}
	enabled, known = w.status[topic]
	return enabled, known
}
func (w *world) ResolveRemoteStorage(context.Context, []string) map[string]bool { return w.status }
func (w *world) ObserveRemoteStorage([]string)                                  {}

// Enabled, Handle, WithAttrs and WithGroup note why sessions end.
func (w *world) Enabled(context.Context, slog.Level) bool { return true }
func (w *world) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *world) WithGroup(string) slog.Handler            { return w }
func (w *world) Handle(_ context.Context, r slog.Record) error {
	var client, reason string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "client":
			client = a.Value.String()
		case "reason":
			reason = a.Value.String()
		case "panic", "stack":
			w.note("%s: %v", a.Key, a.Value)
		case "error":
			w.note("error: %v", a.Value)
		}
		return true
	})
	if reason != "" {
		w.note("%s ended: %s", client, reason)
		w.reasons[client] = reason
	}
	return nil
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// fail fails the check with what happened.
func (w *world) fail(format string, args ...any) {
	w.Helper()
	for _, line := range w.trace {
		w.Log(line)
	}
	w.Fatalf(format, args...)
}

var errRefused = errors.New("refused")

// newWorld makes a server with one loop that nobody runs.
func newWorld(t *rapid.T, null *os.File) *world {
	w := &world{T: t, os: newFakeSystem(rapid.Uint64().Draw(t, "seed"), null), reasons: map[string]string{}}
	uploaded := tierlog.New(3)
	uploaded.SetRemoteStorage(codec.RemoteStorageEnabled)
	uploaded.Append(500)
	uploaded.Upload(100)
	w.broker = &oldBroker{max: 10, logs: map[string][]*tierlog.Log{"u": {uploaded}, "v": {tieredWithoutUploads()}}}
	w.os.rough = w.number(2, "rough") == 1
	w.cached = w.number(2, "cached") == 1
	if w.number(3, "status") > 0 {
		w.status = map[string]bool{"u": true, "v": true}
	}
	opts := Options{
		Loops: 1, Logger: slog.New(w),
		MaxPipes: []int{-1, 1, 128}[w.number(3, "pipes")], MaxInflight: []int{2, 1024}[w.number(2, "inflight")],
		MaxBufferedBytes: []int64{1 << 20, 4 << 20, 64 << 20}[w.number(3, "memory")],
		Endpoints: []Endpoint{{
			Listener: "test", Broker: "broker", RemoteStorage: w, Rules: rewrite.Rules{Addresses: proxied},
			Dial: func(context.Context) (net.Conn, error) { return w.dial() },
		}},
	}
	s, err := w.os.server(opts)
	if err != nil {
		t.Fatal(err)
	}
	w.server, w.loop = s, s.loops[0]
	w.loop.budget = []int{100, 100_000, pumpBudget}[w.number(3, "budget")]
	return w
}

// dial gives the oldest pair without a broker its broker: jobs run in the order of sessions.
func (w *world) dial() (net.Conn, error) {
	for _, p := range w.pairs {
		if p.broker != nil {
			continue
		}
		p.broker = &fakeSocket{room: w.room()}
		if w.refuse {
			w.refuse, p.disturbed = false, true
			p.broker.reset, p.broker.gone = true, true
			return nil, errRefused
		}
		return w.os.dial(p.broker), nil
	}
	panic("a dial of no session")
}

func (w *world) room() int { return []int{100, 20_000, 300_000}[w.os.rnd.IntN(3)] }

// What happens.

// pair draws one of the pairs.
func (w *world) pair() *pair {
	if len(w.pairs) == 0 {
		w.accept()
	}
	return w.pairs[w.number(len(w.pairs), "pair")]
}

// accept opens a session.
func (w *world) accept() {
	if len(w.pairs) == 4 || w.loop.draining {
		return
	}
	p := &pair{ids: 1000}
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: len(w.pairs) + 1}
	p.name = addr.String()
	fd, sock := w.os.open(w.room())
	p.client = sock
	w.pairs = append(w.pairs, p)
	w.note("%s accepted", p.name)
	if err := w.server.admission.enter(addr); err != nil {
		panic(err)
	}
	newSession(w.loop, &arrival{endpoint: w.server.endpoints[0], peer: addr, local: addr, fd: fd})
	if sock.gone { // the poller refused it
		p.disturbed, p.broker = true, &fakeSocket{gone: true, reset: true}
	}
}

// ask has a client send a request, later.
func (w *world) ask() {
	p := w.pair()
	if p.ended || p.broken {
		return
	}
	p.ids++
	kind := w.number(10, "request")
	w.note("%s request %d of kind %d", p.name, p.ids, kind)
	pass := func(frame, reply, want []byte) {
		p.unsent = append(p.unsent, frame...)
		p.want = append(p.want, want...)
		p.forward = append(p.forward, forwarded{frame, reply, len(p.want)})
	}
	switch kind {
	case 0, 1:
		w.askPlain(p, pass)
	case 2:
		pass(produce(9, p.ids, 0, text(1), nil, make([]byte, w.body())), nil, nil)
	case 3:
		reply := response(p.ids, 'a')
		pass(produce(3, p.ids, 1, text(1), nil, make([]byte, w.body())), reply, reply)
	case 4:
		pass(request(apiVersionsKey, 3, p.ids, 0, 1, 1, 0), answerFrame(p.ids, versionsAnswer(3, 10)), answerFrame(p.ids, versionsAnswer(3, 11)))
	case 5:
		w.askMetadata(p, pass)
	case 6, 7, 8:
		w.askOffsets(p)
	case 9:
		if p.ids > 1001 { // tokens come first
			w.askPlain(p, pass)
			return
		}
		ok := response(p.ids, 0, 0, 0, 0, 0, 0)
		pass(handshakeV0(p.ids, "PLAIN"), ok, ok)
		pass(frameOf([]byte("\x00alice\x00secret")...), frameOf('y'), frameOf('y'))
	}
}

func (w *world) body() int { return min(w.size("body"), 400_000) }

func (w *world) askPlain(p *pair, pass func(frame, reply, want []byte)) {
	reply := response(p.ids, pattern[:w.body()]...)
	pass(request(30, 1, p.ids, pattern[:w.body()]...), reply, reply)
}

// askMetadata asks for a response that is changed, of some topics.
func (w *world) askMetadata(p *pair, pass func(frame, reply, want []byte)) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 9
	brokers := w.number(40, "brokers") * w.number(40, "more brokers")
	at := func(host string, port func(int32) int32) []byte {
		resp.Brokers = nil
		for i := range int32(brokers) {
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: i % 10, Host: host, Port: port(i % 10)})
		}
		return answerFrame(p.ids, resp)
	}
	for range w.number(2, "topics") * 2000 {
		resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{Topic: text(40)})
	}
	reply := at("broker.internal", func(int32) int32 { return 29092 })
	pass(frameOfRequest(&kmsg.MetadataRequest{Version: 9}, p.ids), reply, at(proxied.Host, func(id int32) int32 { return proxied.FirstPort + id }))
}

// askOffsets asks for offsets: -6, which the broker never sees.
func (w *world) askOffsets(p *pair) {
	if w.number(6, "large") == 0 {
		req, resp := largeLookup()
		p.unsent = append(p.unsent, withID(req, 8, p.ids)...)
		p.want = append(p.want, withID(resp, 4, p.ids)...)
		return
	}
	req := w.broker.offsetsRequest(11, -6)
	if w.number(2, "topics") == 0 {
		req.Topics = req.Topics[:1]
	}
	p.unsent = append(p.unsent, frameOfRequest(req, p.ids)...)
	p.want = append(p.want, answerFrame(p.ids, offsetsAnswer(req, func(topic string, part kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
		if topic == "v" && w.status == nil {
			return tierlog.Answer{Timestamp: -1, Offset: -1, Epoch: -1}
		}
		return w.broker.logs[topic][part.Partition].NativeEarliestPendingUpload(req.IsolationLevel, req.ReplicaID, part.CurrentLeaderEpoch)
	}))...)
}

// breakClient has a client send what is no frame.
func (w *world) breakClient() {
	if p := w.pair(); !p.ended && !p.broken && p.ids > 1000 {
		w.note("%s breaks", p.name)
		p.broken = true
		p.unsent = append(append(p.unsent, sized(-1)...), "what is not read"...)
	}
}

// clientSends lets so many of a client's bytes arrive.
func (w *world) clientSends(p *pair, n int) {
	n = min(n, len(p.unsent))
	p.client.arrive(p.unsent[:n])
	p.unsent = p.unsent[n:]
}

// clientReads has a client read, and compares.
func (w *world) clientReads(p *pair, n int) {
	got := p.client.read(n)
	want := p.want[p.got:]
	for range codec.SizeLen - 1 {
		// Less than a size field of what is no frame passes when the broker ends there.
		if p.crazy && !bytes.HasPrefix(want, got) {
			got = bytes.TrimSuffix(got, []byte{0xff})
		}
	}
	if !bytes.HasPrefix(want, got) {
		at := firstDifference(got, want)
		w.fail("%s: the client got %d bytes that differ at %d (of all: %d): %.80x, want %.80x", p.name, len(got), at, p.got+at, got[at:], want[at:])
	}
	p.got += len(got)
}

// brokerReads has a broker read, and prepare its replies.
func (w *world) brokerReads(p *pair, n int) {
	if p.broker == nil {
		return
	}
	p.received = append(p.received, p.broker.read(n)...)
	for len(p.received) >= codec.SizeLen {
		n := codec.SizeLen + int(codec.Size(p.received))
		if n < codec.SizeLen || len(p.received) < n {
			break
		}
		w.brokerTakes(p, p.received[:n])
		p.received = p.received[n:]
	}
}

// brokerTakes takes a whole request: the client's next one, or a lookup.
func (w *world) brokerTakes(p *pair, frame []byte) {
	if len(p.forward) > 0 && bytes.Equal(frame, p.forward[0].frame) {
		if !p.crazy {
			p.replies = append(p.replies, p.forward[0].reply...)
			p.due = p.forward[0].end
			p.served = p.served || len(p.forward[0].reply) > 0 && codec.RequestKey(frame) != apiVersionsKey
		}
		p.forward = p.forward[1:]
		return
	}
	if id := codec.RequestCorrelationID(frame); id > 1000 || id < 0 {
		w.fail("%s: the broker got %.80x, which is neither the client's next request nor a lookup", p.name, frame)
	}
	var reply []byte
	if bytes.Contains(frame[:min(len(frame), 60)], []byte("topic")) {
		reply = respondToLookup(frame)
	} else {
		reply, _ = w.broker.answer(frame)
	}
	if reply == nil {
		w.fail("%s: the broker got a request that it cannot answer: %.80x", p.name, frame)
	}
	if !p.crazy {
		p.replies = append(p.replies, reply...)
	}
}

// breakBroker has a broker reply to all that it was sent, and then send what is no frame.
func (w *world) breakBroker(p *pair) {
	w.brokerReads(p, 1<<30)
	if p.broker != nil && !p.crazy {
		w.note("%s: the broker breaks", p.name)
		p.crazy = true
		p.replies = append(p.replies, sized(-1)...)
	}
}

// brokerSends lets so many of a broker's bytes arrive.
func (w *world) brokerSends(p *pair, n int) {
	if p.broker == nil {
		return
	}
	n = min(n, len(p.replies))
	p.broker.arrive(p.replies[:n])
	p.replies = p.replies[n:]
}

// leave has a peer end its direction or reset the connection.
func (w *world) leave() {
	p, how := w.pair(), w.number(6, "how")
	w.note("%s leaves: %d", p.name, how)
	switch how {
	case 0, 1:
		// It ends after whole requests.
		w.clientSends(p, len(p.unsent))
		p.client.end()
		p.ended = true
	case 2:
		p.unsent, p.ended, p.disturbed = nil, true, true
		p.client.end()
	case 3:
		p.unsent, p.ended, p.disturbed = nil, true, true
		p.client.cut()
	case 4:
		if p.broker != nil {
			p.disturbed, p.replies = true, nil
			p.broker.end()
		}
	case 5:
		if p.broker != nil {
			p.disturbed, p.replies = true, nil
			p.broker.cut()
		}
	}
}

// pass lets time pass, so that deadlines may pass before peers have done their part.
func (w *world) pass(d time.Duration) {
	for _, p := range w.pairs {
		p.disturbed = p.disturbed || d > time.Second || p.crazy // closingTimeout is short
	}
	w.tick(d)
}

func (w *world) tick(d time.Duration) {
	w.os.now = w.os.now.Add(d)
	w.loop.tick(w.os.now)
}

// job runs what was begun off the loop, the oldest first.
func (w *world) job() bool {
	if len(w.os.jobs) == 0 {
		return false
	}
	job := w.os.jobs[0]
	w.os.jobs = w.os.jobs[1:]
	job()
	return true
}

// reclaim runs the goroutine that makes room, when it was woken.
func (w *world) reclaim() bool {
	select {
	case <-w.server.account.wake:
	default:
		return false
	}
	for len(w.os.tasks) > 0 {
		w.os.round(w.loop)
	}
	w.os.inline = true
	w.server.makeRoom()
	w.os.inline = false
	return true
}

// step does one thing.
func (w *world) step() {
	switch n := w.number(20, "step"); n {
	case 0, 1, 2, 3:
		w.ask()
	case 4, 5:
		w.clientSends(w.pair(), w.size("client sends"))
	case 6, 7:
		w.brokerReads(w.pair(), w.size("broker reads"))
	case 8, 9:
		w.brokerSends(w.pair(), w.size("broker sends"))
	case 10, 11:
		w.clientReads(w.pair(), w.size("client reads"))
	case 12:
		w.job()
	case 13:
		w.reclaim()
	case 14:
		w.pass(time.Second)
	case 15:
		w.accept()
	case 16:
		w.round()
		w.round()
	default:
		w.rare(w.number(16, "rare"))
	}
	w.round()
	w.check()
}

// rare does one thing that would end too many sessions if it came often.
func (w *world) rare(n int) {
	switch n {
	case 0:
		w.leave()
	case 1:
		w.breakClient()
	case 2:
		w.pass([]time.Duration{0, -time.Second, 5 * time.Second, time.Minute}[w.number(4, "jump")])
	case 3:
		w.refuse = w.number(4, "refuse") == 0
	case 4:
		if w.number(4, "drain") == 0 {
			w.note("drains")
			w.loop.drain()
		}
	case 5:
		w.breakBroker(w.pair())
	}
}

func (w *world) round() { w.os.round(w.loop) }

// settle lets everything happen that can without the clock.
func (w *world) settle() {
	for range 100_000 {
		busy := w.os.round(w.loop) || w.job() || w.reclaim()
		for _, p := range w.pairs {
			before := [...]int{len(p.unsent), len(p.replies), p.got, len(p.client.out)}
			w.clientSends(p, 1<<30)
			w.brokerReads(p, 1<<30)
			w.brokerSends(p, 1<<30)
			w.clientReads(p, 1<<30)
			if p.broker != nil && p.broker.over() && !p.broker.ended && len(p.replies) == 0 {
				p.broker.end()
				busy = true
			}
			busy = busy || before != [...]int{len(p.unsent), len(p.replies), p.got, len(p.client.out)}
		}
		w.check()
		if !busy {
			return
		}
	}
	w.fail("it does not come to rest")
}

// What must hold.

// check is what must hold after each step.
func (w *world) check() {
	if w.os.misuse != "" {
		w.fail("%s", w.os.misuse)
	}
	var sum int64
	for s := range w.loop.sessions {
		sum += s.buffered
		kept := int64(len(s.requests.carry) + len(s.responses.carry) + len(s.requests.held) + len(s.responses.held) + s.client.pending() + s.broker.pending())
		if s.lookup != nil {
			kept += int64(len(s.lookup.waiting))
			if m := s.lookup.machine; m != nil && s.working == 0 {
				kept += m.Size() / 2
			}
		}
		if s.buffered < kept {
			w.fail("%s keeps %d bytes and accounts for %d", s.peer, kept, s.buffered)
		}
	}
	if total := w.server.account.total.Load(); total != sum {
		w.fail("the account has %d bytes, the sessions %d", total, sum)
	}
	if limit := w.server.account.limit; sum > limit+4<<20 {
		w.fail("the account has %d bytes, its limit is %d", sum, limit)
	}
	if got := int(w.server.account.waiting.Load()); got != len(w.loop.waiting) {
		w.fail("%d flows wait, the account has %d", len(w.loop.waiting), got)
	}
	for _, reason := range w.reasons {
		if reason == "panic" || reason == "out_of_order" || reason == "held_too_large" {
			w.fail("a session ended: %s", reason)
		}
	}
	for _, p := range w.pairs {
		if reason := w.reasons[p.name]; reason == "malformed" && !p.broken && !p.crazy {
			w.fail("%s ended: %s", p.name, reason)
		}
	}
}

// expected reports whether all that a client asked for must arrive.
func (w *world) expected(p *pair) bool {
	reason := w.reasons[p.name]
	return !p.disturbed && !p.client.failed && (p.broker == nil || !p.broker.failed) && reason != "buffer_full" && reason != "dial_failed" && reason != "local_shortage"
}

// least is how much an expected client must get: all, but for a broker that has broken, and
// for requests that had not begun when the proxy was drained.
func (w *world) least(p *pair) int {
	switch {
	case (p.crazy || w.loop.draining) && !p.served:
		return 0 // it is reset
	case p.crazy, w.loop.draining:
		return p.due
	}
	return len(p.want)
}

// complete checks that nothing is missing.
func (w *world) complete() {
	for range 5 {
		w.settle()
		w.tick(time.Second)
	}
	w.settle()
	for _, p := range w.pairs {
		if w.expected(p) && p.got < w.least(p) {
			w.fail("%s: the client got %d of %d bytes (ended: %q)", p.name, p.got, w.least(p), w.reasons[p.name])
		}
		if w.expected(p) && len(p.forward) > 0 && !p.crazy && !w.loop.draining {
			w.fail("%s: the broker did not get %d requests", p.name, len(p.forward))
		}
	}
}

// silent checks that sessions to which nothing more comes end, but for those that may wait:
// for a client that does not read, a client without a request, or a broker that works on one.
func (w *world) silent() {
	for range 200 {
		w.round()
		w.job()
		w.reclaim()
		w.tick(time.Second)
		w.check()
	}
	for s := range w.loop.sessions {
		q, r := &s.requests, &s.responses
		switch {
		case s.state != stateOpen, q.done, r.done, s.lookup != nil && (s.exchanges.len() == 0 || s.exchanges.oldest().answer == answerAsk), s.fault != nil, !q.begun,
			len(q.held) > 0 && !q.to.owes(), len(r.held) > 0 && !r.to.owes(), q.stall == stallMemory, r.stall == stallMemory, q.stall == stallMachine,
			s.client.pending() > bufferSize, s.broker.pending() > bufferSize:
			w.fail("%s does not end: state %d, stalls %d and %d, held %d and %d, pending %d and %d, lookup %v", s.peer, s.state, q.stall, r.stall,
				len(q.held), len(r.held), s.client.pending(), s.broker.pending(), s.lookup != nil)
		}
	}
}

// shutdown ends all sessions as the loop does when it stops.
func (w *world) shutdown() {
	for s := range w.loop.sessions {
		s.end(reasonShutdown, nil)
	}
	w.check()
}

// finish ends what is left, and checks that nothing is.
func (w *world) finish() {
	for _, p := range w.pairs {
		w.clientSends(p, 1<<30)
		p.client.end()
	}
	for range 40 {
		w.settle()
		w.tick(time.Second)
	}
	w.settle()
	w.loop.pipes.close()
	a := &w.server.account
	if len(w.loop.sessions)+len(w.loop.conns)+len(w.os.socks)+len(w.os.pipes)+len(w.loop.waiting)+w.server.admission.open+w.loop.pipes.open > 0 || a.total.Load() != 0 {
		for s := range w.loop.sessions {
			w.note("%s is left in state %d", s.peer, s.state)
		}
		w.fail("left: %d sessions, %d connections, %d sockets, %d ends of pipes, %d pipes, %d waiting flows, %d places, %d bytes", len(w.loop.sessions), len(w.loop.conns),
			len(w.os.socks), len(w.os.pipes), w.loop.pipes.open, len(w.loop.waiting), w.server.admission.open, a.total.Load())
	}
}

// oneSession is an open session whose sockets have so much room.
func oneSession(t *testing.T, room int, change ...func(*Options)) (f *fakeSystem, s *Server, client, broker *fakeSocket) {
	t.Helper()
	f = newFakeSystem(1, nullFile(t))
	broker = &fakeSocket{room: room}
	opts := Options{Endpoints: []Endpoint{{
		RemoteStorage: noRemoteStorage{},
		Dial:          func(context.Context) (net.Conn, error) { return f.dial(broker), nil },
	}}}
	for _, f := range change {
		f(&opts)
	}
	s, err := f.server(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cancel)
	fd, client := f.open(room)
	newSession(s.loops[0], &arrival{endpoint: s.endpoints[0], peer: &net.TCPAddr{}, fd: fd})
	f.jobs[0]()
	f.jobs = nil
	f.round(s.loops[0])
	return f, s, client, broker
}

// A Produce request with acks 0 has no response to wait for; one that the broker's socket
// has not taken yet is delivered all the same when a bad frame follows.
func TestAcksZeroBeforeABadFrame(t *testing.T) {
	f, s, client, broker := oneSession(t, 10)
	want := produce(3, 1, 0, text(1), nil, make([]byte, 100))
	client.arrive(append(bytes.Clone(want), sized(-1)...))
	var got []byte
	for f.round(s.loops[0]) || len(broker.out) > 0 {
		got = append(got, broker.read(1000)...)
	}
	compare(t, "what the broker got", got, want)
	if !broker.over() || !client.over() {
		t.Error("the connections are open")
	}
}

// A session that is closed for a bad response accounts for what its client has not taken yet
// of the responses before.
func TestAccountBehindABadResponse(t *testing.T) {
	f, s, client, broker := oneSession(t, 10)
	client.arrive(request(30, 1, 1))
	f.round(s.loops[0])
	want := response(1, make([]byte, 100)...)
	broker.arrive(append(bytes.Clone(want), sized(-1)...))
	f.round(s.loops[0])
	if total := s.account.total.Load(); total < int64(len(want)-10) {
		t.Errorf("the account has %d bytes, %d wait for the client", total, len(want)-10)
	}
	var got []byte
	for f.round(s.loops[0]) || len(client.out) > 0 {
		got = append(got, client.read(1000)...)
	}
	compare(t, "what the client got", got, want)
}

// TestSessionModel runs random schedules. After each step: what clients get is what they are
// to get, in order, each byte once; brokers get the clients' requests, in order, unchanged;
// the account is the sum of what sessions keep, and bounded. At the end: nothing is missing
// where nothing was disturbed; a session to which nothing comes has a deadline; and no
// session, descriptor, pipe, waiting flow or byte is left.
func TestSessionModel(t *testing.T) {
	null := nullFile(t)
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", fmt.Sprint(modelChecks/shrink)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set("rapid.checks", f.DefValue) }()
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, null)
		defer w.server.cancel()
		w.accept()
		for range 10 + w.number(150, "steps") {
			w.step()
		}
		switch w.number(6, "end") {
		case 0, 1:
			w.silent()
		case 2:
			w.shutdown()
		case 3:
			for _, p := range w.pairs {
				w.breakBroker(p)
			}
			w.complete()
		default:
			w.complete()
		}
		w.finish()
	})
}
