// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"

	"tiergate/loadtest/report"
)

// sentRecords are the values of n acknowledged records of a producer in partition 0.
func sentRecords(l *ledger, producer uint32, n int) [][]byte {
	var values [][]byte
	for range n {
		s := l.stream(producer, 0)
		v := fillValue(100)
		number := s.take()
		stamp{run: l.run, producer: producer, number: number, due: 7}.put(v)
		s.ack(number)
		values = append(values, v)
	}
	return values
}

func TestVerificationCatchesPlantedFaults(t *testing.T) {
	f := func(name string, plant func(l *ledger, sent [][]byte) [][]byte, want report.Counts, note string) {
		t.Helper()
		l := newLedger(42)
		sent := sentRecords(l, 3, 100)
		r := newReading(l)
		for offset, v := range plant(l, sent) {
			_, _ = r.arrived(0, int64(offset), v)
		}
		if got := r.verdict(whole, all); got != want {
			t.Errorf("%s: got %+v\nwant %+v", name, got, want)
		}
		notes := strings.Join(r.faults(), "\n")
		if notes != note {
			t.Errorf("%s: notes\n%s\nwant\n%s", name, notes, note)
		}
	}
	changed := func(v []byte, at int) []byte {
		c := append([]byte(nil), v...)
		c[at] ^= 1
		return c
	}
	f("nothing", func(_ *ledger, v [][]byte) [][]byte { return v }, report.Counts{Received: 100}, "")
	f("lost", func(_ *ledger, v [][]byte) [][]byte { return append(v[:50:50], v[52:]...) },
		report.Counts{Received: 98, Lost: 2}, "partition 0: 2 records of producer 3 were acknowledged and never arrived, the first one is 50")
	f("lost at the end", func(_ *ledger, v [][]byte) [][]byte { return v[:99] },
		report.Counts{Received: 99, Lost: 1}, "partition 0: 1 records of producer 3 were acknowledged and never arrived, the first one is 99")
	f("doubled", func(_ *ledger, v [][]byte) [][]byte { return append(v, v[99]) },
		report.Counts{Received: 101, Duplicated: 1}, "partition 0, offset 100: record 99 of producer 3 arrived twice")
	f("reordered", func(_ *ledger, v [][]byte) [][]byte { v[10], v[11] = v[11], v[10]; return v },
		report.Counts{Received: 100, Reordered: 1}, "partition 0, offset 11: record 10 of producer 3 arrived after record 11")
	f("a bit of the filling changed", func(_ *ledger, v [][]byte) [][]byte { v[5] = changed(v[5], 77); return v },
		report.Counts{Received: 100, Corrupt: 1, Lost: 1},
		"partition 0, offset 5: a value of 100 bytes with checksum 18a3de33 and not 6d702e0b\n"+
			"partition 0: 1 records of producer 3 were acknowledged and never arrived, the first one is 5")
	f("a bit of the magic changed", func(_ *ledger, v [][]byte) [][]byte { v[0] = changed(v[0], 0); return v },
		report.Counts{Received: 100, Corrupt: 1, Lost: 1},
		"partition 0, offset 0: a value of 100 bytes that is no record of the load test: 75676c646a05d6ff000000000000002a\n"+
			"partition 0: 1 records of producer 3 were acknowledged and never arrived, the first one is 0")
	f("truncated", func(_ *ledger, v [][]byte) [][]byte { v[0] = v[0][:90]; return v }, report.Counts{Received: 100, Corrupt: 1, Lost: 1},
		"partition 0, offset 0: a value of 90 bytes with checksum c2ded1b9 and not 6a05d6ff\n"+
			"partition 0: 1 records of producer 3 were acknowledged and never arrived, the first one is 0")
	f("of another run", func(*ledger, [][]byte) [][]byte { return sentRecords(newLedger(43), 3, 1) },
		report.Counts{Received: 1, Corrupt: 1, Lost: 100},
		"partition 0, offset 0: a record of run 2b, partition 0, in run 2a\n"+
			"partition 0: 100 records of producer 3 were acknowledged and never arrived, the first one is 0")
	f("never sent", func(l *ledger, v [][]byte) [][]byte {
		fake := fillValue(50)
		stamp{run: l.run, producer: 3, number: 100}.put(fake)
		return append(v, fake)
	}, report.Counts{Received: 101, Corrupt: 1}, "partition 0, offset 100: record 100 of producer 3 was aborted or never sent")
	f("aborted", func(l *ledger, v [][]byte) [][]byte {
		s := l.stream(3, 0)
		aborted := fillValue(50)
		stamp{run: l.run, producer: 3, number: s.take()}.put(aborted)
		s.abort(100)
		return append(v, aborted)
	}, report.Counts{Received: 101, Corrupt: 1}, "partition 0, offset 100: record 100 of producer 3 was aborted or never sent")
	f("not acknowledged, and there", func(l *ledger, v [][]byte) [][]byte {
		unknown := fillValue(50)
		stamp{run: l.run, producer: 3, number: l.stream(3, 0).take()}.put(unknown)
		return append(v, unknown)
	}, report.Counts{Received: 101}, "")
	f("not acknowledged, and not there", func(l *ledger, v [][]byte) [][]byte {
		l.stream(3, 0).take()
		return v
	}, report.Counts{Received: 100}, "")
	f("tolerated", func(l *ledger, v [][]byte) [][]byte {
		l.mayDouble, l.mayLose = tolerated, tolerated
		return [][]byte{v[0], v[2], v[1], v[1]}
	}, report.Counts{Received: 4, DuplicatesAllowed: 1}, "")
}

// Streams are independent, and a reading that ended early is judged as far as it went.
func TestPartialReading(t *testing.T) {
	l := newLedger(1)
	a, b := sentRecords(l, 0, 1000), sentRecords(l, 1, 1000)
	r := newReading(l)
	for i := range 500 {
		for _, v := range [][]byte{a[i], b[i]} {
			if i == 130 && &v[0] == &a[i][0] {
				continue // lost
			}
			if _, err := r.arrived(0, int64(i), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.verdict(partial, all); got != (report.Counts{Received: 999, Lost: 1}) {
		t.Errorf("as far as it went: %+v, want 999 received and 1 lost", got)
	}
	if got := r.verdict(whole, all); got != (report.Counts{Received: 999, Lost: 1001}) {
		t.Errorf("to the end: %+v, want 1001 lost", got)
	}
	if got := r.verdict(whole, func(p int32) bool { return p != 0 }); got != (report.Counts{}) {
		t.Errorf("of other partitions: %+v", got)
	}
	if got := r.missing(); got != 1001 {
		t.Errorf("%d missing, want 1001", got)
	}
	if got := l.sent(); got != 2000 {
		t.Errorf("%d sent, want 2000", got)
	}
}

func BenchmarkArrived(b *testing.B) {
	l := newLedger(1)
	v := fillValue(1024)
	s := l.stream(0, 0)
	r := newReading(l)
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		stamp{run: 1, number: s.take()}.put(v)
		if _, err := r.arrived(0, 0, v); err != nil {
			b.Fatal(err)
		}
	}
}
