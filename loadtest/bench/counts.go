// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tiergate/loadtest/kafka"
)

// Counts are how often a proxy did something in a turn. They depend far less than times on
// what else the machine does.
type Counts struct {
	// Calls are all system calls, Waits the epoll waits among them, Blocking the waits that
	// may block, Splices, Controls (epoll_ctl) and Futexes those of these names.
	Calls    int64 `json:"system_calls"`
	Waits    int64 `json:"epoll_waits"`
	Blocking int64 `json:"blocking_waits"`
	Controls int64 `json:"epoll_controls"`
	Splices  int64 `json:"splices"`
	Futexes  int64 `json:"futexes"`
	// Switches are context switches, of both kinds.
	Switches int64 `json:"context_switches"`
	// Events and Useless are the events of tiergate's loops, and those of them that changed
	// nothing.
	Events  int64 `json:"events"`
	Useless int64 `json:"useless_events"`
}

// perfEvents is what perf counts, and where each goes. A wait has another name on each
// architecture; those that a kernel does not have are left out by available.
func perfEvents(c *Counts) []perfEvent {
	const timeout = "timeout!=0"
	return []perfEvent{
		{"raw_syscalls:sys_enter", "", &c.Calls},
		{"syscalls:sys_enter_epoll_wait", "", &c.Waits},
		{"syscalls:sys_enter_epoll_wait", timeout, &c.Blocking},
		{"syscalls:sys_enter_epoll_pwait", "", &c.Waits},
		{"syscalls:sys_enter_epoll_pwait", timeout, &c.Blocking},
		{"syscalls:sys_enter_epoll_ctl", "", &c.Controls},
		{"syscalls:sys_enter_splice", "", &c.Splices},
		{"syscalls:sys_enter_futex", "", &c.Futexes},
		{"context-switches", "", &c.Switches},
	}
}

// perfEvent is an event of perf, a filter on it, and its counter.
type perfEvent struct {
	name, filter string
	into         *int64
}

// available reports whether this kernel knows the event.
func (e perfEvent) available() bool {
	group, name, tracepoint := strings.Cut(e.name, ":")
	if !tracepoint {
		return true
	}
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(filepath.Join(root, "events", group, name)); err == nil {
			return true
		}
	}
	return false
}

// findPerf checks that system calls can be counted here.
func findPerf() error {
	if _, err := exec.LookPath("perf"); err != nil {
		return errors.New("perf is missing: system calls are not counted (apt-get install linux-perf)")
	}
	var c Counts
	if e := perfEvents(&c)[0]; !e.available() {
		return fmt.Errorf("perf cannot count %s here: system calls are not counted (it takes root and tracefs)", e.name)
	}
	return nil
}

// perfCounter is a perf stat that counts what processes do.
type perfCounter struct {
	process *kafka.Process
	output  *bytes.Buffer
	events  []perfEvent
	counts  *Counts
	control *os.File
	ack     *bufio.Reader
	files   []*os.File
}

// startPerf attaches perf to processes; it counts when start returns.
func startPerf(pids []int) (*perfCounter, error) {
	p := &perfCounter{output: &bytes.Buffer{}, counts: &Counts{}}
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = strconv.Itoa(pid)
	}
	// The descriptors of the child are those of ExtraFiles, from 3 on.
	args := []string{"stat", "-x", ";", "--delay=-1", "--control", "fd:3,4", "-p", strings.Join(list, ",")}
	for _, e := range perfEvents(p.counts) {
		if !e.available() {
			continue
		}
		p.events = append(p.events, e)
		args = append(args, "-e", e.name)
		if e.filter != "" {
			args = append(args, "--filter", e.filter)
		}
	}
	commands, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	acks, ack, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, commands.Close(), control.Close())
	}
	p.control, p.ack, p.files = control, bufio.NewReader(acks), []*os.File{control, acks}
	cmd := exec.Command("perf", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stderr, cmd.ExtraFiles = p.output, []*os.File{commands, ack}
	p.process, err = kafka.StartProcess(cmd)
	err = errors.Join(err, commands.Close(), ack.Close())
	if err == nil {
		err = p.command("enable")
	}
	if err != nil {
		if p.process != nil {
			p.process.Kill()
		}
		p.closeFiles()
		return nil, fmt.Errorf("start perf: %w: %s", err, p.output)
	}
	return p, nil
}

