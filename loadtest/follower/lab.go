// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// buildsAtOnce bounds how many topics are built at the same time.
const buildsAtOnce = 8

// lab is a cluster of three brokers of which one is played, and tiergate before it.
type lab struct {
	version string
	cluster *kafka.Cluster
	gate    *gate.Gate
	// through is tiergate's bootstrap address.
	through string
	broker  *Broker
	dir     string
	log     *slog.Logger
	serial  int // of topics and replicas
	own     []ownTopic
	topics  []*Topic
}

// paths of a follower to its leader.
type path string

const (
	direct  path = "directly"
	through path = "through tiergate"
)

// openLab starts everything. Of a native version both paths are taken; an older one does
// not answer -6, and is reached through tiergate only.
func openLab(ctx context.Context, version, binary string, log *slog.Logger) (*lab, error) {
	l := &lab{version: version, log: log}
	var err error
	if l.dir, err = os.MkdirTemp("", "tiergate-follower-"); err != nil {
		return nil, err
	}
	if err := l.open(ctx, binary); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) open(ctx context.Context, binary string) (err error) {
	l.cluster, err = kafka.Launch(ctx, kafka.Options{
		Version: l.version, TieredStorage: kafka.TieredStorageOn, Logger: l.log, Dir: filepath.Join(l.dir, "kafka"),
		Nodes: []kafka.NodeOptions{{NodeID: leaderNode}, {NodeID: otherNode}, {NodeID: playedNode}},
		Properties: map[string]string{
			// No partition of it may go with the node that is stopped.
			"rlmm.config.remote.log.metadata.topic.replication.factor": "3",
			"rlmm.config.remote.log.metadata.topic.num.partitions":     "1",
			// For the real follower of native versions that the played one is compared with.
			"follower.fetch.last.tiered.offset.enable": "true",
			// Leaders change only where a case says so.
			"auto.leader.rebalance.enable": "false",
		},
	})
	if err != nil {
		return err
	}
	if err := l.cluster.Node(playedNode).Stop(ctx); err != nil {
		return err
	}
	if l.broker, err = Register(ctx, l.cluster, l.cluster.Node(playedNode)); err != nil {
		return err
	}
	l.gate, l.through, err = startGate(ctx, binary, l.dir, l.cluster)
	return err
}

