// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tiergate/cache"
)

// gate is a LoadFunc that tells of its calls and answers when it is told to. Use it
// inside a synctest bubble only.
type gate struct {
	calls   chan []string
	answers chan map[string]cache.Loaded[int]
	ended   chan error // the ctx error of loads that ended before an answer
}

func newGate() *gate {
	return &gate{
		calls:   make(chan []string, 100),
		answers: make(chan map[string]cache.Loaded[int]),
		ended:   make(chan error, 100),
	}
}

func (g *gate) load(ctx context.Context, keys []string) map[string]cache.Loaded[int] {
	g.calls <- slices.Clone(keys)
	clear(keys) // they are the load's own
	select {
	case got := <-g.answers:
		return got
	case <-ctx.Done():
		g.ended <- ctx.Err()
		return nil
	}
}

func minute(values map[string]int) map[string]cache.Loaded[int] {
	got := make(map[string]cache.Loaded[int])
	for k, v := range values {
		got[k] = cache.Loaded[int]{Value: v, TTL: time.Minute}
	}
	return got
}

type result struct {
	values map[string]int
	err    error
}

func goLoad(ctx context.Context, c *cache.Loading[string, int], keys ...string) chan result {
	out := make(chan result, 1)
	go func() {
		values, err := c.Load(ctx, keys)
		out <- result{values, err}
	}()
	return out
}

func wantResult(t *testing.T, out chan result, values map[string]int, err error) {
	t.Helper()
	select {
	case got := <-out:
		if !maps.Equal(got.values, values) || !errors.Is(got.err, err) {
			t.Fatalf("Load = %v, %v; want %v, %v", got.values, got.err, values, err)
		}
	default:
		t.Fatalf("Load has not returned; want %v, %v", values, err)
	}
}

func wantCall(t *testing.T, g *gate, keys ...string) {
	t.Helper()
	select {
	case got := <-g.calls:
		if !slices.Equal(got, keys) {
			t.Fatalf("load of %q, want of %q", got, keys)
		}
	default:
		t.Fatalf("no load was started, want one of %q", keys)
	}
}

func wantNoCall(t *testing.T, g *gate) {
	t.Helper()
	select {
	case got := <-g.calls:
		t.Fatalf("load of %q, want none", got)
	default:
	}
}

func wantGet(t *testing.T, c *cache.Loading[string, int], key string, value int, known bool) {
	t.Helper()
	if v, ok := c.Get(key); v != value || ok != known {
		t.Fatalf("Get(%q) = %d, %v; want %d, %v", key, v, ok, value, known)
	}
}

// pass lets fake time pass in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

// inBubble runs test with a cache that loads through a gate, and closes it.
func inBubble(t *testing.T, opts cache.Options, test func(t *testing.T, c *cache.Loading[string, int], g *gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := cache.NewLoading(g.load, opts)
		defer c.Close()
		test(t, c, g)
	})
}

func TestConcurrentLoadsShareOneLoadPerKey(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		one := goLoad(t.Context(), c, "a", "b", "a")
		synctest.Wait()
		wantCall(t, g, "a", "b")
		two := goLoad(t.Context(), c, "b", "c") // b is under way, c is not
		three := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantCall(t, g, "c")
		wantNoCall(t, g)

		// Two loads wait for answers; both take the same one and use their keys of it.
		for range 2 {
			g.answers <- minute(map[string]int{"a": 1, "b": 2, "c": 3})
		}
		synctest.Wait()
		wantResult(t, one, map[string]int{"a": 1, "b": 2}, nil)
		wantResult(t, two, map[string]int{"b": 2, "c": 3}, nil)
		wantResult(t, three, map[string]int{"a": 1}, nil)

		four := goLoad(t.Context(), c, "c", "a")
		synctest.Wait()
		wantResult(t, four, map[string]int{"a": 1, "c": 3}, nil)
		wantNoCall(t, g)

		want := cache.Counts{Hits: 2, Misses: 5, Joined: 2, Loads: 2, LoadedKeys: 3}
		if got := c.Counts(); got != want {
			t.Fatalf("counts %+v, want %+v", got, want)
		}
	})
}

func TestCallerThatGivesUpLeavesTheLoadRunning(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		c.Put("known", 9, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		impatient := goLoad(ctx, c, "a", "known")
		patient := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantCall(t, g, "a")
		cancel()
		synctest.Wait()
		wantResult(t, impatient, map[string]int{"known": 9}, context.Canceled)

		g.answers <- minute(map[string]int{"a": 1})
		synctest.Wait()
		wantResult(t, patient, map[string]int{"a": 1}, nil)
		wantNoCall(t, g)

		// A ctx that has ended before the call still gets what is in memory, and starts nothing.
		late := goLoad(ctx, c, "a", "b")
		synctest.Wait()
		wantResult(t, late, map[string]int{"a": 1}, context.Canceled)
		wantNoCall(t, g)
	})
}

