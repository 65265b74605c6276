// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"math"

	"tiergate/codec"
)

// apply takes what a lookup says of an undecided partition. The last lookup decides, if none
// before it left the partition out.
func (m *Machine) apply(k kind, i int, at point) {
	seen := m.parts[i].flags & seenFour
	switch {
	case k == localStart:
		m.result.put(i, at)
	case k == logStart:
		m.spare.put(i, at)
	case k == highestRemote && m.stage == twoLookups:
		m.result.put(i, at)
	case k == highestRemote:
		m.place(i, at)
	case m.stage == twoLookups && seen == seenTwo:
		m.applyTwo(i, at)
	case seen == seenFour:
		m.applyFour(i, at)
	}
}

// place combines the highest remote offset with the log start and the local log start that
// are known before it to the offset that is the answer if it can be read.
func (m *Machine) place(i int, tier point) {
	p, local, start := &m.parts[i], m.result.at(i), m.spare.at(i)
	m.spare.put(i, tier)
	if tier.offset < 0 {
		// Rule 2.
		if local.offset > start.offset {
			p.flags |= moved
		}
		m.result.put(i, start)
		return
	}
	// Rule 3.
	x := point{offset: max(after(tier.offset), start.offset), epoch: max(-1, tier.epoch, start.epoch)}
	// The broker gave the epoch of the local log start, -1 where it has none. The one that it
	// gives of the log start is its earliest: a bound, since a replica that was rebuilt from
	// remote storage may have several up to there.
	switch {
	case local.offset == x.offset:
		p.flags |= exact
		x.epoch = local.epoch
	case local.offset < x.offset:
		x.epoch = max(x.epoch, local.epoch)
	}
	m.result.put(i, x)
}

// after returns the next offset; no offset is after the highest one.
func after(offset int64) int64 {
	if offset == math.MaxInt64 {
		return offset
	}
	return offset + 1
}

// settles says whether -5 and -1 alone decide; see the package documentation. Uploaded to the
// end, or in the leader's own epoch: then the log start is not above it.
func settles(tier, last point) bool {
	return tier.offset >= 0 && (last.offset <= after(tier.offset) || tier.epoch >= 0 && tier.epoch == last.epoch)
}

// applyTwo decides a partition from -5 and -1, or leaves it undecided.
func (m *Machine) applyTwo(i int, last point) {
	p, tier := &m.parts[i], m.result.at(i)
	switch {
	case tier.offset < 0:
		p.flags |= open
		p.outcome = doubtful
	case !settles(tier, last):
		p.flags |= open
	case last.offset <= after(tier.offset):
		p.outcome = empty
	default:
		p.outcome = answered
		m.result.put(i, point{after(tier.offset), tier.epoch})
	}
}

// applyFour decides a partition from all four lookups.
func (m *Machine) applyFour(i int, last point) {
	p, x, tier := &m.parts[i], m.result.at(i), m.spare.at(i)
	if !settles(tier, last) {
		p.flags |= open
	}
	switch {
	case p.flags&moved != 0 || x.offset >= last.offset:
		p.outcome = empty
	case tier.offset < 0:
		p.outcome = doubtful
	case p.flags&exact != 0:
		p.outcome = answered
	default:
		p.outcome = searching
		m.setBounds(i, bounds{lo: x.epoch, hi: last.epoch})
	}
}

// decide goes over the partitions once all lookups of a stage are answered, and says whether
// the remote storage status of a topic is needed. An offset of -5 proves the topic tiered for
// the partitions of the same stage only: before the next stage it may have been deleted and
// created again, or its remote storage switched off.
func (m *Machine) decide() bool {
	wanted := seenFour
	if m.stage == twoLookups {
		wanted = seenTwo
	}
	doubt := false
	for i := range m.topics.list {
		t := &m.topics.list[i]
		if t.proven {
			m.judgeTopic(t, codec.RemoteStorageEnabled)
		}
		if t.proven && !t.reported {
			t.reported = true
			m.report.Tiered = append(m.report.Tiered, string(m.topics.name(t)))
		}
		t.proven = false
		for j := t.first; j < t.end; j++ {
			p := &m.parts[j]
			if p.outcome == undecided && p.flags&seenFour != wanted {
				p.fail(unknownServerError)
			}
			doubt = doubt || p.outcome == doubtful
		}
	}
	return doubt
}

// judgeTopic takes the remote storage status of a topic for its doubtful partitions.
func (m *Machine) judgeTopic(t *topic, status codec.RemoteStorage) {
	for i := t.first; i < t.end; i++ {
		if p := &m.parts[i]; p.outcome == doubtful {
			m.judge(p, status)
		}
	}
}

// judge takes the remote storage status of a doubtful partition's topic.
func (m *Machine) judge(p *partition, status codec.RemoteStorage) {
	switch status {
	case codec.RemoteStorageEnabled:
		p.outcome = answered
		if m.stage == twoLookups || m.stage == twoStatuses {
			p.outcome = undecided
		}
	case codec.RemoteStorageDisabled:
		p.flags &^= open
		p.outcome = empty
	case codec.RemoteStorageUnknown:
		fallthrough
	default: // no status at all is unknown too
		p.flags &^= open
		p.outcome = empty
		m.report.UnknownRemoteStorage++
	}
}