// close ends everything and removes the files.
func (l *lab) close() error {
	var errs []error
	if l.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		errs = append(errs, l.broker.Close(ctx))
	}
	if l.gate != nil {
		errs = append(errs, l.gate.Stop())
	}
	for _, t := range l.topics {
		t.close()
	}
	if l.cluster != nil {
		l.cluster.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// paths returns those that answer -6.
func (l *lab) paths() []path {
	if nativePendingUpload(l.version) {
		return []path{direct, through}
	}
	return []path{through}
}

// nativePendingUpload says whether brokers of a version answer -6 themselves.
func nativePendingUpload(version string) bool { return since(version, 4, 2) }

// asksPendingUpload says whether brokers of a version can ask -6, as followers.
func asksPendingUpload(version string) bool { return since(version, 4, 3) }

// since says whether a version of Kafka is at least major.minor.
func since(version string, major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(version, "%d.%d", &a, &b)
	return err == nil && (a > major || a == major && b >= minor)
}

// run is one catch-up that is to be done: a topic, a policy, a path.
type run struct {
	c      Case
	policy Policy
	path   path
	topic  *Topic
}

// plan returns all catch-ups of the cases, in the order in which they are done: all of one
// path and policy after each other. It builds their topics, and those for Kafka's own
// follower.
func (l *lab) plan(ctx context.Context, cases []Case, shape Shape) ([]run, error) {
	var runs []run
	b := newBuilder(ctx, l, shape)
	for _, p := range l.paths() {
		for _, policy := range []Policy{EarliestLocal, EarliestPendingUpload} {
			for _, c := range cases {
				runs = append(runs, run{c: c, policy: policy, path: p, topic: b.topic(c)})
			}
		}
	}
	for _, c := range cases {
		if c.seed == nil {
			l.own = append(l.own, ownTopic{c: c, topic: b.topic(c)})
		}
	}
	return runs, b.wait()
}

// builder builds topics, several at the same time.
type builder struct {
	lab    *lab
	shape  Shape
	group  *errgroup.Group
	ctx    context.Context
	shared map[string]*Topic
	err    error
}

func newBuilder(ctx context.Context, l *lab, shape Shape) *builder {
	b := &builder{lab: l, shape: shape, shared: make(map[string]*Topic)}
	b.group, b.ctx = errgroup.WithContext(ctx)
	b.group.SetLimit(buildsAtOnce)
	return b
}

// topic returns a topic in the state of a case: a new one where a catch-up changes it.
func (b *builder) topic(c Case) *Topic {
	if t := b.shared[c.Name]; b.err != nil || t != nil && !c.changes {
		return t
	}
	t, err := b.lab.topic(b.ctx, c, b.shape)
	if err != nil {
		b.err = err
		return nil
	}
	b.shared[c.Name] = t
	b.group.Go(func() error {
		if err := c.build(b.ctx, t); err != nil {
			return fmt.Errorf("case %q: %w", c.Name, err)
		}
		return nil
	})
	return t
}

// wait waits until all topics are in their state.
func (b *builder) wait() error { return errors.Join(b.err, b.group.Wait()) }

// topic creates the topic of a case.
func (l *lab) topic(ctx context.Context, c Case, shape Shape) (*Topic, error) {
	l.serial++
	name := topicPrefix + fmt.Sprintf("%02d-%s", l.serial, strings.NewReplacer(" ", "-", ",", "").Replace(c.Name))
	nodes := c.nodes
	if nodes == nil {
		nodes = []int32{leaderNode, playedNode}
	}
	t, err := newTopic(ctx, l.cluster, name, shape, nodes, c.configs(shape))
	if err != nil {
		return nil, fmt.Errorf("case %q: %w", c.Name, err)
	}
	l.topics = append(l.topics, t)
	return t, nil
}

// do does the catch-ups one after the other. The controller fences the played broker before
// each path and policy, so that every replica begins out of the ISR.
func (l *lab) do(ctx context.Context, runs []run) ([]Row, error) {
	var rows []Row
	for i, r := range runs {
		if i == 0 || r.path != runs[i-1].path || r.policy != runs[i-1].policy {
			if err := l.leaveISRs(ctx, runs); err != nil {
				return rows, err
			}
		}
		row, err := l.catchUp(ctx, r)
		if err != nil {
			return rows, fmt.Errorf("case %q, policy %s, Kafka %s %s: %w", r.c.Name, r.policy, l.version, r.path, err)
		}
		l.log.Info("in sync", "kafka", l.version, "path", string(r.path), "case", r.c.Name, "policy", string(r.policy),
			"start", row.Start, "bytes", row.CopiedBytes, "took", row.CaughtUp.Round(time.Millisecond).String())
		rows = append(rows, row)
	}
	return rows, nil
}

// leaveISRs takes the played replicas out of all ISRs and lets them in again.
func (l *lab) leaveISRs(ctx context.Context, runs []run) error {
	if err := l.broker.Fence(ctx); err != nil {
		return err
	}
	for _, r := range runs {
		peers := &Peers{Bootstrap: l.cluster.Node(leaderNode).Address(), Topic: r.topic.Name, As: l.broker.Identity()}
		err := peers.InSync(ctx, OutOfISR)
		peers.Close()
		if err != nil {
			return err
		}
	}
	return l.broker.Unfence(ctx)
}

// catchUp plays one replica, waits until it is in the ISR, and verifies it.
func (l *lab) catchUp(ctx context.Context, r run) (Row, error) {
	l.serial++
	replica, err := NewReplica(filepath.Join(l.dir, fmt.Sprintf("replica-%d.log", l.serial)))
	if err != nil {
		return Row{}, err
	}
	defer replica.Close()
	if err := r.seed(replica); err != nil {
		return Row{}, err
	}
	peers := &Peers{Bootstrap: l.bootstrap(r.path), Topic: r.topic.Name, As: l.broker.Identity(), MaxBytes: r.c.maxBytes}
	defer peers.Close()
	remote := LocalRemote{Dir: l.cluster.RemoteDir(), Topic: r.topic.Name}
	began := time.Now()
	outcome, err := r.follower(replica, peers, remote).CatchUp(ctx)
	if err != nil {
		return Row{}, err
	}
	traffic := peers.Traffic()
	if err := peers.InSync(ctx, InISR); err != nil {
		return Row{}, err
	}
	row := Row{
		Case: r.c.Name, Kafka: l.version, Path: string(r.path), Policy: r.policy,
		Outcome: outcome, Traffic: traffic, InISR: time.Since(began),
		LogBytes: r.topic.bytesOf(r.topic.LogStart),
	}
	if outcome.Waits > outcome.LeaderChanges {
		row.WaitsFor = r.c.WaitsFor
	}
	leader, epoch, err := peers.Leader(ctx)
	if err != nil {
		return Row{}, err
	}
	if err := r.topic.verify(ctx, replica, remote, r.c.Storage, leader, epoch); err != nil {
		return Row{}, fmt.Errorf("after %q: %w", outcome.Steps, err)
	}
	return row, r.check(outcome)
}

// bootstrap is where the followers of a path ask for the cluster.
func (l *lab) bootstrap(p path) string {
	if p == through {
		return l.through
	}
	return l.cluster.Node(leaderNode).Address()
}

// seed gives the replica what the case says that it has.
func (r run) seed(replica *Replica) error {
	if r.c.seed == nil {
		return nil
	}
	var b []byte
	for _, w := range r.c.seed(r.topic) {
		b = w.appendTo(b[:0])
		if _, err := replica.Append(b); err != nil {
			return err
		}
	}
	return nil
}

// waitsBeforeUnblock is how often a replica must have waited in vain before the case helps
// it: that it waits is what the case shows.
const waitsBeforeUnblock = 3

// topicPrefix begins the names of all topics.
const topicPrefix = "follower-"

// backoff is what a replica waits before it fetches again. A broker's
// replica.fetch.backoff.ms is 1000.
const backoff = 100 * time.Millisecond

// follower returns the follower of the run.
func (r run) follower(replica *Replica, peers *Peers, remote Remote) *Follower {
	f := &Follower{Policy: r.policy, Storage: r.c.Storage, Finder: peers, Remote: remote, Replica: replica}
	if r.c.between != nil {
		f.Between = func(ctx context.Context, replica *Replica) error { return r.c.between(ctx, r.topic, replica) }
	}
	waits := 0
	f.Wait = func(ctx context.Context, why error) error {
		if !movedLeader(why) {
			waits++
		}
		if waits == waitsBeforeUnblock && r.c.unblock != nil {
			waits++ // once
			return r.c.unblock(ctx, r.topic)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		return nil
	}
	return f
}

// check compares the outcome with what the case says.
func (r run) check(o Outcome) error {
	start := r.c.Starts(r.topic.Shape)[r.policy]
	want := r.topic.bytesOf(start)
	if o.Start != start || o.CopiedBytes != want {
		return fmt.Errorf("copied %d bytes from %d on, not %d from %d, after %q", o.CopiedBytes, o.Start, want, start, o.Steps)
	}
	return nil
}
