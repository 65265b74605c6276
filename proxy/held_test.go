// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite"
)

// answerFrame makes the response frame of a kmsg response: header version 1 where the
// response is flexible, except for ApiVersions.
func answerFrame(id int32, resp kmsg.Response) []byte {
	b := response(id)
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	codec.PutSize(b)
	return b
}

// metadataAnswer is a Metadata v1 answer that names one broker.
func metadataAnswer(id, nodeID int32, host string, port int32) []byte {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 1
	resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: nodeID, Host: host, Port: port})
	return answerFrame(id, resp)
}

// scripted is a broker that gives the answer of each key, with the request's
// correlation id, and echoes the others.
func scripted(answers map[int16][]byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			id := codec.RequestCorrelationID(frame)
			answer := response(id, frame[codec.RequestFixedLen:]...)
			if fixed, ok := answers[codec.RequestKey(frame)]; ok {
				answer = append([]byte(nil), fixed...)
				codec.PutResponseCorrelationID(answer, id)
			}
			if _, err = c.Write(answer); err != nil {
				return
			}
		}
	}
}

// proxied are the addresses that the tests' listener advertises.
var proxied = rewrite.PortRange{Host: "proxy.example.com", FirstPort: 9200, Count: 10}

// bearers makes an answer of every API and layout that carries addresses, with those of
// nodes 1 and 7. An answer's version is set by the caller.
var bearers = []struct {
	name     string
	versions []int16
	answer   func(version int16, host func(id int32) string, port func(id int32) int32) kmsg.Response
}{
	{"Metadata", []int16{0, 1, 5, 9, 13}, func(version int16, host func(int32) string, port func(int32) int32) kmsg.Response {
		r := kmsg.NewPtrMetadataResponse()
		r.Version, r.ControllerID = version, 7
		for _, id := range []int32{1, 7} {
			r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: host(id), Port: port(id), Rack: text(3)})
		}
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = text(9)
		topic.Partitions = append(topic.Partitions, kmsg.MetadataResponseTopicPartition{Leader: 7, Replicas: []int32{1, 7}})
		r.Topics = append(r.Topics, topic)
		return r
	}},
	{"FindCoordinator", []int16{0, 1, 3, 4, 6}, func(version int16, host func(int32) string, port func(int32) int32) kmsg.Response {
		r := kmsg.NewPtrFindCoordinatorResponse()
		r.Version, r.NodeID, r.Host, r.Port = version, 7, host(7), port(7)
		r.Coordinators = append(r.Coordinators,
			kmsg.FindCoordinatorResponseCoordinator{Key: "a", NodeID: 7, Host: host(7), Port: port(7)},
			// Beside an error there is no address.
			kmsg.FindCoordinatorResponseCoordinator{Key: "b", NodeID: -1, Port: -1, ErrorCode: 15})
		return r
	}},
	{"DescribeCluster", []int16{0, 1, 2}, func(version int16, host func(int32) string, port func(int32) int32) kmsg.Response {
		r := kmsg.NewPtrDescribeClusterResponse()
		r.Version, r.ClusterID, r.ControllerID = version, "cluster", 7
		for _, id := range []int32{1, 7} {
			r.Brokers = append(r.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: id, Host: host(id), Port: port(id), Rack: text(3)})
		}
		return r
	}},
	{"Produce", []int16{10, 12, 13}, func(version int16, host func(int32) string, port func(int32) int32) kmsg.Response {
		r := kmsg.NewPtrProduceResponse()
		r.Version, r.ThrottleMillis = version, 5
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "t"
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.ErrorCode, partition.CurrentLeader.LeaderID, partition.CurrentLeader.LeaderEpoch = 6, 7, 3
		topic.Partitions = append(topic.Partitions, partition)
		r.Topics = append(r.Topics, topic)
		r.Brokers = append(r.Brokers, kmsg.ProduceResponseBroker{NodeID: 7, Host: host(7), Port: port(7)})
		return r
	}},
}

// observed keeps what responses told of nodes.
type observed struct {
	mu    sync.Mutex
	nodes map[int32]string
}

