// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits of a relay.
const (
	// dialTime is the most that the target gets to take a connection; a client whose
	// connection it does not take is reset.
	dialTime = 10 * time.Second
	// lingerTime is how long a connection that was cut by FIN still takes bytes, as those
	// under way then; later ones are answered by a reset, as those to a closed socket.
	lingerTime = time.Second
	// burstTime is how far a limited rate may be exceeded for a moment, leastBurst the
	// least of it in bytes.
	burstTime  = 20 * time.Millisecond
	leastBurst = 1 << 10
)

// Relay passes TCP connections on to a target and does to them what it is told. Without a
// fault it passes bytes, half-closes and resets on as they come. It holds up to 256 KiB of a
// direction of a connection, while it delays bytes up to 4 MiB: with a latency of 20 ms a
// connection moves 200 MB/s at most. An idle connection costs 128 KiB and two descriptors.
// All methods are safe for concurrent use.
type Relay struct {
	target   string
	listener *net.TCPListener
	seed     uint64
	link     atomic.Pointer[link]
	running  sync.WaitGroup
	stop     context.CancelFunc // ends dials
	buffers  sync.Pool          // of *[readSize]byte

	mu     sync.Mutex
	closed bool
	// pairs are the open connections, made counts all that there ever were.
	pairs map[*pair]struct{}
	made  int
	// swallow says that new connections are silent from the start.
	swallow bool
}

// condition is what a relay does to all bytes.
type condition struct {
	// latency is added to the time of every byte, jitter at most added to or taken from that.
	latency, jitter time.Duration
	// rate is the most of bytes per second in each direction, of all connections
	// together; 0: no limit.
	rate int64
}

// link is a condition in force. It does not change; changed is closed when there is another.
type link struct {
	condition
	limits  [directions]*rate.Limiter // nil without a limit
	changed chan struct{}
}

// direction is where bytes go.
type direction uint8

const (
	toTarget direction = iota
	toClient
	directions = 2
)

// NewRelay starts a relay. It listens at an address (127.0.0.1:0 for any port) and dials the
// target anew for each connection; the target need not be there yet. The seed is that of jitter.
func NewRelay(listen, target string, seed uint64) (*Relay, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{target: target, listener: listener.(*net.TCPListener), seed: seed, stop: cancel, pairs: map[*pair]struct{}{}}
	r.buffers.New = func() any { return new([readSize]byte) }
	r.link.Store(newLink(condition{}))
	r.running.Go(func() { r.accept(ctx) })
	return r, nil
}

// Address is where the relay listens.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Target is the address that it passes connections on to.
func (r *Relay) Target() string { return r.target }

// Open returns how many connections there are, silent ones too.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pairs)
}

// Close stops listening, resets all connections, and waits for the end of all that runs.
func (r *Relay) Close() {
	r.stop()
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, p := range r.open() {
		p.reset()
	}
	r.running.Wait()
}

// open returns the open connections in the order in which they were made.
func (r *Relay) open() []*pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*pair, 0, len(r.pairs))
	for p := range r.pairs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pair) int { return cmp.Compare(a.number, b.number) })
	return all
}

// accept takes connections until the listener is closed.
func (r *Relay) accept(ctx context.Context) {
	for {
		client, err := r.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many descriptors
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		if p := r.add(client); p != nil {
			r.running.Go(func() { p.run(ctx) })
		}
	}
}

// add makes a pair of a new connection; nil when the relay is closed.
func (r *Relay) add(client *net.TCPConn) *pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = client.Close()
		return nil
	}
	r.made++
	p := &pair{relay: r, number: r.made, client: client, left: make(chan struct{})}
	if r.swallow {
		p.state = silent
		close(p.left)
	}
	r.pairs[p] = struct{}{}
	return p
}

func (r *Relay) remove(p *pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// swallowNew says what becomes of new connections.
func (r *Relay) swallowNew(swallow newcomers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swallow = swallow == newcomersSilent
}

// newcomers is what becomes of new connections.
type newcomers uint8

const (
	newcomersServed newcomers = iota
	newcomersSilent
)

// change replaces the condition.
func (r *Relay) change(edit func(*condition)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.link.Load()
	c := before.condition
	edit(&c)
	r.link.Store(newLink(c))
	close(before.changed)
}

func newLink(c condition) *link {
	l := &link{condition: c, changed: make(chan struct{})}
	if c.rate > 0 {
		burst := max(int(float64(c.rate)*burstTime.Seconds()), leastBurst)
		for d := range l.limits {
			l.limits[d] = rate.NewLimiter(rate.Limit(c.rate), burst)
		}
	}
	return l
}

// delay is how long bytes take; luck is between -1 and 1.
func (l *link) delay(luck float64) time.Duration {
	return l.latency + time.Duration(luck*float64(l.jitter))
}

// luck returns the source of jitter of one direction of a connection.
func (r *Relay) luck(p *pair, d direction) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(p.number)*directions+uint64(d)))
}
