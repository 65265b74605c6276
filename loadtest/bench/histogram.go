// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"math/bits"
	"time"
)

// subBits makes 64 buckets of each power of two: a quantile is at most 1.6 % too high.
const subBits = 6

// histogram counts durations in nanoseconds. The zero value is empty.
type histogram struct {
	buckets [(64 - subBits) << subBits]uint64
	n       uint64
}

// bucketOf returns the bucket of a duration: the position of its highest bit, and the
// subBits bits below that.
func bucketOf(v uint64) int {
	shift := max(0, bits.Len64(v)-subBits-1)
	return shift<<subBits + int(v>>shift)
}

// upper returns the greatest value of a bucket.
func upper(bucket int) uint64 {
	if bucket < 2<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	return uint64(bucket-shift<<subBits+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(max(0, d)))]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.n += other.n
}

// quantile returns the duration that the share q of all are not longer than; 0 when
// there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.n))
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen >= max(1, rank) {
			return time.Duration(upper(i))
		}
	}
	return 0
}
