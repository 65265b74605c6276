// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/internal/testkit/sim"
)

// serving is a process with one listener in front of a simulated broker.
type serving struct {
	*process
	bootstrap string
	exited    chan struct{}
}

// newServing prepares such a process. It is killed at the end of the test if it still runs.
func newServing(t *testing.T) *serving {
	t.Helper()
	cluster := startSim(t, sim.Options{Brokers: 1})
	first, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	s := &serving{bootstrap: at(0), exited: make(chan struct{})}
	s.process = newProcess(t, t.TempDir(), at(2), fmt.Sprintf(`
upstream: {bootstrap_servers: [%q]}
listeners: [{name: clients, bootstrap: %q, nodes: "127.0.0.1:%d-%d", advertised_host: 127.0.0.1}]
`, cluster.Addresses()[0], at(0), first+1, first+1))
	return s
}

// launch starts the process, which is killed at the end of the test.
func (s *serving) launch(t *testing.T) {
	t.Helper()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if t.Failed() {
			t.Logf("output of tiergate:\n%s%s", s.out.String(), s.log.String())
		}
	})
}

// start launches the process and waits until it is ready.
func (s *serving) start(t *testing.T) {
	t.Helper()
	s.launch(t)
	await(t, "readiness", func() bool { return s.get(t, "/readyz") == "200 ready\n" })
}

// wantServed has clients cause faults, each of which is a log line, and wants another
// client served afterwards.
func (s *serving) wantServed(t *testing.T) {
	t.Helper()
	for range 8 {
		c, err := net.Dial("tcp", s.bootstrap)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a session that sends what is not Kafka was not closed")
		}
		_ = c.Close()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(within(t)); err != nil {
		t.Error("a client is not served:", err)
	}
	if got := s.get(t, "/readyz"); got != "200 ready\n" {
		t.Errorf("/readyz: %q", got)
	}
}

// wantEnd sends SIGTERM and wants the exit code of a drained process.
func (s *serving) wantEnd(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.exited:
	case <-within(t).Done():
		t.Fatal("SIGTERM does not end the process")
	}
	if got := s.cmd.ProcessState.String(); got != "exit status 0" {
		t.Errorf("ended with %s, want exit status 0", got)
	}
}

// fullPipe returns a pipe that takes no more bytes until its reader reads.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	fd := int(w.Fd()) // a blocking descriptor from here on, as a child inherits it
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for size := 4096; size > 0; {
		if _, err := syscall.Write(fd, bytes.Repeat([]byte("x"), size)); err != nil {
			size /= 2
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// Whoever reads the log has stopped to read: clients, /readyz and SIGTERM do not notice.
func TestLogReaderStalls(t *testing.T) {
	_, w := fullPipe(t)
	s := newServing(t)
	s.cmd.Stderr = w
	s.start(t)
	s.wantServed(t)
	s.wantEnd(t)
}

// What was logged while nobody read is there when it is read again.
func TestLogReaderComesBack(t *testing.T) {
	r, w := fullPipe(t)
	s := newServing(t)
	s.cmd.Stderr = w
	s.start(t)
	_ = w.Close()
	s.wantServed(t)
	log := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(r)
		log <- strings.TrimLeft(string(text), "x")
	}()
	s.wantEnd(t)
	got := <-log
	for _, want := range []string{`msg="tiergate starts"`, `msg="session closed: `, `msg="stopped: every request was answered"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %s:\n%s", want, got)
		}
	}
}

// Whoever reads the log has ended. Lines are lost and counted.
func TestLogReaderEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := newServing(t)
	s.cmd.Stderr = w
	s.start(t)
	_, _ = r.Close(), w.Close()
	s.wantServed(t)
	await(t, "the count of dropped lines", func() bool {
		n, err := strconv.Atoi(s.metric(t, "tiergate_log_lines_dropped_total"))
		return err == nil && n > 0
	})
	s.wantEnd(t)
}

// The map of addresses is for people: nobody has to be able to read it.
func TestMapCannotBeWritten(t *testing.T) {
	_, full := fullPipe(t)
	r, ended, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer ended.Close()
	readOnly, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	for name, stdout := range map[string]*os.File{"stalled": full, "ended": ended, "not writable": readOnly} {
		t.Run(name, func(t *testing.T) {
			s := newServing(t)
			s.cmd.Stdout = stdout
			s.start(t)
			await(t, "the warning", func() bool {
				return len(s.lines(`level=WARN msg="the map of addresses cannot be written to standard output`)) == 1
			})
			s.wantServed(t)
			s.wantEnd(t)
		})
	}
}

// A certificate's file becomes a FIFO that nobody writes to: SIGHUP says so, clients are
// served, and SIGTERM ends the process.
func TestCertificateBecomesFIFO(t *testing.T) {
	s := newServing(t)
	pair := issue(t, newAuthority(t, "ca"), loopback("tiergate"))
	dir := filepath.Dir(s.cmd.Args[len(s.cmd.Args)-1])
	for name, text := range map[string][]byte{"a.pem": pair.CertPEM, "a.key": pair.KeyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := freePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(s.cmd.Args[len(s.cmd.Args)-1])
	if err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf("advertised_host: 127.0.0.1}, {name: secured, bootstrap: \"127.0.0.1:%d\", nodes: \"127.0.0.1:%d-%d\", advertised_host: 127.0.0.1, "+
		"tls: {cert_file: a.pem, key_file: a.key}}]", port, port+1, port+1)
	file = bytes.Replace(file, []byte("advertised_host: 127.0.0.1}]"), []byte(more), 1)
	if err := os.WriteFile(s.cmd.Args[len(s.cmd.Args)-1], file, 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if err := errors.Join(os.Remove(filepath.Join(dir, "a.pem")), syscall.Mkfifo(filepath.Join(dir, "a.pem"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the warning", func() bool {
		return len(s.lines(`a.pem\" cannot be read: is a pipe, a socket or a device; want a regular file`)) == 1
	})
	s.wantServed(t)
	s.wantEnd(t)
}
