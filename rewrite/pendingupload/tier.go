// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tiergate/codec"
)

// How -5 is made in front of a broker that has none.
//
// What is uploaded is known from elsewhere (the topic __remote_log_metadata): for each leader
// epoch the highest offset that was ever uploaded. The broker itself decides which of them
// counts, as RemoteLogManager.findHighestRemoteOffset does when it becomes leader: the newest
// epoch that is in the lineage of its log, and not above the epoch's end there. Lookups, on
// the client's connection:
//
//	Metadata                 topic ids: a topic that is created anew has another
//	-4, -2, -1               -2 is the client's own request, with -2 for -5
//	AwaitUploaded            the uploaded parts are found out
//	OffsetForLeaderEpoch     for e-1 and e of the three newest epochs e that uploaded
//	Metadata                 the ids are still these
//
// OffsetForLeaderEpoch(e) gives (floor entry of e, start of the next entry). e is in the
// lineage if the entry is e and holds records at or after the log start, or is the leader's
// own; the reply alone does not tell for an e older than the cache, which comes back as e
// with the log start. The offset is that of the first such e, at most the epoch's last one.
// Its epoch is e if it is at or after the start of e, which the reply for e-1 tells;
// otherwise the entries below are asked for, one in each round.
//
// A local segment is deleted only after its upload is known. So a local log that starts
// above the log start, and above the offset after the one found, shows that what was found
// out is too old: it is asked for once more, and then not known.

const (
	metadataKey int16 = 3
	// metadataVersion is the highest of Kafka 3.6 to 3.8, and has names and ids of topics.
	metadataVersion int16 = 12

	topicDenied        int16 = 29 // TOPIC_AUTHORIZATION_FAILED
	unsupportedVersion int16 = 35
	namedTwice         int16 = 42 // INVALID_REQUEST, of a partition that is named twice

	// lineageEpochs are asked for in one round; two requests were never needed for more.
	lineageEpochs = 3
	// maxFloorRounds bounds the search for an epoch below the one that was found. Only an
	// unclean election leads there at all.
	maxFloorRounds = 16
)

// tierStage says where an exchange is.
type tierStage uint8

const (
	// tierLookups: topic ids, log starts and ends are asked for.
	tierLookups tierStage = iota
	// tierUploaded: Take is waited for.
	tierUploaded
	// tierAgain: Take is waited for once more.
	tierAgain
	// tierLineage: epochs that uploaded are asked for.
	tierLineage
	// tierFloors: epochs below the one that was found are asked for.
	tierFloors
	// tierFinished: the response is complete.
	tierFinished
)

// tierKind says what a lookup is.
type tierKind uint8

const (
	tierMetadata tierKind = iota
	tierLocal
	tierStart
	tierLast
	tierEnds
	tierConfirm
)

func (s tierStage) kinds() []tierKind {
	switch s {
	case tierLookups:
		return []tierKind{tierMetadata, tierLocal, tierStart, tierLast}
	case tierLineage:
		return []tierKind{tierEnds, tierConfirm}
	case tierFloors:
		return []tierKind{tierEnds}
	case tierUploaded, tierAgain, tierFinished:
	}
	return nil
}

// tierPart is what is known of a partition beside the table.
type tierPart struct {
	local, start int64
	current      int32 // leader epoch
	uploaded     Uploaded
	next         int32 // place in uploaded.Epochs of the first that was not asked for
	// below is the reply for e-1 of the epoch that was asked for last.
	below epochEnd
	// rows is the number of rows of this round that were read.
	rows int32
	// floor: the epoch of the offset is this or an older one.
	floor int32
	// late: what was found out is too old, and is asked for again. tried: it was already.
	late, tried bool
}

const tierPartSize = 104

// tier is one ListOffsets request of version 8 whose -5 is answered. The table has its
// partitions and makes requests and response of them; its stages are not used.
type tier struct {
	table          Machine
	parts          []tierPart
	ids            [][16]byte // by topic; zero where the broker gave none
	stage          tierStage
	sent, received int
	floorRounds    int
	unknowns       []Partition // of which nothing can be said
}

// latestTiered chooses the partitions that ask for -5, and those that ask for what no
// version below 11 knows. The broker would take these for times.
func latestTiered(timestamp int64) (partition, int64, bool) {
	switch {
	case timestamp > codec.LatestTieredTimestamp:
		return partition{}, 0, false
	case timestamp == codec.LatestTieredTimestamp:
		return partition{}, codec.EarliestTimestamp, true
	default:
		return partition{outcome: failed, errorCode: unsupportedVersion}, codec.EarliestTimestamp, true
	}
}