func (o *observed) ObserveNodes(named []rewrite.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range named {
		o.nodes[n.NodeID] = net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
}

func (o *observed) of(id int32) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodes[id]
}

// pieces is a broker that answers each request with the two parts of an answer: the
// second part when the first has arrived, which the test tells.
type pieces struct {
	answer []byte
	cut    int
	second chan struct{}
}

func (p *pieces) serve(c *net.TCPConn) {
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		answer := bytes.Clone(p.answer)
		codec.PutResponseCorrelationID(answer, codec.RequestCorrelationID(frame))
		_, _ = c.Write(answer[:p.cut])
		<-p.second
		_, _ = c.Write(answer[p.cut:])
	}
}

// exchangeInPieces sends a request whose answer comes in pieces and returns what the
// client gets.
func (p *pieces) exchange(t *testing.T, s *Server, c *net.TCPConn, req []byte) []byte {
	t.Helper()
	mustWrite(t, c, req)
	awaitSession(t, s, fmt.Sprintf("%d bytes of the answer have come", p.cut), func(se *session) bool {
		came := len(se.responses.carry)
		if left := int(se.responses.left); left > 0 {
			came = len(p.answer) - left
		}
		return came == p.cut && (se.exchanges.len() == 1 || se.responses.left > 0)
	})
	p.second <- struct{}{}
	return mustRead(t, c)
}

// Every address in an answer is replaced, nothing else is, wherever the answer is cut,
// and the nodes' own addresses are observed.
func TestAddressesAreRewrittenCutAnywhere(t *testing.T) {
	brokerHost := func(id int32) string { return fmt.Sprintf("broker-%d.internal", id) }
	brokerPort := func(id int32) int32 { return 29092 + id }
	proxyHost := func(int32) string { return proxied.Host }
	proxyPort := func(id int32) int32 { return proxied.FirstPort + id }
	for _, api := range bearers {
		for _, version := range api.versions {
			t.Run(fmt.Sprintf("%s/%d", api.name, version), func(t *testing.T) {
				nodes := &observed{nodes: map[int32]string{}}
				p := &pieces{answer: answerFrame(0, api.answer(version, brokerHost, brokerPort)), second: make(chan struct{})}
				s := newServer(t, newBroker(t, p.serve).dial, rewrite.Rules{Addresses: proxied, Nodes: nodes})
				c := connect(t, s)
				resp := api.answer(version, proxyHost, proxyPort)
				req := produce(version, 0, 1, nil, nil, nil)
				if resp.Key() != 0 {
					req = request(resp.Key(), version, 0, 0, 0)
				}
				for cut := 0; cut < len(p.answer); cut += 1 + cut/8 {
					p.cut = cut
					codec.PutRequestCorrelationID(req, int32(cut))
					if got, want := p.exchange(t, s, c, req), answerFrame(int32(cut), resp); !bytes.Equal(got, want) {
						t.Fatalf("cut at %d:\n got %x\nwant %x", cut, got, want)
					}
				}
				if got, want := nodes.of(7), "broker-7.internal:29099"; got != want {
					t.Fatalf("node 7 was observed at %q, want %q", got, want)
				}
			})
		}
	}
}

// versionsAnswer is an ApiVersions answer of a broker whose ListOffsets ends at a
// version. Key 10000 is a vendor's.
func versionsAnswer(version, listOffsets int16) kmsg.Response {
	r := kmsg.NewPtrApiVersionsResponse()
	r.Version = version
	for _, row := range [][3]int16{{0, 3, 12}, {1, 4, 17}, {2, 1, listOffsets}, {3, 0, 13}, {18, 0, 4}, {23, 2, 4}, {10000, 1, 2}} {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = row[0], row[1], row[2]
		r.ApiKeys = append(r.ApiKeys, key)
	}
	feature := kmsg.NewApiVersionsResponseSupportedFeature()
	feature.Name, feature.MinVersion, feature.MaxVersion = "transaction.version", 0, 2
	r.SupportedFeatures = append(r.SupportedFeatures, feature)
	r.UnknownTags.Set(77, []byte("unknown"))
	return r
}

