// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// ErrClosed is what Load returns for keys that it would have to load after Close.
var ErrClosed = errors.New("cache is closed")

const (
	defaultMaxEntries  = 10_000
	defaultLoadTimeout = 10 * time.Second
)

// Loaded is what a load found for one key.
type Loaded[V any] struct {
	Value V
	// TTL is how long the value is given out. It goes with the value, so that "not
	// known" may be kept for another time than what is known. Zero or less: the value
	// goes to those who wait for it now and is not kept.
	TTL time.Duration
}

// LoadFunc finds the values of keys, all in one go. Keys that it leaves out of the
// answer are not known and not remembered. A failure that is worth remembering is
// a value with a short TTL: that is what keeps many callers from asking a dead
// broker over and over. It is called on a goroutine of its own; ctx ends when the
// load has taken longer than Options.LoadTimeout or the cache is closed, never
// because a caller gave up. It owns keys.
type LoadFunc[K comparable, V any] func(ctx context.Context, keys []K) map[K]Loaded[V]

// Options bound a Loading. Zero values mean the defaults.
type Options struct {
	// MaxEntries is the number of keys kept; past it the one that was not used for
	// longest goes. Default 10,000.
	MaxEntries int
	// LoadTimeout bounds one load. Default 10 s.
	LoadTimeout time.Duration
	// Now is the clock that expiry is measured with. Default time.Now.
	Now func() time.Time
}

// Counts are totals since the start, for metrics.
type Counts struct {
	Hits        uint64 // keys answered from memory
	Misses      uint64 // keys that were not in memory: asked by Get, or waited for by Load
	Joined      uint64 // of the misses, keys whose load was already under way
	Loads       uint64 // calls of the LoadFunc
	LoadedKeys  uint64 // keys over all those calls
	Evictions   uint64 // entries that MaxEntries pushed out
	Expirations uint64 // entries found to be too old
}

// Loading remembers at most Options.MaxEntries values, each until its own TTL ends,
// and loads a key that is asked for concurrently only once.
//
// The entries are in a simplelru.LRU with the expiry beside the value, and not in
// the library's expirable.LRU: that one has a single TTL for all entries and starts
// a goroutine that can not be stopped.
//
// All methods are safe for concurrent use. Only Load and Close block.
type Loading[K comparable, V any] struct {
	load    LoadFunc[K, V]
	timeout time.Duration
	now     func() time.Time

	ctx    context.Context // of all loads; ends at Close
	cancel context.CancelFunc
	loads  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	entries  *simplelru.LRU[K, entry[V]]
	inflight map[K]*flight[V]
	counts   Counts
}

type entry[V any] struct {
	value   V
	expires time.Time
}

// flight is one key being loaded. value and known are written before done is
// closed and not after.
type flight[V any] struct {
	done  chan struct{}
	value V
	known bool
}