// newTier returns the exchange for a request of version 8, whose frame it keeps.
func newTier(frame []byte) (*tier, error) {
	r, err := ParseRequest(frame)
	if err != nil {
		return nil, err
	}
	if r.Version != olderVersion {
		return nil, fmt.Errorf("pending upload: -5 at list_offsets version %d", r.Version)
	}
	topics, nameBytes := 0, 0
	r.eachPartition(func(name []byte) { topics++; nameBytes += len(name) }, func(int) {})
	t := &tier{table: Machine{version: olderVersion, topics: newTopics(topics, nameBytes), own: r}}
	t.table.header = header{correlationID: codec.RequestCorrelationID(frame), clientID: append([]byte(nil), r.clientID...)}
	if r.clientID == nil {
		t.table.header.clientID = nil
	}
	copy(t.table.header.replicaAndIsolation[:], frame[r.body:])
	t.table.collect(&t.table.own, latestTiered)
	if len(t.table.parts) == 0 {
		return nil, errors.New("pending upload: a list_offsets request without -5")
	}
	t.parts = make([]tierPart, len(t.table.parts))
	t.ids = make([][16]byte, len(t.table.topics.list))
	t.table.result = newColumn(len(t.table.parts))
	return t, nil
}

// State is what the exchange waits for.
func (t *tier) State() State {
	switch t.stage {
	case tierUploaded, tierAgain:
		return AwaitUploaded
	case tierFinished:
		return Done
	case tierLookups, tierLineage, tierFloors:
	}
	return AwaitAnswers
}

func (t *tier) enter(s tierStage) { t.stage, t.sent, t.received = s, 0, 0 }

// Ready returns the next lookup to send.
func (t *tier) Ready() (Ask, bool) {
	kinds := t.stage.kinds()
	if t.sent == len(kinds) || t.table.broken != nil {
		return Ask{}, false
	}
	k := kinds[t.sent]
	t.sent++
	t.table.report.Asks++
	switch k {
	case tierMetadata, tierConfirm:
		return t.metadataAsk(), true
	case tierLocal:
		return t.table.lookup(codec.EarliestLocalTimestamp), true
	case tierStart:
		return t.table.ownAsk(), true
	case tierLast:
		return t.table.lookup(codec.LatestTimestamp), true
	case tierEnds:
	}
	return t.endsAsk(), true
}

// metadataAsk asks for the ids of the topics.
func (t *tier) metadataAsk() Ask {
	m := &t.table
	size := 0
	for i := range m.topics.list {
		size += len(t.ids[i]) + uvarintLen(int(m.topics.list[i].nameLen)+1) + int(m.topics.list[i].nameLen) + 1
	}
	b := m.beginAsk(metadataKey, metadataVersion, size)
	b = codec.AppendArrayLen(b, codec.Flexible, len(m.topics.list))
	for i := range m.topics.list {
		b = append(b, make([]byte, len(t.ids[i]))...)
		b = codec.AppendString(b, codec.Flexible, string(m.topics.name(&m.topics.list[i])))
		b = codec.AppendNoTags(b, codec.Flexible)
	}
	b = append(b, 0, 0) // AllowAutoTopicCreation, IncludeTopicAuthorizedOperations
	return endAsk(metadataKey, metadataVersion, b)
}

// endsAsk asks for the ends of epochs, with replica id -1.
func (t *tier) endsAsk() Ask {
	m := &t.table
	m.report.EpochRounds++
	for i := range t.parts {
		t.parts[i].rows = 0
	}
	topics, size := m.countRows(epochCandidateLen, func(p *partition, i int) int { return t.rowsOf(p, i) })
	b := m.beginAsk(codec.KeyOffsetForLeaderEpoch, codec.OffsetForLeaderEpochLookup, size)
	b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	b = codec.AppendArrayLen(b, codec.Flexible, topics)
	b = m.appendTopics(b, func(b []byte, of *topic) []byte {
		var row [epochCandidateLen]byte
		for i := int(of.first); i < int(of.end); i++ {
			p := &m.parts[i]
			putInt32At(row[:], candidateIndex, p.index)
			putInt32At(row[:], candidateCurrentEpoch, p.currentEpoch)
			for k := range t.rowsOf(p, i) {
				putInt32At(row[:], candidateEpoch, t.epochOf(i, k))
				b = append(b, row[:]...)
			}
		}
		return b
	})
	return endAsk(codec.KeyOffsetForLeaderEpoch, codec.OffsetForLeaderEpochLookup, b)
}

