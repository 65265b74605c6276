// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tiergate/loadtest/kafka"
)

var (
	_ Killable = (*kafka.Node)(nil)
	_ Fault    = (*leaderMove)(nil)
)

// broker writes down what is done to it.
type broker struct {
	log              []string
	stopped, started error
}

func (b *broker) Stop(context.Context) error {
	b.log = append(b.log, "stop")
	return b.stopped
}

func (b *broker) Start(ctx context.Context) error {
	b.log = append(b.log, "start")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return b.started
}

func (b *broker) Kill() { b.log = append(b.log, "kill") }

func TestPlay(t *testing.T) {
	f := func(make func(*broker) Fault, b *broker, wantLog, wantText, wantErr string) {
		t.Helper()
		began := time.Now()
		mark, err := Play(t.Context(), make(b), time.Nanosecond)
		if got := strings.Join(b.log, ", "); got != wantLog {
			t.Errorf("%s, want %s", got, wantLog)
		}
		if got := string(mark.Kind) + ": " + mark.Text; got != wantText {
			t.Errorf("%q, want %q", got, wantText)
		}
		if got := fmt.Sprint(err); got != wantErr {
			t.Errorf("%s, want %s", got, wantErr)
		}
		if mark.At.Before(began) || mark.Until.Before(mark.At) {
			t.Errorf("from %v until %v, after %v", mark.At, mark.Until, began)
		}
	}
	stop := func(b *broker) Fault { return NewRestart(KindProxyRestart, "tiergate", b) }
	kill := func(b *broker) Fault { return NewKill(KindBrokerKill, "broker 2", b) }
	f(stop, &broker{}, "stop, start", "proxy-restart: tiergate stopped and started", "<nil>")
	f(kill, &broker{}, "kill, start", "broker-kill: broker 2 killed and started", "<nil>")
	// What could not be stopped is started all the same.
	f(stop, &broker{stopped: errors.New("hangs")}, "stop, start",
		"proxy-restart: tiergate stopped and started: fault proxy-restart: hangs", "fault proxy-restart: hangs")
	f(stop, &broker{stopped: errors.New("hangs"), started: errors.New("port taken")}, "stop, start",
		"proxy-restart: tiergate stopped and started: fault proxy-restart: hangs\nport taken", "fault proxy-restart: hangs\nport taken")
}

// The end of the run ends the fault, and what was stopped is started.
func TestPlayIsCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &broker{}
	played := make(chan error)
	go func() {
		_, err := Play(ctx, NewRestart(KindBrokerRestart, "broker 1", b), time.Hour)
		played <- err
	}()
	cancel()
	if err := <-played; err != nil || !slices.Equal(b.log, []string{"stop", "start"}) {
		t.Errorf("%v, %v, want stop and start", err, b.log)
	}
}

func TestLeaderMove(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(4, "moved"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leaders := func() string {
		t.Helper()
		partitions, err := (&leaderMove{client: client, topic: "moved"}).partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]string, len(partitions))
		for i, p := range partitions {
			ids[i] = fmt.Sprint(p.Leader)
		}
		return strings.Join(ids, " ")
	}
	before := leaders()
	other := strings.NewReplacer("0", "1", "1", "0").Replace(before)
	f := NewLeaderMove(client, "moved")
	begin(t, f)
	if got := leaders(); got != other {
		t.Errorf("leaders %s, want %s", got, other)
	}
	if got := f.String(); got != "leaders of 4 partitions of moved moved" {
		t.Errorf("%q", got)
	}
	end(t, f)
	if got := leaders(); got != before {
		t.Errorf("leaders %s, want %s as before", got, before)
	}
	end(t, f) // there is nothing to take back
	if err := NewLeaderMove(client, "unknown").Begin(t.Context()); err == nil {
		t.Error("the leaders of a topic that is not there have moved")
	}
}

func TestNextLeader(t *testing.T) {
	for _, c := range []struct {
		leader int32
		isr    []int32
		want   int32
		ok     bool
	}{
		{1, []int32{3, 1, 2}, 2, true},
		{3, []int32{3, 1, 2}, 1, true},
		{2, []int32{2}, 0, false},
		{-1, []int32{2}, 2, true}, // has no leader now
		{1, nil, 0, false},
	} {
		got, ok := nextLeader(c.leader, c.isr)
		if got != c.want || ok != c.ok {
			t.Errorf("after %d of %v: %d, %v, want %d, %v", c.leader, c.isr, got, ok, c.want, c.ok)
		}
	}
}

func TestKindsAreDifferent(t *testing.T) {
	kinds := Kinds()
	if slices.Sort(kinds); len(slices.Compact(kinds)) != 10 {
		t.Errorf("%v, want 10 different ones", kinds)
	}
}
