// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

// decide applies the rules to every undecided partition as far as its look-ups reach,
// and says whether verdicts are needed. An offset of -5 proves the topic tiered for the
// partitions of the same stage only: before the next stage it may have been deleted and
// created again, or its remote storage switched off.
func (m *Machine) decide() bool {
	doubt := false
	for i := range m.topics {
		t := &m.topics[i]
		parts := m.parts[t.first:t.end]
		tiered := false
		for j := range parts {
			p := &parts[j]
			if p.outcome == undecided {
				p.decide(m.four)
			}
			if p.seen != 0 && p.looks[highestRemote].offset >= 0 {
				tiered = true
			}
		}
		if tiered && !t.proved {
			t.proved = true
			m.report.Tiered = append(m.report.Tiered, t.name)
		}
		for j := range parts {
			if p := &parts[j]; p.outcome == doubtful && tiered {
				m.judge(p, RemoteStorageEnabled)
			}
			doubt = doubt || parts[j].outcome == doubtful
		}
	}
	return doubt
}

// decide applies the rules to a partition; see the package documentation. four says that
// all four look-ups were made, not -5 and -1 alone.
func (p *partition) decide(four bool) {
	wanted := uint8(firstLookups)
	if four {
		wanted = allLookups
	}
	if p.seen != wanted {
		p.fail(unknownServerError)
	}
	if p.outcome == failed {
		return
	}
	tier, last := p.looks[highestRemote], p.looks[lastFetchable]
	// Uploaded to the end, or in the leader's own epoch: then the log start is not above it.
	settled := tier.offset >= 0 && (last.offset-tier.offset <= 1 || tier.epoch >= 0 && tier.epoch == last.epoch)
	p.open = p.open || !settled
	switch {
	case tier.offset < 0 && four:
		p.nothingUploaded()
	case tier.offset < 0:
		p.outcome = doubtful
	case settled || four:
		p.uploaded()
	}
}

// nothingUploaded is rule 2.
func (p *partition) nothingUploaded() {
	local, start, last := p.looks[localStart], p.looks[logStart], p.looks[lastFetchable]
	if local.offset > start.offset || start.offset >= last.offset {
		p.outcome = empty
		return
	}
	p.outcome, p.result = doubtful, start
}

// judge takes the verdict on the topic of a doubtful partition.
func (m *Machine) judge(p *partition, verdict RemoteStorage) {
	switch verdict {
	case RemoteStorageEnabled:
		p.outcome = answered
		if !m.four {
			p.outcome = undecided
		}
	case RemoteStorageDisabled:
		p.open, p.outcome = false, empty
	case RemoteStorageUnknown:
		fallthrough
	default: // no verdict at all is unknown too
		p.open, p.outcome = false, empty
		m.report.UnknownVerdicts++
	}
}

// uploaded is rule 3.
func (p *partition) uploaded() {
	tier, start, last := p.looks[highestRemote], p.looks[logStart], p.looks[lastFetchable]
	if tier.offset >= last.offset || start.offset >= last.offset || tier.offset+1 >= last.offset {
		p.outcome = empty
		return
	}
	p.result = point{offset: max(tier.offset+1, start.offset), epoch: -1}
	p.bound()
}
