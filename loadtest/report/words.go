// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// none is shown where a figure is not known.
const none = "–"

// Unit is what Number is in: MB and GB are powers of ten, MiB of two.
func (f Figure) Unit() string {
	switch f {
	case FigureThroughput:
		return "MB/s"
	case FigureRate:
		return "/s"
	case FigureP50, FigureP99, FigureP999, FigureMax:
		return "ms"
	case FigureCPUPerGB, FigureCPUPerMillion:
		return "s"
	case FigurePeakRSS:
		return "MiB"
	}
	return ""
}

// scale is what a value is divided by to be in Unit.
func (f Figure) scale() float64 {
	switch f {
	case FigureThroughput:
		return 1e6
	case FigureP50, FigureP99, FigureP999, FigureMax:
		return 1e3
	case FigurePeakRSS:
		return 1 << 20
	case FigureRate, FigureCPUPerGB, FigureCPUPerMillion:
	}
	return 1
}

// Number shows a value in Unit, without it.
func (f Figure) Number(v float64) string {
	return number(v / f.scale())
}

// Text shows a value with its unit.
func (f Figure) Text(v float64) string {
	if math.IsNaN(v) {
		return none
	}
	if f == FigureRate {
		return f.Number(v) + f.Unit()
	}
	return f.Number(v) + " " + f.Unit()
}

// number shows three significant figures, and every digit before the point.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return none
	case a >= 99.95:
		return thousands(int64(math.Round(v)))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.9995 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// ratioText shows a ratio.
func ratioText(v float64) string {
	if math.IsNaN(v) {
		return none
	}
	if v >= 99.95 {
		return number(v) + "×"
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + "×"
}

// text shows the median, and behind it, without units, how far the rounds went.
func (s Spread) text(show func(float64) string) string {
	if s.Rounds < 2 || !s.Known() {
		return show(s.Median)
	}
	bare := func(v float64) string {
		text, _, _ := strings.Cut(show(v), " ")
		return strings.TrimRight(text, "×/s")
	}
	return fmt.Sprintf("%s (%s to %s)", show(s.Median), bare(s.Min), bare(s.Max))
}

// thousands groups digits with commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// duration shows seconds as people say them.
func duration(seconds float64) string {
	if seconds < 60 {
		return number(seconds) + " s"
	}
	return time.Duration(math.Round(seconds) * float64(time.Second)).String()
}
