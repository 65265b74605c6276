// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("down")

func TestFailuresBackOff(t *testing.T) {
	clock := newClock()
	f := newFailures(clock.now)
	up := false
	dials := 0
	dial := func() (net.Conn, error) {
		dials++
		if !up {
			return nil, errDown
		}
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	}
	steps := []struct {
		pass   time.Duration
		up     bool
		dials  int
		result dialResult
		err    string
	}{
		{0, false, 1, dialFailed, "down"},
		{0, false, 1, dialRemembered, "down (remembered for 100ms)"},
		{99 * time.Millisecond, true, 1, dialRemembered, "down (remembered for 100ms)"},
		{time.Millisecond, false, 2, dialFailed, "down"},
		{199 * time.Millisecond, false, 2, dialRemembered, "down (remembered for 200ms)"},
		{time.Millisecond, false, 3, dialFailed, "down"},
		{400 * time.Millisecond, false, 4, dialFailed, "down"},
		{800 * time.Millisecond, false, 5, dialFailed, "down"},
		{999 * time.Millisecond, false, 5, dialRemembered, "down (remembered for 1s)"},
		{time.Millisecond, false, 6, dialFailed, "down"},
		{time.Second, true, 7, dialConnected, "<nil>"},
		{0, false, 8, dialFailed, "down"}, // success forgot all
		{100 * time.Millisecond, true, 9, dialConnected, "<nil>"},
	}
	for i, step := range steps {
		clock.pass(step.pass)
		up = step.up
		conn, result, err := f.guard(t.Context(), "a:1", dial)
		if dials != step.dials || result != step.result || fmt.Sprint(err) != step.err {
			t.Fatalf("step %d: %d dials, %s, %v; want %d, %s, %s", i, dials, result, err, step.dials, step.result, step.err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}

func TestFailuresOneProbeForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(time.Now)
		dials := make(chan chan error, 100)
		dial := func() (net.Conn, error) {
			answer := make(chan error)
			dials <- answer
			return nil, <-answer
		}
		results := make(chan string, 100)
		begin := func(ctx context.Context, n int) {
			for range n {
				go func() {
					_, result, err := f.guard(ctx, "a:1", dial)
					results <- fmt.Sprint(result, " ", err)
				}()
			}
			synctest.Wait()
		}
		want := func(n int, text string) {
			t.Helper()
			synctest.Wait()
			for range n {
				select {
				case got := <-results:
					if got != text {
						t.Fatalf("guard gave %q, want %q", got, text)
					}
				default:
					t.Fatalf("guard has not returned, want %q", text)
				}
			}
		}
		begin(t.Context(), 3) // an address without failures is dialed freely
		for range 3 {
			(<-dials) <- errDown
		}
		want(3, "failed down")

		<-time.After(firstPause)
		begin(t.Context(), 5)
		if len(dials) != 1 {
			t.Fatalf("%d dials to an address that has failed, want 1 probe", len(dials))
		}
		(<-dials) <- errDown // they share its failure
		synctest.Wait()
		got := map[string]int{}
		for range 5 {
			got[<-results]++
		}
		if got["failed down"] != 1 || got["remembered down (remembered for 200ms)"] != 4 {
			t.Fatalf("results %v, want 1 failed and 4 remembered for 200ms", got)
		}

		<-time.After(2 * firstPause)
		ctx, cancel := context.WithCancel(t.Context())
		begin(ctx, 2) // the probe and one who waits for it give up: nothing was learnt
		probe := <-dials
		cancel()
		want(1, "gave_up a:1: context canceled")
		begin(t.Context(), 3)
		probe <- context.Canceled
		want(1, "gave_up context canceled")
		if len(dials) != 1 {
			t.Fatalf("%d dials after the probe was called off, want 1 new probe", len(dials))
		}
		(<-dials) <- nil // reached: those who waited dial too
		want(1, "connected <nil>")
		if len(dials) != 2 {
			t.Fatalf("%d dials after the address was reached, want 2", len(dials))
		}
		(<-dials) <- nil
		(<-dials) <- nil
		want(2, "connected <nil>")
	})
}

