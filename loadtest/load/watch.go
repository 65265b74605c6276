// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tiergate/loadtest/report"
)

// errLoadEnded says that a job ended before its time, with an error of its own.
var errLoadEnded = errors.New("the load ended before its time")

// watch measures a turn: it moves the meters on once a second, looks at the target's
// processes, and scrapes its metrics.
type watch struct {
	turnOf   *turn
	meters   []*meter
	names    []string
	start    time.Time
	end      time.Time
	before   used
	process  []report.ProcessPoint
	scraper  *scraper
	stopped  context.CancelFunc
	scraping sync.WaitGroup
}

func newWatch(u *turn) *watch {
	w := &watch{turnOf: u}
	for _, j := range u.jobs {
		for _, m := range j.measured() {
			w.meters, w.names = append(w.meters, m.meter), append(w.names, m.workload.Name)
		}
	}
	return w
}

// begin starts the measured time.
func (w *watch) begin() {
	w.before = usedBy(w.turnOf.target.pids())
	w.start = time.Now()
	for _, m := range w.meters {
		m.begin(w.start)
	}
	if w.turnOf.target.metrics == "" {
		return
	}
	w.scraper = newScraper(w.turnOf.target.metrics, w.start)
	ctx, cancel := context.WithCancel(w.turnOf.Now)
	w.stopped = cancel
	w.scraping.Go(func() { w.scraper.run(ctx) })
}

// firstTimeout bounds the wait for the first operation of every workload.
const firstTimeout = 2 * time.Minute

// first waits until every workload has done something: clients have connected, groups
// have been joined. That is no part of what is measured, however short the warm-up.
func (w *watch) first(ctx, running context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for slices.ContainsFunc(w.meters, func(m *meter) bool { return !m.begun() }) {
		if !pause(ctx, running.Done(), 10*time.Millisecond) {
			break
		}
	}
	if running.Err() != nil {
		return errLoadEnded
	}
	return nil
}

// wait lets d of the measured time pass, or with d below 0 that much of the warm-up. It
// returns early when ctx ends (nil) or a job does (errLoadEnded).
func (w *watch) wait(ctx, running context.Context, d time.Duration) error {
	began := time.Now()
	for second := 1; ; second++ {
		next := time.Duration(second) * time.Second
		last := next >= d
		if d < 0 {
			last, next = next >= -d, min(next, -d)
		} else {
			next = min(next, d)
		}
		timer := time.NewTimer(time.Until(began.Add(next)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-running.Done():
			timer.Stop()
			return errLoadEnded
		}
		w.second(d, next)
		if last {
			return nil
		}
	}
}

// second is called when a second has passed.
func (w *watch) second(d, elapsed time.Duration) {
	u := w.turnOf
	s := Second{Phase: u.phase.Name, Target: u.target.spec.Name, Round: u.round, Rounds: u.phase.Rounds, Elapsed: elapsed, Duration: d, Workloads: w.names}
	if d < 0 {
		s.Elapsed, s.Duration = d+elapsed, time.Duration(u.phase.Duration)
	} else if elapsed%time.Second == 0 {
		for _, m := range w.meters {
			s.Points = append(s.Points, m.tick())
		}
		w.sample()
	}
	u.Progress.Second(s)
}

// sample adds what the processes used since the sample before.
func (w *watch) sample() {
	now := usedBy(w.turnOf.target.pids())
	w.process = append(w.process, report.ProcessPoint{
		Second: time.Since(w.start).Seconds(),
		// A process that was restarted begins at 0 again.
		CPU:        max(0, (now.cpu - w.before.cpu).Seconds()),
		CPUHarness: (now.harness - w.before.harness).Seconds(),
		CPUMachine: (now.machine - w.before.machine).Seconds(),
		RSS:        now.rss,
	})
	w.before = now
}

// finish ends the measured time.
func (w *watch) finish() {
	if w.start.IsZero() {
		return
	}
	w.end = time.Now()
	for _, m := range w.meters {
		m.finish(w.end)
	}
	if len(w.process) == 0 || w.end.Sub(w.start).Seconds() > float64(len(w.process))+0.1 {
		w.sample()
	}
}

// close ends the scraping.
func (w *watch) close() {
	if w.stopped != nil {
		w.stopped()
	}
	w.scraping.Wait()
}

// turn returns the turn for the report.
func (w *watch) turn() report.Turn {
	t := report.Turn{Phase: w.turnOf.phase.Name, Round: w.turnOf.round, Start: w.start, Seconds: w.end.Sub(w.start).Seconds()}
	if w.turnOf.target.launch != nil && (w.before != used{}) {
		t.Process = w.process
	}
	if w.scraper != nil {
		t.Metrics = w.scraper.metrics()
	}
	return t
}

// scraper reads a Prometheus endpoint now and then.
type scraper struct {
	url     string
	start   time.Time
	series  map[string]*report.Metric
	scrapes int
}

func newScraper(url string, start time.Time) *scraper {
	return &scraper{url: url, start: start, series: make(map[string]*report.Metric)}
}

// scrapeEvery is often enough for plots, and costs the target little.
const scrapeEvery = 2 * time.Second

func (s *scraper) run(ctx context.Context) {
	ticker := time.NewTicker(scrapeEvery)
	defer ticker.Stop()
	for {
		_ = s.scrape(ctx) // a target that is down has a gap in its plots
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = s.scrape(last)
			cancel()
			return
		}
	}
}

func (s *scraper) scrape(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", s.url, resp.Status)
	}
	s.scrapes++
	return s.read(time.Since(s.start).Seconds(), resp.Body)
}

// read takes the samples of one scrape, in Prometheus' text format: of the product's own
// metrics, and a few of the process. Buckets of histograms are left out.
func (s *scraper) read(second float64, from io.Reader) error {
	counters := make(map[string]bool)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "#" && fields[1] == "TYPE" {
			counters[fields[2]] = fields[3] == "counter"
		}
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line[:cut], "{")
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil || !wantedMetric(name) {
			continue
		}
		m := s.series[line[:cut]]
		if m == nil {
			m = &report.Metric{Name: line[:cut], Counter: counters[name] || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count")}
			s.series[line[:cut]] = m
		}
		m.Points = append(m.Points, report.MetricPoint{Second: second, Value: value})
	}
	return lines.Err()
}

func wantedMetric(name string) bool {
	if strings.HasSuffix(name, "_bucket") {
		return false
	}
	return strings.HasPrefix(name, "tiergate_") || slices.Contains([]string{"process_open_fds", "go_goroutines", "go_memstats_heap_inuse_bytes"}, name)
}

// metrics returns the series that were ever anything but 0, by name.
func (s *scraper) metrics() []report.Metric {
	var list []report.Metric
	for _, m := range s.series {
		if slices.ContainsFunc(m.Points, func(p report.MetricPoint) bool { return p.Value != 0 }) {
			list = append(list, *m)
		}
	}
	slices.SortFunc(list, func(a, b report.Metric) int { return strings.Compare(a.Name, b.Name) })
	return list
}
