// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package oldbrokers

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/loadtest/kafka"
)

// TestTieredOffsetsBesideTheLeader goes through the states of a log's life: those of the
// vectors table with several epochs, restarts, kill -9, copies that fail, remote
// retention, topics that are deleted and created again.
func TestTieredOffsetsBesideTheLeader(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ctx := testContext(t)
		b := newBench(t, version)
		logs, err := b.cluster.BuildLogStates(ctx, "state", kafka.OlderLogStates(version))
		must(t, err)
		b.compare(t, ctx, "built", deletedEpochs)
		must(t, b.cluster.Restart(ctx))
		must(t, kafka.AwaitSettled(ctx, logs))
		b.compare(t, ctx, "restarted", noCause)
		b.cluster.Node(1).Kill()
		must(t, b.cluster.StartNodes(ctx))
		must(t, kafka.AwaitSettled(ctx, logs))
		b.compare(t, ctx, "killed and started", noCause)
		b.failingCopies(t, ctx)
		b.hangingCopies(t, ctx)
		b.remoteRetention(t, ctx, logs)
		b.recreated(t, ctx, logs)
		b.summary(t)
	})
}

// failingCopies has the folder of the remote storage replaced by a file: each task interval
// leaves a segment behind that was begun. Half way the broker is killed.
func (b *bench) failingCopies(t *testing.T, ctx context.Context) {
	l, err := b.cluster.CreateLog(ctx, "failing", kafka.TieredTopic())
	must(t, err)
	must(t, l.Append(ctx, 400, 4000))
	must(t, l.Await(ctx, "an upload", func(_ kafka.Lookups, d kafka.Disk) error {
		if len(d.Uploaded) == 0 {
			return errors.New("nothing is uploaded")
		}
		return nil
	}))
	away := b.cluster.RemoteDir() + ".away"
	must(t, os.Rename(b.cluster.RemoteDir(), away))
	must(t, os.WriteFile(b.cluster.RemoteDir(), nil, 0o644))
	must(t, l.Append(ctx, 800, 4000))
	b.compare(t, ctx, "copies fail", noCause)
	b.cluster.Node(1).Kill()
	must(t, os.Remove(b.cluster.RemoteDir()))
	must(t, os.Rename(away, b.cluster.RemoteDir()))
	must(t, b.cluster.StartNodes(ctx))
	must(t, l.Await(ctx, "the rest of the upload", func(_ kafka.Lookups, d kafka.Disk) error {
		if d.HighestUploaded() != d.Active()-1 {
			return errors.New("not all is uploaded")
		}
		return nil
	}))
	b.compare(t, ctx, "copies work again", noCause)
}

// hangingCopies has copies hang that have announced their segment. The broker is killed
// meanwhile; the one that is started copies the segment again, under another id.
func (b *bench) hangingCopies(t *testing.T, ctx context.Context) {
	l, err := b.cluster.CreateLog(ctx, "hanging", kafka.TieredTopic())
	must(t, err)
	must(t, l.Append(ctx, 400, 4000))
	must(t, l.Await(ctx, "an upload", func(_ kafka.Lookups, d kafka.Disk) error {
		if len(d.Uploaded) == 0 {
			return errors.New("nothing is uploaded")
		}
		return nil
	}))
	held, err := kafka.HoldCopies(ctx, b.debug[1])
	must(t, err)
	released := false
	defer func() {
		if !released {
			t.Log(held.Release())
		}
	}()
	must(t, l.Append(ctx, 800, 4000))
	must(t, held.AwaitCopy())
	began := time.Now()
	memory, err := held.Peek()
	must(t, err)
	memory, err = b.led(ctx, b.cluster.Node(1), memory)
	must(t, err)
	found, causes, n := b.differences(t, ctx, map[int32][]kafka.TieredInMemory{1: memory}, noCause)
	b.count(t, "copies hang", found, causes, n, began)
	d, err := l.Disk()
	must(t, err)
	if d.HighestUploaded() >= d.Active()-1 {
		t.Errorf("copies hang, and all is uploaded: %v", d)
	}
	b.cluster.Node(1).Kill()
	held.Release()
	released = true
	must(t, b.cluster.StartNodes(ctx))
	must(t, l.Await(ctx, "the rest of the upload", func(_ kafka.Lookups, d kafka.Disk) error {
		if d.HighestUploaded() != d.Active()-1 {
			return errors.New("not all is uploaded")
		}
		return nil
	}))
	b.compare(t, ctx, "killed while copies hung, started", noCause)
}

// remoteRetention has the uploaded segments deleted of every log that can.
func (b *bench) remoteRetention(t *testing.T, ctx context.Context, logs []kafka.StateLog) {
	for _, l := range logs {
		if l.Tiered() {
			must(t, l.AlterConfigs(ctx, map[string]string{"retention.bytes": "1", "local.retention.bytes": "1"}))
		}
	}
	for _, l := range logs {
		must(t, l.Await(ctx, "remote retention", func(_ kafka.Lookups, d kafka.Disk) error {
			// The last one stays where nothing else is left: the log would be too small without it.
			if l.Tiered() && len(d.Uploaded) > 1 {
				return errors.New("segments remain")
			}
			return nil
		}))
	}
	b.compare(t, ctx, "remote retention", deletedEpochs)
	must(t, b.cluster.Restart(ctx))
	b.compare(t, ctx, "remote retention, restarted", noCause)
}

// recreated deletes topics and creates them again under the same names, first without
// data.
func (b *bench) recreated(t *testing.T, ctx context.Context, logs []kafka.StateLog) {
	for _, l := range logs {
		must(t, b.cluster.DeleteTopic(ctx, l.Topic))
		must(t, b.cluster.CreateTopic(ctx, l.Topic, 1, 1, l.State.Configs))
	}
	b.compare(t, ctx, "created again", noCause)
	var records []*kgo.Record
	for _, l := range logs {
		for range 400 {
			records = append(records, &kgo.Record{Topic: l.Topic, Value: make([]byte, 4000)})
		}
	}
	b.produce(t, ctx, records)
	b.compare(t, ctx, "created again, with data", noCause)
	must(t, b.cluster.Restart(ctx))
	b.compare(t, ctx, "created again, with data, restarted", noCause)
}
