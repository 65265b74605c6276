// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

const (
	readUncommitted = int8(0)
	readCommitted   = int8(1)

	consumer = int32(-1) // replica id
	anyEpoch = int32(-1) // current leader epoch: not checked
)

// want is one partition of a ListOffsets request.
type want struct {
	topic     string
	partition int32
	timestamp int64
	epoch     int32 // current leader epoch, as the client believes
}

// listOffsets makes a request of the given partitions in their order; partitions of one
// topic that follow each other share a topic of the request.
func listOffsets(version int16, replicaID int32, isolation int8, wants ...want) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = version, replicaID, isolation, 10_000
	for _, w := range wants {
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != w.topic {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = w.topic
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = w.partition, w.timestamp, w.epoch
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	return req
}

// pending asks for -6 of partition 0 of a topic.
func pending(topic string) want {
	return want{topic: topic, timestamp: codec.EarliestPendingUploadTimestamp, epoch: anyEpoch}
}

// answer is one partition of a ListOffsets response.
type answer struct {
	topic     string
	partition int32
	errorCode int16
	timestamp int64
	position  kafka.Position
}

// answers lists the partitions of a response in its order.
func answers(resp *kmsg.ListOffsetsResponse) []answer {
	var all []answer
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all = append(all, answer{t.Topic, p.Partition, p.ErrorCode, p.Timestamp, kafka.Position{Offset: p.Offset, Epoch: p.LeaderEpoch}})
		}
	}
	return all
}
