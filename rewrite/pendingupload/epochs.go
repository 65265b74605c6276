// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

// The epoch of an offset X.
//
// OffsetForLeaderEpoch(e) answers with the floor entry of e in the broker's leader epoch
// cache and the start of the next entry, so
//
//	end offset > X   the epoch of X is the entry's or an earlier one
//	end offset <= X  the epoch of X is above e
//	-1, -1           e is above every entry
//
// Between the bounds that the look-ups give (the epoch of a known offset at or below X,
// and the current leader epoch) a round asks for several candidates at once, of every
// partition that still needs it. A request may name a partition several times; brokers
// answer each, in order. X is mostly the offset after the last uploaded one, so its
// epoch is that of the last uploaded one or the next entry, and epochs skip few numbers
// (a restart adds two): most candidates stand right above the lower bound, some right
// below the upper one, the rest at even distances, so that what is left shrinks fast
// whatever the history. One round is enough in nearly every case.
//
// For an e older than its first entry the broker answers with e itself and the start of
// that entry, so two candidates with different epochs and one end offset, which no two
// entries that hold records have, show that the log start has passed X in the meantime.
// The candidate right below the lower bound is there for that alone.
//
// Source: LeaderEpochFileCache.endOffsetFor and epochForOffset; KIP-320.
const (
	// candidatesPerRound bounds a round: 13 bytes each in the request, 19 in the answer, 0.4
	// and 0.6 MiB in all. Only a request of more than 8192 partitions that all need a search
	// exceeds it, by minCandidates for each, less than four times its own size.
	candidatesPerRound = 32768
	// A partition gets no more than maxCandidates, since more would not save a round, and
	// no fewer than minCandidates, which halve what is left.
	maxCandidates = 64
	minCandidates = 4
)

// search is the search for the epoch of a partition's offset.
type search struct {
	// The epoch is between lo and hi. Nothing is left to ask when they are equal.
	lo, hi int32
	// floor says what is known below lo.
	floor floor
	// first to end are the partition's candidates in this round; next is the one whose
	// answer comes next.
	first, end, next int
}

// floor says whether the offset is known to be covered by the broker's epoch cache.
type floor uint8

const (
	// uncovered: no look-up gave an epoch at or below the offset. The cache may start
	// above it, and then no broker has an epoch for it.
	uncovered floor = iota
	// covered: an entry at or below the offset is known.
	covered
)

// candidate is one epoch asked for and what came back.
type candidate struct {
	asked     int32
	epoch     int32
	endOffset int64
}

// bound ends the search at once where a look-up already gave the epoch, or begins it.
func (p *partition) bound() {
	x := p.result.offset
	// The broker gave the epoch of the local log start, -1 where it has none. The one that it
	// gives of the log start is its earliest: a bound, since a replica that was rebuilt from
	// remote storage may have several up to there.
	if local := p.looks[localStart]; local.offset == x {
		p.outcome, p.result = answered, local
		return
	}
	s := search{lo: -1, hi: p.looks[lastFetchable].epoch, floor: uncovered}
	for _, k := range []kind{localStart, logStart, highestRemote} {
		if known := p.looks[k]; known.offset <= x {
			s.lo = max(s.lo, known.epoch)
		}
	}
	if s.lo >= 0 {
		s.floor = covered
	}
	s.lo = max(s.lo, 0)
	p.outcome, p.search = searching, s
	p.conclude()
}

// conclude ends a search that has nothing left to ask.
func (p *partition) conclude() {
	s := p.search
	switch {
	case s.lo > s.hi:
		// The broker contradicted itself.
		p.fail(unknownServerError)
	case s.lo == s.hi:
		p.outcome = answered
		if s.floor == covered {
			p.result.epoch = s.lo
		}
	}
}

