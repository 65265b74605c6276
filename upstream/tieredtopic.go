// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// metadataTopic is the topic __remote_log_metadata as a broker describes it.
type metadataTopic struct {
	id         [16]byte
	partitions int
}

// describeMetadataTopic asks any broker. It needs DESCRIBE on the topic, which READ implies.
func describeMetadataTopic(ctx context.Context, client *kgo.Client) (metadataTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(codec.RemoteLogMetadata)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return metadataTopic{}, fmt.Errorf("topic %s: %w", codec.RemoteLogMetadata, err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != codec.RemoteLogMetadata {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return metadataTopic{}, fmt.Errorf("topic %s: %w", codec.RemoteLogMetadata, err)
		}
		if len(t.Partitions) > 0 {
			return metadataTopic{id: t.TopicID, partitions: len(t.Partitions)}, nil
		}
	}
	return metadataTopic{}, fmt.Errorf("topic %s: the Metadata response describes no partition of it", codec.RemoteLogMetadata)
}

// offsets asks the leaders of all partitions for the offset at a timestamp. Partitions
// whose leader has none to give are absent.
func (m metadataTopic) offsets(ctx context.Context, client *kgo.Client, timestamp int64) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = codec.RemoteLogMetadata
	for i := range int32(m.partitions) { //nolint:gosec // a broker gave fewer
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = i, timestamp
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", codec.RemoteLogMetadata, err)
	}
	offsets := make(map[int32]int64, m.partitions)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic == codec.RemoteLogMetadata && p.ErrorCode == 0 && p.Partition >= 0 && int(p.Partition) < m.partitions {
				offsets[p.Partition] = p.Offset
			}
		}
	}
	return offsets, nil
}
