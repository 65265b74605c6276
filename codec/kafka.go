// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import "github.com/twmb/franz-go/pkg/kmsg"

// API keys that tiergate treats, as in ApiKeys.java.
const (
	KeyProduce              = int16(kmsg.Produce)
	KeyFetch                = int16(kmsg.Fetch)
	KeyListOffsets          = int16(kmsg.ListOffsets)
	KeyMetadata             = int16(kmsg.Metadata)
	KeyFindCoordinator      = int16(kmsg.FindCoordinator)
	KeyApiVersions          = int16(kmsg.ApiVersions)
	KeyOffsetForLeaderEpoch = int16(kmsg.OffsetForLeaderEpoch)
	KeyEnvelope             = int16(kmsg.Envelope)
	KeyDescribeCluster      = int16(kmsg.DescribeCluster)
	KeyShareFetch           = int16(kmsg.ShareFetch)
	KeyShareAcknowledge     = int16(kmsg.ShareAcknowledge)
)

// Timestamps of ListOffsets that mean a place and not a time, as in
// ListOffsetsRequest.java.
const (
	LatestTimestamp                int64 = -1
	EarliestTimestamp              int64 = -2
	MaxTimestamp                   int64 = -3
	EarliestLocalTimestamp         int64 = -4 // KIP-405
	LatestTieredTimestamp          int64 = -5 // KIP-1005
	EarliestPendingUploadTimestamp int64 = -6 // KIP-1023
)

// Versions that -6 and what it is made from depend on.
const (
	// ListOffsetsLocal is the first version of ListOffsets with -4, and where Kafka 3.6 to
	// 3.8 end.
	ListOffsetsLocal int16 = 8
	// ListOffsetsTiered is the first version with -5, and where Kafka 3.9 ends.
	ListOffsetsTiered int16 = 9
	// ListOffsetsTimeout is the first version with a TimeoutMs field (KIP-1075), and where
	// Kafka 4.0 and 4.1 end.
	ListOffsetsTimeout int16 = 10
	// ListOffsetsPendingUpload is the first version with -6, since Kafka 4.2.
	ListOffsetsPendingUpload int16 = 11
	// OffsetForLeaderEpochLookup is the version of epoch lookups: the first flexible one.
	OffsetForLeaderEpochLookup int16 = 4
	// MetadataTopicIDs is the version of Metadata that topic ids are looked up with.
	MetadataTopicIDs int16 = 12
)

// VersionRange are the versions of an API that a broker offers.
type VersionRange struct{ Lowest, Highest int16 }

// Has says whether a version is offered.
func (r VersionRange) Has(version int16) bool { return r.Lowest <= version && version <= r.Highest }

// BrokerVersions are what a broker's ApiVersions response says of what -6 depends on. An
// API that is not offered has the range 0 to -1.
type BrokerVersions struct{ ListOffsets, OffsetForLeaderEpoch, Metadata VersionRange }

// NoVersions are those of a broker that offers nothing.
func NoVersions() BrokerVersions {
	none := VersionRange{0, -1}
	return BrokerVersions{none, none, none}
}

// Add takes one API of the response.
func (b *BrokerVersions) Add(key, lowest, highest int16) {
	switch key {
	case KeyListOffsets:
		b.ListOffsets = VersionRange{lowest, highest}
	case KeyOffsetForLeaderEpoch:
		b.OffsetForLeaderEpoch = VersionRange{lowest, highest}
	case KeyMetadata:
		b.Metadata = VersionRange{lowest, highest}
	}
}

// RemoteLogMetadata is the topic of TopicBasedRemoteLogMetadataManager.
const RemoteLogMetadata = "__remote_log_metadata"

// NeverTiered is true for the topics that Kafka keeps local whatever their configs say:
// Topic.isInternal, TopicBasedRemoteLogMetadataManagerConfig's
// REMOTE_LOG_METADATA_TOPIC_NAME and Topic.CLUSTER_METADATA_TOPIC_NAME, as in
// UnifiedLog.isRemoteLogEnabled.
func NeverTiered(topic string) bool {
	switch topic {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", RemoteLogMetadata, "__cluster_metadata":
		return true
	}
	return false
}

// RemoteStorage is the remote storage status of a topic (remote.storage.enable) or of a
// broker (remote.log.storage.system.enable).
type RemoteStorage uint8

const (
	// RemoteStorageUnknown: the config could not be read.
	RemoteStorageUnknown RemoteStorage = iota
	// RemoteStorageDisabled: nothing is uploaded.
	RemoteStorageDisabled
	// RemoteStorageEnabled: complete segments are uploaded.
	RemoteStorageEnabled
)

// String is "unknown", "disabled" or "enabled", as in metric labels.
func (r RemoteStorage) String() string {
	switch r {
	case RemoteStorageDisabled:
		return "disabled"
	case RemoteStorageEnabled:
		return "enabled"
	case RemoteStorageUnknown:
	}
	return "unknown"
}