// In direct mode an ApiVersions answer changes in ListOffsets' greatest version alone,
// where it is 9 or 10, and is not changed at all otherwise.
func TestApiVersionsCutAnywhere(t *testing.T) {
	for version := range int16(5) {
		for _, max := range [][2]int16{{8, 8}, {9, 11}, {10, 11}, {11, 11}, {12, 12}} {
			t.Run(fmt.Sprintf("%d/%d", version, max[0]), func(t *testing.T) {
				p := &pieces{answer: answerFrame(0, versionsAnswer(version, max[0])), second: make(chan struct{})}
				s := newServer(t, newBroker(t, p.serve).dial, rewrite.Rules{})
				c := connect(t, s)
				for cut := 0; cut < len(p.answer); cut += 1 + cut/8 {
					p.cut = cut
					id := int32(cut)
					got, want := p.exchange(t, s, c, request(18, version, id, 0)), answerFrame(id, versionsAnswer(version, max[1]))
					if !bytes.Equal(got, want) {
						t.Fatalf("cut at %d:\n got %x\nwant %x", cut, got, want)
					}
				}
			})
		}
	}
}

// An error 35 comes in the form of version 0 whatever was asked, with the row of
// ApiVersions alone (KIP-511) or none: it passes byte for byte, with addresses rewritten
// too, and teaches nothing.
func TestApiVersionsErrorPassesUntouched(t *testing.T) {
	refusals := [][]byte{
		response(0, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4),
		response(0, 0, 35, 0, 0, 0, 0),
		response(0, 0, 35),
	}
	for i, answer := range refusals {
		for _, rules := range []rewrite.Rules{{}, {Addresses: proxied}} {
			p := &pieces{answer: answer, second: make(chan struct{})}
			s := newServer(t, newBroker(t, p.serve).dial, rules)
			c := connect(t, s)
			for cut := range answer {
				p.cut = cut
				want := bytes.Clone(answer)
				codec.PutResponseCorrelationID(want, int32(cut))
				if got := p.exchange(t, s, c, request(18, 4, int32(cut), 0)); !bytes.Equal(got, want) {
					t.Fatalf("answer %d cut at %d: got %x, want %x", i, cut, got, want)
				}
			}
			onLoop(t, s.loops[0], func() {
				if got := only(s.loops[0]).talk.Support(); got != rewrite.SupportUnknown {
					t.Errorf("an error has taught %v", got)
				}
			})
		}
	}
}

// A frame that would have to be held and is too large ends its session with the reason,
// before it is collected.
func TestHeldFrameTooLarge(t *testing.T) {
	const sentence = "session closed: a frame that must be changed is larger than max_held_bytes"
	for _, c := range []struct {
		name    string
		request []byte
		answer  []byte
		want    string
	}{
		{"answer", request(18, 4, 1), sized(1001 - 4), "from the broker"},
		{"request", append(sized(1001-4), request(2, 11, 1)[4:]...), nil, "from the client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &journal{}
			b := newBroker(t, func(conn *net.TCPConn) {
				_, _ = readFrame(conn)
				_, _ = conn.Write(append(c.answer, 0, 0, 0, 1))
				silence(conn)
			})
			s := newServer(t, b.dial, rewrite.Rules{Addresses: proxied}, loggingTo(j), func(o *Options) { o.MaxHeldBytes = 1000 })
			conn := connect(t, s)
			mustWrite(t, conn, c.request)
			_ = ending(t, conn)
			oneLine(t, j, sentence, c.want, "1001 bytes must be held to be changed, max_held_bytes is 1000", "reason=held_too_large")
			awaitSessions(t, s, 0)
		})
	}
}

