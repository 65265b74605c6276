// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tiergate/cache"
)

// model is a cache as simple as can be: a list, least recently used first.
type model struct {
	max     int
	now     time.Time
	entries []modelEntry
}

type modelEntry struct {
	key     string
	value   int
	expires time.Time
}

func (m *model) find(key string) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == key })
}

func (m *model) drop(key string) {
	if i := m.find(key); i >= 0 {
		m.entries = slices.Delete(m.entries, i, i+1)
	}
}

func (m *model) get(key string) (int, bool) {
	i := m.find(key)
	if i < 0 {
		return 0, false
	}
	e := m.entries[i]
	m.drop(key)
	if !m.now.Before(e.expires) {
		return 0, false
	}
	m.entries = append(m.entries, e)
	return e.value, true
}

func (m *model) put(key string, value int, ttl time.Duration) {
	m.drop(key)
	if ttl <= 0 {
		return
	}
	m.entries = append(m.entries, modelEntry{key, value, m.now.Add(ttl)})
	if len(m.entries) > m.max {
		m.entries = m.entries[1:]
	}
}

// TestModel runs random histories on the cache and on the model. Every answer and
// the number of entries must agree.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{max: rapid.IntRange(1, 4).Draw(t, "max"), now: time.Unix(0, 0)}
		keyOf := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		ttlOf := rapid.SampledFrom([]time.Duration{0, 1, 2, 5, 60})
		var answer map[string]cache.Loaded[int]
		var asked []string
		c := cache.NewLoading(func(_ context.Context, keys []string) map[string]cache.Loaded[int] {
			asked = keys
			return answer
		}, cache.Options{MaxEntries: m.max, Now: func() time.Time { return m.now }})
		defer c.Close()
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				key := keyOf.Draw(t, "key")
				value, known := c.Get(key)
				if v, k := m.get(key); v != value || k != known {
					t.Fatalf("Get(%q) = %d, %v; model has %d, %v", key, value, known, v, k)
				}
			},
			"put": func(t *rapid.T) {
				next++
				key, ttl := keyOf.Draw(t, "key"), ttlOf.Draw(t, "ttl")
				c.Put(key, next, ttl)
				m.put(key, next, ttl)
			},
			"load": func(t *rapid.T) {
				keys := rapid.SliceOfN(keyOf, 0, 6).Draw(t, "keys")
				answer, asked = make(map[string]cache.Loaded[int]), nil
				for _, key := range rapid.SliceOf(keyOf).Draw(t, "found") {
					next++
					answer[key] = cache.Loaded[int]{Value: next, TTL: ttlOf.Draw(t, "ttl")}
				}
				got, err := c.Load(context.Background(), keys)
				want, wantAsked := m.load(keys, answer)
				if err != nil || !maps.Equal(got, want) || !slices.Equal(asked, wantAsked) {
					t.Fatalf("Load(%q) = %v, %v having asked for %q; model has %v having asked for %q", keys, got, err, asked, want, wantAsked)
				}
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(rapid.SampledFrom([]time.Duration{1, 2, 30}).Draw(t, "passes"))
			},
			"": func(t *rapid.T) {
				if c.Len() != len(m.entries) {
					t.Fatalf("%d entries, model has %d", c.Len(), len(m.entries))
				}
			},
		})
	})
}

// load is what Loading.Load does when nothing else runs.
func (m *model) load(keys []string, answer map[string]cache.Loaded[int]) (map[string]int, []string) {
	got := make(map[string]int)
	var missing []string
	for _, key := range keys {
		if _, seen := got[key]; seen || slices.Contains(missing, key) {
			continue
		}
		if v, ok := m.get(key); ok {
			got[key] = v
		} else {
			missing = append(missing, key)
		}
	}
	for _, key := range missing {
		if a, ok := answer[key]; ok {
			got[key] = a.Value
			m.put(key, a.Value, a.TTL)
		}
	}
	return got, missing
}

// TestConcurrentUse is for the race detector, and checks two invariants: never two
// loads of one key at a time, and no value that is not the key's.
func TestConcurrentUse(t *testing.T) {
	var loading sync.Map
	var overlaps atomic.Int64
	c := cache.NewLoading(func(_ context.Context, keys []int) map[int]cache.Loaded[string] {
		got := make(map[int]cache.Loaded[string])
		for _, key := range keys {
			if _, twice := loading.LoadOrStore(key, true); twice {
				overlaps.Add(1)
			}
			got[key] = cache.Loaded[string]{Value: fmt.Sprint(key), TTL: time.Duration(key%3) * time.Microsecond}
		}
		for _, key := range keys {
			loading.Delete(key)
		}
		return got
	}, cache.Options{MaxEntries: 8})

	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := range 300 {
				keys := []int{i % 16, (i + worker) % 16}
				got, err := c.Load(t.Context(), keys)
				if err != nil {
					t.Errorf("Load: %v", err)
				}
				for _, key := range keys {
					if got[key] != fmt.Sprint(key) {
						t.Errorf("Load(%d) = %q", key, got[key])
					}
				}
				if v, known := c.Get(worker); known && v != fmt.Sprint(worker) {
					t.Errorf("Get(%d) = %q", worker, v)
				}
			}
		})
	}
	workers.Wait()
	c.Close()
	if n := overlaps.Load(); n != 0 {
		t.Fatalf("%d loads of a key while another load of it ran, want 0", n)
	}
	if c.Len() > 8 {
		t.Fatalf("%d entries, want at most 8", c.Len())
	}
}
