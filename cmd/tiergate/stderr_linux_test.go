// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A crash ends the process although standard error is a full pipe that nobody reads. SIGQUIT
// has the Go runtime write all stacks there, as a panic does, and exit with 2.
func TestCrashWhileLogReaderStalls(t *testing.T) {
	_, w := fullPipe(t)
	s := newServing(t)
	s.cmd.Stderr = w
	s.start(t)
	s.wantCrash(t)
}

// Where the reader reads, it gets both the log and the crash's text.
func TestCrashIsReported(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	s := newServing(t)
	s.cmd.Stderr = w
	s.start(t)
	_ = w.Close()
	log := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(r)
		log <- string(text)
	}()
	s.wantCrash(t)
	got := <-log
	for _, want := range []string{`msg="tiergate starts"`, "SIGQUIT: quit", "goroutine "} {
		if !strings.Contains(got, want) {
			t.Errorf("standard error has no %q:\n%.2000s", want, got)
		}
	}
}

// wantCrash sends SIGQUIT and wants the exit code of a crash.
func (s *serving) wantCrash(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.exited:
	case <-within(t).Done():
		t.Fatal("a crash does not end the process")
	}
	if got := s.cmd.ProcessState.String(); got != "exit status 2" {
		t.Errorf("ended with %s, want exit status 2", got)
	}
}
