// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"errors"
	"fmt"
	"slices"

	"tiergate/codec"
)

// State is what a Machine waits for.
type State uint8

const (
	// AwaitAnswers: there are asks to be sent or answers to come.
	AwaitAnswers State = iota
	// AwaitRemoteStorage: every answer is in, and SetRemoteStorage must be called.
	AwaitRemoteStorage
	// Done: Response holds the answer to the client.
	Done
	// AwaitUploaded: Older.Take must be called; a Machine never waits for it.
	AwaitUploaded
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case AwaitAnswers:
		return "AwaitAnswers"
	case AwaitRemoteStorage:
		return "AwaitRemoteStorage"
	case Done:
		return "Done"
	case AwaitUploaded:
		return "AwaitUploaded"
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
	// UnknownRemoteStorage is the number of partitions among Empty whose topic's
	// remote.storage.enable was not known.
	UnknownRemoteStorage int
	// Tiered are the topics that an offset of -5 proved to have remote storage on, each
	// once.
	Tiered []string
}

// kind says what a lookup is.
type kind uint8

const (
	localStart kind = iota
	logStart
	highestRemote
	lastFetchable
	// lookups is the number of those above; epochEnds is an epoch round.
	lookups
	epochEnds = lookups
)

// timestamp returns what a ListOffsets lookup asks for.
func (k kind) timestamp() int64 {
	return [lookups]int64{codec.EarliestLocalTimestamp, codec.EarliestTimestamp, codec.LatestTieredTimestamp, codec.LatestTimestamp}[k]
}

// stage says where an exchange is.
type stage uint8

const (
	// twoLookups: -5 and -1 are asked for.
	twoLookups stage = iota
	// twoStatuses: the remote storage status of topics decides, after two lookups.
	twoStatuses
	// fourLookups: all four are asked for.
	fourLookups
	// fourStatuses: the remote storage status of topics decides, after four lookups.
	fourStatuses
	// epochRounds: the leader epochs of offsets are searched.
	epochRounds
	// finished: the response is complete.
	finished
)

// kinds are the lookups that a stage sends, in this order.
func (s stage) kinds() []kind {
	switch s {
	case twoLookups:
		return []kind{highestRemote, lastFetchable}
	case fourLookups:
		return []kind{localStart, logStart, highestRemote, lastFetchable}
	case epochRounds:
		return []kind{epochEnds}
	case twoStatuses, fourStatuses, finished:
	}
	return nil
}

// Error codes that the machine itself gives.
const (
	unknownServerError int16 = -1
	offsetNotAvailable int16 = 78
)

// debuggingReplicaID is the replica id that followers answer too; what makes two look-ups
// enough is so of leaders.
const debuggingReplicaID int32 = -2

// Machine is one ListOffsets request of version 11 with -6 in it, in flight. It has no
// socket, goroutine or clock and shares nothing, so that it may move from one goroutine to
// another between calls, but it is not safe for concurrent use. Its memory is bounded by a
// small multiple of the client's frame plus the broker's response to it; see Size.
type Machine struct {
	version int16
	header  header
	topics  topics
	parts   []partition

	stage stage
	// sent and received are the numbers of this stage's lookups that Ready has given and
	// Step has taken.
	sent, received int
	broken         error

	// own is a copy of the client's request, with -5 for -6, until Ready gives it.
	own Request
	// What is known of each partition's offsets, allocated with the responses. While the
	// lookups come in, result has the local log start and spare the log start; from -5 on,
	// result has the offset that is the answer if it can be read, with its epoch or a lower
	// bound of it, and spare has -5. After two lookups result has -5. While an epoch is
	// searched, spare has its upper bound.
	result, spare column
	// response is the response to -5 in a copy of our own, which becomes the client's, and at
	// is where its parts are.
	response []byte
	at       answer
	throttle int32
	// width bounds the candidates of a partition in an epoch round.
	width  int
	report Report
}

// New returns a machine for a client's ListOffsets request of version 11 that asks for -6 at
// least once. lookupVersion is the broker's: 9 or 10. The machine keeps no part of the
// request's frame.
func New(r Request, lookupVersion int16, plan Plan) (*Machine, error) {
	if lookupVersion != 9 && lookupVersion != 10 {
		return nil, fmt.Errorf("pending upload: no look-ups at list_offsets version %d", lookupVersion)
	}
	if r.Version != codec.ListOffsetsPendingUpload || r.PendingUpload == 0 {
		return nil, fmt.Errorf("pending upload: list_offsets v%d with %d partitions that ask for -6", r.Version, r.PendingUpload)
	}
	m := &Machine{version: lookupVersion, header: headerOf(&r), topics: newTopics(r.topics, r.nameBytes), own: r}
	m.own.frame = slices.Clone(r.frame)
	m.collect(&m.own, pendingUploads)
	if plan == AllFour || int32At(m.header.replicaAndIsolation[:], 0) == debuggingReplicaID {
		m.stage = fourLookups
	}
	return m, nil
}

