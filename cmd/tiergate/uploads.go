// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"tiergate/cache/tiered"
	"tiergate/config"
	"tiergate/proxy"
	"tiergate/rewrite/pendingupload"
	"tiergate/upstream"
)

// currentUploadsPatience is how long a -6 request waits for the reader of the metadata topic
// when what it knows cannot be: a reader lags by milliseconds.
const currentUploadsPatience = time.Second

// tieredOffsets is what uploads need of upstream.Cluster.
type tieredOffsets interface {
	ResolveRemoteStorage(ctx context.Context, topics []string) map[string]bool
	HighestTiered(p upstream.TopicPartition) (tiered.Highest, bool)
	AwaitTiered(ctx context.Context, partitions []upstream.TopicPartition) error
	TieredOffsetsReady() error
}

// uploads tells the proxy what is uploaded, as a cluster's metadata topic has it.
type uploads struct{ of tieredOffsets }

// uploadsOf returns those of a cluster, nil where the configuration does not ask for them.
func uploadsOf(of config.NamedCluster, to tieredOffsets) proxy.Uploads {
	if of.EarliestPendingUpload != config.PendingUploadMetadataTopic {
		return nil
	}
	return uploads{to}
}

// UploadsReady says whether it is known what is uploaded.
func (u uploads) UploadsReady() bool { return u.of.TieredOffsetsReady() == nil }

// ResolveUploads returns what is known of partitions.
func (u uploads) ResolveUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded {
	storage := u.of.ResolveRemoteStorage(ctx, topicsOf(of))
	known := make([]pendingupload.Uploaded, len(of))
	for i, p := range of {
		known[i] = u.uploaded(p, storage)
	}
	return known
}

// ResolveCurrentUploads waits for the reader first; what it cannot know in time is unknown.
func (u uploads) ResolveCurrentUploads(ctx context.Context, of []pendingupload.Partition) []pendingupload.Uploaded {
	waiting, cancel := context.WithTimeout(ctx, currentUploadsPatience)
	defer cancel()
	partitions := make([]upstream.TopicPartition, len(of))
	for i, p := range of {
		partitions[i] = upstream.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
	}
	if err := u.of.AwaitTiered(waiting, partitions); err != nil {
		return make([]pendingupload.Uploaded, len(of))
	}
	return u.ResolveUploads(ctx, of)
}

// uploaded is what is known of one partition. The topic's own config counts, as for -5:
// nothing is uploaded of a topic without remote storage, whatever was once.
func (u uploads) uploaded(p pendingupload.Partition, storage map[string]bool) pendingupload.Uploaded {
	enabled, known := storage[p.Topic]
	if !known || !enabled {
		return pendingupload.Uploaded{Known: known}
	}
	highest, known := u.of.HighestTiered(upstream.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
	if !known {
		return pendingupload.Uploaded{}
	}
	result := pendingupload.Uploaded{Known: true, Cut: highest.Cut, Epochs: make([]pendingupload.EpochOffset, len(highest.Epochs))}
	for i, e := range highest.Epochs {
		result.Epochs[i] = pendingupload.EpochOffset(e)
	}
	return result
}

// topicsOf names the topics of partitions, each once where its partitions follow each other.
func topicsOf(partitions []pendingupload.Partition) []string {
	var topics []string
	for _, p := range partitions {
		if n := len(topics); n == 0 || topics[n-1] != p.Topic {
			topics = append(topics, p.Topic)
		}
	}
	return topics
}
