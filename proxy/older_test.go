// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
	"tiergate/rewrite"
	"tiergate/rewrite/pendingupload"
)

// modelUploads know what the models of a broker have uploaded.
type modelUploads struct {
	of *oldBroker
	// known is what is told instead, where it is set.
	known func(ctx context.Context, current string) []pendingupload.Uploaded

	mu    sync.Mutex
	asked []string
}

func (u *modelUploads) UploadsReady() bool { return true }

func (u *modelUploads) ResolveUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded {
	return u.resolve(ctx, "known", of)
}

func (u *modelUploads) ResolveCurrentUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded {
	return u.resolve(ctx, "current", of)
}

func (u *modelUploads) resolve(ctx context.Context, current string, of []pendingupload.Partition) []pendingupload.Uploaded {
	u.mu.Lock()
	u.asked = append(u.asked, current)
	u.mu.Unlock()
	if u.known != nil {
		return u.known(ctx, current)
	}
	var all []pendingupload.Uploaded
	for _, p := range of {
		up := pendingupload.Uploaded{Known: strings.TrimRight(string(p.TopicID[:]), "\x00") == p.Topic}
		for _, e := range slices.Backward(u.of.logs[p.Topic][p.Partition].Tiered()) {
			up.Epochs = append(up.Epochs, pendingupload.EpochOffset(e))
		}
		all = append(all, up)
	}
	return all
}

// newOlderServer puts tiergate in front of a broker without -5.
func newOlderServer(t *testing.T, l *tierlog.Log, change func(*modelUploads), with ...func(*Options)) (*oldBroker, *modelUploads, *Server) {
	t.Helper()
	old, b := newOldBroker(t, 8, l)
	u := &modelUploads{of: old}
	if change != nil {
		change(u)
	}
	enabled := l.RemoteStorage() == codec.RemoteStorageEnabled
	with = append(with, remoteStorageFrom(&fixedRemoteStorage{cached: map[string]bool{"t": enabled}}), func(o *Options) { o.Endpoints[0].Uploads = u })
	return old, u, newServer(t, b.dial, rewrite.Rules{Uploads: u}, with...)
}

func TestPendingUploadInFrontOfABrokerWithoutLatestTiered(t *testing.T) {
	for _, v := range tierlog.Vectors() {
		if strings.Contains(v.Name, "switched off") {
			continue // such a broker has no switch for it
		}
		t.Run(v.Name, func(t *testing.T) {
			learned := v.Log()
			learned.LearnTiered()
			old, _, s := newOlderServer(t, v.Log(), nil)
			c := connect(t, s)
			mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 5000))
			model := &oldBroker{logs: map[string][]*tierlog.Log{"t": {learned}}}
			compare(t, "-6", mustRead(t, c), model.native(old.offsetsRequest(11, -6), 5000))
			if got := old.asked()[0]; got != `api_versions v0 #1 "c"` {
				t.Errorf("first the broker was asked %s", got)
			}
			mustWrite(t, c, frameOfRequest(old.offsetsRequest(10, -2), 5001))
			compare(t, "-2", mustRead(t, c), answerFrame(5001, old.listOffsets(old.offsetsRequest(10, -2))))
			asked := old.asked()
			if got := asked[len(asked)-1]; got != `list_offsets v8 #5001 "c" -2` {
				t.Errorf("the broker was asked %s", got)
			}
		})
	}
}

func TestLookupsInFrontOfABrokerWithoutLatestTiered(t *testing.T) {
	l := tierlog.New(0)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Append(100)
	l.Upload(49)
	old, u, s := newOlderServer(t, l, nil)
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(9, -5), 7))
	model := &oldBroker{logs: old.logs}
	compare(t, "-5", mustRead(t, c), answerFrame(7, model.listOffsets(old.offsetsRequest(9, -5))))
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 8))
	compare(t, "-6", mustRead(t, c), model.native(old.offsetsRequest(11, -6), 8))
	compareLines(t, old.asked(), []string{
		`api_versions v0 #1 "c"`,
		`metadata v12 #2 "c"`, `list_offsets v8 #3 "c" -4`, `list_offsets v8 #4 "c" -2`, `list_offsets v8 #5 "c" -1`,
		`offset_for_leader_epoch v4 #6 "c"`, `metadata v12 #7 "c"`,
		`list_offsets v8 #8 "c" -4`, `list_offsets v8 #9 "c" -2`,
		`metadata v12 #10 "c"`, `list_offsets v8 #11 "c" -4`, `list_offsets v8 #12 "c" -2`, `list_offsets v8 #13 "c" -1`,
		`offset_for_leader_epoch v4 #14 "c"`, `metadata v12 #15 "c"`,
		`list_offsets v8 #16 "c" -1`,
	})
	compareLines(t, u.asked, []string{"known", "known"})
}

// What is known is too old, and asked for once more; then it is not known.
func TestUploadsThatCannotBe(t *testing.T) {
	l := tierlog.New(0)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Append(100)
	l.Upload(49)
	l.DeleteLocal(50)
	registry := prometheus.NewRegistry()
	old, u, s := newOlderServer(t, l, func(u *modelUploads) {
		u.known = func(context.Context, string) []pendingupload.Uploaded { return []pendingupload.Uploaded{{Known: true}} }
	}, func(o *Options) { o.Registerer = registry })
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 8))
	want := answerFrame(8, offsetsAnswer(old.offsetsRequest(11, -6), none))
	compare(t, "-6", mustRead(t, c), want)
	compareLines(t, u.asked, []string{"known", "current"})
	await(t, "the metric", func() bool {
		return testutil.ToFloat64(s.metrics.unuploaded) == 1
	})
}

// A defect in what finds the uploads out costs its session.
func TestPanicInUploads(t *testing.T) {
	j := &journal{}
	old, _, s := newOlderServer(t, tieredWithoutUploads(), func(u *modelUploads) {
		u.known = func(context.Context, string) []pendingupload.Uploaded { panic("a defect in ResolveUploads") }
	}, loggingTo(j))
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
	_ = ending(t, c)
	j.awaitLine(t, "WARN session closed: a defect of the proxy", "a defect in ResolveUploads")
}

// A client that leaves meanwhile ends the search for its uploads.
func TestClientLeavesWhileUploadsAreResolved(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	old, _, s := newOlderServer(t, tieredWithoutUploads(), func(u *modelUploads) {
		u.known = func(ctx context.Context, _ string) []pendingupload.Uploaded {
			close(begun)
			<-ctx.Done()
			close(ended)
			return nil
		}
	})
	c := connect(t, s)
	mustWrite(t, c, frameOfRequest(old.offsetsRequest(11, -6), 1))
	<-begun
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-ended
	awaitSessions(t, s, 0)
}

// none is the response of a partition without an offset.
func none(string, kmsg.ListOffsetsRequestTopicPartition) tierlog.Answer {
	return tierlog.Answer{Timestamp: -1, Offset: -1, Epoch: -1}
}