// Ready returns the next lookup that must be sent now. ok is false when there is none: the
// machine waits for responses or statuses, or is Done. Lookups are sent in the order in which
// Ready gives them. Each is built when it is asked for, so that a caller that sends one before
// it asks for the next has one at a time in memory.
func (m *Machine) Ready() (a Ask, ok bool) {
	kinds := m.stage.kinds()
	if m.sent == len(kinds) || m.broken != nil {
		return Ask{}, false
	}
	k := kinds[m.sent]
	m.sent++
	m.report.Asks++
	switch {
	case k == epochEnds:
		return m.epochAsk(), true
	case k == highestRemote && m.own.frame != nil:
		return m.ownAsk(), true
	default:
		return m.lookup(k.timestamp()), true
	}
}

// State returns what the machine waits for.
func (m *Machine) State() State {
	switch m.stage {
	case twoStatuses, fourStatuses:
		return AwaitRemoteStorage
	case finished:
		return Done
	case twoLookups, fourLookups, epochRounds:
	}
	return AwaitAnswers
}

// enter begins a stage.
func (m *Machine) enter(s stage) { m.stage, m.sent, m.received = s, 0, 0 }

// Step takes a whole response frame, the response to the oldest lookup without one. Its
// correlation id is the caller's to check. response is the caller's again after the
// call. After an error the machine is of no further use.
func (m *Machine) Step(response []byte) error {
	if m.broken != nil {
		return m.broken
	}
	if m.received == m.sent {
		return errors.New("pending upload: an answer to no ask")
	}
	kinds := m.stage.kinds()
	k := kinds[m.received]
	m.received++
	if m.broken = m.take(k, response); m.broken != nil {
		return m.broken
	}
	if m.received == len(kinds) {
		m.advance()
	}
	return nil
}

// take reads one response.
func (m *Machine) take(k kind, response []byte) error {
	switch {
	case k == epochEnds:
		return m.takeEpochs(response)
	case k == highestRemote && m.response == nil:
		// The first one is the response to the client's own request.
		m.response = slices.Clone(response)
		return m.takeLookup(k, response, placed)
	default:
		return m.takeLookup(k, response, 0)
	}
}

// takeLookup reads a response to a ListOffsets lookup. mark is set for the partitions in it.
func (m *Machine) takeLookup(k kind, frame []byte, mark flags) error {
	if m.result.offsets == nil {
		m.result = newColumn(len(m.parts))
	}
	if m.stage == fourLookups && m.spare.offsets == nil {
		m.spare = newColumn(len(m.parts))
	}
	at, err := m.eachRow(frame, listOffsetsLayout(), func(t *topic, i, off int) {
		m.parts[i].flags |= mark
		m.look(k, t, i, frame[off:])
	})
	if mark == placed {
		m.at = at
	}
	return err
}

// eachRow calls row with the topic, the place and the offset of each partition in a response
// that asked for -6.
func (m *Machine) eachRow(frame []byte, l layout, row func(t *topic, i, off int)) (answer, error) {
	var t *topic
	i := 0
	at, err := followAnswer(frame, l, func(name []byte) {
		if t = m.topics.named(name); t != nil {
			i = int(t.first)
		}
	}, func(off int) {
		if t == nil {
			return
		}
		if found := m.find(t, i, int32At(frame, off+l.index)); found >= 0 {
			i = found
			row(t, i, off)
		}
	})
	if err == nil {
		m.throttle = max(m.throttle, int32At(frame, at.throttleOff))
	}
	return at, err
}

// look takes a partition of a lookup's response. The first error stays.
func (m *Machine) look(k kind, t *topic, i int, row []byte) {
	p, code := &m.parts[i], int16At(row, answerError)
	at := point{int64At(row, answerOffset), int32At(row, answerEpoch)}
	if k == highestRemote && code == 0 && at.offset >= 0 {
		t.proven = true
	}
	seen := flags(1) << k
	switch {
	case p.outcome != undecided:
	case code != 0:
		p.fail(code)
	case p.flags&seen == 0:
		p.flags |= seen
		m.apply(k, i, at)
	}
}

// advance goes on after the last response of a stage.
func (m *Machine) advance() {
	switch {
	case m.stage == twoLookups && m.decide():
		m.enter(twoStatuses)
	case m.stage == fourLookups && m.decide():
		m.enter(fourStatuses)
	default:
		m.goOn()
	}
}

// goOn begins the second stage or an epoch round, or ends the exchange where neither is
// needed.
func (m *Machine) goOn() {
	if !m.lookAgain() && !m.searchEpochs() {
		m.finish()
	}
}

// lookAgain begins the stage of four lookups for the partitions that two left undecided, and
// says whether there are any.
func (m *Machine) lookAgain() bool {
	again := false
	for i := range m.parts {
		if p := &m.parts[i]; p.outcome == undecided {
			p.flags &^= seenFour
			again = true
		}
	}
	if again {
		m.enter(fourLookups)
	}
	return again
}

