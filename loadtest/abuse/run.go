// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"tiergate/loadtest/bench"
)

const (
	// drainTimeout is limits.drain_timeout, and stopTimeout how long after SIGTERM the
	// process may run: what remains is for the machine.
	drainTimeout = 2 * time.Second
	stopTimeout  = drainTimeout + 5*time.Second
	// readyTimeout is how long /readyz may take to be 200 when the clients have ended.
	readyTimeout = 5 * time.Second
	// sampling is the time between two looks at the process.
	sampling = 100 * time.Millisecond
	// tooMuch is the resident memory at which the process is killed, for the machine's sake.
	tooMuch = 4 << 30
	// controls is the number of clients that use the broker without a proxy.
	controls = 5
)

// Run makes the attacks, one after the other. An error means that a row could not be
// measured; what an attack broke is in the rows.
func Run(ctx context.Context, o Options) (*Report, error) {
	machine := bench.ThisMachine()
	r := &Report{
		HAProxy: strings.TrimPrefix(machine.HAProxy, "HAProxy version "), CPU: machine.CPU, Cores: machine.Cores, Date: machine.Date,
		Duration: o.Duration, Within: o.Within, Clients: o.Clients,
	}
	version, err := exec.CommandContext(ctx, o.Binary, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s version: %w", o.Binary, err)
	}
	r.Tiergate, _, _ = strings.Cut(strings.TrimPrefix(string(version), "tiergate "), "\n")
	chosen, err := choose(o.Attacks)
	if err != nil {
		return nil, err
	}
	for _, a := range chosen {
		for _, target := range []string{TargetTiergate, TargetHAProxy} {
			if len(o.Targets) > 0 && !slices.Contains(o.Targets, target) ||
				target == TargetHAProxy && (!a.relayed || bench.Missing(bench.PeerHAProxy) != nil) {
				continue
			}
			row, err := measure(ctx, o, a, target)
			if err != nil {
				return r, err
			}
			r.Rows = append(r.Rows, row)
			if o.Progress != nil {
				o.Progress(row)
			}
		}
	}
	return r, nil
}

// choose returns the named attacks, or all.
func choose(names []string) ([]attack, error) {
	all := attacks()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []attack
	for _, name := range names {
		i := slices.IndexFunc(all, func(a attack) bool { return a.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown attack %q: want one of %s", name, strings.Join(Attacks(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Attacks returns the names of all attacks.
func Attacks() []string {
	var names []string
	for _, a := range attacks() {
		names = append(names, a.name)
	}
	return names
}

// measure makes an attack on a proxy.
func measure(ctx context.Context, o Options, a attack, target string) (Row, error) {
	s, err := set(ctx, o, a, target)
	if err != nil {
		return Row{}, err
	}
	defer s.close()
	if err := s.clients.exchange(ctx, 10*time.Second); err != nil {
		return Row{}, fmt.Errorf("%s: a client of %s before the attack: %w", a.name, target, err)
	}
	attackCtx, stop := context.WithCancel(ctx)
	var attacking sync.WaitGroup
	defer attacking.Wait()
	defer stop()
	m := startMeter(s)
	attacking.Go(func() { a.run(attackCtx, s) })
	during, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	control := make(chan *tally, 1)
	go func() { control <- way{address: s.cluster[0].address()}.use(during, controls, o.Within) }()
	t := s.clients.use(during, o.Clients, o.Within)
	direct := <-control
	row := m.stop()
	if err := ctx.Err(); err != nil {
		return Row{}, err
	}
	row.Attack, row.Words, row.Target, row.Accepted = a.name, a.words, target, a.accepted
	row.Clients, row.Served, row.Exchanges, row.Missed, row.SlowestSeconds = t.clients, t.served, t.exchanges, t.missed, t.slowest.Seconds()
	row.Connections, row.Responses, row.Refused = s.connections.Load(), s.responses.Load(), s.refused.Load()
	if direct.served < direct.clients {
		row.Busy = fmt.Sprintf("%d of %d clients without a proxy were not served in time either: %s", direct.clients-direct.served, direct.clients, direct.first)
	}
	if target == TargetTiergate {
		row.BoundBytes = a.buffered() + Allowance
	}
	row.Faults = append(row.Faults, s.faults(row, t)...)
	return row, ctx.Err()
}

// faults says what did not hold. It ends the process, while the attack goes on.
func (s *scene) faults(row Row, t *tally) (list []string) {
	if row.Served < row.Clients && row.Accepted == "" {
		list = append(list, fmt.Sprintf("%d of %d clients were not served in time: first %s", row.Clients-row.Served, row.Clients, t.first))
	}
	if row.BoundBytes > 0 && row.PeakBytes > row.BoundBytes {
		list = append(list, fmt.Sprintf("peak memory %d MiB, bound %d MiB", row.PeakBytes/mib, row.BoundBytes/mib))
	}
	if s.attack.ordinary && row.Responses == 0 {
		list = append(list, "no large response arrived")
	}
	select {
	case <-s.process.Done():
		return append(list, fmt.Sprintf("the process ended: %v", s.process.Err()))
	default:
	}
	if row.Target != TargetTiergate {
		return list
	}
	if err := s.gate.AwaitReady(context.Background(), readyTimeout); err != nil {
		list = append(list, err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.process.Terminate(ctx); err != nil {
		return append(list, fmt.Sprintf("still running %v after SIGTERM, with drain_timeout %v", stopTimeout, drainTimeout))
	}
	// Exit code 2: drain_timeout was over before every request had its response.
	var exit *exec.ExitError
	if err := s.process.Err(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) {
		list = append(list, fmt.Sprintf("after SIGTERM: %v", err))
	}
	return list
}

// meter looks at a process from time to time.
type meter struct {
	began   time.Time
	cpu     time.Duration // used before
	row     Row
	end     chan struct{}
	running sync.WaitGroup
}

func startMeter(s *scene) *meter {
	m := &meter{began: time.Now(), end: make(chan struct{})}
	pids := []int{s.process.PID()}
	m.cpu, _ = bench.CPUTime(pids)
	m.running.Go(func() {
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-tick.C:
			case <-m.end:
				over = true
			}
			cpu, cpuErr := bench.CPUTime(pids)
			peak, peakErr := bench.Peak(pids)
			if cpuErr != nil || peakErr != nil {
				continue // the process has ended: its last sample stays
			}
			m.row.CPUSeconds, m.row.PeakBytes = (cpu - m.cpu).Seconds(), peak
			m.row.Seconds = time.Since(m.began).Seconds()
			if now, err := bench.Resident(pids); err == nil && now > tooMuch {
				m.row.Faults = append(m.row.Faults, fmt.Sprintf("killed at %d MiB of resident memory", now/mib))
				s.process.Kill()
			}
		}
	})
	return m
}

// stop returns a row with what was seen.
func (m *meter) stop() Row {
	close(m.end)
	m.running.Wait()
	return m.row
}
