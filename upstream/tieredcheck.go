// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

const (
	// metadataManagerClass is the config that names a broker's RemoteLogMetadataManager, and
	// defaultManager its default, which writes the topic (RemoteLogManagerConfig).
	metadataManagerClass = "remote.log.metadata.manager.class.name"
	defaultManager       = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
	// checkPatience bounds how long CheckTieredOffsets reads. 500,000 records take a second.
	checkPatience = 30 * time.Second
)

// CheckTieredOffsets reads __remote_log_metadata to its end, as a Cluster with TieredOffsets
// does from Start on, and returns what stands in its way, and what to do about it. It blocks
// for 30 s and one RequestTimeout for each broker at the most, and until ctx ends.
func (c *Cluster) CheckTieredOffsets(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var faults []error
	for _, node := range c.nodes.Snapshot() {
		if class, ok := c.metadataManager(ctx, node.NodeID); ok && class != defaultManager {
			faults = append(faults, fmt.Errorf("node %d has %s=%s: what is uploaded is not in the topic %s; only %s writes it",
				node.NodeID, metadataManagerClass, class, codec.RemoteLogMetadata, defaultManager))
		}
	}
	if len(faults) > 0 {
		return faults // the topic may be there, and out of date
	}
	return c.readOnce(ctx)
}

// metadataManager asks a broker for its RemoteLogMetadataManager; ok is false when it does
// not tell, for which DESCRIBE_CONFIGS on the cluster is needed.
func (c *Cluster) metadataManager(ctx context.Context, nodeID int32) (class string, ok bool) {
	name := strconv.Itoa(int(nodeID))
	answers, err := describeConfigs(ctx, c.client.Broker(int(nodeID)), kmsg.ConfigResourceTypeBroker, []string{name}, []string{metadataManagerClass})
	if err != nil || answers[name].ErrorCode != 0 {
		return "", false
	}
	return configValue(answers[name], metadataManagerClass)
}

// readOnce reads the topic until its end was seen, and returns what it found.
func (c *Cluster) readOnce(ctx context.Context) []error {
	r := newTieredReader(c)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() { ended <- r.read(ctx) })
	defer reading.Wait()
	defer stop()
	for {
		r.mu.RLock()
		progress, complete, faults := r.progress, r.complete, r.faults()
		r.mu.RUnlock()
		if complete {
			return faults
		}
		select {
		case <-progress:
		case err := <-ended:
			return []error{c.explainTiered(err)}
		}
	}
}

// faults are the partitions of the topic that cannot be relied on. The caller holds the lock.
func (r *tieredReader) faults() []error {
	var faults []error
	for i := range r.sources {
		if err := r.index.Fault(int32(i)); err != nil {
			faults = append(faults, fmt.Errorf("partition %d of %s: %w", i, codec.RemoteLogMetadata, err))
		}
	}
	return faults
}

// explainTiered says what to do about an error of reading the topic.
func (c *Cluster) explainTiered(err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("there is no topic %s: tiered storage is off in the brokers, or another RemoteLogMetadataManager is in use", codec.RemoteLogMetadata)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%s may not be read: grant READ on it to the service client (client id %s)", codec.RemoteLogMetadata, c.opts.ClientID)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s was not read to its end within %v", codec.RemoteLogMetadata, checkPatience)
	}
	return fmt.Errorf("%s cannot be read: %w", codec.RemoteLogMetadata, err)
}
