// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"tiergate/rewrite"
)

// defaultTickEvery is how often deadlines are looked at and metrics brought up to date.
const defaultTickEvery = time.Second

// Server is the running proxy. Start comes first; the other methods are safe for
// concurrent use afterwards.
type Server struct {
	opts      Options
	log       *slog.Logger
	metrics   *metrics
	endpoints []*endpoint
	// late are the listeners of endpoints whose port was not free at the start.
	late []*lateListener
	// unbound is how many of them do not listen yet.
	unbound   atomic.Int32
	loops     []*loop
	next      atomic.Uint32
	admission admission
	// displacing is held while sessions are ended for others.
	displacing sync.Mutex
	// pace spreads accepted connections; nil when they are not limited.
	pace    *rate.Limiter
	account account
	// heavy holds a token for each large frame that is worked on off the loops.
	heavy   chan struct{}
	pending *pending
	// ctx ends when Close begins; work off the loops hangs on it.
	ctx    context.Context
	cancel context.CancelFunc
	// work counts goroutines that may still post to loops; running counts the loops.
	work    sync.WaitGroup
	running sync.WaitGroup
	// sys is kernel, but in tests that have calls fail.
	sys system
	// tickEvery is defaultTickEvery, but for tests that move the clock themselves.
	tickEvery time.Duration
	// closing guards closed: no work begins after Close has begun to wait for it.
	closing sync.Mutex
	closed  bool
	started atomic.Bool
	stop    sync.Once
}

// New checks the options and fills in defaults. Nothing is opened yet.
func New(opts Options) (*Server, error) {
	opts.Loops = cmp.Or(opts.Loops, runtime.GOMAXPROCS(0))
	opts.MaxRequestBytes = cmp.Or(opts.MaxRequestBytes, 256<<20)
	opts.MaxResponseBytes = cmp.Or(opts.MaxResponseBytes, math.MaxInt32)
	opts.MaxHeldBytes = cmp.Or(opts.MaxHeldBytes, 32<<20)
	opts.MaxBufferedBytes = cmp.Or(opts.MaxBufferedBytes, 512<<20)
	opts.MaxInflight = cmp.Or(opts.MaxInflight, 1024)
	opts.MaxPipes = cmp.Or(opts.MaxPipes, 128)
	opts.DialTimeout = cmp.Or(opts.DialTimeout, 10*time.Second)
	opts.HandshakeTimeout = cmp.Or(opts.HandshakeTimeout, 10*time.Second)
	opts.MaxHandshakes = cmp.Or(opts.MaxHandshakes, 256)
	opts.MaxPendingConnections = cmp.Or(opts.MaxPendingConnections, 4096)
	opts.RemoteStorageTimeout = cmp.Or(opts.RemoteStorageTimeout, 5*time.Second)
	opts.LingerTimeout = cmp.Or(opts.LingerTimeout, 30*time.Second)
	opts.MaxUnauthenticatedBytes = cmp.Or(opts.MaxUnauthenticatedBytes, 4<<20)
	opts.FirstRequestTimeout = cmp.Or(opts.FirstRequestTimeout, time.Minute)
	opts.ProgressTimeout = cmp.Or(opts.ProgressTimeout, 30*time.Second)
	opts.LookupTimeout = cmp.Or(opts.LookupTimeout, 20*time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, e := range opts.Endpoints {
		switch {
		case e.Dial == nil && e.DialName == nil:
			return nil, fmt.Errorf("endpoint %s: Dial is missing", e.Address)
		case e.DialName != nil && e.TLS == nil:
			return nil, fmt.Errorf("endpoint %s: DialName needs TLS, which tells the name", e.Address)
		}
		if e.RemoteStorage == nil && e.Rules.PendingUpload != rewrite.PendingUploadOff {
			return nil, fmt.Errorf("endpoint %s answers -6 and needs RemoteStorage", e.Address)
		}
	}
	sessions := opts.MaxSessions
	if opts.MaxDescriptors > 0 {
		possible := opts.share()
		if sessions > possible {
			opts.Logger.Warn("max_sessions is more than the file descriptors allow; raise ulimit -n (LimitNOFILE in systemd) or lower it",
				"max_sessions", sessions, "possible", possible, "descriptors", opts.MaxDescriptors)
		}
		if sessions == 0 || sessions > possible {
			sessions = possible
		}
	}
	s := &Server{
		account: account{limit: opts.MaxBufferedBytes, wake: make(chan struct{}, 1)}, opts: opts, log: opts.Logger, tickEvery: defaultTickEvery,
		sys: kernel(), pending: newPending(opts.MaxPendingConnections, opts.MaxHandshakes), heavy: make(chan struct{}, opts.Loops),
	}
	s.admission = newAdmission(sessions, opts.MaxSessionsPerClient)
	if opts.AcceptRate > 0 {
		s.pace = rate.NewLimiter(rate.Limit(opts.AcceptRate), max(1, opts.AcceptRate))
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Start binds all endpoints, or none if somebody else listens on one, and serves until Close.
// It is called once.
func (s *Server) Start() error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("the proxy was started before")
	}
	if s.ctx.Err() != nil {
		return errors.New("the proxy was closed")
	}
	if err := s.bind(); err != nil {
		return err
	}
	for range s.opts.Loops {
		l, err := newLoop(s)
		if err != nil {
			s.unbind()
			for _, l := range s.loops {
				l.stop()
			}
			s.running.Wait()
			return err
		}
		s.loops = append(s.loops, l)
		s.running.Go(l.run)
	}
	for _, e := range s.endpoints {
		s.background(e.accept)
	}
	if n := s.admission.limit(); n > 0 {
		s.log.Info("the number of sessions is limited", "sessions", n, "descriptors", s.opts.MaxDescriptors)
	}
	s.background(s.tick)
	s.background(s.reclaim)
	return nil
}

// bind opens every endpoint's listener. One whose port an outgoing connection holds is opened
// later.
func (s *Server) bind() error {
	for i, o := range s.opts.Endpoints {
		ln, err := s.listen(o)
		if err != nil {
			s.unbind()
			return fmt.Errorf("listener %q: cannot listen for %s: %w", o.Listener, o.Broker, err)
		}
		s.endpoints = append(s.endpoints, &endpoint{Endpoint: o, server: s, index: i, listener: ln})
	}
	return nil
}

// unbind closes every endpoint's listener.
func (s *Server) unbind() {
	for _, e := range s.endpoints {
		_ = e.listener.Close()
	}
}

// Addr returns the address that endpoint i of Options.Endpoints is bound to, after
// Start: of interest where the configured port is 0.
func (s *Server) Addr(i int) net.Addr { return s.endpoints[i].listener.Addr() }

// background runs f in a goroutine that Close waits for. f must end soon after s.ctx.
// Once Close has begun f does not run, and the result is false: loops still take up what
// was posted before, and end it a moment later.
func (s *Server) background(f func()) bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if !s.closed {
		s.sys.spawn(&s.work, f)
	}
	return !s.closed
}

