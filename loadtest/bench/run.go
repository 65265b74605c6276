// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"tiergate/loadtest/kafka"
)

// Options say what is measured and for how long.
type Options struct {
	// Rounds is how often each peer has its turn in a workload.
	Rounds int
	// Time is how long one turn of a timed workload is measured, after a warm-up of a quarter of it.
	Time time.Duration
	// Stall is how long the clients of KindStalled read nothing.
	Stall time.Duration
	// Workloads and Peers name what runs.
	Workloads []Workload
	Peers     []string
	// Counting is how many rounds more count system calls and events, where perf is there.
	Counting int
	// Threads is how many threads that move bytes each proxy may have.
	Threads int
	// Profiles is a folder for CPU profiles of tiergate, one for each workload; empty for none.
	Profiles string
	// Progress gets a line for each turn, and what the peers have to say.
	Progress io.Writer
}

// Sample is one turn of one peer in one round of one workload.
type Sample struct {
	Workload string  `json:"workload"`
	Peer     string  `json:"peer"`
	Round    int     `json:"round"`
	Seconds  float64 `json:"seconds"`
	Bytes    int64   `json:"bytes"`
	Requests int64   `json:"requests"`
	// P50, P99 and P999 are latencies in microseconds.
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	// CPU is the CPU time of the peer's processes in seconds; the next three are those
	// of the generator, of the server, and of all else on the machine.
	CPU          float64 `json:"cpu_s"`
	CPUGenerator float64 `json:"cpu_generator_s"`
	CPUServer    float64 `json:"cpu_server_s"`
	CPUOthers    float64 `json:"cpu_others_s"`
	// RSS is the peer's resident memory in bytes at the end, Peak the most of it, Before what
	// it was before the connections came (KindIdle).
	RSS    int64 `json:"rss_bytes"`
	Peak   int64 `json:"peak_bytes"`
	Before int64 `json:"before_bytes,omitempty"`
	// Counts are there in turns that count; their times are not used.
	Counts *Counts `json:"counts,omitempty"`
}

// Result is everything that a run found out.
type Result struct {
	Machine Machine  `json:"machine"`
	Rounds  int      `json:"rounds"`
	Seconds float64  `json:"seconds"`
	Stall   float64  `json:"stall_seconds"`
	Threads int      `json:"threads"`
	Samples []Sample `json:"samples"`
	// Missing says why a peer or a workload is not in it.
	Missing []string `json:"missing"`
}

// runner is a run under way.
type runner struct {
	Options
	self    string
	folder  string
	cert    certificate
	pattern *pattern
	broker  *kafka.Process
	// address is where the broker listens, idle how many descriptors it has without clients.
	address string
	idle    int
	// perf: system calls can be counted.
	perf   bool
	result Result
}

// Run measures. A peer that is not installed is left out and named in the result; any
// other fault ends the run, and what was measured until then is returned too.
func Run(ctx context.Context, o Options) (Result, error) {
	r := &runner{Options: o, pattern: newPattern()}
	r.result = Result{Machine: ThisMachine(), Rounds: o.Rounds, Seconds: o.Time.Seconds(), Stall: o.Stall.Seconds(), Threads: o.Threads}
	err := r.prepare(ctx)
	if err == nil {
		defer os.RemoveAll(r.folder)
		defer r.broker.Kill()
		for _, w := range o.Workloads {
			if err = r.workload(ctx, w); err != nil {
				err = fmt.Errorf("workload %s: %w", w.Name, err)
				break
			}
		}
	}
	return r.result, err
}

