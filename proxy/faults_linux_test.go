// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tiergate/codec"
	"tiergate/rewrite"
)

// withoutDescriptors runs f while the process can open n more descriptors.
func withoutDescriptors(t *testing.T, n int, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	null := nullFile(t)
	var taken []int
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	for range n {
		_ = unix.Close(taken[len(taken)-1])
		taken = taken[:len(taken)-1]
	}
	f()
}

// A poller that cannot be opened for want of descriptors says which call has failed, and
// leaves none open.
func TestPollerWithoutDescriptors(t *testing.T) {
	for n, call := range []string{"epoll_create1", "eventfd", ""} {
		withoutDescriptors(t, n, func() {
			p, err := openEpoll(false)
			var failed *os.SyscallError
			switch {
			case call == "" && err == nil:
				p.close()
			case call == "" || !errors.As(err, &failed) || failed.Syscall != call || !errors.Is(err, unix.EMFILE):
				t.Errorf("with %d descriptors: %v, want %s to fail", n, err, call)
			}
			for range n {
				fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
				if err != nil {
					t.Errorf("with %d descriptors: one is left open: %v", n, err)
				}
				defer unix.Close(fd)
			}
		})
	}
}

// failing is a poller some of whose calls fail.
type failing struct {
	poller
	runs, posts error
}

func (f *failing) post(task func()) error {
	if f.posts != nil {
		return f.posts
	}
	return f.poller.post(task)
}

func (f *failing) run(event func(int, edges), turns func()) error {
	return errors.Join(f.poller.run(event, turns), f.runs)
}

// Start that cannot open all loops stops those that it has started.
func TestStartWithoutPollers(t *testing.T) {
	s := unstarted(t, refuse, rewrite.Rules{}, func(o *Options) { o.Loops = 2 })
	opened := 0
	s.sys.openPoller = func(o Options) (poller, error) {
		if opened++; opened == 2 {
			return nil, unix.EMFILE
		}
		return openPoller(o)
	}
	if err := s.Start(); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("Start: %v, want %v", err, unix.EMFILE)
	}
}

// A loop whose poller fails says so, ends its sessions, and keeps nothing from closing.
func TestPollerFails(t *testing.T) {
	j := &journal{}
	s := unstarted(t, newEcho(t).dial, rewrite.Rules{}, loggingTo(j))
	s.tickEvery = 1 << 60
	f := &failing{runs: errors.New("lost")}
	s.sys.openPoller = func(o Options) (r poller, err error) {
		f.poller, err = openPoller(o)
		return f, err
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	j.awaitLine(t, "ERROR event loop failed", "lost")
	f.posts = errors.New("full")
	s.loops[0].post(func() {})
	j.awaitLine(t, "ERROR event loop cannot be woken", "full")
	for _, holds := range []bool{false, true} {
		bad := &epoll{fd: -1, holds: holds, events: make([]unix.EpollEvent, 1)}
		if err := bad.run(nil, nil); !errors.Is(err, unix.EBADF) {
			t.Errorf("run with a closed descriptor: %v", err)
		}
		if err := (&epoll{wake: -1}).post(nil); !errors.Is(err, unix.EBADF) {
			t.Errorf("post with a closed descriptor: %v", err)
		}
	}
}

// oddConn is a connection that gives no descriptor in one of the ways in which that happens.
type oddConn struct {
	net.Conn
	raw    syscall.RawConn
	err    error
	closed bool
}

func (o *oddConn) Close() error                          { o.closed = true; return nil }
func (o *oddConn) SyscallConn() (syscall.RawConn, error) { return o.raw, o.err }

type rawConn struct {
	syscall.RawConn
	fd  int
	err error
}

func (r rawConn) Control(f func(uintptr)) error {
	if r.err == nil {
		f(uintptr(r.fd))
	}
	return r.err
}

// A connection whose descriptor cannot be taken over is closed.
func TestDetachFails(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []*oddConn{{err: lost}, {raw: rawConn{err: lost}}, {raw: rawConn{fd: 1 << 30}}} {
		if fd, err := detach(c); fd != -1 || !errors.Is(err, lost) && !errors.Is(err, unix.EBADF) || !c.closed {
			t.Errorf("detach gave %d and %v; closed: %v", fd, err, c.closed)
		}
	}
	p, q := net.Pipe()
	defer q.Close()
	if _, err := detach(p); err == nil || !strings.Contains(err.Error(), "connection of type *net.pipe has no descriptor") {
		t.Errorf("detach of a pipe: %v", err)
	}
	if _, err := p.Write([]byte{0}); err == nil {
		t.Error("the pipe is open")
	}
}

// A session whose client or broker the poller refuses leaves nothing.
func TestRegistrationFails(t *testing.T) {
	for refused, want := range []string{"WARN client socket refused by the poller", "WARN session closed: the broker cannot be reached"} {
		j := &journal{}
		b := newBroker(t, silence)
		s := unstarted(t, b.dial, rewrite.Rules{}, loggingTo(j))
		r := &refusing{refused: refused}
		s.sys.openPoller = func(o Options) (_ poller, err error) {
			r.poller, err = openPoller(o)
			return r, err
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", s.Addr(0).String())
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			err = ending(t, c)
			c.Close()
		}
		j.awaitLine(t, want, "no space left on device")
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the client saw %v, want a reset", err)
		}
		awaitSessions(t, s, 0)
		if s.admission.open != 0 {
			t.Errorf("%d places are taken", s.admission.open)
		}
	}
}

