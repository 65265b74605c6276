// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// Config names that an answer to DescribeConfigs gets from the simulation.
const (
	topicRemoteStorage  = "remote.storage.enable"
	systemRemoteStorage = "remote.log.storage.system.enable"
)

// answer changes kfake's response into what a broker with tiered storage sends. It runs
// on a connection's writing goroutine. An error closes the connection.
func (c *Cluster) answer(nodeID int32, request kmsg.Request, response kmsg.Response) error {
	switch response := response.(type) {
	case *kmsg.ApiVersionsResponse:
		c.answerApiVersions(nodeID, response) // no lock: the simulation's own client asks too
		return nil
	case *kmsg.DescribeTopicPartitionsResponse:
		answerDescribeTopicPartitions(response)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	switch request := request.(type) {
	case *kmsg.ListOffsetsRequest:
		c.answerListOffsets(request, response.(*kmsg.ListOffsetsResponse))
	case *kmsg.OffsetForLeaderEpochRequest:
		c.answerOffsetForLeaderEpoch(request, response.(*kmsg.OffsetForLeaderEpochResponse))
	case *kmsg.DescribeConfigsRequest:
		c.answerDescribeConfigs(request, response.(*kmsg.DescribeConfigsResponse))
	}
	return nil
}

func (c *Cluster) answerApiVersions(nodeID int32, response *kmsg.ApiVersionsResponse) {
	for i := range response.ApiKeys {
		if row := &response.ApiKeys[i]; row.ApiKey == kmsg.ListOffsets.Int16() {
			row.MinVersion = c.versionOf(nodeID).minListOffsets()
			row.MaxVersion = c.versionOf(nodeID).maxListOffsets()
		}
	}
}

// answerDescribeTopicPartitions gives partitions the empty lists that brokers send where
// kfake sends null: the Java admin client of 4.3 fails at null.
func answerDescribeTopicPartitions(response *kmsg.DescribeTopicPartitionsResponse) {
	for i := range response.Topics {
		for j := range response.Topics[i].Partitions {
			p := &response.Topics[i].Partitions[j]
			p.EligibleLeaderReplicas = append([]int32{}, p.EligibleLeaderReplicas...)
			p.LastKnownELR = append([]int32{}, p.LastKnownELR...)
		}
	}
}

type topicPartition struct {
	topic     string
	partition int32
}

// answerListOffsets fills in the models' offsets where kfake found nothing to refuse.
func (c *Cluster) answerListOffsets(request *kmsg.ListOffsetsRequest, response *kmsg.ListOffsetsResponse) {
	asked := make(map[topicPartition]*kmsg.ListOffsetsRequestTopicPartition)
	for i := range request.Topics {
		t := &request.Topics[i]
		if known := c.topics[t.Topic]; known != nil {
			c.catchUp(known)
		}
		for j := range t.Partitions {
			asked[topicPartition{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	for i := range response.Topics {
		t := &response.Topics[i]
		t.Partitions = withoutDuplicates(t.Partitions)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			ask := asked[topicPartition{t.Topic, p.Partition}]
			if p.ErrorCode == 0 && ask != nil && request.Version > 0 {
				c.listOffset(request, t.Topic, ask, p)
			}
		}
		slices.Reverse(t.Partitions)
	}
	// Brokers collect the answers in a hash map (ReplicaManager.fetchOffset), so their
	// order is not the request's. Any other order serves.
	slices.Reverse(response.Topics)
}

// withoutDuplicates leaves one answer for each partition: kfake answers a partition
// that is named twice with INVALID_REQUEST twice, a broker once.
func withoutDuplicates(partitions []kmsg.ListOffsetsResponseTopicPartition) []kmsg.ListOffsetsResponseTopicPartition {
	seen := make(map[int32]struct{}, len(partitions))
	return slices.DeleteFunc(partitions, func(p kmsg.ListOffsetsResponseTopicPartition) bool {
		_, again := seen[p.Partition]
		seen[p.Partition] = struct{}{}
		return again
	})
}

// listOffset answers one partition from its model, if it has one.
func (c *Cluster) listOffset(request *kmsg.ListOffsetsRequest, name string, ask *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) {
	t, p, err := c.partition(name, ask.Partition)
	if err != nil {
		return // a topic that a client created: kfake's answer
	}
	var a tierlog.Answer
	switch ask.Timestamp {
	case codec.EarliestPendingUploadTimestamp: // kfake refused it below version 11
		a = p.log.NativeEarliestPendingUpload(request.IsolationLevel, request.ReplicaID, ask.CurrentLeaderEpoch)
	case codec.LatestTimestamp, codec.EarliestTimestamp, codec.EarliestLocalTimestamp, codec.LatestTieredTimestamp:
		a = p.log.ListOffset(ask.Timestamp, request.IsolationLevel, request.ReplicaID, ask.CurrentLeaderEpoch)
	default:
		if t.records == ProducedRecords {
			return // kfake has looked at the records
		}
		a = p.log.ListOffset(ask.Timestamp, request.IsolationLevel, request.ReplicaID, ask.CurrentLeaderEpoch)
	}
	out.ErrorCode, out.Timestamp, out.Offset, out.LeaderEpoch = a.ErrorCode, a.Timestamp, a.Offset, a.Epoch
}

// answerOffsetForLeaderEpoch answers in the order of the request, each partition as
// often as it is named: KafkaApis.handleOffsetForLeaderEpochRequest maps over it.
func (c *Cluster) answerOffsetForLeaderEpoch(request *kmsg.OffsetForLeaderEpochRequest, response *kmsg.OffsetForLeaderEpochResponse) {
	found := make(map[string][]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(response.Topics))
	for _, t := range response.Topics { // kfake has one entry for each topic
		found[t.Topic] = t.Partitions
	}
	response.Topics = response.Topics[:0]
	for i := range request.Topics {
		t := &request.Topics[i]
		if known := c.topics[t.Topic]; known != nil {
			c.catchUp(known)
		}
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		n := len(t.Partitions)
		out.Partitions, found[t.Topic] = found[t.Topic][:n:n], found[t.Topic][n:]
		for j := range out.Partitions {
			c.epochEndOffset(t.Topic, &t.Partitions[j], &out.Partitions[j])
		}
		response.Topics = append(response.Topics, out)
	}
}

func (c *Cluster) epochEndOffset(name string, ask *kmsg.OffsetForLeaderEpochRequestTopicPartition, out *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	_, p, err := c.partition(name, ask.Partition)
	if err != nil || out.ErrorCode != 0 {
		return
	}
	end := p.log.EpochEndOffset(ask.LeaderEpoch, ask.CurrentLeaderEpoch)
	out.ErrorCode, out.LeaderEpoch, out.EndOffset = end.ErrorCode, end.Epoch, end.EndOffset
}

// answerDescribeConfigs adds what is said of remote storage, or denies everything.
// kfake answers resources in the order of the request.
func (c *Cluster) answerDescribeConfigs(request *kmsg.DescribeConfigsRequest, response *kmsg.DescribeConfigsResponse) {
	for i := range response.Resources {
		r, names := &response.Resources[i], request.Resources[i].ConfigNames
		switch r.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			if c.describeConfigs == DescribeConfigsDenied {
				deny(r, kerr.TopicAuthorizationFailed)
			}
			addConfig(r, names, topicRemoteStorage, c.topicRemoteStorage(r.ResourceName), kmsg.ConfigSourceDynamicTopicConfig)
		case kmsg.ConfigResourceTypeBroker:
			if c.describeConfigs == DescribeConfigsDenied {
				deny(r, kerr.ClusterAuthorizationFailed)
			}
			if r.ResourceName != "" { // "" names the dynamic defaults of all brokers only
				addConfig(r, names, systemRemoteStorage, c.system, kmsg.ConfigSourceStaticBrokerConfig)
			}
		case kmsg.ConfigResourceTypeUnknown, kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		}
	}
}

func (c *Cluster) topicRemoteStorage(name string) codec.RemoteStorage {
	if t := c.topics[name]; t != nil && t.partitions[0].log.RemoteStorage() == codec.RemoteStorageEnabled {
		return codec.RemoteStorageEnabled
	}
	return codec.RemoteStorageDisabled
}

func deny(r *kmsg.DescribeConfigsResponseResource, reason *kerr.Error) {
	r.ErrorCode, r.ErrorMessage, r.Configs = reason.Code, kmsg.StringPtr(reason.Description), nil
}

// addConfig adds a config to a resource without error, if it was asked for. "true" is
// set at source, "false" is the default.
func addConfig(r *kmsg.DescribeConfigsResponseResource, names []string, name string, value codec.RemoteStorage, source kmsg.ConfigSource) {
	if r.ErrorCode != 0 || names != nil && !slices.Contains(names, name) {
		return
	}
	r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name == name })
	config := kmsg.NewDescribeConfigsResponseResourceConfig()
	config.Name = name
	config.ConfigType = kmsg.ConfigTypeBoolean
	config.Value, config.Source = kmsg.StringPtr("true"), source
	if value != codec.RemoteStorageEnabled {
		config.Value, config.Source, config.IsDefault = kmsg.StringPtr("false"), kmsg.ConfigSourceDefaultConfig, true
	}
	config.ReadOnly = r.ResourceType == kmsg.ConfigResourceTypeBroker
	r.Configs = append(r.Configs, config)
}
