// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"errors"
	"fmt"

	"tiergate/codec"
	"tiergate/rewrite/pendingupload"
)

// Treatment is what a session does with a frame.
type Treatment uint8

const (
	// Opaque frames stream through as they come: only their head is read.
	Opaque Treatment = iota
	// Hold frames are wanted whole, because they may be changed.
	Hold
	// Front frames are wanted as far as what may change in them reaches, and stream from
	// there on: see Conversation.Front.
	Front
	// Walk frames stream too, but their structure is followed, since something at their
	// end may change: see Stream.
	Walk
)

// ErrUnrewritable is a request whose answer would carry broker addresses in a form
// that this version of tiergate cannot rewrite. ApiVersions did not offer it.
var ErrUnrewritable = errors.New("its answer carries broker addresses that cannot be rewritten")

// brokerVersions is what one broker connection has said of itself.
type brokerVersions struct {
	support     Support
	listOffsets int16
}

// Conversation is the memory that the rules need of one session: what this broker
// connection said in ApiVersions. It belongs to the session's loop.
type Conversation struct {
	rules  *Rules
	broker brokerVersions
	plan   pendingupload.Plan
}

// NewConversation returns the memory of a new session. rules must not change.
func NewConversation(rules *Rules) Conversation {
	return Conversation{rules: rules}
}

// Support returns what is known of the session's broker.
func (v *Conversation) Support() Support { return v.broker.support }

// Request says how a request and its response are treated, from the request's key
// and version alone. The error is ErrUnrewritable: the session must end, as a broker
// that lacks the version would end it.
func (v *Conversation) Request(key, version int16) (request, response Treatment, err error) {
	switch key {
	case codec.KeyApiVersions:
		if v.rules.PendingUpload == PendingUploadOff && v.rules.Addresses == nil {
			return Opaque, Opaque, nil
		}
		return Opaque, Hold, nil
	case codec.KeyListOffsets:
		return v.listOffsetsTreatment(version), Opaque, nil
	}
	b := bearerOf(key)
	switch {
	case v.rules.Addresses == nil || b == nil || version < b.firstWith:
		return Opaque, Opaque, nil
	case b.rewrites(version) && b.stream != nil:
		return Opaque, Walk, nil
	case b.rewrites(version):
		return Opaque, Front, nil
	default:
		return Opaque, Opaque, fmt.Errorf("%s v%d: %w", KeyName(key), version, ErrUnrewritable)
	}
}

// listOffsetsTreatment says which ListOffsets requests must be looked into.
func (v *Conversation) listOffsetsTreatment(version int16) Treatment {
	switch {
	case v.rules.PendingUpload == PendingUploadOff, version > codec.ListOffsetsPendingUpload:
		return Opaque
	case v.rules.Uploads != nil && version >= codec.ListOffsetsTiered &&
		(v.broker.support == SupportMetadataTopic || v.broker.support == SupportUnknown):
		return Hold
	case version < codec.ListOffsetsTimeout:
		return Opaque
	case v.broker.support != SupportUnknown && !v.rules.Synthesises(v.broker.support),
		version < codec.ListOffsetsPendingUpload && version <= v.broker.listOffsets:
		return Opaque
	}
	return Hold
}

// Step is what must be done about a ListOffsets request that was held.
type Step uint8

const (
	// Forward the request to the broker.
	Forward Step = iota
	// AskVersions of the broker first, then call ListOffsets again.
	AskVersions
	// Answer the request from look-ups: run the machine.
	Answer
)

// PendingUploadAnswered takes the report of a machine that is Done. A client mostly asks
// for the same partitions again: where two look-ups are enough for all of them, the next
// request begins with two.
func (v *Conversation) PendingUploadAnswered(r pendingupload.Report) {
	v.plan = pendingupload.AllFour
	if r.Open == 0 {
		v.plan = pendingupload.TwoFirst
	}
}