// rowsOf is the number of epochs that a partition asks for in this round.
func (t *tier) rowsOf(p *partition, i int) int {
	q := &t.parts[i]
	switch {
	case t.stage == tierFloors && p.outcome == searching:
		return 1
	case t.stage == tierLineage && p.outcome == undecided:
		return 2 * min(lineageEpochs, len(q.uploaded.Epochs)-int(q.next))
	}
	return 0
}

// epochOf is the epoch of row k of a partition.
func (t *tier) epochOf(i, k int) int32 {
	q := &t.parts[i]
	if t.stage == tierFloors {
		return q.floor - 1
	}
	return q.uploaded.Epochs[int(q.next)+k/2].Epoch - 1 + int32(k%2)
}

// Step takes the response to the oldest lookup without one.
func (t *tier) Step(response []byte) error {
	if t.table.broken != nil {
		return t.table.broken
	}
	if t.received == t.sent {
		return errors.New("pending upload: a response to no lookup")
	}
	kinds := t.stage.kinds()
	k := kinds[t.received]
	t.received++
	if t.table.broken = t.takeResponse(k, response); t.table.broken != nil {
		return t.table.broken
	}
	if t.received == len(kinds) {
		t.advance()
	}
	return nil
}

func (t *tier) takeResponse(k tierKind, frame []byte) error {
	switch k {
	case tierMetadata, tierConfirm:
		return t.takeMetadata(k, frame)
	case tierEnds:
		return t.takeEnds(frame)
	case tierStart:
		t.table.response = append([]byte(nil), frame...)
		at, err := t.takeOffsets(k, frame)
		t.table.at = at
		return err
	case tierLocal, tierLast:
	}
	_, err := t.takeOffsets(k, frame)
	return err
}

// takeOffsets reads a response of ListOffsets.
func (t *tier) takeOffsets(k tierKind, frame []byte) (answer, error) {
	return t.table.eachRow(frame, listOffsetsLayout(), func(_ *topic, i, off int) {
		p, q, row := &t.table.parts[i], &t.parts[i], frame[off:]
		if k == tierStart {
			p.flags |= placed
			t.refuse(p, t.table.response[off:])
		}
		if code := int16At(row, answerError); code != 0 {
			p.fail(code)
			return
		}
		p.flags |= 1 << (k - tierLocal)
		switch k {
		case tierLocal:
			q.local = int64At(row, answerOffset)
		case tierStart:
			q.start = int64At(row, answerOffset)
		case tierLast:
			q.current = int32At(row, answerEpoch)
		case tierMetadata, tierEnds, tierConfirm:
		}
	})
}

// refuse clears an error that comes after UNSUPPORTED_VERSION where a broker that has it
// looks for faults (ReplicaManager.fetchOffset of Kafka 3.9), so that it is put there.
func (t *tier) refuse(p *partition, row []byte) {
	code := int16At(row, answerError)
	if p.outcome == failed && p.errorCode == unsupportedVersion && code != topicDenied && code != namedTwice {
		putInt16At(row, answerError, 0)
	}
}

// seenTierLookups are the flags of a partition that the three lookups of offsets have.
const seenTierLookups flags = 1<<(tierLast-tierLocal+1) - 1

// takeMetadata reads topic ids from a Metadata response of version 12; the second time it
// compares them. Source: MetadataResponse.json.
func (t *tier) takeMetadata(k tierKind, frame []byte) error {
	body, err := codec.ResponseBody(frame, codec.Flexible)
	if err != nil {
		return fmt.Errorf("metadata response %w", err)
	}
	c := codec.NewCursor(frame, codec.Flexible)
	c.Skip(body)
	c.Int32() // ThrottleTimeMs: what counts is that of ListOffsets
	const minBroker, minTopic, minPartition = 4 + 1 + 4 + 1 + 1, 2 + 1 + 16 + 1 + 1 + 4 + 1, 2 + 4 + 4 + 4 + 1 + 1 + 1 + 1
	for n := c.ArrayLen(minBroker); n > 0 && c.Err() == nil; n-- {
		c.Skip(4)
		c.String()
		c.Skip(4)
		c.String()
		c.Tags()
	}
	c.String() // ClusterId
	c.Skip(4)  // ControllerId
	ids := make([][16]byte, len(t.ids))
	for n := c.ArrayLen(minTopic); n > 0 && c.Err() == nil; n-- {
		c.Int16()
		name, id := c.String(), c.Skip(16)
		c.Skip(1) // IsInternal
		for n := c.ArrayLen(minPartition); n > 0 && c.Err() == nil; n-- {
			c.Skip(2 + 4 + 4 + 4)
			for range 3 { // ReplicaNodes, IsrNodes, OfflineReplicas
				c.Skip(4 * max(0, c.ArrayLen(4)))
			}
			c.Tags()
		}
		c.Skip(4) // TopicAuthorizedOperations
		c.Tags()
		if of := t.table.topics.named(name); of != nil && c.Err() == nil {
			copy(ids[t.topicAt(of)][:], id)
		}
	}
	c.Tags()
	if c.Err() == nil && c.Left() > 0 {
		c.Fail("%d bytes left over", c.Left())
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("metadata response v%d %w", metadataVersion, err)
	}
	if k == tierConfirm {
		t.confirm(ids)
		return nil
	}
	t.ids = ids
	return nil
}