// prepare finds the peers and starts the server.
func (r *runner) prepare(ctx context.Context) error {
	var there []string
	for _, peer := range r.Peers {
		err := find(peer)
		if errors.As(err, new(*missing)) {
			r.leaveOut(err.Error())
			continue
		}
		if err != nil {
			return err
		}
		there = append(there, peer)
	}
	r.Peers = there
	if r.Counting > 0 {
		if err := findPerf(); err != nil {
			r.leaveOut(err.Error())
		} else {
			r.perf = true
		}
	}
	if err := raiseDescriptors(); err != nil {
		return err
	}
	var err error
	if r.self, err = os.Executable(); err != nil {
		return err
	}
	if r.folder, err = os.MkdirTemp("", "proxybench"); err != nil {
		return err
	}
	if r.cert, err = newCertificate(r.folder); err != nil {
		return err
	}
	if r.broker, r.address, err = startBroker(ctx, r.self); err != nil {
		return err
	}
	r.idle, err = descriptorsOf(r.broker.PID())
	return err
}

// leaveOut notes that something is not measured, and says so at once.
func (r *runner) leaveOut(why string) {
	r.result.Missing = append(r.result.Missing, why)
	fmt.Fprintln(r.Progress, why)
}

// raiseDescriptors sets the soft limit of this process and its children to the hard one.
func raiseDescriptors() error {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	limit.Cur = limit.Max
	if err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)); err != nil {
		return fmt.Errorf("raise the limit of descriptors: %w", err)
	}
	return nil
}

// descriptors returns how many descriptors a process may have.
func descriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt {
		return math.MaxInt
	}
	return int(limit.Cur)
}

