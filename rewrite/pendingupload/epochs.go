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

// bounds are what is known of the epoch of a partition's offset: it is from lo to hi, and
// nothing is left to ask when they are equal. lo is -1 while no lookup gave an epoch at or
// below the offset: the broker's cache may start above it, and then no broker has an epoch
// for it. Epochs start at 0.
type bounds struct{ lo, hi int32 }

func (m *Machine) boundsOf(i int) bounds { return bounds{m.result.epochs[i], m.spare.epochs[i]} }

// setBounds takes new bounds and ends a search that has nothing left to ask.
func (m *Machine) setBounds(i int, s bounds) {
	m.result.epochs[i], m.spare.epochs[i] = s.lo, s.hi
	switch p := &m.parts[i]; {
	case s.lowest() > s.hi:
		// The broker contradicted itself.
		p.fail(unknownServerError)
	case s.lowest() == s.hi:
		p.outcome = answered
	}
}

// lowest is the lowest epoch that is possible.
func (s bounds) lowest() int32 { return max(0, s.lo) }

// below is the number of candidates below the bounds.
func (s bounds) below() int { return bit(s.lo > 0) }

// candidates is the number of candidates, at most width.
func (s bounds) candidates(width int) int {
	return min(width, s.below()+int(s.hi)-int(s.lowest()))
}

// candidate returns one of them. They ascend.
func (s bounds) candidate(k, width int) int32 {
	k -= s.below()
	if k < 0 {
		return s.lo - 1
	}
	width -= s.below()
	lo, left := int(s.lowest()), int(s.hi)-int(s.lowest())
	head, tail := width/2, max(1, width/8)
	spread := width - head - tail
	switch {
	case left <= width || k < head:
		return int32(lo + k)
	case k < head+spread:
		return int32(lo + head + (left-width+spread)*(k-head+1)/(spread+1))
	default:
		return int32(lo + left - width + k)
	}
}

// searchEpochs begins a round for the partitions that need one and says whether there
// are any.
func (m *Machine) searchEpochs() bool {
	n := 0
	for i := range m.parts {
		if p := &m.parts[i]; p.outcome == searching {
			p.flags &^= seenFour
			n++
		}
	}
	if n == 0 {
		return false
	}
	m.width = max(minCandidates, min(maxCandidates, candidatesPerRound/n))
	m.report.EpochRounds++
	m.enter(epochRounds)
	return true
}

// takeEpochs reads the response to a round. The rows of a partition follow each other, in the
// order of the candidates.
func (m *Machine) takeEpochs(frame []byte) error {
	r := round{m: m, i: -1}
	if _, err := m.eachRow(frame, epochEndLayout(), func(_ *topic, i, off int) { r.take(i, frame[off:]) }); err != nil {
		return err
	}
	r.end()
	for i := range m.parts {
		if p := &m.parts[i]; p.outcome == searching && p.flags&seenEnds == 0 {
			p.fail(unknownServerError)
		}
	}
	return nil
}

// epochEnd is what a broker says of an epoch.
type epochEnd struct {
	epoch     int32
	endOffset int64
}

// undefined says that the broker knows no such epoch.
func (e epochEnd) undefined() bool { return e.epoch < 0 || e.endOffset < 0 }

// round follows the rows of one partition in the response to a round.
type round struct {
	m *Machine
	// i is the partition, -1 before the first.
	i int
	// asked are its bounds in the request, known those that the rows lead to.
	asked, known bounds
	// taken is the number of its rows, last is the last of them.
	taken int
	last  epochEnd
	// passed: the log start has passed the offset. contradicted: a row cannot be.
	passed, contradicted bool
}

// take takes one row: the response to the partition's next candidate.
func (r *round) take(i int, row []byte) {
	if i != r.i {
		r.end()
		s := r.m.boundsOf(i)
		*r = round{m: r.m, i: i, asked: s, known: s}
	}
	p, code := &r.m.parts[i], int16At(row, endError)
	switch {
	case p.outcome != searching:
	case code != 0:
		p.fail(code)
	case p.flags&seenEnds != 0 || r.taken == r.asked.candidates(r.m.width):
		p.fail(unknownServerError)
	default:
		r.narrow(epochEnd{int32At(row, endEpoch), int64At(row, endEndOffset)})
	}
}

// narrow draws the conclusions of one row. Every row of a candidate between the bounds moves
// one of them past it, so a search ends.
func (r *round) narrow(e epochEnd) {
	asked, x := r.asked.candidate(r.taken, r.m.width), r.m.result.offsets[r.i]
	if r.taken > 0 && !e.undefined() && e.endOffset > x && e.endOffset == r.last.endOffset && e.epoch != r.last.epoch {
		r.passed = true
	}
	r.taken++
	r.last = e
	switch {
	case asked < r.asked.lowest():
	case e.undefined():
		r.known.hi = min(r.known.hi, asked-1)
	case e.endOffset <= x:
		r.known.lo = max(r.known.lo, asked+1)
	case e.epoch > asked:
		r.contradicted = true
	default:
		r.known.hi = min(r.known.hi, e.epoch)
	}
}

// end closes the rows of a partition.
func (r *round) end() {
	if r.i < 0 || r.m.parts[r.i].outcome != searching || r.m.parts[r.i].flags&seenEnds != 0 {
		return
	}
	p := &r.m.parts[r.i]
	p.flags |= seenEnds
	switch {
	case r.taken != r.asked.candidates(r.m.width):
		p.fail(unknownServerError)
	case r.asked.lo >= 0 && r.passed:
		p.fail(offsetNotAvailable)
	case r.contradicted:
		p.fail(unknownServerError)
	default:
		r.m.setBounds(r.i, r.known)
	}
}
