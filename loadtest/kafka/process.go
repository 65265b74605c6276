// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child process that does not outlive this one. All methods are safe for
// concurrent use.
type Process struct {
	pid  int
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; read after done
}

// StartProcess starts cmd in a process group of its own. On Linux the kernel kills the
// child when this process dies.
//
// That signal (prctl(2), PR_SET_PDEATHSIG) is sent when the *thread* that started the
// child ends, so one goroutine keeps its thread from start to end.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = processAttributes()
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, nil for exit code 0; it waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Terminate sends SIGTERM and waits for the end. When ctx ends first, or after a
// minute, the whole process group is killed and an error returned.
func (p *Process) Terminate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("process %d did not end on SIGTERM and was killed: %w", p.pid, ctx.Err())
	}
}

// Kill kills the whole process group and waits for the end.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signal has no effect on a process that has ended: its group id may be another's.
func (p *Process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = signalGroup(p.pid, sig) // it may have ended in between
	}
}

// exitCode returns the exit code that err, the result of Wait, stands for.
func exitCode(err error) (code int, ok bool) {
	if err == nil {
		return 0, true
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), true
	}
	return 0, false
}

// logTail returns the last lines of a log file for an error message, and before them the
// last errors: a broker that gives up writes hundreds of lines about its shutdown.
func logTail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("--- errors in %s\n%s--- its last lines\n%s", path, tail(errorLines(b), 4*1024), tail(b, 3*1024))
}

// errorLines returns the lines of level ERROR with the first few lines of what follows
// each, the exception and where it came from.
func errorLines(log []byte) []byte {
	const follow = 4
	var out []byte
	left := 0
	for line := range bytes.Lines(log) {
		switch {
		case bytes.Contains(line, []byte("] ERROR ")):
			left = follow
		case bytes.Contains(line, []byte("] INFO ")) || bytes.Contains(line, []byte("] WARN ")):
			left = 0
		default:
			left--
		}
		if left > 0 {
			out = append(out, line...)
		}
	}
	return out
}

// pause waits, or returns the error of ctx when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Poll calls cond every 50 ms until it returns nil, and gives up when ctx ends: the
// error then is that of the last call.
func Poll(ctx context.Context, what string, cond func(context.Context) error) error {
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		if ctxErr := pause(ctx, 50*time.Millisecond); ctxErr != nil {
			return fmt.Errorf("waited in vain for %s (%w); at last: %w", what, ctxErr, err)
		}
	}
}
