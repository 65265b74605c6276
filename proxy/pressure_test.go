// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
)

// The bodies of large frames repeat a text whose length is prime, so that a piece that
// is lost, doubled or moved shows, and one comparison per piece is enough.
var pattern = func() []byte {
	b := make([]byte, 1_000_003)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}()

// renew gives a connection patience from now on: what the large tests move may take
// longer in all.
func renew(c any) {
	if c, ok := c.(interface{ SetDeadline(time.Time) error }); ok {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
}

// writeBody writes n bytes of the pattern.
func writeBody(w io.Writer, n int) error {
	for n > 0 {
		renew(w)
		m, err := w.Write(pattern[:min(n, len(pattern))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// writeAnswer writes a response frame with a body of n bytes, unless the peer is gone.
func writeAnswer(w io.Writer, id int32, n int) {
	head := response(id)
	binary.BigEndian.PutUint32(head, uint32(4+n))
	if _, err := w.Write(head); err == nil {
		_ = writeBody(w, n)
	}
}

// checkAnswer reads what writeAnswer writes.
func checkAnswer(t *testing.T, r io.Reader, id int32, n int) {
	t.Helper()
	head := response(id)
	binary.BigEndian.PutUint32(head, uint32(4+n))
	checkHead(t, r, head)
	if err := readBody(r, n); err != nil {
		t.Fatal(err)
	}
}

// checkHead reads and compares the first bytes of a frame.
func checkHead(t *testing.T, r io.Reader, want []byte) {
	t.Helper()
	if err := readHead(r, want); err != nil {
		t.Fatal(err)
	}
}

// readHead reads and compares bytes.
func readHead(r io.Reader, want []byte) error {
	renew(r)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("got %x, want %x (%w)", got, want, err)
	}
	return nil
}

// readBody reads and compares what writeBody writes.
func readBody(r io.Reader, n int) error {
	buf := make([]byte, min(n, 256<<10))
	for at := 0; at < n; {
		renew(r)
		m, err := r.Read(buf[:min(n-at, len(buf))])
		for got := buf[:m]; len(got) > 0; {
			want := pattern[at%len(pattern):]
			want = want[:min(len(want), len(got))]
			if !bytes.Equal(got[:len(want)], want) {
				return fmt.Errorf("the first wrong byte is at %d", at+firstDifference(got, want))
			}
			got, at = got[len(want):], at+len(want)
		}
		if err != nil && at < n {
			return fmt.Errorf("at %d of %d: %w", at, n, err)
		}
	}
	return nil
}

// footprint returns what the only session of a loop holds: the capacity of its slices,
// and the pipes that it has in use.
func footprint(se *session) (heap, pipes int) {
	heap = cap(se.requests.carry) + cap(se.responses.carry) + cap(se.requests.held) + cap(se.responses.held)
	for _, c := range []*conn{&se.client, &se.broker} {
		heap += c.memory()
		if c.piped != nil {
			pipes++
		}
	}
	return heap, pipes
}

// maxFootprint is the bound that the package documentation states: what one read brings,
// twice. An answer that is rewritten is held besides.
const maxFootprint = 2 * bufferSize

// awaitStuck waits until from has bytes and to takes none, and checks what the session
// holds then.
func awaitStuck(t *testing.T, s *Server, from, to func(*session) *conn) {
	t.Helper()
	awaitOnLoop(t, s, "one side has bytes and the other takes none", func(l *loop) bool {
		se := only(l)
		return se != nil && from(se).readable && to(se).owes()
	})
	onLoop(t, s.loops[0], func() {
		if heap, pipes := footprint(only(s.loops[0])); heap > maxFootprint || pipes > 1 {
			t.Errorf("a stalled session holds %d bytes and %d pipes; %d bytes and one pipe are the bound", heap, pipes, maxFootprint)
		}
	})
}

func clientOf(se *session) *conn { return &se.client }
func brokerOf(se *session) *conn { return &se.broker }

// heapInUse returns the bytes of live objects.
func heapInUse() uint64 {
	runtime.GC()
	sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}

// kernelBuffer is what the kernel may keep for a side that does not read: it would grow
// otherwise and take much of what is on offer.
const kernelBuffer = 256 << 10

// offer is large frames on offer: count times size bytes.
type offer struct {
	name        string
	pipes       int
	count, size int
}

// 1 GB in frames that are spliced, some more in frames that are copied because there is
// no pipe, and in frames that are too small for one.
var offers = []offer{
	{"spliced", 0, 16 / shrink, 64 << 20},
	{"copied", -1, 4, 64 << 20 / shrink},
	// As many under the race detector: half of them must not fit into the kernel's buffers.
	{"small", 0, 20_000, 3000},
}

// A stalled TLS client costs little more: a read buffer in either form.
func TestTLSClientThatDoesNotRead(t *testing.T) {
	const count, size = 3, 64 << 20 / shrink
	cert, pool := testCert(t)
	b := newBroker(t, func(c *net.TCPConn) {
		for id := range int32(count) {
			_, _ = readFrame(c)
			writeAnswer(c, id, size)
		}
		silence(c)
	})
	s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) {
		o.Endpoints[0].TLS = func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{cert}} }
	})
	raw := connect(t, s)
	_ = raw.SetReadBuffer(kernelBuffer)
	c := tls.Client(raw, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	mustWrite(t, c, request(1, 11, 0), request(1, 11, 1), request(1, 11, 2))
	before := heapInUse()
	awaitStuck(t, s, brokerOf, clientOf)
	if grown := int64(heapInUse()) - int64(before); grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	for id := range int32(count) {
		checkAnswer(t, c, id, size)
	}
	c.Close()
	awaitSessions(t, s, 0)
}

// A client that does not read while its broker offers a lot costs the proxy a read
// buffer and a pipe. Once it reads, every byte is right.
func TestClientThatDoesNotRead(t *testing.T) {
	for _, o := range offers {
		t.Run(o.name, func(t *testing.T) {
			b := newBroker(t, func(c *net.TCPConn) {
				for id := range int32(o.count) {
					if _, err := readFrame(c); err != nil {
						return
					}
					writeAnswer(c, id, o.size)
				}
				silence(c)
			})
			s := newServer(t, b.dial, rewrite.Rules{}, func(opts *Options) { opts.MaxPipes = o.pipes })
			c := connect(t, s)
			_ = c.SetReadBuffer(kernelBuffer)
			before := heapInUse()
			var sender sync.WaitGroup
			sender.Go(func() {
				for id := range int32(o.count) {
					_, _ = c.Write(request(1, 11, id))
				}
			})
			awaitStuck(t, s, brokerOf, clientOf)
			if grown := int64(heapInUse()) - int64(before); grown > 1<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			for id := range int32(o.count) {
				checkAnswer(t, c, id, o.size)
			}
			sender.Wait()
			c.Close()
			awaitSessions(t, s, 0)
		})
	}
}

// The same for a broker that does not read.
func TestBrokerThatDoesNotRead(t *testing.T) {
	for _, o := range offers {
		o.count = max(1, o.count/2)
		t.Run(o.name, func(t *testing.T) {
			read := make(chan struct{})
			release := sync.OnceFunc(func() { close(read) })
			checked := make(chan error, 1)
			b := newBroker(t, func(c *net.TCPConn) {
				_ = c.SetReadBuffer(kernelBuffer)
				<-read
				err := error(nil)
				for id := int32(0); id < int32(o.count) && err == nil; id++ {
					err = readRequest(c, id, o.size)
				}
				checked <- err
				silence(c)
			})
			s := newServer(t, b.dial, rewrite.Rules{}, func(opts *Options) {
				opts.MaxPipes = o.pipes
				opts.MaxInflight = o.count
			})
			c := connect(t, s)
			// Also when the test fails: the broker must not wait for ever.
			t.Cleanup(release)
			before := heapInUse()
			var sender sync.WaitGroup
			sender.Go(func() {
				for id := range int32(o.count) {
					head := request(1, 11, id)
					binary.BigEndian.PutUint32(head, uint32(len(head)-4+o.size))
					if _, err := c.Write(head); err != nil || writeBody(c, o.size) != nil {
						t.Errorf("request %d could not be sent (%v)", id, err)
						return
					}
				}
			})
			awaitStuck(t, s, clientOf, brokerOf)
			if grown := int64(heapInUse()) - int64(before); grown > 1<<20+int64(o.count)*24 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			release()
			if err := <-checked; err != nil {
				t.Fatal(err)
			}
			sender.Wait()
			c.Close()
			awaitSessions(t, s, 0)
		})
	}
}

// readRequest reads a request that has a body of n bytes of the pattern.
func readRequest(r io.Reader, id int32, n int) error {
	head := request(1, 11, id)
	binary.BigEndian.PutUint32(head, uint32(len(head)-4+n))
	if err := readHead(r, head); err != nil {
		return err
	}
	return readBody(r, n)
}

// Answers that the proxy makes or changes itself are bounded like others while their
// client does not read: one is held and one is owed, whatever was asked for behind them.
func TestClientThatDoesNotReadChangedAnswers(t *testing.T) {
	const asked = 100
	old := &oldBroker{max: 10, logs: map[string][]*tierlog.Log{}}
	for i := range 150 {
		old.logs[fmt.Sprintf("topic-%03d-%s", i, *text(50))] = []*tierlog.Log{tierlog.Vectors()[3].Log()}
	}
	req := old.offsetsRequest(11, -6)
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.Version = 1
	for id := range int32(200) {
		metadata.Brokers = append(metadata.Brokers, kmsg.MetadataResponseBroker{NodeID: id % 10, Host: *text(80), Port: 9092})
	}
	rewritten := kmsg.NewPtrMetadataResponse()
	rewritten.Version = 1
	for _, b := range metadata.Brokers {
		b.Host, b.Port = proxied.Host, proxied.FirstPort+b.NodeID
		rewritten.Brokers = append(rewritten.Brokers, b)
	}
	for _, c := range []struct {
		name    string
		serve   func(*net.TCPConn)
		request func(id int32) []byte
		answer  func(id int32) []byte
		largest int
	}{
		{
			"looked up", old.serve,
			func(id int32) []byte { return frameOfRequest(req, id) },
			func(id int32) []byte { return old.native(req, id) },
			len(old.native(req, 0)),
		},
		{
			"rewritten", scripted(map[int16][]byte{3: answerFrame(0, metadata)}),
			func(id int32) []byte { return request(3, 1, id) },
			func(id int32) []byte { return answerFrame(id, rewritten) },
			len(answerFrame(0, metadata)),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, newBroker(t, c.serve).dial, rewrite.Rules{Addresses: proxied})
			conn := connect(t, s)
			_ = conn.SetReadBuffer(64 << 10)
			awaitSession(t, s, "the session is open", func(se *session) bool { return se.state == stateOpen })
			onLoop(t, s.loops[0], func() {
				_ = unix.SetsockoptInt(only(s.loops[0]).client.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10)
			})
			var sender sync.WaitGroup
			sender.Go(func() {
				for id := range int32(asked) {
					_, _ = conn.Write(c.request(id))
				}
			})
			awaitSession(t, s, "the client owes", func(se *session) bool { return se.client.owes() })
			onLoop(t, s.loops[0], func() {
				if heap, _ := footprint(only(s.loops[0])); heap > maxFootprint+2*c.largest {
					t.Errorf("a stalled session holds %d bytes, %d are the bound", heap, maxFootprint+2*c.largest)
				}
			})
			for id := range int32(asked) {
				renew(conn)
				compare(t, fmt.Sprintf("answer %d", id), mustRead(t, conn), c.answer(id))
			}
			sender.Wait()
		})
	}
}

