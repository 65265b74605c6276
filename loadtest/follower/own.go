// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"tiergate/loadtest/kafka"
)

// lastTieredOffsetConfig is KIP-1023's switch, in Kafka 4.3 and later.
const lastTieredOffsetConfig = "follower.fetch.last.tiered.offset.enable"

// Own is what Kafka's own follower did in the place of the played one: the broker of the
// played node, started without any of the topics.
type Own struct {
	Case   string `json:"case"`
	Kafka  string `json:"kafka"`
	Policy Policy `json:"policy"`
	// Start is the base offset of its first segment once it is in the ISR; -1: it waits.
	Start int64 `json:"start_offset"`
	// Waiting is what its log says again and again while it waits.
	Waiting string `json:"waiting,omitempty"`
}

// ownTopic is a topic that Kafka's own follower comes to, as the case left it.
type ownTopic struct {
	c     Case
	topic *Topic
}

// doOwn has Kafka's own follower catch up: a broker of 4.3 or later under both policies, an older one
// under the only one that it has.
func (l *lab) doOwn(ctx context.Context) ([]Own, error) {
	if err := l.broker.Close(ctx); err != nil {
		return nil, err
	}
	l.broker = nil // the node registers itself from now on
	policies := []Policy{EarliestLocal}
	if asksPendingUpload(l.version) {
		policies = []Policy{EarliestPendingUpload, EarliestLocal}
	}
	var all []Own
	for _, policy := range policies {
		l.log.Info("Kafka's own follower", "kafka", l.version, "policy", string(policy))
		got, err := l.ownUnder(ctx, policy)
		all = append(all, got...)
		if err != nil {
			return all, fmt.Errorf("own follower of Kafka %s, policy %s: %w", l.version, policy, err)
		}
	}
	return all, nil
}

// ownUnder starts the broker without the topics and looks at what it has when all is done.
func (l *lab) ownUnder(ctx context.Context, policy Policy) ([]Own, error) {
	node := l.cluster.Node(playedNode)
	if err := l.setPolicy(ctx, policy); err != nil {
		return nil, err
	}
	folders, err := filepath.Glob(filepath.Join(node.DataDir(), topicPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if err := os.RemoveAll(folder); err != nil {
			return nil, err
		}
	}
	if err := node.Start(ctx); err != nil {
		return nil, err
	}
	var all []Own
	for _, t := range l.own {
		o, err := l.ownOf(ctx, node, t, policy)
		if err != nil {
			return all, fmt.Errorf("case %q: %w", t.c.Name, err)
		}
		all = append(all, o)
	}
	return all, node.Stop(ctx)
}

// setPolicy sets KIP-1023's switch for all brokers.
func (l *lab) setPolicy(ctx context.Context, policy Policy) error {
	if !asksPendingUpload(l.version) {
		return nil
	}
	cl, err := l.cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	value := strconv.FormatBool(policy == EarliestPendingUpload)
	got, err := kadm.NewClient(cl).AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: lastTieredOffsetConfig, Value: &value}})
	for _, r := range got {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("%s=%s: %w", lastTieredOffsetConfig, value, err)
	}
	return nil
}

// ownOf waits until the follower of one topic is in the ISR, or has said twice that it
// waits, where the case says that it does.
func (l *lab) ownOf(ctx context.Context, node *kafka.Node, t ownTopic, policy Policy) (Own, error) {
	o := Own{Case: t.c.Name, Kafka: l.version, Policy: policy, Start: -1}
	if policy == EarliestPendingUpload && t.c.WaitsFor != "" {
		err := kafka.Poll(ctx, "a follower that waits", func(context.Context) (err error) {
			o.Waiting, err = waitingLine(node.LogPath(), t)
			return err
		})
		return o, err
	}
	peers := &Peers{Bootstrap: l.cluster.Node(leaderNode).Address(), Topic: t.topic.Name, As: Identity{NodeID: playedNode}}
	defer peers.Close()
	if err := peers.InSync(ctx, InISR); err != nil {
		return o, err
	}
	var err error
	o.Start, err = firstSegment(filepath.Join(node.DataDir(), t.topic.Name+"-0"))
	if want := t.c.Starts(t.topic.Shape)[policy]; err == nil && o.Start != want {
		err = fmt.Errorf("the own follower begins at %d, the played one at %d", o.Start, want)
	}
	return o, err
}

// firstSegment returns the base offset of a log's first segment.
func firstSegment(folder string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil || len(files) == 0 {
		return -1, fmt.Errorf("no segments in %s (%w)", folder, err)
	}
	return strconv.ParseInt(strings.TrimSuffix(filepath.Base(slices.Min(files)), ".log"), 10, 64)
}

// waitingLine looks for the exception that the fetcher thread logs for a topic at each turn,
// at least twice.
func waitingLine(path string, t ownTopic) (string, error) {
	log, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var said []string
	var before string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(before, "ERROR") && strings.Contains(before, t.topic.Name) {
			said = append(said, strings.TrimSpace(line))
		}
		before = line
	}
	said = slices.DeleteFunc(said, func(line string) bool { return !strings.Contains(line, t.c.ownSays) })
	if len(said) < 2 {
		return "", fmt.Errorf("the broker's log says %q %d times of %s", t.c.ownSays, len(said), t.topic.Name)
	}
	return said[1], nil
}