// topicAt is the place of a topic that named returned.
func (t *tier) topicAt(*topic) int { return t.table.topics.last }

// confirm makes the partitions unknown whose topic is another one by now.
func (t *tier) confirm(ids [][16]byte) {
	for n := range t.ids {
		of := &t.table.topics.list[n]
		for i := int(of.first); i < int(of.end); i++ {
			if ids[n] != t.ids[n] && t.table.parts[i].outcome != failed {
				t.unknown(i, n)
			}
		}
	}
}

// unknown ends a partition of which nothing can be said: none, never a guess.
func (t *tier) unknown(i, topic int) {
	t.table.parts[i].outcome, t.parts[i].late = empty, false
	t.unknowns = append(t.unknowns, t.partition(i, topic))
}

// partition names a partition.
func (t *tier) partition(i, topic int) Partition {
	name := string(t.table.topics.name(&t.table.topics.list[topic]))
	return Partition{Topic: name, TopicID: t.ids[topic], Partition: t.table.parts[i].index}
}

// takeEnds reads the ends of epochs. The rows of a partition come in the order in which they
// were asked for.
func (t *tier) takeEnds(frame []byte) error {
	_, err := t.table.eachRow(frame, epochEndLayout(), func(_ *topic, i, off int) {
		p, q, row := &t.table.parts[i], &t.parts[i], frame[off:]
		waiting := undecided
		if t.stage == tierFloors {
			waiting = searching
		}
		e := epochEnd{int32At(row, endEpoch), int64At(row, endEndOffset)}
		k, asked := int(q.rows), t.rowsOf(p, i)
		q.rows++
		switch code := int16At(row, endError); {
		case p.outcome != waiting || q.late: // decided by a row before
		case code != 0:
			p.fail(code)
		case k >= asked:
			p.fail(unknownServerError)
		case t.stage == tierFloors:
			t.floor(i, e)
		case k%2 == 0:
			q.below = e
		default:
			t.lineage(i, q.uploaded.Epochs[int(q.next)+k/2], e)
		}
	})
	return err
}

// lineage decides whether an epoch that uploaded is in the lineage of the log, and if so the
// partition; e is the reply for the epoch.
func (t *tier) lineage(i int, up EpochOffset, e epochEnd) {
	q := &t.parts[i]
	if e.undefined() || e.epoch != up.Epoch || e.endOffset <= q.start && e.epoch != q.current {
		return
	}
	offset := min(up.Offset, e.endOffset-1)
	if t.tooOld(i, offset) {
		return
	}
	p := &t.table.parts[i]
	p.outcome = answered
	switch {
	case offset < 0:
		p.outcome = empty
	case offset < q.start:
		t.table.result.put(i, point{offset, -1})
	case !q.below.undefined() && offset < q.below.endOffset:
		t.table.result.put(i, point{offset, -1})
		p.outcome, q.floor = searching, q.below.epoch
	default:
		t.table.result.put(i, point{offset, up.Epoch})
	}
}

// tooOld says that what was found out cannot be: the local log starts above the offset after
// it. The partition then stays undecided and is asked for again, once.
func (t *tier) tooOld(i int, offset int64) bool {
	q := &t.parts[i]
	q.late = q.local > q.start && after(offset) < q.local
	return q.late
}