// ListOffsets decides about a whole ListOffsets request that Request said to hold. It
// may change frame in place; for Forward the returned slice, of the same array, is
// what the broker gets. For Answer the machine is returned and keeps its own copy.
func (v *Conversation) ListOffsets(frame []byte) (Step, []byte, pendingupload.Exchange, error) {
	version := codec.RequestVersion(frame)
	if v.broker.support == SupportUnknown {
		return AskVersions, frame, nil, nil
	}
	if v.listOffsetsTreatment(version) == Opaque {
		return Forward, frame, nil, nil
	}
	r, err := pendingupload.ParseRequest(frame)
	if err != nil {
		return Forward, frame, nil, err
	}
	if v.broker.support == SupportMetadataTopic && r.AsksTiered() {
		m, err := pendingupload.NewOlder(r)
		return Answer, nil, m, err
	}
	if r.PendingUpload > 0 && version >= codec.ListOffsetsPendingUpload {
		m, err := pendingupload.New(r, min(v.broker.listOffsets, codec.ListOffsetsTimeout), v.plan)
		return Answer, nil, m, err
	}
	if version > v.broker.listOffsets {
		frame = r.Lower(v.broker.listOffsets)
	}
	return Forward, frame, nil, nil
}

// Stream returns what rewrites one response that Request said to walk. One that is
// there whole may be given to Response instead, and needs no padding then.
func (v *Conversation) Stream(key, version int16) *Stream {
	return &Stream{layout: bearerOf(key).stream, version: version, rules: v.rules}
}

// Response changes a response that is there whole and that Request said not to be opaque.
// The result is frame itself, maybe changed in place, or a new slice. unmapped names the
// nodes that were given an address without a port behind it. An error means that the
// response could not be understood; it must not reach the client.
func (v *Conversation) Response(key, version int16, frame []byte) (out []byte, unmapped []int32, err error) {
	if key == codec.KeyApiVersions {
		out, err = v.apiVersions(version, frame)
		return out, nil, err
	}
	if bearerOf(key).stream == nil {
		return v.Front(key, version, frame, 0)
	}
	out, unmapped, err = v.Stream(key, version).whole(frame)
	if err != nil {
		err = fmt.Errorf("%s v%d response: %w", KeyName(key), version, err)
	}
	return out, unmapped, err
}

// Front changes a response that Request said to treat so, given the first bytes of its
// frame, at least ResponseFixedLen; more bytes of the frame follow them. The result takes
// the place of front, its size field that of the whole frame; what follows passes as it
// comes. The error is codec.ErrShort itself while front does not reach behind the last
// address. Each call reads from the start: call again when front has doubled, or when it
// is the whole frame. Otherwise results and errors are those of Response.
//
// In Metadata the brokers stand in front of the topics, so a front is small whatever the
// number of partitions. Of the other responses that are treated so, addresses stand at the
// end, or in all of their elements: such a front is the whole response, and as small as the
// request that it belongs to or as the list of brokers.
func (v *Conversation) Front(key, version int16, front []byte, more int64) (out []byte, unmapped []int32, err error) {
	b := bearerOf(key)
	enc := codec.EncodingOf(version, b.firstFlexible)
	c := codec.NewFrontCursor(front, more, enc)
	c.Skip(codec.ResponseFixedLen)
	c.Tags()
	a := addressEdits{rules: v.rules}
	b.edits(version, &c, &a)
	switch {
	case errors.Is(c.Err(), codec.ErrShort):
		return nil, nil, codec.ErrShort
	case c.Err() != nil:
		return nil, nil, fmt.Errorf("%s v%d response: %w", KeyName(key), version, c.Err())
	}
	a.observe()
	if len(a.edits) == 0 {
		return front, a.unmapped, nil
	}
	out = codec.ApplyEdits(nil, front, a.edits)
	if codec.Size(out) < 0 {
		return nil, nil, fmt.Errorf("%s v%d response: %w: no room to rewrite the addresses", KeyName(key), version, codec.ErrFrameTooLarge)
	}
	return out, a.unmapped, nil
}