// errPanic is a panic in what a session has others do off the loops.
var errPanic = errors.New("panic")

// recovered runs f and turns a panic in it into an error: loop.guard for work off the loops.
func (s *Server) recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic off the loops", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}

// tick drives the loops' clocks.
func (s *Server) tick() {
	ticker := time.NewTicker(s.tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			for _, l := range s.loops {
				l.post(func() { l.tick(now) })
			}
		}
	}
}

// Drain closes the listeners, lets every exchange under way finish, and ends each
// session as soon as it has none. It returns nil once no session is left, or ctx's
// error when that ends first. Close must be called afterwards in both cases.
func (s *Server) Drain(ctx context.Context) error {
	s.unbind()
	for _, l := range s.loops {
		l.post(l.drain)
	}
	// Sessions tell nobody when they end; asking costs little, for as long as it lasts.
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		left, err := s.sessions(ctx)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d sessions left: %w", left, ctx.Err())
		case <-ticker.C:
		}
	}
}

// sessions returns how many sessions all loops have.
func (s *Server) sessions(ctx context.Context) (int, error) {
	var total atomic.Int64
	err := s.onLoops(ctx, func(l *loop) { total.Add(int64(len(l.sessions))) })
	return int(total.Load()), err
}

// drain begins to end the loop's sessions.
func (l *loop) drain() {
	l.draining = true
	for s := range l.sessions {
		l.guard(s, func() {
			if s.state == stateDialing {
				s.end(reasonDrained, nil)
				return
			}
			s.settle()
		})
	}
}

// Close ends every session at once and returns when no goroutine of the server is
// left. Calling it again, or before Start, does nothing.
func (s *Server) Close() error {
	s.stop.Do(func() {
		s.unbind()
		s.cancel()
		s.closing.Lock()
		s.closed = true
		s.closing.Unlock()
		// Whatever runs off the loops posts its end before the loops' stop is posted, so
		// that no descriptor is left in a task that never runs.
		s.work.Wait()
		for _, l := range s.loops {
			l.stop()
		}
		s.running.Wait()
		s.metrics.unregister()
	})
	return nil
}

// pick returns the loop for the next session, in turn.
func (s *Server) pick() *loop {
	return s.loops[s.next.Add(1)%uint32(len(s.loops))]
}