// floor takes the reply for the epoch below q.floor, which the offset's epoch is, or is above.
func (t *tier) floor(i int, e epochEnd) {
	p, q := &t.table.parts[i], &t.parts[i]
	if e.undefined() || e.endOffset <= t.table.result.offsets[i] || e.epoch >= q.floor {
		t.table.result.epochs[i] = q.floor
		p.outcome = answered
		return
	}
	q.floor = e.epoch
}

// eachUndecided calls f with the place of each partition that is not decided, and of its topic.
func (t *tier) eachUndecided(f func(i, topic int)) {
	for n := range t.table.topics.list {
		of := &t.table.topics.list[n]
		for i := int(of.first); i < int(of.end); i++ {
			if t.table.parts[i].outcome == undecided {
				f(i, n)
			}
		}
	}
}

// wanted is Older.Wanted.
func (t *tier) wanted() []Partition {
	var out []Partition
	if t.State() == AwaitUploaded {
		t.eachUndecided(func(i, topic int) { out = append(out, t.partition(i, topic)) })
	}
	return out
}

// take is Older.Take.
func (t *tier) take(uploaded []Uploaded) {
	n := 0
	t.eachUndecided(func(i, topic int) {
		q := &t.parts[i]
		q.uploaded, q.next, q.late, q.tried = Uploaded{}, 0, false, t.stage == tierAgain
		if n < len(uploaded) {
			q.uploaded = uploaded[n]
		}
		n++
		if !q.uploaded.Known || t.ids[topic] == [16]byte{} {
			t.unknown(i, topic)
		}
	})
	t.goOn()
}

// advance goes on after the last response of a stage.
func (t *tier) advance() {
	switch t.stage {
	case tierLookups:
		t.lookedUp()
	case tierLineage:
		t.lineageRead()
	case tierFloors:
		t.floorsRead()
	case tierUploaded, tierAgain, tierFinished:
	}
}

// lookedUp ends the first stage: the uploaded parts are wanted where every lookup gave an offset.
func (t *tier) lookedUp() {
	t.enter(tierFinished)
	for i := range t.table.parts {
		p := &t.table.parts[i]
		if p.outcome == undecided && p.flags&seenTierLookups != seenTierLookups {
			p.fail(unknownServerError)
		}
		if p.outcome == undecided {
			t.enter(tierUploaded)
		}
	}
	if t.stage == tierFinished {
		t.finish()
	}
}

// lineageRead ends a round of epochs that uploaded.
func (t *tier) lineageRead() {
	t.eachUndecided(func(i, _ int) {
		p, q := &t.table.parts[i], &t.parts[i]
		if int(q.rows) != t.rowsOf(p, i) {
			p.fail(unknownServerError)
		}
		q.next = int32(min(int(q.next)+lineageEpochs, len(q.uploaded.Epochs)))
	})
	t.goOn()
}

// floorsRead ends a round of floors.
func (t *tier) floorsRead() {
	t.floorRounds++
	for i := range t.table.parts {
		p := &t.table.parts[i]
		switch {
		case p.outcome != searching:
		case t.parts[i].rows == 0:
			p.fail(unknownServerError)
		case t.floorRounds >= maxFloorRounds:
			p.outcome = answered // without an epoch
		}
	}
	t.goOn()
}

// goOn begins the next round, or ends the exchange.
func (t *tier) goOn() {
	more, late := false, false
	t.eachUndecided(func(i, topic int) {
		q := &t.parts[i]
		switch {
		case q.late: // already known to be
		case int(q.next) < len(q.uploaded.Epochs):
			more = true
			return
		case q.uploaded.Cut:
			t.unknown(i, topic)
			return
		case !t.tooOld(i, -1):
			t.table.parts[i].outcome = empty // nothing is uploaded of this log
			return
		}
		if q.tried {
			t.unknown(i, topic)
			return
		}
		late = true
	})
	searched := slices.ContainsFunc(t.table.parts, func(p partition) bool { return p.outcome == searching })
	switch {
	case more:
		t.enter(tierLineage)
	case searched:
		t.enter(tierFloors)
	case late:
		t.enter(tierAgain)
	default:
		t.finish()
	}
}

// finish makes the response.
func (t *tier) finish() {
	t.enter(tierFinished)
	t.table.finish()
	t.parts, t.ids = nil, nil
}

// size is the number of bytes that the exchange holds.
func (t *tier) size() int64 {
	size := t.table.Size() + int64(cap(t.parts))*tierPartSize + int64(cap(t.ids))*16
	for i := range t.parts {
		size += int64(cap(t.parts[i].uploaded.Epochs)) * 16
	}
	return size
}