func (p *perfCounter) closeFiles() {
	for _, f := range p.files {
		_ = f.Close()
	}
}

// command has perf do something and waits until it is done.
func (p *perfCounter) command(text string) error {
	if _, err := io.WriteString(p.control, text+"\n"); err != nil {
		return err
	}
	answer, err := p.ack.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s is not acknowledged: %w", text, err)
	}
	if got := strings.Trim(answer, "\x00\n"); got != "ack" {
		return fmt.Errorf("%s is acknowledged by %q", text, got)
	}
	return nil
}

// end returns what was counted since the start.
func (p *perfCounter) end(ctx context.Context) (Counts, error) {
	err := p.command("disable")
	// perf prints what it has when it is interrupted.
	err = errors.Join(err, syscall.Kill(p.process.PID(), syscall.SIGINT))
	select {
	case <-p.process.Done():
	case <-ctx.Done():
		p.process.Kill()
	}
	p.closeFiles()
	if err == nil {
		err = p.read(p.output.Bytes())
	}
	if err != nil {
		return Counts{}, fmt.Errorf("perf stat: %w", err)
	}
	return *p.counts, nil
}

// read takes lines like "123;;syscalls:sys_enter_splice;...", in the order of the events.
func (p *perfCounter) read(text []byte) error {
	next := 0
	for line := range bytes.Lines(text) {
		fields := strings.Split(string(line), ";")
		if len(fields) < 3 || next == len(p.events) || fields[2] != p.events[next].name {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return fmt.Errorf("unexpected line %q", line)
		}
		*p.events[next].into += n
		next++
	}
	if next < len(p.events) {
		return fmt.Errorf("nothing about %s in %q", p.events[next].name, text)
	}
	return nil
}

// loopCounts are what a tiergate has counted since it started.
type loopCounts struct {
	events, useless, bytes int64
}

// dialogue asks a tiergate for its metrics, through its standard input and output.
type dialogue struct {
	ask    *os.File
	answer *bufio.Reader
	files  []*os.File
}

// attach prepares cmd for a dialogue.
func attach(cmd *exec.Cmd) (d *dialogue, given []*os.File, err error) {
	in, ask, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	answer, out, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, in.Close(), ask.Close())
	}
	cmd.Stdin, cmd.Stdout = in, out
	return &dialogue{ask: ask, answer: bufio.NewReader(answer), files: []*os.File{ask, answer}}, []*os.File{in, out}, nil
}

func (d *dialogue) close() {
	if d == nil {
		return
	}
	for _, f := range d.files {
		_ = f.Close()
	}
}

// counts asks. The process answers with a line for each series and its value, then an empty one.
func (d *dialogue) counts() (c loopCounts, err error) {
	if _, err = io.WriteString(d.ask, "metrics\n"); err != nil {
		return c, err
	}
	into := map[string]*int64{
		`tiergate_loop_events_total used`: &c.events, `tiergate_loop_events_total useless`: &c.useless,
		`tiergate_received_bytes_total requests`: &c.bytes, `tiergate_received_bytes_total responses`: &c.bytes,
	}
	for {
		line, err := d.answer.ReadString('\n')
		if err != nil {
			return c, fmt.Errorf("ask for metrics: %w", err)
		}
		line = strings.TrimSpace(line)
		if line == "" {
			c.events += c.useless
			return c, nil
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return c, fmt.Errorf("ask for metrics: unexpected line %q", line)
		}
		if p := into[line[:max(at, 0)]]; p != nil {
			*p += int64(value)
		}
	}
}

// settled asks until the metrics hold still: loops report them about once a second.
func (d *dialogue) settled(ctx context.Context) (loopCounts, error) {
	before, err := d.counts()
	for err == nil {
		if err = pause(ctx, 1500*time.Millisecond); err != nil {
			break
		}
		now, askErr := d.counts()
		if askErr != nil || now == before {
			return now, askErr
		}
		before = now
	}
	return before, err
}
