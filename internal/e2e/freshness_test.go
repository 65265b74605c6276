// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/loadtest/kafka"
)

// How long -6 may be wrong after a change of a topic's remote storage status: where the
// change passed through the tiergate that is asked, and where it did not.
const (
	freshThrough = 3 * time.Second
	freshBeside  = 15 * time.Second
)

// freshness is -6 asked of topics whose remote storage status changes, at a tiergate, at
// another one beside it, and at the broker where that is native.
type freshness struct {
	s     *stand
	asked []asked
	admin *kgo.Client
	// slowest is the longest time from a change until -6 was right at a tiergate.
	slowest time.Duration
}

// asked is a place where -6 is asked for.
type asked struct {
	name string
	conn *kafka.Conn
	// within is how soon after a change -6 must be right.
	within time.Duration
}

// testFreshness deletes topics, creates them again, and switches their tiering on and off.
// Soon after, -6 is what a native broker answers. The stand was opened in the same mode.
func testFreshness(t *testing.T, ctx context.Context, s *stand, mode string) {
	beside := s.besideGate(t, ctx, mode)
	var uploaded kafka.LogState
	for _, state := range kafka.LogStates() {
		if state.Name == "uploaded, local part deleted" {
			uploaded = state
		}
	}
	logs, err := s.cluster.BuildLogStates(ctx, "fresh", []kafka.LogState{uploaded, uploaded})
	must(t, err)
	for i, path := range []struct {
		name, bootstrap string
		within          time.Duration
	}{
		{"through", s.directA.Address(), freshThrough},
		{"past", s.cluster.Node(nodeID).Address(), freshBeside},
	} {
		f := &freshness{s: s, admin: client(t, path.bootstrap)}
		f.asked = []asked{
			{"tiergate", dial(t, ctx, s.directA.Address()), path.within},
			{"the tiergate beside", dial(t, ctx, beside), freshBeside},
		}
		if mode == "always" {
			f.asked = append(f.asked, asked{"the native broker", dial(t, ctx, s.cluster.Node(nodeID).Address()), freshThrough})
		}
		f.young(t, ctx, "fresh-"+path.name)
		f.uploaded(t, ctx, logs[i].Log)
		report(t, "freshness before Kafka %s: changes %s tiergate show in -6 after %v at the latest",
			s.cluster.Jars().Version, path.name, f.slowest.Round(time.Millisecond))
	}
}

// besideGate starts a second tiergate before the same broker and returns its address.
func (s *stand) besideGate(t *testing.T, ctx context.Context, mode string) string {
	t.Helper()
	ports, err := kafka.FreePorts(1)
	must(t, err)
	address := kafka.Loopback(ports[0])
	startGate(t, ctx, fmt.Sprintf(`
upstream:
  bootstrap_servers: [%q]
listeners:
  - name: beside
    direct: {%q: %q}
earliest_pending_upload: %s
`, s.serviceAddress, address, s.cluster.Node(nodeID).ListenerAddress("SIDECAR"), mode))
	return address
}

// client returns a client for the length of a test.
func client(t *testing.T, bootstrap string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(50*time.Millisecond), kgo.UnknownTopicRetries(-1))
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

