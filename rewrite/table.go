// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

// API keys that this package has something to do with.
const (
	keyProduce              = 0
	keyFetch                = 1
	keyListOffsets          = 2
	keyMetadata             = 3
	keyFindCoordinator      = 10
	keyApiVersions          = 18
	keyOffsetForLeaderEpoch = 23
	keyVote                 = 52
	keyBeginQuorumEpoch     = 53
	keyEndQuorumEpoch       = 54
	keyDescribeQuorum       = 55
	keyEnvelope             = 58
	keyFetchSnapshot        = 59
	keyDescribeCluster      = 60
	keyShareFetch           = 78
	keyShareAcknowledge     = 79
)

// none says that an API has no version without addresses: its row is taken out of
// ApiVersions.
const none = -1

// bearer is an API whose response carries broker addresses from some version on.
type bearer struct {
	// firstWith is the first version whose response carries an address.
	firstWith int16
	// known is the last version that is handled: responses from firstWith to known
	// are rewritten. It is firstWith-1, or none, where nothing is rewritten.
	known int16
	// firstFlexible is the first flexible version of the response.
	firstFlexible int16
	// edits finds the addresses in a response body; nil where nothing is rewritten, or
	// where stream is set: such a response may be too large to be held.
	edits  func(version int16, c *codec.Cursor, a *addressEdits)
	stream *streamLayout
}

// bearerOf returns the entry of an API whose responses carry addresses, or nil.
// Sources: the message JSON of each API in Kafka 4.3 (clients/src/main/resources/
// common/message); KIP-951 for the node endpoints of Produce and Fetch, KIP-853 for
// those of the quorum APIs, KIP-932 for the share APIs.
//
// Envelope and the quorum APIs are not rewritten: clients have no use for them, and a
// broker answers them on its controller listener only. They are capped below the version
// with addresses. Others are rewritten up to the version that is known here, and capped
// there. Capping further would not do: a client that knows of transaction.version 2 from
// the features in ApiVersions relies on Produce 12 (KIP-890).
func bearerOf(key int16) *bearer {
	switch key {
	case keyProduce:
		return &produceBearer
	case keyMetadata:
		return &metadataBearer
	case keyFindCoordinator:
		return &findCoordinatorBearer
	case keyDescribeCluster:
		return &describeClusterBearer
	case keyFetch:
		return &fetchBearer
	case keyShareFetch:
		return &shareFetchBearer
	case keyShareAcknowledge:
		return &shareAcknowledgeBearer
	case keyDescribeQuorum:
		return &describeQuorumBearer
	case keyEnvelope:
		return &envelopeBearer
	case keyVote, keyBeginQuorumEpoch, keyEndQuorumEpoch, keyFetchSnapshot:
		return &quorumBearer
	default:
		return nil
	}
}

var (
	produceBearer          = bearer{firstWith: 10, known: 13, firstFlexible: 9, edits: produceAddresses}
	fetchBearer            = bearer{firstWith: 16, known: 18, firstFlexible: 12, stream: &fetchLayout}
	metadataBearer         = bearer{firstWith: 0, known: 13, firstFlexible: 9, edits: metadataAddresses}
	findCoordinatorBearer  = bearer{firstWith: 0, known: 6, firstFlexible: 3, edits: findCoordinatorAddresses}
	describeQuorumBearer   = bearer{firstWith: 2, known: 2, firstFlexible: 0, edits: describeQuorumAddresses}
	describeClusterBearer  = bearer{firstWith: 0, known: 2, firstFlexible: 0, edits: describeClusterAddresses}
	shareFetchBearer       = bearer{firstWith: 0, known: 2, firstFlexible: 0, stream: &shareFetchLayout}
	shareAcknowledgeBearer = bearer{firstWith: 0, known: 2, firstFlexible: 0, edits: shareAcknowledgeAddresses}
	quorumBearer           = bearer{firstWith: 1, known: 0}
	envelopeBearer         = bearer{firstWith: 0, known: none}
)

// rewrites reports whether a response of this version is rewritten.
func (b *bearer) rewrites(version int16) bool {
	return (b.edits != nil || b.stream != nil) && version >= b.firstWith && version <= b.known
}