func TestEveryValueHasItsOwnTTL(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		got := goLoad(t.Context(), c, "long", "short", "never", "unknown")
		synctest.Wait()
		wantCall(t, g, "long", "short", "never", "unknown")
		g.answers <- map[string]cache.Loaded[int]{
			"long":  {Value: 1, TTL: time.Minute},
			"short": {Value: 2, TTL: 5 * time.Second},
			"never": {Value: 3},
		}
		synctest.Wait()
		wantResult(t, got, map[string]int{"long": 1, "short": 2, "never": 3}, nil)
		wantGet(t, c, "never", 0, false)
		wantGet(t, c, "unknown", 0, false)

		pass(5*time.Second - 1)
		wantGet(t, c, "short", 2, true)
		pass(1)
		wantGet(t, c, "short", 0, false)
		wantGet(t, c, "long", 1, true)
		pass(55 * time.Second)
		wantGet(t, c, "long", 0, false)
		if got, want := c.Counts().Expirations, uint64(2); got != want {
			t.Fatalf("%d expirations, want %d", got, want)
		}
		if c.Len() != 0 {
			t.Fatalf("%d entries left, want 0", c.Len())
		}
	})
}

func TestPutOverrulesTheLoadUnderWay(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		got := goLoad(t.Context(), c, "a", "b")
		synctest.Wait()
		wantCall(t, g, "a", "b")
		c.Put("a", 7, time.Minute)

		// a is answered for newcomers at once; the load still owes b to the first caller.
		newcomer := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantResult(t, newcomer, map[string]int{"a": 7}, nil)
		g.answers <- minute(map[string]int{"a": 1, "b": 2})
		synctest.Wait()
		wantResult(t, got, map[string]int{"a": 7, "b": 2}, nil)
		wantGet(t, c, "a", 7, true)
	})
}

func TestPutWakesWaiters(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		got := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantCall(t, g, "a")
		c.Put("a", 7, 0) // observed, not to be kept
		synctest.Wait()
		wantResult(t, got, map[string]int{"a": 7}, nil)
		wantGet(t, c, "a", 0, false)

		// The old load is still under way and answers nobody: a second one is started.
		again := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantCall(t, g, "a")
		g.answers <- minute(map[string]int{"a": 1})
		g.answers <- minute(map[string]int{"a": 1})
		synctest.Wait()
		wantResult(t, again, map[string]int{"a": 1}, nil)
	})
}

func TestMoreKeysThanEntriesInOneLoad(t *testing.T) {
	inBubble(t, cache.Options{MaxEntries: 2}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		got := goLoad(t.Context(), c, "a", "b", "c", "d")
		synctest.Wait()
		wantCall(t, g, "a", "b", "c", "d")
		g.answers <- minute(map[string]int{"a": 1, "b": 2, "c": 3, "d": 4})
		synctest.Wait()
		wantResult(t, got, map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}, nil)
		if c.Len() != 2 || c.Counts().Evictions != 2 {
			t.Fatalf("%d entries, %d evictions; want 2 and 2", c.Len(), c.Counts().Evictions)
		}
	})
}

func TestLoadTimeout(t *testing.T) {
	inBubble(t, cache.Options{LoadTimeout: 3 * time.Second}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		began := time.Now() // fake time: exact
		values, err := c.Load(t.Context(), []string{"a"})
		if len(values) != 0 || err != nil {
			t.Fatalf("Load = %v, %v; want nothing and no error: the key is not known", values, err)
		}
		if got := time.Since(began); got != 3*time.Second {
			t.Fatalf("Load took %v, want 3s", got)
		}
		if err := <-g.ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the load's context ended with %v, want a deadline", err)
		}
	})
}

func TestCloseEndsLoads(t *testing.T) {
	inBubble(t, cache.Options{}, func(t *testing.T, c *cache.Loading[string, int], g *gate) {
		c.Put("known", 9, time.Minute)
		got := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantCall(t, g, "a")
		c.Close()
		if err := <-g.ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the load's context ended with %v, want canceled", err)
		}
		synctest.Wait()
		wantResult(t, got, map[string]int{}, nil)

		after := goLoad(t.Context(), c, "a", "known")
		synctest.Wait()
		wantResult(t, after, map[string]int{"known": 9}, cache.ErrClosed)
		wantNoCall(t, g)
		c.Close()
	})
}

func TestLoadThatEndsItsGoroutineReleasesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.NewLoading(func(context.Context, []string) map[string]cache.Loaded[int] {
			runtime.Goexit()
			return nil
		}, cache.Options{})
		defer c.Close()
		got := goLoad(t.Context(), c, "a")
		synctest.Wait()
		wantResult(t, got, map[string]int{}, nil)
	})
}
