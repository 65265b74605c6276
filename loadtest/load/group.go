// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// group is a consumer group whose members come and go.
type group struct {
	spec      *Workload
	bootstrap []string
	topic     string
	reading   *reading
	gauge     *gauge

	mu      sync.Mutex
	members []*member
	joined  int
}

type member struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// every is the time between two changes of the members.
func (w *Workload) every() Duration {
	if w.Every > 0 {
		return w.Every
	}
	return Duration(3 * time.Second)
}

// run has the group at its size, and lets one member leave and a new one join again and
// again, until stop. The members then go on: finish ends them.
func (g *group) run(ctx context.Context, stop <-chan struct{}) error {
	for range g.spec.Consumers {
		if err := g.join(); err != nil {
			return err
		}
	}
	for pause(ctx, stop, time.Duration(g.spec.every())) {
		if err := g.leave(ctx); err != nil {
			return err
		}
		if err := g.join(); err != nil {
			return err
		}
	}
	return nil
}

// join adds a member.
func (g *group) join() error {
	opts := append(baseOptions(g.bootstrap), g.spec.consumerOptions()...)
	client, err := kgo.NewClient(append(opts,
		kgo.ConsumerGroup(g.topic), kgo.ConsumeTopics(g.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.AutoCommitInterval(time.Second),
		kgo.WithHooks(retries{g.gauge}),
	)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{client: client, cancel: cancel, done: make(chan struct{})}
	g.mu.Lock()
	g.members = append(g.members, m)
	g.joined++
	g.mu.Unlock()
	go func() {
		defer close(m.done)
		m.err = g.consume(ctx, client)
	}()
	return nil
}

// leave ends the oldest member: it commits and says good-bye.
func (g *group) leave(ctx context.Context) error {
	g.mu.Lock()
	m := g.members[0]
	g.members = g.members[1:]
	g.mu.Unlock()
	return m.end(ctx)
}

func (m *member) end(ctx context.Context) error {
	m.cancel()
	<-m.done
	_ = m.client.LeaveGroupContext(ctx) // a coordinator that is down times the member out
	m.client.Close()
	return m.err
}

// consume is one member.
func (g *group) consume(ctx context.Context, client *kgo.Client) error {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetchError(ctx, fetches, g.gauge); err != nil {
			return err
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				return
			}
			if st, err := g.reading.arrived(r.Partition, r.Offset, r.Value); err == nil {
				g.gauge.record(st.dueTime(), now, len(r.Value)+len(r.Key))
			}
		})
	}
	return nil
}

// finish waits until all that was acknowledged has arrived, and ends the members.
func (g *group) finish(ctx context.Context) error {
	stop := make(chan struct{})
	for g.reading.missing() > 0 {
		if !pause(ctx, stop, 50*time.Millisecond) {
			return fmt.Errorf("the group was not given %d records: %w", g.reading.missing(), ctx.Err())
		}
	}
	g.mu.Lock()
	members := g.members
	g.members = nil
	g.mu.Unlock()
	var all errgroup.Group
	for _, m := range members {
		all.Go(func() error { return m.end(ctx) })
	}
	return all.Wait()
}

func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		m.cancel()
		m.client.Close()
	}
}
