// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "tiergate/codec"

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

// bearers are all APIs whose responses carry broker addresses, at their keys. A test
// holds the list against the message definitions of the newest Kafka (definitions_test.go
// in internal/e2e). Sources: the message JSON of each API (clients/src/main/resources/
// common/message); KIP-951 for the node endpoints of Produce and Fetch, KIP-932 for the
// share APIs.
//
// Addresses of controllers are not in the list, and stay as they come: DescribeQuorum 2
// (KIP-853), and the APIs of the quorum itself (Vote, BeginQuorumEpoch, EndQuorumEpoch,
// FetchSnapshot, UpdateRaftVoter), which brokers do not serve to clients. Beside these
// addresses stand ids of controllers: one may be the id of a broker, whose port at the
// proxy would then be said to be a controller's. No client connects to them: the Java Admin
// client (describeMetadataQuorum) only returns them, and they are what an operator reads in
// kafka-metadata-quorum. A client needs DESCRIBE on the cluster to see them. Blank ones
// would hide from that operator what the cluster is made of.
//
// Those without edits are capped below the version with addresses. The others are rewritten
// up to the version that is known here, and capped there. Capping further would not do: a
// client that knows of transaction.version 2 from the features in ApiVersions relies on
// Produce 12 (KIP-890).
var bearers = [...]*bearer{
	codec.KeyProduce:          {firstWith: 10, known: 13, firstFlexible: 9, edits: produceAddresses},
	codec.KeyFetch:            {firstWith: 16, known: 18, firstFlexible: 12, stream: &fetchLayout},
	codec.KeyMetadata:         {firstWith: 0, known: 13, firstFlexible: 9, edits: metadataAddresses},
	codec.KeyFindCoordinator:  {firstWith: 0, known: 6, firstFlexible: 3, edits: findCoordinatorAddresses},
	codec.KeyEnvelope:         {firstWith: 0, known: none}, // another response is in it
	codec.KeyDescribeCluster:  {firstWith: 0, known: 2, firstFlexible: 0, edits: describeClusterAddresses},
	codec.KeyShareFetch:       {firstWith: 0, known: 2, firstFlexible: 0, stream: &shareFetchLayout},
	codec.KeyShareAcknowledge: {firstWith: 0, known: 2, firstFlexible: 0, edits: shareAcknowledgeAddresses},
}

// bearerOf returns the entry of an API whose responses carry addresses, or nil.
func bearerOf(key int16) *bearer {
	if key < 0 || int(key) >= len(bearers) {
		return nil
	}
	return bearers[key]
}

// rewrites reports whether a response of this version is rewritten.
func (b *bearer) rewrites(version int16) bool {
	return (b.edits != nil || b.stream != nil) && version >= b.firstWith && version <= b.known
}

// AddressBearer is an API whose responses carry broker addresses.
type AddressBearer struct {
	Key int16
	// FirstWith is the first version whose response carries an address.
	FirstWith int16
	// Known is the last version that clients are told of; -1 when it is none.
	Known int16
	// FirstFlexible is the first flexible version of the response.
	FirstFlexible int16
	// Rewritten says that the addresses of versions FirstWith to Known are rewritten. An
	// API that is not has no address up to Known.
	Rewritten bool
}

// AddressBearers returns every API whose responses carry broker addresses, by key.
func AddressBearers() []AddressBearer {
	var all []AddressBearer
	for key, b := range bearers {
		if b != nil {
			all = append(all, AddressBearer{
				Key: int16(key), FirstWith: b.firstWith, Known: b.known, FirstFlexible: b.firstFlexible,
				Rewritten: b.rewrites(b.known),
			})
		}
	}
	return all
}