// refusing is a poller that refuses the socket of a number.
type refusing struct {
	poller
	refused, seen int
}

func (r *refusing) add(fd int) error {
	if r.seen++; r.seen == r.refused+1 {
		return os.NewSyscallError("epoll_ctl", unix.ENOSPC)
	}
	return r.poller.add(fd)
}

// Pipes that cannot be opened, or that the user may not have large, are done without; none
// is left open.
func TestPipesThatCannotBeHad(t *testing.T) {
	for name, change := range map[string]func(*system){
		"no descriptor": func(s *system) { s.pipe = func([]int, int) error { return unix.EMFILE } },
		"soft limit":    func(s *system) { s.resize = func(int, int) (int, error) { return 0, unix.EPERM } },
		"small":         func(s *system) { s.resize = func(int, int) (int, error) { return 4096, nil } },
	} {
		sys := kernel()
		change(&sys)
		p := pipes{sys: &sys, limit: 1}
		before := descriptors(t)
		if got := p.take(); got != nil || p.none != 1 || p.open != 0 || descriptors(t) != before {
			t.Errorf("%s: got %v, %d are open, %d descriptors, before %d", name, got, p.open, descriptors(t), before)
		}
	}
}

// Tokens, and requests behind them, that come byte by byte are told apart all the same.
func TestTokensByteByByte(t *testing.T) {
	f, s, client, broker := oneSession(t, 1000)
	ok, token, after := response(1, 0, 0, 0, 0, 0, 0), frameOf([]byte("n,,n=alice")...), request(30, 1, 2)
	send := func(p []byte) (got []byte) {
		for _, b := range p {
			client.arrive([]byte{b})
			f.round(s.loops[0])
			got = append(got, broker.read(1000)...)
		}
		return got
	}
	compare(t, "the handshake", send(handshakeV0(1, "SCRAM-SHA-256")), handshakeV0(1, "SCRAM-SHA-256"))
	broker.arrive(ok)
	f.round(s.loops[0])
	compare(t, "the token", send(token), token)
	broker.arrive(token)
	f.round(s.loops[0])
	compare(t, "the request", send(after), after)
	broker.arrive(response(2))
	f.round(s.loops[0])
	compare(t, "what the client got", client.read(1000), append(append(ok, token...), response(2)...))
}

// Bytes of a large frame are spliced through every failure that splice can have, and when
// the socket fails, the session ends and no pipe is left.
func TestSpliceFails(t *testing.T) {
	for _, broken := range []func(*fakeSocket){(*fakeSocket).cut, (*fakeSocket).end} {
		f, s, client, broker := oneSession(t, 1<<20)
		client.arrive(request(1, 11, 1))
		f.round(s.loops[0])
		broker.arrive(response(1, make([]byte, 900_000)...)[:300_000])
		f.round(s.loops[0])
		broken(broker)
		client.end()
		f.round(s.loops[0])
		s.loops[0].tick(f.now)
		f.round(s.loops[0])
		s.loops[0].tick(f.now.Add(s.opts.LingerTimeout + closingTimeout))
		if l := s.loops[0]; len(l.sessions) != 0 || l.pipes.open != len(l.pipes.idle) || f.misuse != "" {
			t.Errorf("%d sessions, %d pipes of which %d are idle; %s", len(l.sessions), l.pipes.open, len(l.pipes.idle), f.misuse)
		}
	}
}

