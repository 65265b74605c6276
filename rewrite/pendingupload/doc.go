// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package pendingupload answers ListOffsets with timestamp -6 (earliest pending upload
// offset, KIP-1023) from what brokers of Kafka 3.9 to 4.1 can be asked. It has no
// socket, goroutine or clock: answers of the broker go in, requests for it come out.
//
// # One exchange
//
//	r, err := ParseRequest(frame)
//	m, err := New(r, 10, TwoFirst)
//	for m.State() != Done {
//		send what m.Ready() gives, in order, until it gives nothing
//		AwaitAnswers:  m.Step(next response), one per lookup, in the order of the lookups
//		AwaitRemoteStorage: m.SetRemoteStorage(...), once the topics in m.Topics() are known
//	}
//	m.Response()
//
// Ready may be called at any time; it gives nothing when nothing is to be sent. After an
// error of Step the machine is of no further use and the session must close: a broker
// connection whose responses cannot be read has lost its place.
//
// # Memory and time
//
// A request may name a million partitions, so little is kept of each. A machine holds
//
//	after New      12 bytes for each partition that asks for -6, and a copy of the client's
//	               frame (17 bytes or more for each) until Ready has given it as a lookup
//	after a Step   12 bytes more after two lookups, 24 after four, and a copy of the
//	               response to the client's own request (27 bytes or more for each)
//	when Done      the response
//
// and for each topic its name and 29 to 35 bytes. A lookup is built when Ready is asked for
// it: 17 bytes for each partition, up to 52 in an epoch round of more than 8192 of them.
// Size says what is held now and Request.MachineSize what it will be after New. Nothing of a
// broker's response is kept but that one copy, however often it names a partition and whether
// or not that was asked for. Partitions that are not in the order of their index cost 20 bytes
// each while New sorts them.
//
// Responses that name partitions in the order of the lookup find them without a search, and a
// request that names them in order is not sorted. On a busy 2 GHz core, for each partition
// of topics with many: New takes 80 ns, a lookup 30 ns, a Step 50 to 200 ns (the last one
// writes the response); where each topic has one partition, up to five times as much. So a
// request of 100,000 partitions is worth another goroutine, and a machine shares nothing with
// others. BenchmarkMachine measures this.
//
// # The look-ups
//
// Four requests go out at once, in this order:
//
//	-4  earliest local offset    the partitions that asked for -6
//	-2  log start offset         the same
//	-5  highest remote offset    the client's own request, -6 replaced by -5 in place
//	-1  last fetchable offset    the partitions that asked for -6
//
// The answer to the third one becomes the answer to the client: it is patched in place,
// so all other partitions, unknown tags, the order, and duplicates stay as the broker
// sent them. Then the statuses on remote.storage.enable are waited for where they matter,
// and last, where the epoch of the offset is still open, OffsetForLeaderEpoch rounds
// follow (see epochs.go).
//
// # Two look-ups first
//
// Where both of these are so, -5 and -1 decide without the log start:
//
//   - -5 is an offset, and
//   - it is the last one that the reader may read (the answer is none), or its epoch is the
//     leader's own, which -1 tells (the answer is the offset after it, in that epoch). For
//     when the leader began, the log start was not above the first offset of its epoch, and
//     each time it raises the log start it cuts its leader epoch cache there, so that -5
//     has no epoch any more once the log start is above it.
//
// With the plan TwoFirst these two go out first, which costs a broker half of what four
// cost. Then come the statuses, and the four, -5 among them, for the partitions that are
// still open. The epoch of an older leader does not do: a replica that is rebuilt from
// remote storage takes over epochs from below its log start, and may lead before it has
// looked how far remote storage goes (TierStateMachine.buildRemoteLogAuxState). Nor does a
// follower, which answers the debugging replica id -2: that has all four sent.
//
// # The rules
//
//  1. An error code in any look-up is the answer. A partition that is missing from an
//     answer gets UNKNOWN_SERVER_ERROR.
//  2. Nothing uploaded (-5 is negative): none, unless remote storage is on for the topic,
//     the local log starts where the log starts, and there is a record to read; then it
//     is the log start.
//  3. Something uploaded: the offset after it, or the log start if that is higher; none
//     if the reader may not read there.
//
// Source: Kafka 4.2 UnifiedLog.fetchEarliestPendingUploadOffset,
// Partition.fetchOffsetForTimestamp, ReplicaManager.fetchOffset; of the older brokers
// UnifiedLog.maybeIncrementLogStartOffset, LogLoader.load and
// LeaderEpochFileCache.truncateFromStart.
//
// # Races
//
// Offsets move while the look-ups run. Short of a leader change, which shows as an
// error, all four only grow, and remote <= last-1, start <= local, start <= last hold at
// any instant. With two look-ups the log start was not above tier+1 when -5 was
// answered, so that tier+1 was the native offset then. With four the order -4, -2, -5,
// -1 makes a composed answer one that a native broker could have given at some instant
// between the first look-up and the last:
//
//   - -4 before -2: local > start means that it was so when -4 was answered (the leader
//     does not know yet what is uploaded), since start only grew. local < start means
//     that records were deleted in between and both start there now. Asked the other way
//     round, or compared with "!=", the two cannot be told apart.
//   - -2 before -5: with tier+1 < start the answer is start, and it was when -2 was
//     answered, as less was uploaded then. With tier+1 >= start it is tier+1, and it was
//     when -5 was answered.
//   - -1 last, in both: an answer that only later appends made readable was the native
//     one right after that append, as neither start nor tier can pass the end of the log
//     before.
//
// The status of a topic's remote storage is wanted when the answers to -5 that it is
// combined with are there, in each stage anew. So a topic that is deleted, created again
// or switched between two stages gets an answer of what it is in the second, and what is
// left is the age of the status itself, which is its giver's to bound (package upstream).
//
// One case remains: the log start passes the answer while it is being composed, which
// takes a DeleteRecords of records that were not uploaded yet. Then the answer may be an
// offset that is gone, as a native answer would be one moment later; where the epoch
// search notices it, the partition gets OFFSET_NOT_AVAILABLE, which clients retry.
//
// # Where the answer is not the native one
//
// No request tells enough for these. Two errors are wider than the native ones, and one
// offset is given where a native broker gives none:
//
//   - A new leader whose high watermark has not reached its epoch yet answers -1 to
//     consumers with OFFSET_NOT_AVAILABLE always, and a native -6 only if the offset is at
//     the high watermark. Clients retry the error, and it ends with the election.
//   - A follower answers ListOffsets to the debugging replica id -2, but only a leader
//     answers OffsetForLeaderEpoch: where the epoch has to be searched, such a request gets
//     NOT_LEADER_OR_FOLLOWER.
//   - A broker answers -5 with none, too, when what it uploaded lies beyond what the reader may
//     read. Only an unclean election that took records back which were uploaded leads there.
//     It then looks as if nothing was uploaded, and the answer is the log start.
//
// # Brokers without -5
//
// Brokers of Kafka 3.6 to 3.8 end at version 8. For them Older makes -5 from what is known of
// their metadata topic (see tier.go), and with -6 has a Machine run in front of it. Two more
// differences follow: -5 is answered with OFFSET_NOT_AVAILABLE where -1 is, and it is not
// limited to what the reader may read.
package pendingupload
