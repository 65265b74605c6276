// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A histogram keeps three significant figures of latencies from a microsecond to an hour;
// what is longer counts as an hour.
const (
	longest = int64(time.Hour / time.Microsecond)
	figures = 3
)

// Histogram counts latencies in microseconds. Its JSON form is a string: the compressed
// V2 encoding of HdrHistogram in base64, which the HdrHistogram libraries of all languages
// read. It is about 180 KB of memory. Methods are for one goroutine at a time.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, longest, figures)}
}

// Record counts one latency. What is shorter than a microsecond counts as 0.
func (h *Histogram) Record(d time.Duration) {
	// The value is within the bounds, which is the only error there is.
	_ = h.h.RecordValue(min(max(0, d.Microseconds()), longest))
}

// Merge adds what other counted. other may be nil.
func (h *Histogram) Merge(other *Histogram) {
	if other != nil {
		h.h.Merge(other.h) // same bounds, so nothing is dropped
	}
}

// Reset forgets all.
func (h *Histogram) Reset() { h.h.Reset() }

// Count is how many latencies were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the latency in microseconds that the share q, 0 to 1, of all are not
// longer than, at most a tenth of a percent too high; 0 when there are none.
func (h *Histogram) Quantile(q float64) float64 {
	if h == nil || h.h.TotalCount() == 0 {
		return 0
	}
	return float64(h.h.ValueAtPercentile(q * 100))
}

// Max returns the longest latency in microseconds; 0 when there is none.
func (h *Histogram) Max() float64 { return h.Quantile(1) }

// MarshalJSON encodes the histogram as a string.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	text, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode histogram: %w", err)
	}
	return json.Marshal(string(text))
}

// UnmarshalJSON reads what MarshalJSON made. Histograms of other bounds are brought to
// the bounds of NewHistogram, so that all can be merged.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var encoded string
	if err := json.Unmarshal(text, &encoded); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	read, err := hdrhistogram.Decode([]byte(encoded))
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.h = hdrhistogram.New(1, longest, figures)
	if dropped := h.h.Merge(read); dropped > 0 {
		return fmt.Errorf("histogram: %d latencies of over an hour", dropped)
	}
	return nil
}
