// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"tiergate/loadtest/report"
)

// ledger is the account of what was sent to one topic. Methods are safe for concurrent
// use.
type ledger struct {
	run uint64 // in every record's value
	// mayLose: records that were acknowledged may be gone, as with acks 0. mayDouble: they
	// may arrive twice and out of order, as without idempotence.
	mayLose, mayDouble tolerance

	mu      sync.Mutex
	streams map[streamKey]*stream
}

// tolerance says whether something may happen.
type tolerance uint8

const (
	forbidden tolerance = iota
	tolerated
)

type streamKey struct {
	producer  uint32
	partition int32
}

// stream is what one producer sent to one partition.
type stream struct {
	// next is the number of the next record; the producer adds to it before it sends.
	next atomic.Uint64

	mu sync.Mutex
	// acked records must arrive, aborted ones must not; of the others nothing is known.
	acked, aborted bitmap
	sent           int64
}

func newLedger(run uint64) *ledger { return &ledger{run: run, streams: make(map[streamKey]*stream)} }

// stream returns the account of a producer in a partition.
func (l *ledger) stream(producer uint32, partition int32) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := streamKey{producer, partition}
	if l.streams[k] == nil {
		l.streams[k] = &stream{}
	}
	return l.streams[k]
}

// sent is the number of records that must arrive.
func (l *ledger) sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := int64(0)
	for _, s := range l.streams {
		s.mu.Lock()
		total += s.sent
		s.mu.Unlock()
	}
	return total
}

// take returns the number of the next record.
func (s *stream) take() uint64 { return s.next.Add(1) - 1 }

// ack notes that a record is on the broker for certain.
func (s *stream) ack(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.acked.add(number) {
		s.sent++
	}
}

// abort notes that a record must not be seen.
func (s *stream) abort(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted.add(number)
}

// isAborted says whether a record must not be seen.
func (s *stream) isAborted(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aborted.has(number)
}

// bitmap is a set of numbers that grows.
type bitmap []uint64

func (b *bitmap) add(n uint64) (was bool) {
	word, bit := n/64, uint64(1)<<(n%64)
	for uint64(len(*b)) <= word {
		*b = append(*b, 0)
	}
	was = (*b)[word]&bit != 0
	(*b)[word] |= bit
	return was
}

func (b bitmap) has(n uint64) bool { return n/64 < uint64(len(b)) && b[n/64]&(1<<(n%64)) != 0 }

// without counts the numbers below end that are in b and not in o, and returns the first.
func (b bitmap) without(o bitmap, end uint64) (count int64, first uint64) {
	for i, w := range b {
		from := uint64(i) * 64
		if from >= end {
			break
		}
		if end-from < 64 {
			w &= 1<<(end-from) - 1
		}
		if i < len(o) {
			w &^= o[i]
		}
		if w != 0 && count == 0 {
			first = from + uint64(bits.TrailingZeros64(w))
		}
		count += int64(bits.OnesCount64(w))
	}
	return count, first
}

// reading is the account of what arrived at one consumer, or at the members of one
// group: one pass over a topic or a part of it. Methods are safe for concurrent use.
type reading struct {
	ledger *ledger

	mu      sync.Mutex
	streams map[streamKey]*seen
	latest  *seen // of the record before: records of a stream mostly come in a row
	key     streamKey
	corrupt int64
	bytes   int64
	notes   []string
}

// seen is what arrived of one stream.
type seen struct {
	of                            *stream
	numbers                       bitmap
	received, doubled, outOfOrder int64
	phantom                       int64  // was aborted, or never sent
	end                           uint64 // one above the highest number that arrived
}

func newReading(l *ledger) *reading { return &reading{ledger: l, streams: make(map[streamKey]*seen)} }

