// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

// decide applies the rules to every partition once the four look-ups are answered.
func (m *Machine) decide() {
	for i := range m.topics {
		t := &m.topics[i]
		tiered := false
		for j := t.first; j < t.end; j++ {
			p := &m.parts[j]
			p.decide()
			tiered = tiered || p.looks[highestRemote].offset >= 0
		}
		if tiered {
			m.report.Tiered = append(m.report.Tiered, t.name)
		}
	}
}

// decide applies the rules to a partition; see the package documentation.
func (p *partition) decide() {
	if p.seen != allLookups {
		p.fail(unknownServerError)
	}
	if p.outcome == failed {
		return
	}
	if p.looks[highestRemote].offset < 0 {
		p.nothingUploaded()
		return
	}
	p.uploaded()
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

// judge ends rule 2 with the verdict on the topic.
func (m *Machine) judge(p *partition, verdict RemoteStorage) {
	switch verdict {
	case RemoteStorageEnabled:
		p.outcome = answered
	case RemoteStorageDisabled:
		p.outcome = empty
	case RemoteStorageUnknown:
		fallthrough
	default: // no verdict at all is unknown too
		p.outcome = empty
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