func TestFailuresAreBounded(t *testing.T) {
	clock := newClock()
	f := newFailures(clock.now)
	for i := range 1000 {
		clock.pass(time.Second)
		_, _, _ = f.guard(t.Context(), fmt.Sprintf("a:%d", i), func() (net.Conn, error) { return nil, errDown })
	}
	if n := len(f.byAddress); n > manyFailures {
		t.Fatalf("%d failures remembered, want at most %d: the others are a minute old", n, manyFailures)
	}
	if got := f.recent(2); len(got) != 2 {
		t.Fatalf("recent(2) = %v", got)
	}
	clock.pass(2 * time.Minute)
	if got := f.recent(2); len(got) != 0 {
		t.Fatalf("recent(2) = %v after two minutes, want none", got)
	}
}

// pipe is a connection that tells when it is closed.
type pipe struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipe() *pipe { return &pipe{closed: make(chan struct{})} }

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipe) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// after is an attempt that ends after d, unless it is called off.
func after(d time.Duration, conn net.Conn, err error) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		select {
		case <-time.After(d):
			return conn, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestRace(t *testing.T) {
	won := newPipe()
	never := time.Hour
	tests := []struct {
		name     string
		attempts []func(context.Context) (net.Conn, error)
		took     time.Duration
		conn     net.Conn
		errs     string
		tried    int
	}{
		{"first at once", []func(context.Context) (net.Conn, error){after(0, won, nil), after(0, nil, errDown)}, 0, won, "[]", 1},
		{"first refuses", []func(context.Context) (net.Conn, error){after(0, nil, errDown), after(0, won, nil)}, 0, won, "[]", 2},
		{"first hangs", []func(context.Context) (net.Conn, error){after(never, nil, nil), after(0, won, nil)}, fallbackDelay, won, "[]", 2},
		{"two hang", []func(context.Context) (net.Conn, error){after(never, nil, nil), after(never, nil, nil), after(0, won, nil)}, 2 * fallbackDelay, won, "[]", 3},
		{"slow first wins", []func(context.Context) (net.Conn, error){after(fallbackDelay+1, won, nil), after(never, nil, nil)}, fallbackDelay + 1, won, "[]", 2},
		{"all refuse", []func(context.Context) (net.Conn, error){after(0, nil, errDown), after(0, nil, errDown)}, 0, nil, "[down down]", 2},
		{"last one hangs", []func(context.Context) (net.Conn, error){after(0, nil, errDown), after(time.Second, nil, errDown)}, time.Second, nil, "[down down]", 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				tried := make(chan int, len(test.attempts))
				conn, _, errs := race(t.Context(), len(test.attempts), func(ctx context.Context, i int) (net.Conn, error) {
					tried <- i
					return test.attempts[i](ctx)
				})
				if conn != test.conn || fmt.Sprint(errs) != test.errs || time.Since(began) != test.took || len(tried) != test.tried {
					t.Fatalf("race = %v, %v after %v and %d attempts; want %v, %s after %v and %d",
						conn, errs, time.Since(began), len(tried), test.conn, test.errs, test.took, test.tried)
				}
			})
		})
	}
}

func TestRaceClosesLateWinners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, late := newPipe(), newPipe()
		conn, _, _ := race(t.Context(), 2, func(ctx context.Context, i int) (net.Conn, error) {
			if i == 0 { // does not notice that it is called off
				<-time.After(2 * fallbackDelay)
				return late, nil
			}
			return first, nil
		})
		if conn != net.Conn(first) || late.isClosed() {
			t.Fatalf("race gave %v, want the first winner while the other is under way", conn)
		}
		<-time.After(2 * fallbackDelay)
		synctest.Wait()
		if !late.isClosed() || first.isClosed() {
			t.Fatal("want the late winner closed, and the first one not")
		}
	})
}

func TestRaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), fallbackDelay/2)
		defer cancel()
		conn, _, errs := race(ctx, 3, func(ctx context.Context, _ int) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if conn != nil || fmt.Sprint(errs) != "[context deadline exceeded <nil> <nil>]" {
			t.Fatalf("race = %v, %v; want the first attempt's error only", conn, errs)
		}
	})
}