// searchEpochs begins a round for the partitions that need one and says whether there
// are any.
func (m *Machine) searchEpochs() bool {
	n := 0
	for i := range m.parts {
		p := &m.parts[i]
		p.search.first, p.search.end, p.search.next = 0, 0, 0
		if p.outcome == searching {
			n++
		}
	}
	if n == 0 {
		m.candidates = nil
		return false
	}
	width := max(minCandidates, min(maxCandidates, candidatesPerRound/n))
	m.candidates = m.candidates[:0]
	for i := range m.parts {
		if p := &m.parts[i]; p.outcome == searching {
			p.search.first, p.search.next = len(m.candidates), len(m.candidates)
			m.candidates = p.search.candidates(m.candidates, width)
			p.search.end = len(m.candidates)
		}
	}
	m.report.EpochRounds++
	m.send(epochRound, m.epochAsk())
	return true
}

// candidates appends at most width candidates to dst, ascending.
func (s search) candidates(dst []candidate, width int) []candidate {
	if s.floor == covered && s.lo > 0 {
		dst = append(dst, candidate{asked: s.lo - 1})
		width--
	}
	lo, left := int64(s.lo), int64(s.hi)-int64(s.lo)
	if left <= int64(width) {
		for i := range left {
			dst = append(dst, candidate{asked: int32(lo + i)})
		}
		return dst
	}
	head, tail := int64(width/2), int64(max(1, width/8))
	spread := int64(width) - head - tail
	for i := range head {
		dst = append(dst, candidate{asked: int32(lo + i)})
	}
	between := left - head - tail
	for i := range spread {
		dst = append(dst, candidate{asked: int32(lo + head + between*(i+1)/(spread+1))})
	}
	for i := range tail {
		dst = append(dst, candidate{asked: int32(lo + left - tail + i)})
	}
	return dst
}

// takeEpochs reads the answer to a round.
func (m *Machine) takeEpochs(frame []byte) error {
	var t *topic
	a, err := walkAnswer(frame, epochEndLayout(), func(name []byte) { t = m.topicOf(name) }, func(off int) {
		if t == nil {
			return
		}
		if p := m.find(t, int32At(frame, off+endIndex)); p != nil {
			m.takeEnd(p, frame, off)
		}
	})
	if err != nil {
		return err
	}
	m.throttle = max(m.throttle, int32At(frame, a.throttleOff))
	for i := range m.parts {
		if p := &m.parts[i]; p.outcome == searching {
			m.narrow(p)
		}
	}
	return nil
}

// takeEnd takes one answer of a round: to the partition's next candidate.
func (m *Machine) takeEnd(p *partition, frame []byte, off int) {
	if p.outcome != searching {
		return
	}
	if code := int16At(frame, off+endError); code != 0 {
		p.fail(code)
		return
	}
	if p.search.next == p.search.end {
		p.fail(unknownServerError)
		return
	}
	c := &m.candidates[p.search.next]
	c.epoch, c.endOffset = int32At(frame, off+endEpoch), int64At(frame, off+endEndOffset)
	p.search.next++
}

// narrow draws the conclusions of a round for a partition. Every answer to a candidate
// between the bounds moves one of them past it, so a search ends.
func (m *Machine) narrow(p *partition) {
	s := &p.search
	if s.next != s.end {
		p.fail(unknownServerError)
		return
	}
	if s.floor == covered && m.startPassed(p) {
		p.fail(offsetNotAvailable)
		return
	}
	x, below := p.result.offset, s.lo
	for _, c := range m.candidates[s.first:s.end] {
		switch {
		case c.asked < below:
		case c.undefined():
			s.hi = min(s.hi, c.asked-1)
		case c.endOffset <= x:
			s.lo, s.floor = max(s.lo, c.asked+1), covered
		case c.epoch > c.asked:
			p.fail(unknownServerError)
			return
		default:
			s.hi = min(s.hi, c.epoch)
		}
	}
	p.conclude()
}

// startPassed says whether a round showed that the log start has passed a partition's
// offset.
func (m *Machine) startPassed(p *partition) bool {
	round := m.candidates[p.search.first:p.search.end]
	for i := 1; i < len(round); i++ {
		a, b := round[i-1], round[i]
		if !b.undefined() && b.endOffset > p.result.offset && a.endOffset == b.endOffset && a.epoch != b.epoch {
			return true
		}
	}
	return false
}

// undefined says that the broker knows no such epoch.
func (c candidate) undefined() bool { return c.epoch < 0 || c.endOffset < 0 }