// workload runs all rounds of one workload.
func (r *runner) workload(ctx context.Context, w Workload) error {
	if needs := 2*w.Conns + 500; needs > descriptors() {
		r.leaveOut(fmt.Sprintf("%s is left out: a proxy needs %d descriptors and may have %d (ulimit -Hn)", w.Name, needs, descriptors()))
		return nil
	}
	rounds := r.Rounds
	if w.MaxRounds > 0 {
		rounds = min(rounds, w.MaxRounds)
	}
	peers := slices.DeleteFunc(slices.Clone(r.Peers), func(p string) bool {
		// Without a proxy there is nobody to speak TLS, and no memory to measure.
		return p == PeerDirect && (w.Kind.tls() || w.Kind == KindIdle)
	})
	fmt.Fprintf(r.Progress, "%s: %s\n", w.Name, w.Words())
	c := &contest{workload: w, up: map[string]*running{}, failed: map[string]bool{}}
	defer func() {
		for _, peer := range c.up {
			_ = peer.stop(ctx)
		}
	}()
	if w.Kind.counted() {
		rounds += r.Counting
	}
	for round := range rounds {
		c.counting = w.Kind.counted() && round >= rounds-r.Counting
		for i := range peers {
			name := peers[(i+round)%len(peers)]
			if c.failed[name] {
				continue
			}
			if err := r.turn(ctx, c, name, round); err != nil {
				if err = r.fail(ctx, c, name, err); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// contest is a workload under way.
type contest struct {
	workload Workload
	// up are the peers that run, failed those that take no further part.
	up     map[string]*running
	failed map[string]bool
	// counting: the present round counts.
	counting bool
}

// fail takes a peer out of the workload. That another proxy cannot do it, for want of
// descriptors, say, is an outcome too; that tiergate cannot, or that nothing can, ends
// the run.
func (r *runner) fail(ctx context.Context, c *contest, name string, err error) error {
	if ctx.Err() != nil || name == PeerTiergate || name == PeerDirect {
		return err
	}
	c.failed[name] = true
	r.leaveOut(fmt.Sprintf("%s in %s: %v", name, c.workload.Name, err))
	if peer := c.up[name]; peer != nil {
		peer.process.Kill()
		delete(c.up, name)
	}
	return r.quiesce(ctx)
}

// turn lets one peer have its turn. Peers of timed workloads live through all rounds;
// where memory is measured each turn has a new process.
func (r *runner) turn(ctx context.Context, c *contest, name string, round int) error {
	w := c.workload
	if c.up[name] == nil {
		peer, err := start(ctx, name, r.setting(w))
		if err != nil {
			return err
		}
		c.up[name] = peer
	}
	sample, err := r.measure(ctx, c, c.up[name])
	if err != nil {
		return err
	}
	sample.Workload, sample.Peer, sample.Round = w.Name, name, round
	r.result.Samples = append(r.result.Samples, sample)
	fmt.Fprintf(r.Progress, "  round %d  %s\n", round+1, sample.line(w))
	if !w.Kind.timed() {
		err = c.up[name].stop(ctx)
		delete(c.up, name)
	}
	return errors.Join(err, r.quiesce(ctx))
}

func (r *runner) setting(w Workload) setting {
	return setting{
		self: r.self, broker: r.address, threads: r.Threads, folder: r.folder, workload: w, cert: r.cert,
		profile: r.Profiles, stderr: r.Progress,
	}
}

// quiesce waits until the server has lost all connections of the last turn.
func (r *runner) quiesce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		n, err := descriptorsOf(r.broker.PID())
		if err != nil || n <= r.idle {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections to the server are still open although the clients have left", n-r.idle)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// measure dispatches on the kind of workload.
func (r *runner) measure(ctx context.Context, c *contest, peer *running) (Sample, error) {
	w := c.workload
	pids, err := peer.pids()
	if err != nil {
		return Sample{}, err
	}
	m := &meter{pids: pids, server: r.broker.PID()}
	if c.counting {
		sample, err := r.count(ctx, w, peer, m)
		return sample, err
	}
	switch w.Kind {
	case KindBulk, KindPing:
		return r.plain(ctx, w, peer.address, m)
	case KindTLSBulk, KindTLSPing:
		return r.overTLS(ctx, w, peer.address, m)
	case KindIdle:
		return r.idleMemory(ctx, w, peer.address, m)
	case KindStalled:
		return r.stalled(ctx, w, peer.address, m)
	}
	return Sample{}, fmt.Errorf("unknown kind %q", w.Kind)
}

// count is a turn of a plain workload that counts.
func (r *runner) count(ctx context.Context, w Workload, peer *running, m *meter) (Sample, error) {
	m.counts, m.perf = &Counts{}, r.perf && len(m.pids) > 0
	var before, after loopCounts
	var err error
	if peer.metrics != nil {
		if before, err = peer.metrics.settled(ctx); err != nil {
			return Sample{}, err
		}
	}
	sample, err := r.plain(ctx, w, peer.address, m)
	if err != nil || peer.metrics == nil {
		return sample, err
	}
	if after, err = peer.metrics.settled(ctx); err != nil {
		return sample, err
	}
	// The loops count the warm-up too: their events are scaled to the bytes of the turn.
	part := float64(sample.Bytes) / float64(after.bytes-before.bytes)
	sample.Counts.Events = int64(float64(after.events-before.events) * part)
	sample.Counts.Useless = int64(float64(after.useless-before.useless) * part)
	return sample, nil
}

// plain is a timed workload without TLS.
func (r *runner) plain(ctx context.Context, w Workload, address string, m *meter) (Sample, error) {
	g, err := newGenerator(w.Exchange, w.Pipeline, r.pattern)
	if err != nil {
		return Sample{}, err
	}
	defer g.close()
	if err = g.connect(address, w.Conns, unlimited); err != nil {
		return Sample{}, err
	}
	if err = g.run(ctx, time.Now().Add(r.Time/4)); err != nil {
		return Sample{}, err
	}
	g.tally = tally{}
	if err = m.begin(); err != nil {
		return Sample{}, err
	}
	if err = g.run(ctx, m.began.Add(r.Time)); err != nil {
		return Sample{}, err
	}
	return m.end(ctx, &g.tally)
}

// overTLS is a timed workload with TLS.
func (r *runner) overTLS(ctx context.Context, w Workload, address string, m *meter) (Sample, error) {
	g := &tlsGenerator{exchange: w.Exchange, pipeline: w.Pipeline, pattern: r.pattern}
	defer g.close()
	if err := g.connect(ctx, address, w.Conns, r.cert.clientTLS()); err != nil {
		return Sample{}, err
	}
	if err := g.run(ctx, r.Time/4); err != nil {
		return Sample{}, err
	}
	g.reset()
	if err := m.begin(); err != nil {
		return Sample{}, err
	}
	if err := g.run(ctx, r.Time); err != nil {
		return Sample{}, err
	}
	total := g.stop()
	sample, err := m.end(ctx, &total)
	g.close()
	g.merge(&total)
	sample.latencies(&total)
	return sample, err
}

// settleTime is how long idle connections stay before memory is read: a few ticks of any
// proxy's housekeeping.
const settleTime = 3 * time.Second

// idleMemory opens connections, lets each do one exchange, and reads the proxy's memory.
func (r *runner) idleMemory(ctx context.Context, w Workload, address string, m *meter) (Sample, error) {
	g, err := newGenerator(w.Exchange, w.Pipeline, r.pattern)
	if err != nil {
		return Sample{}, err
	}
	defer g.close()
	before, err := memoryOf(m.pids)
	if err != nil {
		return Sample{}, err
	}
	if err = m.begin(); err != nil {
		return Sample{}, err
	}
	for len(g.conns) < w.Conns {
		// A batch that no proxy's accept queue is too short for.
		if err = g.connect(address, min(100, w.Conns-len(g.conns)), 1); err != nil {
			return Sample{}, err
		}
		if err = g.run(ctx, time.Now().Add(10*time.Second)); err != nil {
			return Sample{}, err
		}
		if g.unanswered > 0 {
			return Sample{}, fmt.Errorf("%d of %d connections had no answer within 10 s", g.unanswered, len(g.conns))
		}
	}
	if err = pause(ctx, settleTime); err != nil {
		return Sample{}, err
	}
	sample, err := m.end(ctx, &g.tally)
	sample.Before = before.now
	return sample, err
}

// stalled has clients ask for much, read nothing for a while, and then compare it all.
func (r *runner) stalled(ctx context.Context, w Workload, address string, m *meter) (Sample, error) {
	g, err := newGenerator(w.Exchange, w.Pipeline, r.pattern)
	if err != nil {
		return Sample{}, err
	}
	defer g.close()
	g.compares = true
	if err = m.begin(); err != nil {
		return Sample{}, err
	}
	if err = g.connect(address, w.Conns, 1); err != nil {
		return Sample{}, err
	}
	if err = pause(ctx, r.Stall); err != nil {
		return Sample{}, err
	}
	// The most until now is what stalled readers cost; the CPU time is that of the reading.
	stalled, err := memoryOf(m.pids)
	if err != nil {
		return Sample{}, err
	}
	if err = m.begin(); err != nil {
		return Sample{}, err
	}
	if err = g.run(ctx, time.Now().Add(5*time.Minute)); err != nil {
		return Sample{}, err
	}
	if g.unanswered > 0 {
		return Sample{}, fmt.Errorf("%d of %d answers were not there whole after 5 minutes", g.unanswered, w.Conns)
	}
	sample, err := m.end(ctx, &g.tally)
	sample.RSS, sample.Peak = stalled.peak, max(stalled.peak, sample.Peak)
	return sample, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// meter reads what a turn costs.
type meter struct {
	pids   []int
	server int
	began  time.Time
	used   usage
	// counts is there in a turn that counts, perf: what the processes do counts too.
	counts  *Counts
	perf    bool
	counter *perfCounter
}

// usage is CPU time until now: of the peer, the generator, the server, and the machine.
type usage struct {
	peer, generator, server, machine time.Duration
}

func (m *meter) usage() (u usage, err error) {
	var errs [4]error
	u.peer, errs[0] = cpuTime(m.pids)
	u.generator, errs[1] = cpuTime([]int{os.Getpid()})
	u.server, errs[2] = cpuTime([]int{m.server})
	u.machine, errs[3] = machineBusy()
	return u, errors.Join(errs[:]...)
}

func (m *meter) begin() (err error) {
	if err = resetPeak(m.pids); err != nil {
		return err
	}
	if m.perf {
		if m.counter, err = startPerf(m.pids); err != nil {
			return err
		}
	}
	m.used, err = m.usage()
	m.began = time.Now()
	return err
}

// end returns the sample of what was done since begin.
func (m *meter) end(ctx context.Context, t *tally) (Sample, error) {
	s := Sample{Seconds: time.Since(m.began).Seconds(), Bytes: t.bytes, Requests: t.requests}
	if s.Counts = m.counts; m.counter != nil {
		counts, err := m.counter.end(ctx)
		if err != nil {
			return s, err
		}
		*s.Counts = counts
	}
	u, err := m.usage()
	if err != nil {
		return s, err
	}
	peer, generator, server := u.peer-m.used.peer, u.generator-m.used.generator, u.server-m.used.server
	s.CPU, s.CPUGenerator, s.CPUServer = peer.Seconds(), generator.Seconds(), server.Seconds()
	s.CPUOthers = max(0, u.machine-m.used.machine-peer-generator-server).Seconds()
	s.latencies(t)
	held, err := memoryOf(m.pids)
	s.RSS, s.Peak = held.now, held.peak
	return s, err
}

func (s *Sample) latencies(t *tally) {
	microseconds := func(q float64) float64 { return float64(t.latency.quantile(q)) / 1e3 }
	s.P50, s.P99, s.P999 = microseconds(0.5), microseconds(0.99), microseconds(0.999)
}

// line says in one line what a turn brought.
func (s Sample) line(w Workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s", s.Peer)
	switch {
	case s.Counts != nil:
		c := s.Counts
		fmt.Fprintf(&b, "%8.3f GB  %d requests", float64(s.Bytes)/1e9, s.Requests)
		for _, n := range countColumns() {
			fmt.Fprintf(&b, "  %s %s", n.head, number(float64(*n.of(c))/s.units(w)))
		}
		return b.String()
	case w.Kind == KindIdle:
		fmt.Fprintf(&b, "%8.0f B each, %.1f MiB in all", s.perConnection(w), mib(s.RSS))
	case w.Kind.bulk():
		fmt.Fprintf(&b, "%8.3f GB/s  CPU %.3f s/GB", s.throughput(), s.cpuPerGB())
	default:
		fmt.Fprintf(&b, "%8.0f requests/s  CPU %.2f s/1M", s.rate(), s.cpuPerMillion())
	}
	fmt.Fprintf(&b, "  p50 %.0f us  p99 %.0f us  peak %.1f MiB  cores: proxy %.2f generator %.2f server %.2f others %.2f",
		s.P50, s.P99, mib(s.Peak), s.CPU/s.Seconds, s.CPUGenerator/s.Seconds, s.CPUServer/s.Seconds, s.CPUOthers/s.Seconds)
	return b.String()
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// units returns how much work was done: GB, or thousands of requests.
func (s Sample) units(w Workload) float64 {
	if w.Kind.bulk() {
		return float64(s.Bytes) / 1e9
	}
	return float64(s.Requests) / 1e3
}

// wholePerGB is CPU time per GB of proxy, generator and server: what the kernel does for a
// proxy is in part accounted to its peers.
func (s Sample) wholePerGB() float64 {
	return (s.CPU + s.CPUGenerator + s.CPUServer) / (float64(s.Bytes) / 1e9)
}

func (s Sample) throughput() float64    { return float64(s.Bytes) / 1e9 / s.Seconds }
func (s Sample) rate() float64          { return float64(s.Requests) / s.Seconds }
func (s Sample) cpuPerGB() float64      { return s.CPU / (float64(s.Bytes) / 1e9) }
func (s Sample) cpuPerMillion() float64 { return s.CPU / (float64(s.Requests) / 1e6) }

// perConnection returns bytes of memory per connection.
func (s Sample) perConnection(w Workload) float64 { return float64(s.RSS-s.Before) / float64(w.Conns) }