// A frame of exactly the limit is held.
func TestHeldFrameAtTheLimit(t *testing.T) {
	answer := answerFrame(1, versionsAnswer(4, 10))
	s := newServer(t, newBroker(t, scripted(map[int16][]byte{18: answer})).dial, rewrite.Rules{},
		func(o *Options) { o.MaxHeldBytes = len(answer) })
	c := connect(t, s)
	mustWrite(t, c, request(18, 4, 1))
	if got, want := mustRead(t, c), answerFrame(1, versionsAnswer(4, 11)); !bytes.Equal(got, want) {
		t.Fatalf("got %x, want %x", got, want)
	}
}

// A version that was not offered and whose answer could not be rewritten never reaches
// the broker. Without rewriting it passes.
func TestVersionThatCannotBeRewritten(t *testing.T) {
	for _, v := range [][2]int16{{0, 14}, {1, 19}, {3, 14}, {10, 7}, {58, 0}, {60, 3}, {78, 3}, {79, 3}} {
		req := request(v[0], v[1], 1, 0, 0, 0, 1)
		if v[0] == 0 {
			req = request(0, v[1], 1, 0, 0, 0, 1, 0, 0, 0, 0)
		}
		j := &journal{}
		b := newBroker(t, func(c *net.TCPConn) {
			if n, _ := io.Copy(io.Discard, c); n > 0 {
				t.Errorf("key %d v%d: %d bytes reached the broker", v[0], v[1], n)
			}
		})
		s := newServer(t, b.dial, rewrite.Rules{Addresses: proxied}, loggingTo(j))
		c := connect(t, s)
		mustWrite(t, c, req)
		_ = ending(t, c)
		oneLine(t, j, "session closed: the client asked for a version that was not offered to it", "reason=unrewritable",
			fmt.Sprintf(" v%d: its answer carries broker addresses", v[1]))
		awaitSessions(t, s, 0)

		direct := newServer(t, newEcho(t).dial, rewrite.Rules{})
		c = connect(t, direct)
		mustWrite(t, c, req)
		if got, want := mustRead(t, c), response(1, req[codec.RequestFixedLen:]...); !bytes.Equal(got, want) {
			t.Fatalf("direct: got %x, want %x", got, want)
		}
	}
}

