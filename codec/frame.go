// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// A frame is a four-byte size and that many bytes. In this package, and in every
// room above it, "frame" means both together: frame[0:4] is the size, a request's
// key, version and correlation id are at 4, 6 and 8, a response's correlation id
// is at 4.
const (
	// SizeLen is the length of the size field.
	SizeLen = 4
	// RequestFixedLen is the length of the part of a request that every version of
	// every API has: size, key, version, correlation id.
	RequestFixedLen = 12
	// ResponseFixedLen is the same for responses: size and correlation id.
	ResponseFixedLen = 8
)

// Size returns what the size field of a frame says, without the field itself.
func Size(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame)) }

// PutSize makes the size field of frame say what its length is.
func PutSize(frame []byte) { binary.BigEndian.PutUint32(frame, uint32(len(frame)-SizeLen)) }

// RequestKey returns the API key of a request of at least RequestFixedLen bytes.
func RequestKey(frame []byte) int16 { return int16(binary.BigEndian.Uint16(frame[4:])) }

// RequestVersion returns the API version of a request.
func RequestVersion(frame []byte) int16 { return int16(binary.BigEndian.Uint16(frame[6:])) }

// PutRequestVersion replaces the API version of a request.
func PutRequestVersion(frame []byte, version int16) {
	binary.BigEndian.PutUint16(frame[6:], uint16(version))
}

// RequestCorrelationID returns the correlation id of a request.
func RequestCorrelationID(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame[8:])) }

// PutRequestCorrelationID replaces the correlation id of a request.
func PutRequestCorrelationID(frame []byte, id int32) {
	binary.BigEndian.PutUint32(frame[8:], uint32(id))
}

// ResponseCorrelationID returns the correlation id of a response of at least
// ResponseFixedLen bytes.
func ResponseCorrelationID(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame[4:])) }

// PutResponseCorrelationID replaces the correlation id of a response.
func PutResponseCorrelationID(frame []byte, id int32) {
	binary.BigEndian.PutUint32(frame[4:], uint32(id))
}

// RequestBody walks the rest of a request header and returns the client id (nil for
// null, pointing into frame) and the offset at which the body starts. enc is the
// encoding of the request version: flexible versions have header version 2, which
// ends in a tag section. The client id is an int16-length string in both.
//
// Source: KIP-482 and RequestHeader.json ("ClientId ... flexibleVersions: none").
func RequestBody(frame []byte, enc Encoding) (clientID []byte, off int, err error) {
	c := NewCursor(frame, Classic)
	c.Skip(RequestFixedLen)
	clientID = c.String()
	c.enc = enc
	c.Tags()
	return clientID, c.Off(), c.Err()
}

// ResponseBody returns the offset at which the body of a response starts. Flexible
// responses have header version 1, which ends in a tag section; ApiVersions is the
// exception (its header is always version 0, so that any client can read it): pass
// Classic for it.
//
// Source: ApiVersionsResponse.json and KIP-511.
func ResponseBody(frame []byte, enc Encoding) (off int, err error) {
	c := NewCursor(frame, enc)
	c.Skip(ResponseFixedLen)
	c.Tags()
	return c.Off(), c.Err()
}

// Limits bound what the size field of a frame may say, in bytes, without the field.
type Limits struct {
	// Min is the least a frame can hold: 8 for requests, 4 for responses.
	Min int32
	// Max is the most that is let through.
	Max int32
}

// Faults that a size field can show. They are typed because the session's close
// reason, a metric label, depends on them.
var (
	// ErrFrameTooLarge is a size above Limits.Max.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrFrameImpossible is a size that no Kafka message has.
	ErrFrameImpossible = errors.New("impossible frame size")
	// ErrTLSBytes is a TLS record where a frame should start.
	ErrTLSBytes = errors.New("TLS bytes on a plaintext port")
	// ErrHTTPBytes is an HTTP request where a frame should start.
	ErrHTTPBytes = errors.New("HTTP request on a Kafka port")
)

// Check returns nil for a size field (of at least SizeLen bytes) that is within the
// limits.
func (l Limits) Check(size []byte) error {
	switch n := Size(size); {
	case n < l.Min:
		return fmt.Errorf("%w: %d bytes, at least %d are needed", ErrFrameImpossible, n, l.Min)
	case n > l.Max:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrameTooLarge, n, l.Max)
	}
	return nil
}

// ForeignBytes returns an error that says in plain words what the first bytes of a
// connection probably are when they are no Kafka frame: a TLS handshake (0x16) or
// alert (0x15) record, which as a size would say 352 or 336 MiB, or an HTTP message.
// first holds at least SizeLen bytes.
func ForeignBytes(first []byte) error {
	first = first[:SizeLen]
	if (first[0] == 0x16 || first[0] == 0x15) && first[1] == 0x03 && first[2] <= 0x04 {
		return fmt.Errorf("%w: the first bytes are %x", ErrTLSBytes, first)
	}
	switch string(first) {
	case "GET ", "POST", "HEAD", "PUT ", "HTTP", "PRI ":
		return fmt.Errorf("%w: the first bytes are %q", ErrHTTPBytes, first)
	}
	return nil
}

// Edit replaces frame[From:To] by With.
type Edit struct {
	From, To int
	With     []byte
}

// ApplyEdits appends frame with the edits made to dst, corrects the size field by what
// they add, and returns the extended slice. The edits are in ascending order and do not
// overlap. dst must not overlap frame. With no edits the frame is copied as it is. frame
// may be the front of a frame, as far as the edits reach or longer.
func ApplyEdits(dst, frame []byte, edits []Edit) []byte {
	start, from, size := len(dst), 0, len(frame)
	for _, e := range edits {
		size += len(e.With) - (e.To - e.From)
	}
	dst = slices.Grow(dst, size)
	for _, e := range edits {
		dst = append(dst, frame[from:e.From]...)
		dst = append(dst, e.With...)
		from = e.To
	}
	dst = append(dst, frame[from:]...)
	binary.BigEndian.PutUint32(dst[start:], uint32(Size(frame))+uint32(size-len(frame)))
	return dst
}