var (
	remoteStorageOn  = map[string]string{"remote.storage.enable": "true"}
	remoteStorageOff = map[string]string{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
	copyingOff       = map[string]string{"remote.log.copy.disable": "true", "local.retention.bytes": "-2"} // it wants what is local kept
	remoteKept       = map[string]string{"remote.storage.enable": "false"}
)

// young changes a topic of which nothing is ever uploaded, where the status alone decides.
func (f *freshness) young(t *testing.T, ctx context.Context, topic string) {
	first := kafka.Position{Offset: 0, Epoch: 0}
	f.create(t, ctx, topic, remoteStorageOn)
	f.await(t, ctx, "created tiered", topic, first)
	f.recreate(t, ctx, topic, nil)
	f.await(t, ctx, "created again, not tiered", topic, kafka.NoPosition)
	must(t, f.alter(ctx, topic, remoteStorageOn))
	f.await(t, ctx, "tiering switched on", topic, first)
	f.recreate(t, ctx, topic, nil)
	f.await(t, ctx, "created again, not tiered", topic, kafka.NoPosition)
	f.recreate(t, ctx, topic, remoteStorageOn)
	f.await(t, ctx, "created again, tiered", topic, first)
	must(t, f.alter(ctx, topic, copyingOff))
	f.await(t, ctx, "copying switched off", topic, first)
	if err := f.alter(ctx, topic, remoteKept); err == nil {
		t.Fatal("the broker let tiering be switched off without deletion: there is one more case to test")
	}
	f.await(t, ctx, "tiering not switched off, since that needs deletion", topic, first)
	must(t, f.alter(ctx, topic, remoteStorageOff))
	f.await(t, ctx, "tiering switched off", topic, kafka.NoPosition)
}

// uploaded changes a topic whose -5 has an offset at first, and none when tiering is off.
func (f *freshness) uploaded(t *testing.T, ctx context.Context, l *kafka.Log) {
	k, err := l.Lookups(ctx)
	must(t, err)
	next := l.EpochOf(k.Tiered.Offset + 1)
	f.await(t, ctx, "uploaded", l.Topic, next)
	must(t, f.alter(ctx, l.Topic, copyingOff))
	f.await(t, ctx, "uploaded, copying switched off", l.Topic, next)
	must(t, f.alter(ctx, l.Topic, remoteStorageOff))
	f.await(t, ctx, "uploaded, tiering switched off", l.Topic, kafka.NoPosition)
}

// create creates a topic and produces ten records.
func (f *freshness) create(t *testing.T, ctx context.Context, topic string, configs map[string]string) {
	t.Helper()
	texts := make(map[string]*string)
	for key, value := range configs {
		texts[key] = &value
	}
	created, err := kadm.NewClient(f.admin).CreateTopic(ctx, 1, 1, texts, topic)
	must(t, err)
	must(t, created.Err)
	// A new one, since a client remembers the id of the topic that was deleted.
	producer := client(t, f.admin.OptValue(kgo.SeedBrokers).([]string)[0])
	for range 10 {
		must(t, producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr())
	}
}

func (f *freshness) recreate(t *testing.T, ctx context.Context, topic string, configs map[string]string) {
	t.Helper()
	deleted, err := kadm.NewClient(f.admin).DeleteTopic(ctx, topic)
	must(t, err)
	must(t, deleted.Err)
	f.create(t, ctx, topic, configs)
}

// alter sets configs of a topic. The error is the broker's, too.
func (f *freshness) alter(ctx context.Context, topic string, configs map[string]string) error {
	var changes []kadm.AlterConfig
	for key, value := range configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	altered, err := kadm.NewClient(f.admin).AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	if err := altered[0].Err; err != nil {
		return fmt.Errorf("%w: %s", err, altered[0].ErrMessage)
	}
	return nil
}

// await asks for -6 everywhere until it is right, for as long as it may be wrong after the
// change that was made just now.
func (f *freshness) await(t *testing.T, ctx context.Context, change, topic string, want kafka.Position) {
	t.Helper()
	changed := time.Now()
	for i, at := range f.asked {
		ctx, cancel := context.WithDeadline(ctx, changed.Add(at.within))
		err := kafka.Poll(ctx, fmt.Sprintf("-6 of %s at %s to be %v within %v: %s", topic, at.name, want, at.within, change),
			func(ctx context.Context) error { return at.answers(ctx, topic, want) })
		cancel()
		must(t, err)
		if i < 2 {
			f.slowest = max(f.slowest, time.Since(changed))
		}
	}
}

// answers returns nil when -6 of a topic is as wanted.
func (a asked) answers(ctx context.Context, topic string, want kafka.Position) error {
	resp, err := a.conn.Request(ctx, listOffsets(11, consumer, readUncommitted, pending(topic)))
	if err != nil {
		return err
	}
	got := answers(resp.(*kmsg.ListOffsetsResponse))
	if len(got) != 1 || got[0] != (answer{topic: topic, timestamp: -1, position: want}) {
		return fmt.Errorf("it is %+v", got)
	}
	return nil
}