// Topics returns, in AwaitRemoteStorage, the topics whose remote.storage.enable decides,
// each once. The slice belongs to the caller.
func (m *Machine) Topics() []string {
	var names []string
	m.eachInDoubt(func(t *topic) { names = append(names, string(m.topics.name(t))) })
	return names
}

// eachInDoubt calls f, in AwaitRemoteStorage, with each topic whose remote storage status decides.
func (m *Machine) eachInDoubt(f func(t *topic)) {
	if m.State() != AwaitRemoteStorage {
		return
	}
	for i := range m.topics.list {
		t := &m.topics.list[i]
		if slices.ContainsFunc(m.parts[t.first:t.end], func(p partition) bool { return p.outcome == doubtful }) {
			f(t)
		}
	}
}

// SetRemoteStorage ends AwaitRemoteStorage; in other states it has no effect. of is called once for
// each topic that Topics names, during the call. After the lookups of a second stage it is
// needed again, also of topics that it was given for before.
func (m *Machine) SetRemoteStorage(of func(topic string) codec.RemoteStorage) {
	if m.State() != AwaitRemoteStorage {
		return
	}
	m.eachInDoubt(func(t *topic) {
		m.judgeTopic(t, of(string(m.topics.name(t))))
	})
	m.goOn()
}

// Response returns, in Done, the whole response frame of version 11 with the client's
// correlation id; before that, nil. It belongs to the caller.
func (m *Machine) Response() []byte {
	if m.stage != finished {
		return nil
	}
	return m.response
}

// Report returns the counts so far.
func (m *Machine) Report() Report { return m.report }

// Size returns the number of bytes that the machine holds. A lookup that Ready has given is
// the caller's to count.
func (m *Machine) Size() int64 {
	size := int64(cap(m.header.clientID)) + int64(cap(m.own.frame)) + int64(cap(m.response))
	size += int64(cap(m.parts))*partitionSize + m.topics.size() + m.result.size() + m.spare.size()
	size += int64(cap(m.report.Tiered)) * stringSize
	for _, name := range m.report.Tiered {
		size += int64(len(name))
	}
	return size
}

// stringSize is the size of a string without its bytes.
const stringSize = 16

// finish makes the response: the broker's response to -5 with the partitions that asked for
// -6 patched. What the machine knows of them is dropped.
func (m *Machine) finish() {
	m.patch()
	m.addMissing()
	m.count()
	m.enter(finished)
	m.parts, m.topics, m.result, m.spare = nil, topics{}, column{}, column{}
}

// patch writes what was found into the broker's response.
func (m *Machine) patch() {
	frame := m.response
	_, err := m.eachRow(frame, listOffsetsLayout(), func(_ *topic, i, off int) {
		// What the broker refused stays as the broker said it.
		if int16At(frame, off+answerError) == 0 {
			m.put(i, frame[off:])
		}
	})
	if err != nil {
		panic("pending upload: a response that was read before: " + err.Error())
	}
	codec.PutResponseCorrelationID(frame, m.header.correlationID)
	putInt32At(frame, m.at.throttleOff, m.throttle)
}

// put writes a partition's result over the fields after its index.
func (m *Machine) put(i int, row []byte) {
	p, result := &m.parts[i], point{-1, -1}
	if p.outcome == answered {
		result = m.result.at(i)
	}
	putInt16At(row, answerError, p.errorCode)
	putInt64At(row, answerTimestamp, -1)
	putInt64At(row, answerOffset, result.offset)
	putInt32At(row, answerEpoch, result.epoch)
}

// addMissing extends the response by a topic for each that has partitions which the broker's
// response to -5 left out: every partition gets an answer.
func (m *Machine) addMissing() {
	topics, size := m.countRows(minAnswer, func(p *partition, _ int) int { return bit(p.flags&placed == 0) })
	if topics == 0 {
		return
	}
	var row [minAnswer]byte
	more := m.appendTopics(make([]byte, 0, size), func(b []byte, t *topic) []byte {
		for i := int(t.first); i < int(t.end); i++ {
			if p := &m.parts[i]; p.flags&placed == 0 {
				putInt32At(row[:], answerIndex, p.index)
				m.put(i, row[:])
				b = append(b, row[:]...)
			}
		}
		return b
	})
	m.response = codec.ApplyEdits(nil, m.response, []codec.Edit{
		{From: m.at.topicsOff, To: m.at.firstTopicOff, With: codec.AppendArrayLen(nil, codec.Flexible, m.at.topics+topics)},
		{From: m.at.topicsEnd, To: m.at.topicsEnd, With: more},
	})
}

// count fills the report.
func (m *Machine) count() {
	for i := range m.parts {
		p := &m.parts[i]
		if p.flags&open != 0 {
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