// One session that moves bytes without end does not starve another on the same loop.
func TestEndlessTransferDoesNotStarveOthers(t *testing.T) {
	for _, o := range []struct {
		name  string
		pipes int
	}{{"spliced", 0}, {"copied", -1}} {
		t.Run(o.name, func(t *testing.T) {
			stop := make(chan struct{})
			big := newBroker(t, func(c *net.TCPConn) {
				_, _ = readFrame(c)
				head := response(1)
				binary.BigEndian.PutUint32(head, math.MaxInt32)
				_, _ = c.Write(head)
				for writeBody(c, len(pattern)) == nil {
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			small := newEcho(t)
			var dials atomic.Int32
			s := newServer(t, func(ctx context.Context) (net.Conn, error) {
				if dials.Add(1) == 1 {
					return big.dial(ctx)
				}
				return small.dial(ctx)
			}, rewrite.Rules{}, func(opts *Options) { opts.MaxPipes = o.pipes })
			endless := connect(t, s)
			mustWrite(t, endless, request(1, 11, 1))
			checkHead(t, endless, []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1})
			var reader sync.WaitGroup
			defer reader.Wait()
			defer close(stop)
			moved := atomic.Int64{}
			reader.Go(func() {
				buf := make([]byte, 1<<20)
				for n, err := endless.Read(buf); err == nil; n, err = endless.Read(buf) {
					moved.Add(int64(n))
				}
			})
			c := connect(t, s)
			for id := range int32(100) {
				mustWrite(t, c, request(3, 1, id))
				if got, want := mustRead(t, c), response(id, 0, 1, 'c'); !bytes.Equal(got, want) {
					t.Fatalf("got %x, want %x", got, want)
				}
			}
			if moved.Load() == 0 {
				t.Fatal("the large transfer did not move at all")
			}
		})
	}
}

// A flow whose source always has bytes and whose sink takes all of them goes on in turns:
// a pump moves no more than its budget and one read, and between two turns the loop
// serves the others.
func TestTurnsOfAnEndlessFlow(t *testing.T) {
	const budget = 96 << 10
	small := newEcho(t)
	s := newServer(t, small.dial, rewrite.Rules{}, func(o *Options) { o.MaxPipes = -1 })
	l := s.loops[0]
	source, feeder := socketPair(t)
	sink, drain := socketPair(t)
	endless := &session{loop: l, endpoint: s.endpoints[0], peer: s.Addr(0), state: stateOpen, cancel: func() {}}
	endless.client = conn{fd: sink, session: endless, writable: true}
	endless.broker = conn{fd: source, session: endless, readable: true}
	endless.requests = flow{session: endless, from: &endless.client, to: &endless.broker}
	endless.responses = flow{session: endless, from: &endless.broker, to: &endless.client, part: partPass, left: math.MaxInt64}
	if err := s.admission.enter(endless.peer); err != nil {
		t.Fatal(err)
	}
	// Both end when the session closes its side.
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() {
		for {
			if _, err := feeder.Write(pattern); err != nil {
				return
			}
		}
	})
	await(t, "the source has a turn's bytes", func() bool {
		n, err := unix.IoctlGetInt(source, unix.TIOCINQ)
		return err != nil || n > budget+readSize
	})
	moved := uint64(0)
	onLoop(t, l, func() {
		l.budget = budget
		l.sessions[endless] = struct{}{}
		if err := errors.Join(l.add(&endless.client), l.add(&endless.broker)); err != nil {
			t.Error(err)
		}
		before := l.count.responseBytes
		endless.advance(&endless.responses)
		moved = l.count.responseBytes - before
	})
	if moved < budget || moved >= budget+readSize {
		t.Fatalf("one turn has moved %d bytes, the budget is %d", moved, budget)
	}
	others.Go(func() { _, _ = io.Copy(io.Discard, drain) })
	c := connect(t, s)
	for id := range int32(50) {
		mustWrite(t, c, request(3, 1, id))
		if got, want := mustRead(t, c), response(id, 0, 1, 'c'); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
	awaitOnLoop(t, s, "the endless flow goes on", func(*loop) bool {
		return endless.state == stateOpen && math.MaxInt64-endless.responses.left > 20*budget
	})
	_ = s.Close()
}

// socketPair returns a descriptor, which the session that gets it closes, and the other
// end of the connection.
func socketPair(t *testing.T) (fd int, other net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "socket pair")
	defer f.Close()
	other, err = net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return fds[0], other
}

// stallScript is what a session of TestManySessionsThatStall moves: small frames, and
// some that are large enough for a pipe, in both directions.
func stallScript(seed uint64) []step {
	rnd := rand.New(rand.NewPCG(seed, 6))
	body := func(limit int) []byte {
		n := rnd.IntN(limit)
		at := rnd.IntN(len(pattern) - n)
		return pattern[at : at+n]
	}
	script := []step{{request(1000, 0, int32(seed)), response(int32(seed))}}
	for id := range int32(14) {
		up, down := 2000, 2000
		switch rnd.IntN(12) {
		case 0:
			up = 400_000
		case 1:
			down = 400_000
		}
		script = append(script, step{request(1, 3, id, body(up)...), response(id, body(down)...)})
	}
	return script
}

// stalling is a connection whose owner reads and writes in pieces and falls asleep now
// and then. The pauses are the load, not a way to wait for something.
type stalling struct {
	*net.TCPConn
	reads, writes *rand.Rand
}

func newStalling(c *net.TCPConn, seed uint64) *stalling {
	return &stalling{c, rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))}
}

