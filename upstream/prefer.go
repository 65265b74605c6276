// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"sync"
	"time"
)

// retryLast is how long an address that another one has overtaken is tried last. After
// that one dial begins with it again and may lose fallbackDelay by it.
const retryLast = 30 * time.Second

// preference remembers which of several addresses for the same thing did not answer in
// time while another one did, so that dials do not lose fallbackDelay to a dead one again
// and again: the bootstrap servers, and the addresses of one name. failures cannot know of
// these: such an attempt is called off before it has failed.
type preference struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // tried last until then
}

// order returns addresses with those that were overtaken lately at the end. The first one
// whose time is over stays in its place for this dial only.
func (p *preference) order(addresses []string) []string {
	if len(addresses) < 2 {
		return addresses
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	var first, last []string
	for _, address := range addresses {
		if until, overtaken := p.last[address]; overtaken && now.Before(until) {
			last = append(last, address)
		} else {
			first = append(first, address)
		}
	}
	ordered := slices.Concat(first, last)
	if _, overtaken := p.last[ordered[0]]; overtaken {
		p.last[ordered[0]] = now.Add(retryLast)
	}
	return ordered
}

// reached is told which of the ordered addresses answered first. Those in front of it were
// tried before it, and longer.
func (p *preference) reached(ordered []string, winner int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, ordered[winner])
	if winner == 0 {
		return
	}
	now := p.now()
	if len(p.last) >= manyFailures {
		for address, until := range p.last {
			if now.After(until) {
				delete(p.last, address)
			}
		}
	}
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	for _, address := range ordered[:winner] {
		p.last[address] = now.Add(retryLast)
	}
}
