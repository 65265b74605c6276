// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package follower plays a Kafka replica that catches up with its leader, over the wire,
// and measures what the earliest pending upload offset (ListOffsets -6, KIP-1023) saves it.
//
// A replica is played whole: its broker is stopped, the package registers with the
// controller under its node id and sends its heartbeats (Broker), fetches with its replica
// id and broker epoch, keeps a log (Replica), and in the end is in the ISR. Everything that
// goes to the leader goes where the caller says: to the broker itself, or through tiergate.
//
// What a replica decides (Follower) is what Kafka's replica fetcher decides:
//
//	Fetch at the replica's end
//	 ├ records ─────────────────────────────> append, go on; at the high watermark: in sync
//	 ├ diverging epoch ─────────────────────> truncate, go on
//	 ├ NOT_LEADER, FENCED_LEADER_EPOCH ... ─> find the leader anew
//	 ├ OFFSET_OUT_OF_RANGE
//	 │   ├ empty, tiered, policy -6: ───────> -2, pending(); tier(pending)
//	 │   ├ -1 below the replica's end: ─────> truncate to it
//	 │   └ -2 above the replica's end: ─────> drop everything, start at -2
//	 └ OFFSET_MOVED_TO_TIERED_STORAGE
//	     ├ empty, policy -6: ───────────────> -2, pending(); tier(pending)
//	     └ else: ───────────────────────────> -2, -4; tier(-4)
//
//	pending(): -6, or where that is none: -4 if it is -2 too, else wait and fetch again
//	tier(x):   the remote segment with x-1; the leader epochs of [-2, its end + 1) make the
//	           auxiliary state; the replica starts, empty, at its end + 1
//
// Sources: KIP-405 (the follower protocol), KIP-1023 (-6), and the classes of 4.3.0:
// AbstractFetcherThread (fetchOffsetAndTruncate, handleOffsetsMovedToTieredStorage,
// fetchEarliestPendingUploadOffset), ReplicaFetcherThread (shouldFetchFromLastTieredOffset),
// TierStateMachine. 4.1.1 has the same without the branches of policy -6.
package follower
