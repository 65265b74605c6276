// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"errors"
	"fmt"
	"slices"

	"tiergate/codec"
)

// RemoteStorage is a verdict on a topic's remote.storage.enable.
type RemoteStorage uint8

const (
	// RemoteStorageUnknown answers (-1,-1), never a guess, and is counted.
	RemoteStorageUnknown RemoteStorage = iota
	// RemoteStorageDisabled topics have nothing to upload.
	RemoteStorageDisabled
	// RemoteStorageEnabled topics upload.
	RemoteStorageEnabled
)

// State is what a Machine waits for.
type State uint8

const (
	// AwaitAnswers: there are asks to be sent or answers to come.
	AwaitAnswers State = iota
	// AwaitVerdicts: every answer is in, and Verdicts must be called.
	AwaitVerdicts
	// Done: Response holds the answer to the client.
	Done
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case AwaitAnswers:
		return "AwaitAnswers"
	case AwaitVerdicts:
		return "AwaitVerdicts"
	case Done:
		return "Done"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// Plan says which look-ups go out first. It changes what an answer costs, not the answer.
type Plan uint8

const (
	// AllFour asks for all four at once.
	AllFour Plan = iota
	// TwoFirst asks for -5 and -1, and for all four only where those leave something open:
	// half the cost where they do not, half as much again where they do.
	TwoFirst
)

// Ask is a request that the session sends on its broker connection.
type Ask struct {
	Key, Version int16
	// Frame is the whole request with the client's client id and correlation id 0: the
	// session puts its own. It belongs to the caller.
	Frame []byte
}

// Report counts what one exchange took and gave. Partitions are those that asked for
// -6, each once.
type Report struct {
	// Asks is the number of broker requests: 4, or 2 (TwoFirst) and 4 more where those leave
	// a partition open, and the epoch rounds.
	Asks int
	// EpochRounds is the number of OffsetForLeaderEpoch requests among them.
	EpochRounds int
	// Open is the number of partitions that two look-ups leave open.
	Open int
	// Answered partitions have an offset, Empty ones have none, Errors have an error
	// code. Together they are all partitions. They count when the machine is Done.
	Answered, Empty, Errors int
	// UnknownVerdicts is the number of partitions among Empty whose topic's
	// remote.storage.enable was not known.
	UnknownVerdicts int
	// Tiered are the topics that an offset of -5 proved to have remote storage on, each
	// once.
	Tiered []string
}

// kind says what an ask is.
type kind uint8

const (
	localStart kind = iota
	logStart
	highestRemote
	lastFetchable
	// clientsOwn is the client's own request with -6 replaced: highestRemote, first.
	clientsOwn
	epochRound

	lookups = int(clientsOwn)
	// allLookups has a bit for each of the four, firstLookups for those of the first stage.
	allLookups   = 1<<lookups - 1
	firstLookups = 1<<highestRemote | 1<<lastFetchable
)

// point is an offset and the leader epoch of its record, -1 when not known.
type point struct {
	offset int64
	epoch  int32
}

// outcome says how far a partition is.
type outcome uint8

const (
	// undecided partitions wait for look-ups.
	undecided outcome = iota
	// searching partitions know their offset and search its epoch.
	searching
	// doubtful partitions wait for a verdict on their topic.
	doubtful
	// answered partitions have an offset.
	answered
	// empty partitions have nothing that waits for an upload.
	empty
	// failed partitions have an error code.
	failed
)

// Error codes that the machine itself gives.
const (
	unknownServerError int16 = -1
	offsetNotAvailable int16 = 78
)

// debuggingReplicaID is the replica id that followers answer too; what makes two look-ups
// enough is so of leaders.
const debuggingReplicaID int32 = -2

// partition is one partition that asked for -6.
type partition struct {
	wish

	// open: -5 and -1 do not decide.
	open bool
	// placed: the broker's answer to the client's own request has the partition.
	placed bool
	// seen has a bit for each look-up of this stage that answered.
	seen uint8
	// looks are -1 where the broker gave an error or no answer.
	looks [lookups]point

	outcome   outcome
	errorCode int16
	result    point
	search    search
}

// place is where the answer to -5, which becomes the answer to the client, holds a
// partition that asked for -6.
type place struct {
	part *partition
	off  int
}

// Machine is one ListOffsets request of version 11 with -6 in it, in flight. It has no
// socket, goroutine or clock and is not safe for concurrent use. Its memory is bounded
// by a small multiple of the client's frame plus the broker's answer to it.
type Machine struct {
	version int16
	header  header
	topics  []topic
	byName  map[string]int
	parts   []partition

	state State
	// four: all four look-ups were sent.
	four        bool
	ready       []Ask
	outstanding []kind
	broken      error

	// tier is the answer to -5 in a copy of our own.
	tier     []byte
	tierAt   answer
	places   []place
	throttle int32

	candidates []candidate
	response   []byte
	report     Report
}

// New returns a machine for a client's whole ListOffsets frame of version 11 that asks
// for -6 at least once. lookupVersion is the broker's: 9 or 10. The machine keeps no
// part of frame.
func New(frame []byte, lookupVersion int16, plan Plan) (*Machine, error) {
	if lookupVersion != 9 && lookupVersion != 10 {
		return nil, fmt.Errorf("pending upload: no look-ups at list_offsets version %d", lookupVersion)
	}
	in, err := Inspect(frame)
	if err != nil {
		return nil, err
	}
	if in.Version != pendingUploadVersion || in.PendingUpload == 0 {
		return nil, fmt.Errorf("pending upload: list_offsets v%d with %d partitions that ask for -6", in.Version, in.PendingUpload)
	}
	m := &Machine{version: lookupVersion}
	frame = slices.Clone(frame)
	if err := m.collect(frame, in.PendingUpload); err != nil {
		return nil, err
	}
	if plan == AllFour || int32At(m.header.replicaAndIsolation, 0) == debuggingReplicaID {
		m.lookAtStarts()
	}
	m.send(clientsOwn, m.tierAsk(frame, in))
	m.send(lastFetchable, m.lookup(latestTimestamp))
	return m, nil
}

// lookAtStarts sends the first two of four look-ups.
func (m *Machine) lookAtStarts() {
	m.four = true
	m.send(localStart, m.lookup(earliestLocalTimestamp))
	m.send(logStart, m.lookup(earliestTimestamp))
}

// lookAgain begins the second stage for the partitions that the first left undecided,
// and says whether there are any.
func (m *Machine) lookAgain() bool {
	n := 0
	for i := range m.parts {
		p := &m.parts[i]
		p.seen = 0
		if p.outcome == undecided {
			p.forget()
			n++
		}
	}
	if n == 0 {
		return false
	}
	m.lookAtStarts()
	m.send(highestRemote, m.lookup(latestTieredTimestamp))
	m.send(lastFetchable, m.lookup(latestTimestamp))
	return true
}

// send queues an ask.
func (m *Machine) send(k kind, a Ask) {
	m.ready = append(m.ready, a)
	m.outstanding = append(m.outstanding, k)
	m.report.Asks++
}

// Ready returns the asks that must be sent now, back to back and in this order, and
// forgets them. It is empty when the machine waits for answers or verdicts, or is Done.
func (m *Machine) Ready() []Ask {
	ready := m.ready
	m.ready = nil
	return ready
}

// State returns what the machine waits for.
func (m *Machine) State() State { return m.state }

// Step takes a whole response frame, the answer to the oldest ask without one. Its
// correlation id is the caller's to check. response is the caller's again after the
// call. After an error the machine is of no further use.
func (m *Machine) Step(response []byte) error {
	if m.broken != nil {
		return m.broken
	}
	if len(m.outstanding) == 0 {
		return errors.New("pending upload: an answer to no ask")
	}
	k := m.outstanding[0]
	m.outstanding = m.outstanding[1:]
	if m.broken = m.take(k, response); m.broken != nil {
		return m.broken
	}
	if len(m.outstanding) == 0 {
		m.advance(k)
	}
	return nil
}

// take reads one answer.
func (m *Machine) take(k kind, response []byte) error {
	switch k {
	case clientsOwn:
		m.tier = slices.Clone(response)
		return m.takeLookup(k, m.tier)
	case localStart, logStart, highestRemote, lastFetchable:
		return m.takeLookup(k, response)
	case epochRound:
		return m.takeEpochs(response)
	}
	return fmt.Errorf("pending upload: no ask of kind %d", k)
}

// takeLookup reads an answer to a ListOffsets look-up into the partitions.
func (m *Machine) takeLookup(k kind, frame []byte) error {
	var t *topic
	a, err := walkAnswer(frame, listOffsetsLayout(), func(name []byte) { t = m.topicOf(name) }, func(off int) {
		if t == nil {
			return
		}
		p := m.find(t, int32At(frame, off+answerIndex))
		if p == nil {
			return
		}
		if k == clientsOwn {
			p.placed = true
			m.places = append(m.places, place{p, off})
			p.look(highestRemote, frame, off)
			return
		}
		p.look(k, frame, off)
	})
	if err != nil {
		return err
	}
	if k == clientsOwn {
		m.tierAt = a
	}
	m.throttle = max(m.throttle, int32At(frame, a.throttleOff))
	return nil
}

// look takes a partition of a look-up's answer. The first error stays.
func (p *partition) look(k kind, frame []byte, off int) {
	p.seen |= 1 << k
	if code := int16At(frame, off+answerError); code != 0 {
		p.fail(code)
		return
	}
	p.looks[k] = point{int64At(frame, off+answerOffset), int32At(frame, off+answerEpoch)}
}

// fail gives a partition an error code, unless it has one.
func (p *partition) fail(code int16) {
	if p.outcome != failed {
		p.outcome, p.errorCode = failed, code
	}
}

// forget makes a partition ready for look-ups.
func (p *partition) forget() {
	p.seen = 0
	for k := range p.looks {
		p.looks[k] = point{-1, -1}
	}
}

// advance goes on after the last outstanding answer, which was to an ask of kind k.
func (m *Machine) advance(k kind) {
	if k != epochRound && m.decide() {
		m.state = AwaitVerdicts
		return
	}
	m.goOn()
}

// goOn begins the second stage or an epoch round, or ends the exchange where neither is
// needed.
func (m *Machine) goOn() {
	m.state = AwaitAnswers
	if !m.lookAgain() && !m.searchEpochs() {
		m.finish()
	}
}

// Topics returns, in AwaitVerdicts, the topics whose remote.storage.enable decides,
// each once. The slice belongs to the caller.
func (m *Machine) Topics() []string {
	var names []string
	if m.state != AwaitVerdicts {
		return names
	}
	for _, t := range m.topics {
		if slices.ContainsFunc(m.parts[t.first:t.end], func(p partition) bool { return p.outcome == doubtful }) {
			names = append(names, t.name)
		}
	}
	return names
}

// Verdicts ends AwaitVerdicts; in other states it has no effect. of is called once for
// each topic that Topics names, during the call. After look-ups of a second stage it is
// wanted again, also of topics that it was given for before.
func (m *Machine) Verdicts(of func(topic string) RemoteStorage) {
	for _, name := range m.Topics() {
		t := &m.topics[m.byName[name]]
		verdict := of(name)
		for i := t.first; i < t.end; i++ {
			if p := &m.parts[i]; p.outcome == doubtful {
				m.judge(p, verdict)
			}
		}
	}
	if m.state == AwaitVerdicts {
		m.goOn()
	}
}

// Response returns, in Done, the whole response frame of version 11 with the client's
// correlation id; before that, nil. It belongs to the caller.
func (m *Machine) Response() []byte { return m.response }

// Report returns the counts so far.
func (m *Machine) Report() Report { return m.report }

// finish makes the response: the broker's answer to -5 with the partitions that asked
// for -6 patched.
func (m *Machine) finish() {
	codec.PutResponseCorrelationID(m.tier, m.header.correlationID)
	putInt32At(m.tier, m.tierAt.throttleOff, m.throttle)
	for _, at := range m.places {
		// What the broker refused stays as the broker said it.
		if int16At(m.tier, at.off+answerError) == 0 {
			at.part.put(m.tier[at.off:])
		}
	}
	m.response = m.withMissing()
	m.count()
	m.state, m.tier = Done, nil
}

// put writes a partition's answer over the fields after its index.
func (p *partition) put(b []byte) {
	result := point{-1, -1}
	if p.outcome == answered {
		result = p.result
	}
	putInt16At(b, answerError, p.errorCode)
	putInt64At(b, answerTimestamp, -1)
	putInt64At(b, answerOffset, result.offset)
	putInt32At(b, answerEpoch, result.epoch)
}

// withMissing returns the response, extended by a topic for each that has partitions
// which the broker's answer to -5 left out: every partition gets an answer.
func (m *Machine) withMissing() []byte {
	var more []byte
	n := 0
	for _, t := range m.topics {
		missing := 0
		for _, p := range m.parts[t.first:t.end] {
			if !p.placed {
				missing++
			}
		}
		if missing == 0 {
			continue
		}
		n++
		more = codec.AppendString(more, codec.Flexible, t.name)
		more = codec.AppendArrayLen(more, codec.Flexible, missing)
		for _, p := range m.parts[t.first:t.end] {
			if !p.placed {
				var b [answerTags]byte
				putInt32At(b[:], answerIndex, p.index)
				p.put(b[:])
				more = codec.AppendNoTags(append(more, b[:]...), codec.Flexible)
			}
		}
		more = codec.AppendNoTags(more, codec.Flexible)
	}
	if n == 0 {
		return m.tier
	}
	return codec.ApplyEdits(nil, m.tier, []codec.Edit{
		{From: m.tierAt.topicsOff, To: m.tierAt.firstTopicOff, With: codec.AppendArrayLen(nil, codec.Flexible, m.tierAt.topics+n)},
		{From: m.tierAt.topicsEnd, To: m.tierAt.topicsEnd, With: more},
	})
}

// count fills the report.
func (m *Machine) count() {
	for _, p := range m.parts {
		if p.open {
			m.report.Open++
		}
		switch p.outcome {
		case answered:
			m.report.Answered++
		case empty:
			m.report.Empty++
		case failed:
			m.report.Errors++
		case undecided, searching, doubtful:
			panic("pending upload: finished with a partition undecided")
		}
	}
}
