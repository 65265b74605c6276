// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

// PendingUpload says on which connections -6 is answered by the proxy.
type PendingUpload uint8

const (
	// PendingUploadAuto synthesises where the broker's own ListOffsets ends at 9 or
	// 10, and touches nothing where the broker is native (11 and up).
	PendingUploadAuto PendingUpload = iota
	// PendingUploadAlways synthesises before native brokers too. For tests: the same
	// broker then gives the look-ups and the answer to compare with.
	PendingUploadAlways
	// PendingUploadOff leaves ListOffsets and its row in ApiVersions alone.
	PendingUploadOff
)

// Addresses maps node ids to the addresses that clients are told. Implementations
// are immutable or safe for concurrent use, and never block: loops call them.
type Addresses interface {
	// Advertised returns the host and port of a node. mapped is false when the node
	// has no port of its own; host and port are then those that the node would have
	// if the map reached that far, so that no broker address leaks.
	Advertised(nodeID int32) (host string, port int32, mapped bool)
	// Growth returns by how many bytes the addresses of one response can grow when they
	// are rewritten; a response that is too large to be held gets so much room.
	Growth() int
}

// Unmapped says what clients are told of a node that has no address of its own at the
// proxy.
type Unmapped uint8

const (
	// UnmappedReject tells the address that Addresses gives such a node, where nothing
	// serves: answers have no hole, connections to the node are refused, and nothing of the
	// broker's own address is seen.
	UnmappedReject Unmapped = iota
	// UnmappedHide takes the node out of lists of brokers and endpoints. A controller id
	// that is hidden becomes -1, and a hidden coordinator COORDINATOR_NOT_AVAILABLE.
	UnmappedHide
	// UnmappedPassthrough tells the broker's own address.
	UnmappedPassthrough
)

// String returns the name that configurations and logs use.
func (u Unmapped) String() string {
	switch u {
	case UnmappedHide:
		return "hide"
	case UnmappedPassthrough:
		return "passthrough"
	case UnmappedReject:
	}
	return "reject"
}

// Node is a broker at the address that a response gives it.
type Node struct {
	NodeID int32
	Host   string // without brackets, also when it is an IPv6 address
	Port   int32
}

// Nodes learns of the brokers that responses name. Never blocks: loops call it.
type Nodes interface {
	// ObserveNodes gets all nodes of one response, and does not keep the slice.
	ObserveNodes(named []Node)
}

// Uploads says whether it is known what is uploaded, for brokers that have no -5. Never
// blocks: loops call it.
type Uploads interface {
	UploadsReady() bool
}

// Rules say how the sessions of one endpoint treat requests and responses. They are
// immutable once in use.
type Rules struct {
	// PendingUpload is the mode of the -6 answer.
	PendingUpload PendingUpload
	// Uploads makes -5 and -6 in front of brokers whose ListOffsets ends at 8 (Kafka 3.6 to
	// 3.8), unless PendingUpload is off. Nil leaves such brokers alone.
	Uploads Uploads
	// Addresses rewrites broker addresses; nil (direct mode) leaves them alone.
	Addresses Addresses
	// Unmapped is what becomes of nodes that Addresses has no address for.
	Unmapped Unmapped
	// Nodes learns the real addresses before they are replaced; may be nil.
	Nodes Nodes
}