// arrived notes a record that a consumer was given, and returns its stamp. The records of
// a partition come in the order of their offsets.
func (r *reading) arrived(partition int32, offset int64, value []byte) (stamp, error) {
	st, err := readStamp(value)
	if err == nil && (st.run != r.ledger.run || st.partition != partition) {
		err = fmt.Errorf("a record of run %x, partition %d, in run %x", st.run, st.partition, r.ledger.run)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(len(value))
	if err != nil {
		r.corrupt++
		r.note("partition %d, offset %d: %v", partition, offset, err)
		return st, err
	}
	s := r.stream(streamKey{st.producer, partition})
	if what := s.arrive(st.number); what != "" && (r.ledger.mayDouble == forbidden || s.phantom > 0) {
		r.note("partition %d, offset %d: record %d of producer %d %s", partition, offset, st.number, st.producer, what)
	}
	return st, nil
}

// stream needs r.mu.
func (r *reading) stream(k streamKey) *seen {
	if r.latest != nil && r.key == k {
		return r.latest
	}
	s := r.streams[k]
	if s == nil {
		s = &seen{of: r.ledger.stream(k.producer, k.partition)}
		r.streams[k] = s
	}
	r.latest, r.key = s, k
	return s
}

// arrive returns what is wrong with the record, if anything.
func (s *seen) arrive(number uint64) string {
	s.received++
	switch {
	case number >= s.of.next.Load() || s.of.isAborted(number):
		s.phantom++
		return "was aborted or never sent"
	case s.numbers.add(number):
		s.doubled++
		return "arrived twice"
	case number+1 < s.end:
		s.outOfOrder++
		return fmt.Sprintf("arrived after record %d", s.end-1)
	}
	s.end = number + 1
	return ""
}

// note keeps the first few faults. It needs r.mu.
func (r *reading) note(format string, args ...any) {
	if len(r.notes) < 5 {
		r.notes = append(r.notes, fmt.Sprintf(format, args...))
	}
}

// extent says how far a reading went.
type extent uint8

const (
	// whole readings end at the end of the partitions: all that was acknowledged is there.
	whole extent = iota
	// partial ones ended somewhere: all that was acknowledged before that is there.
	partial
)

// verdict compares what arrived in the partitions that mine is true for with what was
// sent. Producers and consumers are done.
func (r *reading) verdict(x extent, mine func(partition int32) bool) report.Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := report.Counts{Corrupt: r.corrupt, Received: r.corrupt}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	for k, of := range r.ledger.streams {
		s := r.streams[k]
		if !mine(k.partition) {
			continue
		}
		if s == nil {
			s = &seen{of: of}
		}
		c.Received += s.received
		c.Corrupt += s.phantom
		if r.ledger.mayDouble == tolerated {
			c.DuplicatesAllowed += s.doubled
		} else {
			c.Duplicated += s.doubled
			c.Reordered += s.outOfOrder
		}
		c.Lost += r.lost(k, s, x)
	}
	return c
}

// lost counts what was acknowledged and did not arrive. It needs r.mu.
func (r *reading) lost(k streamKey, s *seen, x extent) int64 {
	if r.ledger.mayLose == tolerated {
		return 0
	}
	end := s.of.next.Load()
	if x == partial {
		end = s.end
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	n, first := s.of.acked.without(s.numbers, end)
	if n > 0 {
		r.note("partition %d: %d records of producer %d were acknowledged and never arrived, the first one is %d", k.partition, n, k.producer, first)
	}
	return n
}

// missing counts what was acknowledged and has not arrived yet.
func (r *reading) missing() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	total := int64(0)
	for k, of := range r.ledger.streams {
		var numbers bitmap
		if s := r.streams[k]; s != nil {
			numbers = s.numbers
		}
		of.mu.Lock()
		n, _ := of.acked.without(numbers, of.next.Load())
		of.mu.Unlock()
		total += n
	}
	return total
}

// faults returns the first faults in words.
func (r *reading) faults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.notes...)
}

func all(int32) bool { return true }
