// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tiergate/loadtest/gate"
	"tiergate/loadtest/report"
)

// Options say how a scenario is run.
type Options struct {
	Scenario *Scenario
	// Tool is the version of the harness, for the report.
	Tool string
	// Cluster overrides where brokers come from: "real", "sim", or addresses of an existing
	// cluster, separated by commas. Empty: what the scenario says.
	Cluster string
	// Targets are the names of those that take part. Empty: all.
	Targets []string
	// Duration overrides the measured time of every phase, Rounds their number of rounds.
	// 0: what the scenario says.
	Duration time.Duration
	Rounds   int
	// Folder keeps configurations and logs of what is started. Empty: a temporary one that
	// is removed.
	Folder string
	// Progress gets what is going on; see Progress.
	Progress Progress
	// Now ends when everything is to be dropped at once. The context of Run ends when the
	// run is to come to its end: what was measured is verified and reported.
	Now context.Context
}

// Progress is told what a run does. Its methods are called by several goroutines.
type Progress interface {
	// Say is a line that stays.
	Say(format string, args ...any)
	// Second is where a turn is, once a second.
	Second(s Second)
}

// Second is a second of a turn.
type Second struct {
	Phase, Target string
	Round, Rounds int
	// Elapsed of Duration, of the measured time; below 0 in the warm-up.
	Elapsed, Duration time.Duration
	// Workloads with their latest points.
	Workloads []string
	Points    []report.Point
}

// runner is a run under way.
type runner struct {
	Options
	log      *slog.Logger
	folder   string
	clusters map[string]*cluster
	targets  []*target
	report   *report.Run
	number   uint64 // of the next topic; in every record

	found [][]string // by verification, in words

	mu sync.Mutex // of the report, while faults add to it
}

// Run plays a scenario. The report is there also when the run failed or was interrupted:
// it has what was measured until then. An error means that the run could not go on; what
// verification found is in the report's verdict.
func Run(ctx context.Context, o Options) (*report.Run, error) {
	if o.Now == nil {
		o.Now = context.Background()
	}
	r := &runner{Options: o, clusters: make(map[string]*cluster), number: rand.Uint64() >> 16 << 16}
	r.log = slog.New(slog.NewTextHandler(progressWriter{o.Progress}, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: plainAttributes}))
	s, missing, err := o.Scenario.with(o)
	if err != nil {
		return nil, err
	}
	r.Scenario = s
	r.report = &report.Run{
		Format: report.Format, Tool: o.Tool, Started: time.Now(), Environment: thisMachine(),
		Scenario: report.Scenario{Name: s.Name, Text: s.Text}, Bounds: s.bounds(), Missing: missing,
	}
	for _, m := range missing {
		o.Progress.Say("%s", m)
	}
	for _, p := range s.Phases {
		r.report.Rounds = max(r.report.Rounds, p.Rounds)
	}
	unheard := context.AfterFunc(ctx, func() {
		o.Progress.Say("ending: what was measured so far is verified; once more, and everything is dropped")
	})
	defer unheard()
	err = r.run(ctx)
	r.report.Seconds = time.Since(r.report.Started).Seconds()
	r.report.Interrupted = ctx.Err() != nil
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		r.report.Missing = append(r.report.Missing, oneLine("the run ended early: "+strings.TrimSuffix(err.Error(), ".")))
	}
	if len(r.found) > 0 {
		r.report.Tables = append(r.report.Tables, report.Table{
			Title: "What verification found", Text: "The first few of each turn.", Head: []string{"target", "round", "workload", "what"}, Rows: r.found,
		})
	}
	slices.SortStableFunc(r.report.Marks, func(a, b report.Mark) int { return a.At.Compare(b.At) })
	r.report.Verdict = report.Judge(r.report)
	return r.report, err
}

// progressWriter hands lines of the log on.
type progressWriter struct{ to Progress }