func pause(rnd *rand.Rand) {
	if rnd.IntN(16) == 0 {
		<-time.After(time.Duration(rnd.IntN(3000)) * time.Microsecond)
	}
}

func (s *stalling) Read(p []byte) (int, error) {
	pause(s.reads)
	return s.TCPConn.Read(p[:min(len(p), 1+s.reads.IntN(40_000))])
}

func (s *stalling) Write(p []byte) (int, error) {
	pause(s.writes)
	return s.TCPConn.Write(p)
}

// Sessions on several loops, with readers and writers that stall at random on both
// sides, few pipes and few exchanges at once: every byte arrives, and no session waits
// for a wake-up that was lost.
func TestManySessionsThatStall(t *testing.T) {
	const sessions = stallers
	b := newBroker(t, func(c *net.TCPConn) {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		seed := uint64(codec.RequestCorrelationID(frame))
		slow := newStalling(c, seed+1000)
		if err = performOn(io.MultiReader(bytes.NewReader(frame), slow), slow, stallScript(seed), seed); err != nil {
			t.Errorf("broker of session %d: %v", seed, err)
		}
	})
	s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) {
		o.Loops = 3
		o.MaxInflight = 3
		o.MaxPipes = 12
	})
	errs := make(chan error, sessions)
	for i := range uint64(sessions) {
		c := connect(t, s)
		if i%2 == 0 {
			_ = c.SetReadBuffer(16 << 10)
		}
		go func() {
			if err := playOn(newStalling(c, i), stallScript(i), i); err != nil {
				errs <- fmt.Errorf("session %d: %w", i, err)
				return
			}
			errs <- nil
		}()
	}
	for range sessions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	awaitSessions(t, s, 0)
}