// What asks for the sessions of a server ends with its context.
func TestDrainAsksALoopThatDoesNotRun(t *testing.T) {
	f, s, _, _ := oneSession(t, 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.sessions(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("sessions: %v", err)
	}
	f.tasks = nil
}

// fakeExchange sends what a client does, and gives the broker's replies.
func fakeExchange(f *fakeSystem, s *Server, client, broker *fakeSocket, sent, reply []byte) {
	client.arrive(sent)
	f.round(s.loops[0])
	broker.arrive(reply)
	f.round(s.loops[0])
	for len(f.jobs) > 0 {
		job := f.jobs[0]
		f.jobs = f.jobs[1:]
		job()
		f.round(s.loops[0])
	}
}

// Frames that cannot be understood, at every place where that is found out, end their
// session for the right reason, and nothing of it is left.
func TestBrokenFramesEverywhere(t *testing.T) {
	ask := request(apiVersionsKey, 3, 1, 0, 1, 1, 0)
	versions := answerFrame(1, versionsAnswer(3, 10))
	small := append(request(2, 11, 2), 0xff, 0xff)
	codec.PutSize(small)
	large := append(request(2, 11, 2), make([]byte, largeFrame)...)
	for i := range large[15:] {
		large[15+i] = 0xff
	}
	codec.PutSize(large)
	cut := request(2, 11, 2)
	cut[12], cut[13] = 0x7f, 0xff // the length of the client id
	handshake, ok := handshakeV0(1, "SCRAM-SHA-256"), response(1, 0, 0, 0, 0, 0, 0)
	whole := append(sized(1<<20), request(2, 11, 2)[codec.SizeLen:]...)
	limited := func(o *Options) { o.MaxBufferedBytes = 1 << 20 }
	for _, c := range []struct {
		name string
		// Each is what the client sends, and what the broker does then.
		exchanges [][2][]byte
		want      reason
		change    func(*Options)
	}{
		{"a small request of partitions", [][2][]byte{{ask, versions}, {small, nil}}, reasonMalformed, nil},
		{"a large request of partitions", [][2][]byte{{ask, versions}, {large, nil}}, reasonMalformed, nil},
		{"a request that needs the broker's versions first", [][2][]byte{{cut, nil}}, reasonMalformed, nil},
		{"the broker's versions", [][2][]byte{{pendingRequest(2, 1), response(1, 0)}}, reasonMalformed, nil},
		{"a lookup's response", [][2][]byte{{ask, versions}, {pendingRequest(2, 1), response(1, 0)}}, reasonMalformed, nil},
		{"a request behind tokens", [][2][]byte{{handshake, ok}, {frameOf(0, 1, 2), nil}}, reasonMalformed, nil},
		{"a handshake", [][2][]byte{{brokenHandshake(), nil}}, reasonMalformed, nil},
		{"a frame for which there is never room", [][2][]byte{{ask, versions}, {whole, nil}}, reasonBufferFull, limited},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &journal{}
			f, s, client, broker := oneSession(t, 1<<20, loggingTo(j), func(o *Options) {
				if c.change != nil {
					c.change(o)
				}
			})
			for _, e := range c.exchanges {
				fakeExchange(f, s, client, broker, e[0], e[1])
			}
			client.end()
			broker.end()
			f.round(s.loops[0])
			s.loops[0].tick(f.now.Add(time.Minute))
			l := s.loops[0]
			if len(j.with("session closed: ", "reason="+c.want.String())) != 1 || len(l.sessions) != 0 || len(f.socks) != 0 || s.account.total.Load() != 0 || f.misuse != "" {
				t.Errorf("want %v, got %q; %d sessions, %d sockets, %d bytes; %s", c.want, j.lines, len(l.sessions), len(f.socks), s.account.total.Load(), f.misuse)
			}
		})
	}
}

// brokenHandshake is one whose client id does not fit.
func brokenHandshake() []byte {
	bad := handshakeV0(1, "PLAIN")
	bad[12], bad[13] = 0x7f, 0xff // the length of the client id
	return bad
}

// Work off the loop that has not begun when its session ends does not begin.
func TestWorkOfASessionThatHasEnded(t *testing.T) {
	f, s, client, broker := oneSession(t, 1<<20, func(o *Options) { o.Loops = 1 })
	fakeExchange(f, s, client, broker, request(apiVersionsKey, 3, 1, 0, 1, 1, 0), answerFrame(1, versionsAnswer(3, 10)))
	req, _ := largeLookup()
	client.arrive(req)
	f.round(s.loops[0])
	se := only(s.loops[0])
	if se == nil || se.requests.stall != stallMachine || len(f.jobs) != 1 {
		t.Fatalf("the request is not worked on off the loop: %d jobs", len(f.jobs))
	}
	s.heavy <- struct{}{} // others work
	client.cut()
	broker.cut()
	f.round(s.loops[0])
	se.end(reasonClientClosed, nil)
	f.jobs[0]()
	f.round(s.loops[0])
	if len(s.heavy) != 1 || s.account.total.Load() != 0 || len(f.socks) != 0 || f.misuse != "" {
		t.Errorf("%d bytes, %d sockets are left; %s", s.account.total.Load(), len(f.socks), f.misuse)
	}
}

// Room is made for nobody once the server closes: nothing waits for loops that have ended.
func TestReclaimEnds(t *testing.T) {
	_, s, _, _ := oneSession(t, 10)
	s.cancel()
	s.account.total.Add(s.account.limit + 1)
	s.makeRoom()
	s.reclaim()
	if n := len(s.loops[0].sessions); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}

// An epoll loop moves what is too much for one turn, past readers that stop.
func TestEpollWithBackPressure(t *testing.T) {
	s := newServer(t, newBroker(t, bodyOf(16<<20)).dial, rewrite.Rules{}, func(o *Options) { o.EventLoop = EventLoopEpoll })
	c := connect(t, s)
	mustWrite(t, c, request(30, 1, 1))
	awaitSession(t, s, "the client's socket takes no more", func(se *session) bool { return se.client.owes() && !se.client.writable })
	compare(t, "the response", mustRead(t, c), response(1, make([]byte, 16<<20)...))
}
