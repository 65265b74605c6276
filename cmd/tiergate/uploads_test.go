// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"tiergate/cache/tiered"
	"tiergate/config"
	"tiergate/rewrite/pendingupload"
	"tiergate/upstream"
)

// reader is a cluster whose metadata topic was read, or not.
type reader struct {
	storage map[string]bool
	highest map[upstream.TopicPartition]tiered.Highest
	err     error
	awaited []upstream.TopicPartition
	asked   []string
}

func (r *reader) ResolveRemoteStorage(_ context.Context, topics []string) map[string]bool {
	r.asked = topics
	return r.storage
}

func (r *reader) HighestTiered(p upstream.TopicPartition) (tiered.Highest, bool) {
	h, ok := r.highest[p]
	return h, ok
}

func (r *reader) AwaitTiered(_ context.Context, partitions []upstream.TopicPartition) error {
	r.awaited = partitions
	return r.err
}

func (r *reader) TieredOffsetsReady() error { return r.err }

func TestUploads(t *testing.T) {
	id := [16]byte{7}
	part := func(topic string, partition int32) pendingupload.Partition {
		return pendingupload.Partition{Topic: topic, TopicID: id, Partition: partition}
	}
	of := &reader{
		storage: map[string]bool{"tiered": true, "local": false},
		highest: map[upstream.TopicPartition]tiered.Highest{
			{TopicID: id, Partition: 0}: {Epochs: []tiered.EpochOffset{{Epoch: 3, Offset: 30}, {Epoch: 1, Offset: 10}}, Cut: true},
			{TopicID: id, Partition: 1}: {},
		},
	}
	u := uploads{of}
	asked := []pendingupload.Partition{part("tiered", 0), part("tiered", 1), part("tiered", 2), part("local", 0), part("unknown", 0)}
	const want = "[{true [{3 30} {1 10}] true} {true [] false} {false [] false} {true [] false} {false [] false}]"
	if got := fmt.Sprint(u.ResolveUploads(t.Context(), asked)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if topics := []string{"tiered", "local", "unknown"}; !slices.Equal(of.asked, topics) || of.awaited != nil || !u.UploadsReady() {
		t.Errorf("asked for %q, awaited %v, ready %t", of.asked, of.awaited, u.UploadsReady())
	}
	if got := fmt.Sprint(u.ResolveCurrentUploads(t.Context(), asked)); got != want || len(of.awaited) != len(asked) || of.awaited[2].Partition != 2 {
		t.Errorf("got  %s\nwant %s; awaited %v", got, want, of.awaited)
	}
	of.err = errors.New("not read")
	if got := u.ResolveCurrentUploads(t.Context(), asked[:2]); u.UploadsReady() || fmt.Sprint(got) != "[{false [] false} {false [] false}]" {
		t.Errorf("without a reader: %v", got)
	}
}

func TestUploadsAreOffUnlessConfigured(t *testing.T) {
	for mode, want := range map[config.PendingUpload]bool{
		config.PendingUploadAuto: false, config.PendingUploadAlways: false, config.PendingUploadOff: false, config.PendingUploadMetadataTopic: true,
	} {
		of := config.NamedCluster{}
		of.EarliestPendingUpload = mode
		if got := uploadsOf(of, &reader{}); (got != nil) != want {
			t.Errorf("%s: %v", mode, got)
		}
		opts := upstreamOptions(&config.Config{}, of, nil, nil)
		if got := opts.TieredOffsets == upstream.TieredOffsetsFromMetadataTopic; got != want {
			t.Errorf("%s: the topic is read: %t", mode, got)
		}
	}
}
