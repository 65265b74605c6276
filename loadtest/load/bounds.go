// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"

	"tiergate/loadtest/report"
)

// state is what the broker itself says of a partition: the answers to -2, -4, -5 and -1.
type state struct {
	start, local, tier, last position
}

// pending is the -6 answer that follows from a state: the rules of the specification,
// which were compared with the answers of native brokers (KIP-1023). tiered says whether
// the topic has remote storage.
func (s state) pending(tiered bool) int64 {
	x := s.start.offset
	switch {
	case s.tier.offset >= 0:
		x = max(s.tier.offset+1, s.start.offset)
	case !tiered || s.local.offset != s.start.offset:
		return -1
	}
	if x >= s.last.offset {
		return -1
	}
	return x
}

// first is the lowest offset that -6 may answer from this state on: what is uploaded and
// where the log starts only grow, short of a leader that does not know yet what is
// uploaded, which answers where the log starts.
func (s state) first() int64 {
	if s.tier.offset < 0 {
		return s.start.offset
	}
	return max(s.tier.offset+1, s.start.offset)
}

// answers are the -6 answers of one partition whose requests were sent after a snapshot
// and answered before a later one: between is enough to judge all of them.
type answers struct {
	count        int64
	lowest, most int64 // of those that name an offset; most is -1 without any
	none         int64 // how many said -1
	lowestEpoch  int32
	mostEpoch    int32
}

func (a *answers) add(offset int64, epoch int32) {
	a.count++
	if offset < 0 {
		a.none++
		return
	}
	if a.count-a.none == 1 {
		*a = answers{a.count, offset, offset, a.none, epoch, epoch}
		return
	}
	a.lowest, a.most = min(a.lowest, offset), max(a.most, offset)
	a.lowestEpoch, a.mostEpoch = min(a.lowestEpoch, epoch), max(a.mostEpoch, epoch)
}

// calm says whether something happened between two snapshots that lets a leader know
// less than the one before: a restart, a new leader.
type calm uint8

const (
	undisturbed calm = iota
	disturbed
)

// check returns why an answer between two states is wrong, or nothing. A broker's offsets
// only grow, and before was asked before the request was sent, after when the answer was
// there. So an answer that names an offset is between the two, below the end, of an epoch
// between the two; and the answer -1 is right if either state gives it, or if the
// uploaded part can have reached the end in between.
func (a *answers) check(before, after state, tiered bool, c calm) string {
	low, high := before.first(), after.first()
	if c == disturbed {
		low, high = before.start.offset, after.last.offset
	}
	named := a.count > a.none
	switch {
	case named && !tiered:
		return fmt.Sprintf("offset %d for a topic without remote storage", a.most)
	case named && (a.lowest < low || a.most > high || a.most >= after.last.offset):
		return fmt.Sprintf("offsets from %d to %d, and the broker allows %d to %d, below %d", a.lowest, a.most, low, high, after.last.offset)
	case named && (a.lowestEpoch < max(before.tier.epoch, before.start.epoch, 0) && c == undisturbed || a.mostEpoch > after.last.epoch):
		return fmt.Sprintf("leader epochs from %d to %d, and the broker has up to %d", a.lowestEpoch, a.mostEpoch, after.last.epoch)
	case a.none > 0 && tiered && c == undisturbed && before.pending(tiered) >= 0 && after.pending(tiered) >= 0 && high < before.last.offset:
		return fmt.Sprintf("no offset, and the broker has %d to upload", after.pending(tiered))
	}
	return ""
}

// disturbance compares two snapshots of a partition.
func disturbance(before, after state) calm {
	if after.last.epoch != before.last.epoch || after.tier.offset < before.tier.offset || before.tier.offset < 0 && after.tier.offset >= 0 && before.local != before.start {
		return disturbed
	}
	return undisturbed
}

// window is all answers that were sent after snapshot from and had come before snapshot
// to was begun.
type window struct{ from, to int }

// truth judges -6 answers by snapshots of the brokers' own state.
type truth struct {
	tiered  bool
	states  map[int][]state // by number of the snapshot; those that windows still need
	shaken  map[int]calm    // whether taking a snapshot failed before it succeeded
	latest  int             // of the snapshots that are there, -1 at first
	windows map[window][]answers
	counts  report.Counts
	notes   []string
}

func newTruth(tiered bool) *truth {
	return &truth{tiered: tiered, states: make(map[int][]state), shaken: make(map[int]calm), latest: -1, windows: make(map[window][]answers)}
}

// snapshot adds the next one, and judges what is between it and earlier ones.
func (t *truth) snapshot(s []state, c calm) {
	t.latest++
	t.states[t.latest], t.shaken[t.latest] = s, c
	for w, list := range t.windows {
		if w.to <= t.latest {
			t.judge(w, list)
			delete(t.windows, w)
		}
	}
	keep := t.latest
	for w := range t.windows {
		keep = min(keep, w.from)
	}
	for n := range t.states {
		// Requests that are under way were sent after an earlier one: a few are kept.
		if n < keep-10 {
			delete(t.states, n)
			delete(t.shaken, n)
		}
	}
}

// answer notes an answer to a request that was sent when sent was the latest snapshot.
// The next snapshot that is begun judges it: its number is begun.
func (t *truth) answers(sent, begun, partitions int) []answers {
	w := window{sent, begun}
	if t.windows[w] == nil {
		t.windows[w] = make([]answers, partitions)
	}
	return t.windows[w]
}

// judge compares the answers of a window.
func (t *truth) judge(w window, list []answers) {
	before, after := t.states[w.from], t.states[w.to]
	if before == nil || after == nil {
		return // a request that was under way for ten snapshots: not judged, not counted
	}
	c := undisturbed
	for n := w.from + 1; n <= w.to; n++ {
		c = max(c, t.shaken[n])
	}
	for p := range list {
		a := &list[p]
		if a.count == 0 {
			continue
		}
		t.counts.Answers += a.count
		if why := a.check(before[p], after[p], t.tiered, max(c, disturbance(before[p], after[p]))); why != "" {
			t.counts.Wrong += a.count
			if len(t.notes) < 5 {
				t.notes = append(t.notes, fmt.Sprintf("partition %d, %d answers between two snapshots of the broker: %s; before %+v, after %+v", p, a.count, why, before[p], after[p]))
			}
		}
	}
}