func (w progressWriter) Write(b []byte) (int, error) {
	w.to.Say("%s", string(b[:max(0, len(b)-1)]))
	return len(b), nil
}

// plainAttributes leaves out what a terminal has no use for.
func plainAttributes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

func (r *runner) run(ctx context.Context) (err error) {
	if r.folder = r.Folder; r.folder == "" {
		if r.folder, err = os.MkdirTemp("", "tiergate-loadtest-"); err != nil {
			return err
		}
		defer os.RemoveAll(r.folder)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for i := range r.Scenario.Phases {
		if err := r.phase(ctx, &r.Scenario.Phases[i]); err != nil {
			return fmt.Errorf("phase %s: %w", r.Scenario.Phases[i].Name, err)
		}
	}
	return nil
}

// close ends all that was started.
func (r *runner) close() error {
	var errs []error
	for _, c := range r.clusters {
		for _, t := range c.topics {
			errs = append(errs, t.close())
			if c.spec.Kind == ClusterExisting {
				_ = c.deleteTopic(r.Now, t.spec.Name)
			}
		}
	}
	for _, t := range r.targets {
		t.close()
	}
	for _, c := range r.clusters {
		c.close()
	}
	return errors.Join(errs...)
}

// prepare starts clusters and targets, and creates the shared topics.
func (r *runner) prepare(ctx context.Context) error {
	s := r.Scenario
	listeners := make(map[string][]listenerFor)
	binary := ""
	for i, spec := range s.Targets {
		t, err := newTarget(spec, *s.cluster(spec.Cluster), i, r.folder, s.relayedSides(spec))
		if err != nil {
			return err
		}
		r.targets = append(r.targets, t)
		if t.listener != nil {
			listeners[spec.Cluster] = append(listeners[spec.Cluster], *t.listener)
		}
		if spec.Kind == TargetTiergate && spec.Binary == "" && binary == "" {
			r.Progress.Say("building tiergate")
			if binary, err = gate.Binary(ctx, filepath.Join(r.folder, "bin")); err != nil {
				return err
			}
		}
	}
	for _, c := range s.Clusters {
		r.Progress.Say("starting cluster %s (%s)", c.Name, c.Kind)
		up, err := startCluster(ctx, c, listeners[c.Name], r.log)
		if err != nil {
			return err
		}
		r.clusters[c.Name] = up
		r.report.Environment.Software = append(r.report.Environment.Software, up.software())
		for _, t := range s.Topics {
			r.Progress.Say("creating topic %s (%d partitions, %d records)", t.Name, t.Partitions, t.Records)
			if err := up.createShared(ctx, t, r.next()); err != nil {
				return err
			}
		}
	}
	for _, t := range r.targets {
		if err := t.open(ctx, r.clusters[t.spec.Cluster], cmp.Or(t.spec.Binary, binary)); err != nil {
			return err
		}
		r.report.Targets = append(r.report.Targets, report.Target{
			Name: t.spec.Name, Kind: report.TargetKind(t.spec.Kind), Text: t.text, Baseline: t.spec.Baseline,
		})
	}
	return nil
}

// next is the number of a new topic.
func (r *runner) next() uint64 {
	r.number++
	return r.number
}

// phase lets every target have its turn, round after round.
func (r *runner) phase(ctx context.Context, p *Phase) error {
	var targets []*target
	for _, t := range r.targets {
		if slices.Contains(p.Targets, t.spec.Name) && len(p.workloadsOn(t.spec.Name)) > 0 {
			targets = append(targets, t)
		}
	}
	if err := r.resolveRates(p); err != nil {
		return err
	}
	for round := range p.Rounds {
		for i := range targets {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t := targets[(i+round)%len(targets)]
			if err := r.turn(ctx, p, t, round+1); err != nil {
				return fmt.Errorf("round %d, target %s: %w", round+1, t.spec.Name, err)
			}
		}
	}
	return nil
}

// workloadsOn returns the workloads that run on a target.
func (p *Phase) workloadsOn(target string) []Workload {
	var list []Workload
	for _, w := range p.Workloads {
		if slices.Contains(w.Targets, target) {
			list = append(list, w)
		}
	}
	return list
}

// resolveRates turns shares of earlier figures into rates.
func (r *runner) resolveRates(p *Phase) error {
	for i := range p.Workloads {
		w := &p.Workloads[i]
		if w.RateOf == nil {
			continue
		}
		t := r.report.Target(w.RateOf.Target)
		if t == nil {
			return fmt.Errorf("workload %s: its rate is a share of what target %s reached, which takes no part", w.Name, w.RateOf.Target)
		}
		reached := t.Spread(w.RateOf.Workload, report.FigureRate)
		if !reached.Known() {
			return fmt.Errorf("workload %s: its rate is a share of what %s reached on %s, which was not measured", w.Name, w.RateOf.Workload, w.RateOf.Target)
		}
		w.Rate = reached.Median * w.RateOf.Share
		r.Progress.Say("workload %s: %.0f records/s, %.0f %% of the %.0f that %s reached on %s", w.Name, w.Rate, 100*w.RateOf.Share, reached.Median, w.RateOf.Workload, w.RateOf.Target)
	}
	return nil
}

// turn is one target in one round of a phase.
type turn struct {
	*runner
	phase  *Phase
	target *target
	round  int
	jobs   []job
	faults *faults
}

func (r *runner) turn(ctx context.Context, p *Phase, t *target, round int) error {
	u := &turn{runner: r, phase: p, target: t, round: round}
	r.Progress.Say("phase %s, round %d of %d, target %s", p.Name, round, p.Rounds, t.spec.Name)
	for _, w := range p.workloadsOn(t.spec.Name) {
		number := r.next()
		u.jobs = append(u.jobs, newJob(setting{
			spec: w, phase: p.Name, target: t, cluster: t.cluster, number: number, topic: fmt.Sprintf("load-%s-%s-%x", w.Name, t.spec.Name, number),
		}))
	}
	defer func() {
		for _, j := range u.jobs {
			j.close(r.Now)
		}
	}()
	for _, j := range u.jobs {
		if err := j.prepare(r.Now); err != nil {
			return err
		}
	}
	meters, err := u.play(ctx)
	if err == nil {
		err = u.verify()
	}
	u.reportTurn(meters)
	return errors.Join(err, t.running())
}

// play warms up and measures.
func (u *turn) play(ctx context.Context) (*watch, error) {
	stop := make(chan struct{})
	g, running := errgroup.WithContext(u.Now)
	for _, j := range u.jobs {
		g.Go(func() error { return j.run(running, stop) })
	}
	w := newWatch(u)
	wait := func() error {
		if u.phase.WarmUp > 0 {
			if err := w.wait(ctx, running, -time.Duration(u.phase.WarmUp)); err != nil || ctx.Err() != nil {
				return err
			}
		}
		if err := w.first(ctx, running); err != nil || ctx.Err() != nil {
			return err
		}
		w.begin()
		u.faults = u.startFaults(running, w.start)
		return w.wait(ctx, running, time.Duration(u.phase.Duration))
	}
	err := wait()
	w.finish()
	u.faults.end()
	close(stop)
	jobErr := g.Wait()
	w.close()
	if errors.Is(err, errLoadEnded) || ctx.Err() != nil {
		err = nil // jobErr says why, or it was interrupted: what there is is reported
	}
	return w, errors.Join(err, jobErr)
}

// verify reads everything back. A job that cannot does not stop the others.
func (u *turn) verify() error {
	errs := make([]error, len(u.jobs))
	var wg sync.WaitGroup
	for i, j := range u.jobs {
		wg.Go(func() { errs[i] = j.finish(u.Now) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reportTurn adds the turn to the report.
func (u *turn) reportTurn(w *watch) {
	if w == nil || w.start.IsZero() {
		return
	}
	t := u.report.Target(u.target.spec.Name)
	t.Turns = append(t.Turns, w.turn())
	for _, j := range u.jobs {
		for _, m := range j.measured() {
			round := m.meter.round(u.round)
			round.Counts.Add(m.counts)
			if t.Workload(m.workload.Name) == nil {
				m.workload.Planned = u.phase.Rounds
				t.Workloads = append(t.Workloads, m.workload)
			}
			into := t.Workload(m.workload.Name)
			into.Rounds = append(into.Rounds, round)
			for _, note := range m.notes {
				u.Progress.Say("%s, round %d, %s: %s", u.target.spec.Name, u.round, m.workload.Name, note)
				u.found = append(u.found, []string{u.target.spec.Name, strconv.Itoa(u.round), m.workload.Name, note})
			}
		}
	}
}

// with returns the scenario as the options change it, and what that leaves out.
func (s *Scenario) with(o Options) (*Scenario, []string, error) {
	c := *s
	c.Clusters, c.Targets, c.Phases = slices.Clone(s.Clusters), slices.Clone(s.Targets), slices.Clone(s.Phases)
	var missing []string
	if err := c.overrideClusters(o.Cluster); err != nil {
		return nil, nil, err
	}
	for _, name := range o.Targets {
		if s.target(name) == nil {
			return nil, nil, fmt.Errorf("scenario %s has no target %q", s.Name, name)
		}
	}
	c.Targets = slices.DeleteFunc(c.Targets, func(t Target) bool {
		if len(o.Targets) > 0 && !slices.Contains(o.Targets, t.Name) {
			return true
		}
		why := c.impossible(t)
		if why != "" {
			missing = append(missing, fmt.Sprintf("target %s is left out: %s", t.Name, why))
		}
		return why != ""
	})
	if len(c.Targets) == 0 {
		return nil, nil, fmt.Errorf("scenario %s: no target is left (%s)", s.Name, missing)
	}
	c.Clusters = slices.DeleteFunc(c.Clusters, func(k Cluster) bool {
		return !slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Cluster == k.Name })
	})
	for i := range c.Phases {
		p := &c.Phases[i]
		p.Workloads = slices.Clone(p.Workloads)
		if o.Duration > 0 {
			p.Duration = Duration(o.Duration)
		}
		if o.Rounds > 0 {
			p.Rounds = o.Rounds
		}
	}
	for i, b := range c.Bounds {
		if c.target(b.Target) == nil || b.Against != "" && c.target(b.Against) == nil {
			missing = append(missing, fmt.Sprintf("bound %q is not checked: a target of it takes no part", cmp.Or(b.Text, fmt.Sprint(i))))
		}
	}
	c.Bounds = slices.DeleteFunc(slices.Clone(c.Bounds), func(b Bound) bool {
		return c.target(b.Target) == nil || b.Against != "" && c.target(b.Against) == nil
	})
	return &c, missing, nil
}

// impossible says why a target cannot be had here, or nothing.
func (s *Scenario) impossible(t Target) string {
	if t.atBrokersAddress() && s.cluster(t.Cluster).Kind != ClusterReal {
		return "it rewrites no addresses, so it needs brokers that advertise its port, and those of this cluster do not"
	}
	if t.Kind == TargetHAProxy || t.Kind == TargetNginx {
		if err := relayMissing(t.Kind); err != nil {
			return err.Error()
		}
	}
	return ""
}

// overrideClusters has all brokers come from somewhere else.
func (s *Scenario) overrideClusters(from string) error {
	if from == "" {
		return nil
	}
	kind, addresses := ClusterKind(from), []string(nil)
	if kind != ClusterReal && kind != ClusterSim {
		var err error
		if addresses, err = splitAddresses(from); err != nil {
			return err
		}
		kind = ClusterExisting
	}
	for i := range s.Clusters {
		s.Clusters[i].Kind, s.Clusters[i].Bootstrap = kind, addresses
	}
	return nil
}