// A node without a port of its own is warned of once, not per answer.
func TestUnmappedNodeIsWarnedOfOnce(t *testing.T) {
	j := &journal{}
	answer := metadataAnswer(1, 33, "broker-33.internal", 29092)
	s := newServer(t, newBroker(t, scripted(map[int16][]byte{3: answer})).dial, rewrite.Rules{Addresses: proxied}, loggingTo(j))
	c := connect(t, s)
	for id := range int32(3) {
		mustWrite(t, c, request(3, 1, id))
		if got, want := mustRead(t, c), metadataAnswer(id, 33, proxied.Host, 9233); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
	if got := j.with("WARN brokers have no address on this listener", "nodes=33"); len(got) != 1 {
		t.Fatalf("got %q, want one line", got)
	}
}

// An answer that cannot be understood must not reach the client: it may carry a
// broker's own address.
func TestAnswerThatCannotBeUnderstood(t *testing.T) {
	j := &journal{}
	s := newServer(t, newBroker(t, scripted(map[int16][]byte{3: response(1, 0, 0, 0, 9, 1)})).dial, rewrite.Rules{Addresses: proxied}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, request(3, 1, 1))
	_ = ending(t, c)
	oneLine(t, j, "session closed: a frame cannot be understood", "from the broker: Metadata v1 response: at byte 12: array of 9 elements in 1 bytes")
}

// frontOf is the front of a Metadata v1 response that has so many bytes of topics: size
// field, correlation id 0, one broker, and the controller's id.
func frontOf(host string, port int32, topics int) []byte {
	b := metadataAnswer(0, 3, host, port)
	b = b[:len(b)-4] // the number of topics
	binary.BigEndian.PutUint32(b, uint32(len(b)-codec.SizeLen+topics))
	return b
}

// A Metadata response far larger than may be held reaches the client with its addresses
// rewritten: only its front is collected, wherever it is cut, and what follows streams.
func TestMetadataStreamsBehindItsFront(t *testing.T) {
	const topics = 300 << 20
	front := frontOf("broker-3.internal", 29092, topics)
	for _, cut := range []int{0, 3, 8, 20, len(front) - 5, len(front), len(front) + 9} {
		second := make(chan struct{})
		size := topics
		if cut > 0 {
			size = 1 << 20
			binary.BigEndian.PutUint32(front, uint32(len(front)-codec.SizeLen+size))
		}
		b := newBroker(t, func(c *net.TCPConn) {
			_, _ = readFrame(c)
			out := append(bytes.Clone(front), make([]byte, 9)...)
			_, _ = c.Write(out[:cut])
			if cut > 0 {
				<-second
			}
			_, _ = c.Write(out[cut:])
			_, _ = io.CopyN(c, zeros{}, int64(size-9))
			_, _ = c.Write(response(1, 42))
			silence(c)
		})
		s := newServer(t, b.dial, rewrite.Rules{Addresses: proxied}, func(o *Options) { o.MaxHeldBytes = len(front) + 8 })
		c := connect(t, s)
		mustWrite(t, c, request(3, 1, 0), request(4711, 0, 1))
		if cut > 0 {
			awaitSession(t, s, "the first piece has come", func(se *session) bool {
				left := int(se.responses.left)
				return len(se.responses.carry) == cut || left > 0 && left == len(front)+size-cut
			})
			close(second)
		}
		want := frontOf(proxied.Host, 9203, size)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut at %d: the front is %x (%v), want %x", cut, got, err, want)
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(c, int64(size))); n != int64(size) || err != nil {
			t.Fatalf("cut at %d: %d bytes of topics (%v), want %d", cut, n, err, size)
		}
		if got := mustRead(t, c); !bytes.Equal(got, response(1, 42)) {
			t.Fatalf("cut at %d: the response behind it is %x", cut, got)
		}
	}
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A front that is larger than may be held ends its session once it is.
func TestFrontTooLarge(t *testing.T) {
	j := &journal{}
	b := newBroker(t, func(c *net.TCPConn) {
		_, _ = readFrame(c)
		r := kmsg.NewPtrMetadataResponse()
		for i := range int32(2000) {
			r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: i, Host: strings.Repeat("b", 100), Port: 9092})
		}
		out := answerFrame(1, r)
		_, _ = c.Write(out[:150_000]) // more than one read brings
		silence(c)
	})
	s := newServer(t, b.dial, rewrite.Rules{Addresses: proxied}, loggingTo(j), func(o *Options) { o.MaxHeldBytes = 1000 })
	c := connect(t, s)
	mustWrite(t, c, request(3, 0, 1))
	_ = ending(t, c)
	oneLine(t, j, "session closed: a frame that must be changed is larger than max_held_bytes", "from the broker",
		"bytes must be held to be changed, max_held_bytes is 1000", "reason=held_too_large")
}

// looks is a walker that never has enough of a front, and counts what it is shown.
type looks struct{ shown int }

func (*looks) open([]byte) (part, error) { return partFront, nil }
func (*looks) opaque() bool              { return false }
func (w *looks) collected(frame []byte, more int64) ([]byte, error) {
	w.shown += len(frame)
	if more > 0 {
		return nil, errNeedMore
	}
	return frame, nil
}

// Whoever sends a front byte by byte causes no more work than twice that of reading it.
func TestFrontByteByByteIsLinear(t *testing.T) {
	const size = 1 << 20
	s := unstarted(t, newEcho(t).dial, rewrite.Rules{})
	w := &looks{}
	se := &session{loop: &loop{server: s}}
	se.client = conn{fd: -1, session: se}
	f := &flow{session: se, to: &se.client, walker: w, part: partFront, left: size}
	for range size {
		if err := f.collect([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	if se.client.pending() != size || f.held != nil {
		t.Fatalf("%d bytes were written on, %d are held; want all of %d", se.client.pending(), len(f.held), size)
	}
	if w.shown >= 3*size {
		t.Fatalf("%d bytes were looked at for a front of %d", w.shown, size)
	}
}