// NewLoading returns an empty cache. Close it to end the loads under way. load may be nil
// where only Put and Get are used.
func NewLoading[K comparable, V any](load LoadFunc[K, V], opts Options) *Loading[K, V] {
	if opts.MaxEntries <= 0 {
		opts.MaxEntries = defaultMaxEntries
	}
	if opts.LoadTimeout <= 0 {
		opts.LoadTimeout = defaultLoadTimeout
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	entries, err := simplelru.NewLRU[K, entry[V]](opts.MaxEntries, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // G118: Close calls it
	return &Loading[K, V]{
		load:     load,
		timeout:  opts.LoadTimeout,
		now:      opts.Now,
		ctx:      ctx,
		cancel:   cancel,
		entries:  entries,
		inflight: make(map[K]*flight[V]),
	}
}

// Get returns what is remembered of key. It starts no load and never blocks.
func (l *Loading[K, V]) Get(key K) (value V, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.get(key)
}

// get counts the hit or miss. l.mu is held.
func (l *Loading[K, V]) get(key K) (value V, known bool) {
	e, ok := l.entries.Get(key)
	if ok && !l.now().Before(e.expires) {
		l.entries.Remove(key)
		l.counts.Expirations++
		ok = false
	}
	if !ok {
		l.counts.Misses++
		return value, false
	}
	l.counts.Hits++
	return e.value, true
}

// Load returns the values of keys. Those not in memory are loaded, together, but
// for those that another call is loading already: their load is shared. Keys may
// repeat; keys not known after the load are absent from the result.
//
// When ctx ends first, Load returns what it has and the error of ctx. The load goes
// on for others and for later. The caller owns the result.
func (l *Loading[K, V]) Load(ctx context.Context, keys []K) (map[K]V, error) {
	values := make(map[K]V, len(keys))
	waits, err := l.claim(ctx, keys, values)
	for key, f := range waits {
		select {
		case <-f.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		// Once more: with ctx ended too, select may pick either.
		select {
		case <-f.done:
			if f.known {
				values[key] = f.value
			}
		default:
		}
	}
	return values, err
}

// claim sorts keys: what is remembered goes into values, what is being loaded is
// returned to wait for, and a load is started for the rest.
func (l *Loading[K, V]) claim(ctx context.Context, keys []K, values map[K]V) (map[K]*flight[V], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var (
		err   error
		waits = make(map[K]*flight[V])
		mine  []K
	)
	for _, key := range keys {
		if _, seen := waits[key]; seen {
			continue
		}
		if _, seen := values[key]; seen {
			continue
		}
		if value, known := l.get(key); known {
			values[key] = value
			continue
		}
		f, loading := l.inflight[key]
		switch {
		case loading:
			l.counts.Joined++
		case ctx.Err() != nil:
			err = ctx.Err() // nobody would wait for the answer
			continue
		case l.closed:
			err = ErrClosed
			continue
		default:
			f = &flight[V]{done: make(chan struct{})}
			l.inflight[key] = f
			mine = append(mine, key)
		}
		waits[key] = f
	}
	if len(mine) > 0 {
		l.counts.Loads++
		l.counts.LoadedKeys += uint64(len(mine))
		flights := make([]*flight[V], len(mine))
		for i, key := range mine {
			flights[i] = waits[key]
		}
		l.loads.Add(1) // under l.mu, so never after Close has begun to wait
		go l.run(mine, flights)
	}
	return waits, err
}

func (l *Loading[K, V]) run(keys []K, flights []*flight[V]) {
	defer l.loads.Done()
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	asked := append([]K(nil), keys...) // the LoadFunc owns what it is given
	var found map[K]Loaded[V]
	// Deferred: a load that ends its goroutine must not leave its callers waiting.
	defer func() { l.settle(keys, flights, found) }()
	found = l.load(ctx, asked)
}

// settle remembers what a load found and wakes those who wait for it.
func (l *Loading[K, V]) settle(keys []K, flights []*flight[V], found map[K]Loaded[V]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range keys {
		f := flights[i]
		if l.inflight[key] != f {
			continue // a Put answered it meanwhile, and is newer than this load
		}
		delete(l.inflight, key)
		if got, ok := found[key]; ok {
			f.value, f.known = got.Value, true
			l.store(key, got)
		}
		close(f.done)
	}
}

// Put remembers an observation: value is what key is now, for ttl. It overrules a
// load that is under way, which began before the observation, and wakes those who
// wait for it. With a ttl of zero or less nothing is remembered afterwards. It
// never blocks.
func (l *Loading[K, V]) Put(key K, value V, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store(key, Loaded[V]{Value: value, TTL: ttl})
	if f, ok := l.inflight[key]; ok {
		delete(l.inflight, key)
		f.value, f.known = value, true
		close(f.done)
	}
}

// store is called with l.mu held.
func (l *Loading[K, V]) store(key K, got Loaded[V]) {
	if got.TTL <= 0 {
		l.entries.Remove(key)
		return
	}
	if l.entries.Add(key, entry[V]{got.Value, l.now().Add(got.TTL)}) {
		l.counts.Evictions++
	}
}

// Len is the number of entries in memory, those past their TTL that nobody has
// asked for since included.
func (l *Loading[K, V]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries.Len()
}

// Counts returns the totals so far.
func (l *Loading[K, V]) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Close ends the context of the loads under way and waits until they have
// returned; their callers get what the loads found. What is in memory can still be
// had, loads are refused with ErrClosed. It may be called more than once.
func (l *Loading[K, V]) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.loads.Wait()
}
