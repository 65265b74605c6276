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

// A handshake whose client id does not fit ends the session, and not with a panic.
func TestBrokenHandshake(t *testing.T) {
	f, s, client, broker := oneSession(t, 1000)
	bad := handshakeV0(1, "PLAIN")
	bad[12], bad[13] = 0x7f, 0xff // the length of the client id
	client.arrive(bad)
	f.round(s.loops[0])
	if len(s.loops[0].sessions) != 0 || len(broker.out) != 0 || !client.gone || s.loops[0].count.reasons[reasonMalformed] != 1 {
		t.Errorf("%d sessions, the broker got %x", len(s.loops[0].sessions), broker.out)
	}
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
