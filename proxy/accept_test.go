// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"tiergate/rewrite"
)

// scarceEnv makes the test binary a proxy that runs out of descriptors, in front of the
// broker at its value; see scarce.
const scarceEnv = "TIERGATE_TEST_SCARCE_BROKER"

// scarce is the child's main. It prints the address that it listens on and obeys the
// lines of its standard input until that ends: "hold" opens descriptors until there are
// none, "spare" closes one of them, "release" raises the limit, so that there are many at once.
func scarce(brokerAddress string) error {
	s, err := New(Options{
		Loops:  1,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Endpoints: []Endpoint{{
			Listener: "scarce", Address: "127.0.0.1:0", Broker: "broker",
			Rules: rewrite.Rules{PendingUpload: rewrite.PendingUploadOff},
			Dial: func(ctx context.Context) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", brokerAddress)
			},
		}},
	})
	if err != nil {
		return err
	}
	if err = s.Start(); err != nil {
		return err
	}
	// Few enough to open them all quickly.
	limit := unix.Rlimit{Cur: 64, Max: 256}
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	fmt.Println(s.Addr(0))
	var hoard []*os.File
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("obeyed") {
		switch in.Text() {
		case "hold":
			for f, err := os.Open(os.DevNull); err == nil; f, err = os.Open(os.DevNull) {
				hoard = append(hoard, f)
			}
		case "spare":
			_ = hoard[0].Close()
			hoard = hoard[1:]
		case "release":
			limit.Cur = limit.Max
			if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				return err
			}
		}
	}
	for _, f := range hoard {
		_ = f.Close()
	}
	return s.Close()
}

// scarceProxy is the child.
type scarceProxy struct {
	address string
	command *exec.Cmd
	killed  bool
	in      io.WriteCloser
	out     *bufio.Reader
	mu      sync.Mutex
	log     bytes.Buffer
}

// Write takes what the child logs.
func (p *scarceProxy) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// logged returns what the child has logged.
func (p *scarceProxy) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// tell has the child obey a line.
func (p *scarceProxy) tell(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p.in, line)
	if err == nil {
		_, err = p.out.ReadString('\n')
	}
	if err != nil {
		t.Fatalf("the child does not obey: %v\n%s", err, p.logged())
	}
}

// startScarce runs this test binary as a proxy that can run out of descriptors.
func startScarce(t *testing.T, brokerAddress string) *scarceProxy {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &scarceProxy{command: exec.Command(exe)}
	p.command.Env = append(os.Environ(), scarceEnv+"="+brokerAddress)
	p.command.Stderr = p
	if p.in, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.in.Close()
		if err := p.command.Wait(); err != nil && !p.killed {
			t.Errorf("the child: %v\n%s", err, p.logged())
		}
	})
	p.out = bufio.NewReader(out)
	if p.address, err = p.out.ReadString('\n'); err != nil {
		t.Fatalf("the child did not start: %v\n%s", err, p.logged())
	}
	p.address = strings.TrimSpace(p.address)
	return p
}

// connect opens a connection to the child and sends a request.
func (p *scarceProxy) connect(t *testing.T) net.Conn {
	t.Helper()
	c := p.open(t)
	mustWrite(t, c, request(30, 1, 1))
	return c
}

// open opens a connection to the child.
func (p *scarceProxy) open(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// When the process has no descriptors left, accepting pauses and says so; sessions that
// are open are served, and clients that wait in the kernel's queue are served as soon as
// there are descriptors again.
func TestAcceptSurvivesTheLackOfDescriptors(t *testing.T) {
	p := startScarce(t, newEcho(t).listener.Addr().String())
	want := response(1, 0, 1, 'c')
	before := p.connect(t)
	compare(t, "before", mustRead(t, before), want)
	p.tell(t, "hold")
	waiting := []net.Conn{p.connect(t), p.connect(t), p.connect(t)}
	await(t, "accepting fails", func() bool {
		return strings.Contains(p.logged(), "cannot accept connections, trying again: no file descriptor or memory is left; raise ulimit -n") &&
			strings.Contains(p.logged(), "too many open files")
	})
	mustWrite(t, before, request(30, 1, 1))
	compare(t, "meanwhile", mustRead(t, before), want)
	p.tell(t, "release")
	for _, c := range waiting {
		compare(t, "afterwards", mustRead(t, c), want)
	}
}

// With one descriptor left a client is accepted and gets no session; with two there is none
// left for its broker. Both are named as this machine's shortage, and the client is reset.
func TestLocalShortage(t *testing.T) {
	for spare, line := range map[int]string{1: `msg="connection refused"`, 2: "reason=local_shortage"} {
		p := startScarce(t, newEcho(t).listener.Addr().String())
		p.tell(t, "hold")
		for range spare {
			p.tell(t, "spare")
		}
		c, err := net.Dial("tcp", p.address)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			err = ending(t, c)
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d descriptors: the client saw %v, want a reset", spare, err)
		}
		await(t, line, func() bool {
			return strings.Contains(p.logged(), line) && strings.Contains(p.logged(), "too many open files")
		})
	}
}

// What cannot be accepted is counted by why.
func TestAcceptFailures(t *testing.T) {
	s := newServer(t, refuse, rewrite.Rules{})
	s.endpoints[0].unaccepted(os.NewSyscallError("accept4", unix.ENFILE))
	s.endpoints[0].unaccepted(os.NewSyscallError("accept4", unix.EPERM))
	for _, why := range []string{"local_shortage", "other"} {
		if got := testutil.ToFloat64(s.metrics.unaccepted.WithLabelValues(why)); got != 1 {
			t.Errorf("%s: %v failures, want 1", why, got)
		}
	}
}

// A process that is killed resets the sessions that had no answer yet but to ApiVersions, as
// one that drains does, and ends the others.
func TestKilledProcessResetsBeforeTheFirstAnswer(t *testing.T) {
	received := make(chan struct{}, 3)
	b := newBroker(t, answerFirst(received))
	p := startScarce(t, b.listener.Addr().String())
	silent, versions, served := p.open(t), p.open(t), p.open(t)
	mustWrite(t, silent, request(18, 0, 2))
	mustWrite(t, versions, request(18, 0, 1), request(30, 1, 2))
	mustWrite(t, served, request(18, 0, 1), request(30, 1, 1), request(30, 1, 2))
	for _, c := range []net.Conn{versions, served, served} {
		_ = mustRead(t, c)
	}
	for range 3 {
		<-received // nothing unread is left in the child, which would reset by itself
	}
	p.killed = true
	if err := p.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]net.Conn{"no answer": silent, "only ApiVersions answered": versions} {
		if err := ending(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client with %s saw %v, want a reset", what, err)
		}
	}
	if err := ending(t, served); err != nil {
		t.Errorf("the client with an answer saw %v, want an ordinary end", err)
	}
}
