// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/binary"
	"fmt"

	"tiergate/codec"
)

// apiVersionsFlexible is the first flexible version of the ApiVersions body; the
// response header is never flexible.
const apiVersionsFlexible = 3

// Support says what a session can do about -6, by its broker's own ApiVersions.
type Support uint8

const (
	// SupportUnknown: this broker connection has not answered ApiVersions yet.
	SupportUnknown Support = iota
	// SupportSynthesised: ListOffsets ends at 9 or 10 (Kafka 3.9 to 4.1).
	SupportSynthesised
	// SupportNative: ListOffsets reaches 11 (Kafka 4.2 and later).
	SupportNative
	// SupportNone: ListOffsets ends below 9 (Kafka 3.8 and earlier), so there is no -5
	// to make the answer from.
	SupportNone
	// SupportMetadataTopic: ListOffsets ends at 8 (Kafka 3.6 to 3.8), and what is uploaded is
	// read from the topic __remote_log_metadata.
	SupportMetadataTopic
)

// String returns the name that logs and metrics use.
func (s Support) String() string {
	switch s {
	case SupportSynthesised:
		return "synthesised"
	case SupportNative:
		return "native"
	case SupportNone:
		return "none"
	case SupportMetadataTopic:
		return "metadata_topic"
	case SupportUnknown:
		return "unknown"
	}
	return "unknown"
}

// versionRow is one API of an ApiVersions response.
type versionRow struct {
	key, min, max int16
	// from and to are the offsets of the whole row in the frame.
	from, to int
}

// apiVersionRows walks a whole ApiVersions response of the version that was asked.
// ok is false for an error answer, which must not be read further: an error 35 comes
// in the form of version 0 whatever version was asked (KIP-511).
func apiVersionRows(version int16, frame []byte) (rows []versionRow, lenOff int, ok bool, err error) {
	c := codec.NewCursor(frame, codec.EncodingOf(version, apiVersionsFlexible))
	c.Skip(codec.ResponseFixedLen)
	if c.Int16() != 0 {
		return nil, 0, false, nil
	}
	lenOff = c.Off()
	n := c.ArrayLen(6)
	for i := 0; i < n && c.Err() == nil; i++ {
		r := versionRow{from: c.Off()}
		r.key, r.min, r.max = c.Int16(), c.Int16(), c.Int16()
		c.Tags()
		r.to = c.Off()
		rows = append(rows, r)
	}
	if c.Err() != nil {
		return nil, 0, false, fmt.Errorf("api versions v%d: %w", version, c.Err())
	}
	return rows, lenOff, true, nil
}

// SupportOf says what sessions can do about -6 with a broker that offers these versions.
func (r *Rules) SupportOf(b codec.BrokerVersions) Support {
	highest, epochs := b.ListOffsets.Highest, b.OffsetForLeaderEpoch.Has(codec.OffsetForLeaderEpochLookup)
	switch {
	case highest >= codec.ListOffsetsPendingUpload:
		return SupportNative
	case highest >= codec.ListOffsetsTiered && epochs:
		return SupportSynthesised
	case highest == codec.ListOffsetsLocal && epochs && b.Metadata.Has(codec.MetadataTopicIDs) && r.Uploads != nil:
		return SupportMetadataTopic
	}
	return SupportNone
}

// Synthesises is true when sessions with such a broker answer -6 in its place.
func (r *Rules) Synthesises(s Support) bool {
	switch s {
	case SupportSynthesised, SupportMetadataTopic:
		return r.PendingUpload != PendingUploadOff
	case SupportNative:
		return r.PendingUpload == PendingUploadAlways
	case SupportUnknown, SupportNone:
	}
	return false
}

// Learn reads an ApiVersions response that the proxy itself asked for. An error
// answer teaches that nothing can be done on this connection.
func (v *Conversation) Learn(version int16, frame []byte) error {
	rows, _, ok, err := apiVersionRows(version, frame)
	if err != nil {
		return err
	}
	if !ok {
		rows = nil
	}
	v.learn(rows)
	return nil
}

// learn keeps what the rows of a success answer say.
func (v *Conversation) learn(rows []versionRow) {
	offers := codec.NoVersions()
	for _, r := range rows {
		offers.Add(r.key, r.min, r.max)
	}
	v.broker = brokerVersions{support: v.rules.SupportOf(offers), listOffsets: max(0, offers.ListOffsets.Highest)}
}

// apiVersions changes an ApiVersions response that goes to the client. The rows'
// numbers have a fixed width, so raising and capping are done in place; only where an
// API has no version left is its row cut out, and the result is then a new slice.
func (v *Conversation) apiVersions(version int16, frame []byte) ([]byte, error) {
	rows, lenOff, ok, err := apiVersionRows(version, frame)
	if err != nil || !ok {
		return frame, err
	}
	v.learn(rows)
	var cut []codec.Edit
	for _, r := range rows {
		top, keep := v.offered(r)
		switch {
		case !keep:
			cut = append(cut, codec.Edit{From: r.from, To: r.to})
		case top != r.max:
			binary.BigEndian.PutUint16(frame[r.from+4:], uint16(top))
		}
	}
	if len(cut) == 0 {
		return frame, nil
	}
	enc := codec.EncodingOf(version, apiVersionsFlexible)
	count := codec.Edit{From: lenOff, To: rows[0].from, With: codec.AppendArrayLen(nil, enc, len(rows)-len(cut))}
	return codec.ApplyEdits(nil, frame, append([]codec.Edit{count}, cut...)), nil
}

// offered returns the greatest version of an API that clients are told of, and
// whether its row stays. The least version never changes: old librdkafka reads it as
// a feature test.
func (v *Conversation) offered(r versionRow) (top int16, keep bool) {
	if r.key == codec.KeyListOffsets {
		if v.makesPendingUpload() {
			return codec.ListOffsetsPendingUpload, true
		}
		return r.max, true
	}
	b := bearerOf(r.key)
	if v.rules.Addresses == nil || b == nil || r.max <= b.known {
		return r.max, true
	}
	return b.known, b.known >= r.min
}

// makesPendingUpload says whether -6 can be answered now in front of a broker without it.
func (v *Conversation) makesPendingUpload() bool {
	s := v.broker.support
	return s != SupportNative && v.rules.Synthesises(s) && (s != SupportMetadataTopic || v.rules.Uploads.UploadsReady())
}
