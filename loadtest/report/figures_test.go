// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// show prints numbers so that they can be compared, NaN among them.
func show(values ...float64) string {
	text := ""
	for _, v := range values {
		text += fmt.Sprintf("%.6g ", v)
	}
	return text
}

func (s Spread) shown() string { return show(s.Median, s.Min, s.Max, float64(s.Rounds)) }

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestFigures(t *testing.T) {
	r := handmade()
	direct, gate := r.Target("direct"), r.Target("tiergate")
	for _, c := range []struct {
		target   *Target
		workload string
		figure   Figure
		want     string // median, least, most, rounds
	}{
		{direct, "produce-1k", FigureThroughput, show(2e8, 1e8, 4e8, 3)}, // 2.5 s: 1, 1 and 0.5 of a second's bytes
		{direct, "produce-1k", FigureRate, show(2e5, 1e5, 4e5, 3)},
		{direct, "produce-1k", FigureP50, show(1000, 1000, 1000, 3)},
		{direct, "produce-1k", FigureMax, show(4001, 4001, 4001, 3)},   // 4000 and 4001 share a bucket
		{direct, "produce-1k", FigureCPUPerGB, NewSpread(nil).shown()}, // nothing stands between
		{direct, "look-ups", FigureP50, NewSpread(nil).shown()},        // has no latencies
		{direct, "unknown", FigureRate, NewSpread(nil).shown()},        // no such workload
		{gate, "produce-1k", FigureThroughput, show(1.9e8, 0.9e8, 3.92e8, 3)},
		{gate, "produce-1k", FigureCPUPerGB, show(0.2/0.475, 0.2/0.98, 0.2/0.225, 3)},
		// 2.5 s of 90,000, 190,000 and 392,000 records per second, and 2,000 answers.
		{gate, "look-ups", FigureCPUPerMillion, show(0.2/0.48, 0.2/0.985, 0.2/0.23, 3)},
		{gate, "look-ups", FigurePeakRSS, show(64<<20, 64<<20, 64<<20, 3)},
	} {
		equal(t, fmt.Sprint(c.target.Name, " ", c.workload, " ", c.figure), c.target.Spread(c.workload, c.figure).shown(), c.want)
	}
}

func TestRatiosAreWithinARound(t *testing.T) {
	r := handmade()
	equal(t, "ratio", r.Ratio("tiergate", "direct", "produce-1k", FigureThroughput).shown(), show(0.95, 0.90, 0.98, 3))
	equal(t, "difference", r.Difference("tiergate", "direct", "produce-1k", FigureP50).shown(), show(100, 100, 100, 3))
	// A round that only one of them had does not count, and neither does its neighbour.
	w := r.Target("direct").Workload("produce-1k")
	w.Rounds = w.Rounds[1:]
	equal(t, "ratio of two rounds", r.Ratio("tiergate", "direct", "produce-1k", FigureThroughput).shown(), show(0.965, 0.95, 0.98, 2))
	equal(t, "ratio to nobody", r.Ratio("tiergate", "nobody", "produce-1k", FigureThroughput).shown(), NewSpread(nil).shown())
	// A baseline that stood still gives no ratio.
	for i := range w.Rounds {
		w.Rounds[i].Series = nil
	}
	equal(t, "ratio to nothing", r.Ratio("tiergate", "direct", "produce-1k", FigureThroughput).shown(), NewSpread(nil).shown())
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		show(2, 2, 2, 1):   {2},
		show(2.5, 1, 4, 2): {4, 1},
		show(3, 1, 9, 3):   {9, 1, 3},
		show(2.5, 1, 9, 4): {9, 1, 3, 2},
		show(math.NaN(), math.NaN(), math.NaN(), 0): {},
	} {
		equal(t, fmt.Sprint(values), NewSpread(values).shown(), want)
	}
}

func TestHistogramsMerge(t *testing.T) {
	w := Workload{Rounds: []Round{
		{Round: 1, Latency: histogramOf(ms, ms, ms)},
		{Round: 2}, // had none
		{Round: 3, Latency: histogramOf(100*ms, 2*time.Hour, -time.Second)},
	}}
	all := w.Merged()
	if all.Count() != 6 {
		t.Errorf("%d latencies, want 6", all.Count())
	}
	// -1 s counts as 0, two hours as one. 100 ms and an hour are the highest of their buckets.
	equal(t, "quantiles", show(all.Quantile(0.1), all.Quantile(0.5), all.Quantile(0.8), all.Max()), show(0, 1000, 100031, 3600809983))
	if n := w.Rounds[0].Latency.Count(); n != 3 {
		t.Errorf("the first round has %d latencies after the merge, want 3", n)
	}
	var nothing *Histogram
	equal(t, "no histogram", show(nothing.Quantile(0.5), NewHistogram().Max()), show(0, 0))
}

func TestHistogramOfOthers(t *testing.T) {
	h := histogramOf(ms, 3*ms)
	text, err := h.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var read Histogram
	if err := read.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	equal(t, "read again", show(read.Quantile(0.5), read.Max(), float64(read.Count())), show(1000, 3001, 2))
	for text, want := range map[string]string{
		`7`:      "histogram: json: cannot unmarshal number into Go value of type string",
		`"!"`:    "histogram: illegal base64 data at input byte 0",
		`"AAA="`: "histogram: encoded histogram too short: got 2 bytes, need at least 8",
	} {
		if err := read.UnmarshalJSON([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{number(0), "0.00"},
		{number(0.01234), "0.012"},
		{number(0.99949), "0.999"},
		{number(0.99951), "1.00"},
		{number(9.994), "9.99"},
		{number(9.996), "10.0"},
		{number(99.94), "99.9"},
		{number(99.96), "100"},
		{number(1234567.8), "1,234,568"},
		{number(-1234), "-1,234"},
		{number(math.NaN()), "–"},
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(-100000), "-100,000"},
		{ratioText(0.954), "0.95×"},
		{ratioText(123.4), "123×"},
		{ratioText(math.NaN()), "–"},
		{FigureThroughput.Text(1.5e8), "150 MB/s"},
		{FigureP99.Text(1234), "1.23 ms"},
		{FigureRate.Text(1e6), "1,000,000/s"},
		{FigurePeakRSS.Text(64 << 20), "64.0 MiB"},
		{FigureCPUPerGB.Text(0.171), "0.171 s"},
		{duration(5), "5.00 s"},
		{duration(600), "10m0s"},
		{clock(65.4), "1:05"},
		{Spread{1, 0.5, 2, 3}.text(ratioText), "1.00× (0.50 to 2.00)"},
		{Spread{1e8, 1e7, 2e8, 3}.text(FigureThroughput.Text), "100 MB/s (10.0 to 200)"},
		{Spread{1e6, 1e5, 2e6, 3}.text(FigureRate.Text), "1,000,000/s (100,000 to 2,000,000)"},
		{Spread{1, 1, 1, 1}.text(ratioText), "1.00×"},
		{NewSpread(nil).text(ratioText), "–"},
	} {
		equal(t, "shown", c.got, c.want)
	}
}

func TestColumnsOfNumbers(t *testing.T) {
	for cell, want := range map[string]bool{
		"1,234": true, "–": true, "0.95×": true, "0.95× (0.90 to 1.00)": true, "+0.100 (-0.100 to +0.100)": true, "1:05": true,
		"150 MB/s (10.0 to 200)": true, "1,000/s": true,
		"": false, "to": false, "20 ms more": false, "3 connections": false, "at least 0.95×": false, "held": false,
	} {
		if numeric(cell) != want {
			t.Errorf("%q is a number: %v, want %v", cell, !want, want)
		}
	}
}
