// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package tiered derives the highest tiered offset of partitions from the records of
// Kafka's topic __remote_log_metadata, which the default RemoteLogMetadataManager writes
// (KIP-405). It has no socket, goroutine, lock or clock: records go in, offsets come out.
//
// Brokers of Kafka 3.6 to 3.8 have tiered storage but neither timestamp of ListOffsets
// that tells what is uploaded (-5 of KIP-1005, -6 of KIP-1023). This package gives what a
// leader of such a broker computes when it becomes leader: for each leader epoch the
// highest offset that was uploaded, from which the newest epoch in the lineage of the
// log decides (RemoteLogManager.findHighestRemoteOffset).
//
// # Rules
//
//   - Everything is keyed by topic id and partition; names are labels. A topic that is
//     deleted and created again has a new id.
//   - A segment begins with a record that says which epochs it has, and where it ends
//     (COPY_SEGMENT_STARTED). It counts from the record on that says that it is there
//     (COPY_SEGMENT_FINISHED), for each of its epochs.
//   - The highest offset of an epoch never goes down, also when all segments of the epoch
//     are deleted: RemoteLogLeaderEpochState.highestLogOffset does not either.
//   - What cannot be understood makes every partition unknown that may be concerned: an
//     unknown frame or message version, a malformed record, a record in a partition of the
//     topic other than the one that its partition belongs to.
//
// # Memory
//
// An Index keeps nothing of a segment that is finished or deleted: 16 bytes for each
// epoch that uploaded something, and about 100 for a partition. Segments in flight are
// bounded. An eviction makes its partition unknown until the epochs of the evicted
// segment have reached the segment's end by others, since it can change nothing then.
package tiered
