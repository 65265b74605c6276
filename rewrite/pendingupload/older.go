// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"errors"
	"fmt"

	"tiergate/codec"
)

// olderVersion is where ListOffsets ends on brokers of Kafka 3.6 to 3.8, without -5. Its
// bytes are those of version 9.
const olderVersion int16 = 8

// EpochOffset is a leader epoch and the highest tiered offset of it.
type EpochOffset struct {
	Epoch  int32
	Offset int64
}

// Exchange is a Machine, or an Older: the same methods with the same meaning.
type Exchange interface {
	Ready() (Ask, bool)
	State() State
	Step(response []byte) error
	Topics() []string
	SetRemoteStorage(of func(topic string) codec.RemoteStorage)
	Response() []byte
	Report() Report
	Size() int64
}

// Uploaded is what is known of the uploaded part of a partition. The zero value says that
// nothing is known.
type Uploaded struct {
	// Known: the rest counts.
	Known bool
	// Epochs that uploaded something, the newest first.
	Epochs []EpochOffset
	// Cut: there were more, older than all of Epochs.
	Cut bool
}

// Partition is a partition whose uploaded part is asked for. The topic belongs to the caller.
type Partition struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Older is one ListOffsets request of version 9 to 11, with -5 or -6 in it, in flight in
// front of a broker that has neither (Kafka 3.6 to 3.8). It gives such a broker -5: a lookup
// of -5 becomes an exchange of its own (see tier). With -6, a Machine runs in front of that,
// as it would in front of a broker of Kafka 3.9.
//
// It is driven as a Machine is; in AwaitUploaded, Wanted says what is to be found out, and
// Take gets it.
type Older struct {
	pending *Machine // nil: the request has no -6
	tier    *tier    // nil: no -5 is looked up now
	// before is the number of lookups of pending that were sent before those of tier, and
	// have no response yet.
	before int
	// unknown is the number of partitions of earlier exchanges whose upload is not known.
	unknown int
	report  Report
}

// NewOlder returns a machine for a client's ListOffsets request of version 9 to 11. It keeps
// no part of the request's frame.
func NewOlder(r Request) (*Older, error) {
	if r.Version <= olderVersion {
		return nil, fmt.Errorf("pending upload: list_offsets v%d has no -5", r.Version)
	}
	o := &Older{}
	var err error
	if r.PendingUpload > 0 && r.Version == codec.ListOffsetsPendingUpload {
		o.pending, err = New(r, olderVersion+1, AllFour)
	} else {
		frame := append([]byte(nil), r.frame...)
		if r, err = ParseRequest(frame); err == nil {
			o.tier, err = newTier(r.Lower(olderVersion))
		}
	}
	return o, err
}

// Ready is as Machine.Ready.
func (o *Older) Ready() (Ask, bool) {
	if o.tier == nil && o.pending != nil {
		kinds := o.pending.stage.kinds()
		tiered := o.pending.sent < len(kinds) && kinds[o.pending.sent] == highestRemote
		a, ok := o.pending.Ready()
		switch {
		case !ok:
			return Ask{}, false
		case !tiered:
			o.before++
			return lowered(a), true
		}
		if o.tier, o.pending.broken = newTier(lowered(a).Frame); o.pending.broken != nil {
			return Ask{}, false
		}
	}
	if o.tier == nil {
		return Ask{}, false
	}
	a, ok := o.tier.Ready()
	return a, ok
}

// lowered puts the version of a ListOffsets lookup to the broker's.
func lowered(a Ask) Ask {
	if a.Key == codec.KeyListOffsets {
		codec.PutRequestVersion(a.Frame, olderVersion)
		a.Version = olderVersion
	}
	return a
}

// State is as Machine.State.
func (o *Older) State() State {
	if o.tier != nil {
		return o.tier.State()
	}
	return o.pending.State()
}

// Step is as Machine.Step.
func (o *Older) Step(response []byte) error {
	if o.before > 0 || o.tier == nil {
		if o.pending == nil {
			return errors.New("pending upload: a response to no lookup")
		}
		o.before = max(0, o.before-1)
		return o.pending.Step(response)
	}
	if err := o.tier.Step(response); err != nil {
		return err
	}
	return o.settle()
}

// settle gives the response to -5 to the machine that looked it up.
func (o *Older) settle() error {
	if o.tier.State() != Done || o.pending == nil {
		return nil
	}
	t := o.tier
	o.tier = nil
	o.report.Asks += t.table.report.Asks - 1 // the lookup of -5 itself was not sent
	o.report.EpochRounds += t.table.report.EpochRounds
	o.unknown += len(t.unknowns)
	for _, p := range t.unknowns {
		o.pending.giveUp(p.Topic, p.Partition)
	}
	return o.pending.Step(t.table.response)
}

// giveUp ends a partition that asked for -6 with none: a -5 that is not known is not one of
// nothing uploaded, which the log start would be the answer to.
func (m *Machine) giveUp(topic string, index int32) {
	t := m.topics.named([]byte(topic))
	if t == nil {
		return
	}
	if i := m.find(t, int(t.first), index); i >= 0 && m.parts[i].outcome == undecided {
		m.parts[i].outcome = empty
	}
}

// Topics is as Machine.Topics.
func (o *Older) Topics() []string {
	if o.pending == nil {
		return nil
	}
	return o.pending.Topics()
}

// SetRemoteStorage is as Machine.SetRemoteStorage.
func (o *Older) SetRemoteStorage(of func(topic string) codec.RemoteStorage) {
	if o.pending != nil {
		o.pending.SetRemoteStorage(of)
	}
}

// Wanted returns, in AwaitUploaded, the partitions whose uploaded part is to be found out.
// again says that what Take was given before cannot be, since the broker has deleted
// segments locally that were not uploaded by it: what is found out must hold all that was
// known at the time of the call.
func (o *Older) Wanted() (wanted []Partition, again bool) {
	if o.tier == nil {
		return nil, false
	}
	return o.tier.wanted(), o.tier.stage == tierAgain
}

// Take ends AwaitUploaded; uploaded has one element for each that Wanted returned.
func (o *Older) Take(uploaded []Uploaded) error {
	if o.State() != AwaitUploaded {
		return nil
	}
	o.tier.take(uploaded)
	return o.settle()
}

// Response is as Machine.Response.
func (o *Older) Response() []byte {
	if o.pending != nil {
		return o.pending.Response()
	}
	return o.tier.table.Response()
}

// Report is as Machine.Report.
func (o *Older) Report() Report {
	if o.pending == nil {
		return o.tier.table.Report()
	}
	r := o.pending.Report()
	r.Asks += o.report.Asks
	r.EpochRounds += o.report.EpochRounds
	return r
}

// UnknownUploads is the number of partitions that were answered with none because what is
// uploaded of them is not known.
func (o *Older) UnknownUploads() int {
	if o.tier == nil {
		return o.unknown
	}
	return len(o.tier.unknowns)
}

// Size is as Machine.Size.
func (o *Older) Size() int64 {
	size := int64(0)
	if o.pending != nil {
		size += o.pending.Size()
	}
	if o.tier != nil {
		size += o.tier.size()
	}
	return size
}
