// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"tiergate/loadtest/kafka"
)

// connectionsJob opens connections, asks for versions and metadata on each, holds it for
// a while and closes it.
type connectionsJob struct {
	setting
	got    *measured
	gauges []*gauge
}

// patience is how long a request is tried again before it counts as failed. A restart of
// a broker takes up to half a minute on a busy machine.
const patience = time.Minute

func (j *connectionsJob) measured() []*measured { return []*measured{j.got} }

func (j *connectionsJob) prepare(context.Context) error {
	text := fmt.Sprintf("%d clients, one connection after the other", j.spec.Clients)
	if j.spec.Rate > 0 {
		text = fmt.Sprintf("%.0f connections/s (open loop), at most %d at once", j.spec.Rate, j.spec.Clients)
	}
	j.got = j.measure("", text+", ApiVersions and Metadata on each, held for "+j.spec.Hold.String(), "connections",
		"from when a connection was due until Metadata was answered on it", j.loop())
	for range j.spec.Clients {
		j.gauges = append(j.gauges, j.got.meter.gauge())
	}
	return nil
}

func (j *connectionsJob) run(ctx context.Context, stop <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for i, gauge := range j.gauges {
		g.Go(func() error {
			pace := j.pace(j.got.meter, start, i, len(j.gauges))
			defer gauge.miss(pace)
			for {
				due, ok := time.Now(), pause(ctx, stop, 0)
				if pace != nil {
					due, ok = pace.wait(ctx, stop)
				}
				if !ok {
					return nil
				}
				if err := j.one(ctx, stop, due, gauge); err != nil && ctx.Err() == nil {
					gauge.fail(due, time.Now())
				}
			}
		})
	}
	return g.Wait()
}

// one is the life of a connection. One that fails is tried again for a while.
func (j *connectionsJob) one(ctx context.Context, stop <-chan struct{}, due time.Time, g *gauge) error {
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, size, err := j.open(ask)
		if err == nil {
			g.record(due, time.Now(), size)
			pause(ctx, stop, time.Duration(j.spec.Hold))
			return conn.Close()
		}
		g.retry()
		if !pause(ask, nil, 100*time.Millisecond) {
			return err
		}
	}
}

// open opens a connection and asks on it. size is that of the answer to Metadata.
func (j *connectionsJob) open(ctx context.Context) (conn *kafka.Conn, size int, err error) {
	if conn, err = kafka.Dial(ctx, j.target.bootstrap[0], clientID); err != nil {
		return nil, 0, err
	}
	if _, err = conn.Request(ctx, kmsg.NewPtrApiVersionsRequest()); err == nil {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{}
		_, err = conn.Send(ctx, req)
	}
	var frame []byte
	if err == nil {
		frame, err = conn.Receive(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, len(frame), nil
}

func (j *connectionsJob) finish(context.Context) error { return nil }

func (j *connectionsJob) close(context.Context) {}

// adminJob asks what consoles and exporters ask, all the time.
type adminJob struct {
	setting
	got     *measured
	clients []*kgo.Client
	gauges  []*gauge

	mu sync.Mutex // of the notes
}

func (j *adminJob) measured() []*measured { return []*measured{j.got} }

func (j *adminJob) prepare(context.Context) error {
	text := fmt.Sprintf("%d clients ask for Metadata of all topics, DescribeCluster, ListGroups and ApiVersions in turn", j.spec.Clients)
	if j.spec.Rate > 0 {
		text += fmt.Sprintf(", %.0f requests/s in all (open loop)", j.spec.Rate)
	}
	j.got = j.measure("", text, "requests", "from when a request was due until it was answered", j.loop())
	for range j.spec.Clients {
		g := j.got.meter.gauge()
		c, err := kgo.NewClient(append(baseOptions(j.target.bootstrap), kgo.RetryTimeout(patience), kgo.RequestRetries(1000), kgo.WithHooks(retries{g}, &readBytes{gauge: g}))...)
		if err != nil {
			return err
		}
		j.clients, j.gauges = append(j.clients, c), append(j.gauges, g)
	}
	return nil
}

// readBytes counts the bytes of answers, which requests do not tell.
type readBytes struct{ gauge *gauge }

var _ kgo.HookBrokerRead = (*readBytes)(nil)

// OnBrokerRead is called for every answer.
func (r *readBytes) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, bytes int, _, _ time.Duration, err error) {
	if err == nil {
		r.gauge.add(time.Now(), 0, bytes)
	}
}

func (j *adminJob) run(ctx context.Context, stop <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for i, c := range j.clients {
		g.Go(func() error {
			pace := j.pace(j.got.meter, start, i, len(j.clients))
			defer j.gauges[i].miss(pace)
			for n := 0; ; n++ {
				due, ok := time.Now(), pause(ctx, stop, 0)
				if pace != nil {
					due, ok = pace.wait(ctx, stop)
				}
				if !ok {
					return nil
				}
				if err := j.ask(ctx, c, j.gauges[i], n); err == nil {
					j.gauges[i].record(due, time.Now(), 0)
				} else if ctx.Err() == nil {
					j.gauges[i].fail(due, time.Now())
					j.found(err)
				}
			}
		})
	}
	return g.Wait()
}

// ask sends request number n. One that fails is tried again for a while.
func (j *adminJob) ask(ctx context.Context, c *kgo.Client, g *gauge, n int) error {
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := c.Request(ask, adminRequest(n))
		if err == nil {
			return nil
		}
		g.retry()
		if !pause(ask, nil, 100*time.Millisecond) {
			return fmt.Errorf("%s: %w", kmsg.NameForKey(adminRequest(n).Key()), err)
		}
	}
}

// found keeps the first error.
func (j *adminJob) found(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.got.notes) == 0 {
		j.got.notes = []string{"an operation failed for good: " + err.Error()}
	}
}

// adminRequest is number n of a console that looks at all there is.
func adminRequest(n int) kmsg.Request {
	switch n % 4 {
	case 0:
		return kmsg.NewPtrMetadataRequest() // no list: all topics
	case 1:
		return kmsg.NewPtrDescribeClusterRequest()
	case 2:
		return kmsg.NewPtrListGroupsRequest()
	default:
		return kmsg.NewPtrApiVersionsRequest()
	}
}

func (j *adminJob) finish(context.Context) error { return nil }

func (j *adminJob) close(context.Context) {
	for _, c := range j.clients {
		c.Close()
	}
}
