// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"tiergate/loadtest/fault"
	"tiergate/loadtest/report"
)

// relayed says whether a fault is one of connections.
func (f *FaultAt) relayed() bool {
	switch f.Kind {
	case fault.KindLatency, fault.KindBandwidth, fault.KindCutFIN, fault.KindCutRST, fault.KindHalfOpen, fault.KindBlackhole:
		return true
	case fault.KindBrokerRestart, fault.KindBrokerKill, fault.KindProxyRestart, fault.KindLeaderMove:
	}
	return false
}

// relayedSides returns at which sides of a target connections go through a relay: only
// where a fault of the scenario needs it, for a relay costs time.
func (s *Scenario) relayedSides(t Target) map[Side]bool {
	sides := make(map[Side]bool)
	for _, p := range s.Phases {
		for i := range p.Faults {
			if f := &p.Faults[i]; f.relayed() && slices.Contains(p.Targets, t.Name) {
				if t.Kind == TargetDirect {
					sides[SideClients] = true // there is one side only
				} else {
					sides[f.Side] = true
				}
			}
		}
	}
	return sides
}

// faults are those of a turn, under way.
type faults struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startFaults has the faults of the phase happen at their times after start.
func (u *turn) startFaults(ctx context.Context, start time.Time) *faults {
	ctx, cancel := context.WithCancel(ctx)
	f := &faults{cancel: cancel}
	for i := range u.phase.Faults {
		spec := &u.phase.Faults[i]
		if _, why := u.fault(spec); why != "" {
			u.note(fmt.Sprintf("fault %s is left out on target %s: %s", spec.Kind, u.target.spec.Name, why))
			continue
		}
		f.wg.Go(func() { u.repeat(ctx, spec, start) })
	}
	return f
}

// end ends the faults that are in force and returns when all is as before.
func (f *faults) end() {
	if f != nil {
		f.cancel()
		f.wg.Wait()
	}
}

// repeat plays a fault at its times. One that would outlast the turn is not begun.
func (u *turn) repeat(ctx context.Context, spec *FaultAt, start time.Time) {
	stop := make(chan struct{})
	random := rand.New(rand.NewPCG(u.number, uint64(spec.At)))
	for at := spec.At; at == spec.At || at+spec.For < u.phase.Duration; at += spec.Every {
		late := Duration(random.Float64() * float64(spec.Within))
		if !pause(ctx, stop, time.Until(start.Add(time.Duration(at+late)))) {
			return
		}
		f, _ := u.fault(spec)
		u.Progress.Say("%s: fault %s begins", u.target.spec.Name, spec.Kind)
		mark, err := fault.Play(ctx, unhurried{f}, time.Duration(spec.For))
		mark.Target, mark.Text = u.target.spec.Name, oneLine(mark.Text)
		u.mark(mark)
		if err != nil && ctx.Err() == nil {
			u.note(oneLine(fmt.Sprintf("target %s: %v", mark.Target, err)))
		}
		if spec.Every == 0 {
			return
		}
	}
}

// unhurried is a fault whose beginning is not cut short by the end of the turn: a broker
// that is told to stop would be killed.
type unhurried struct{ fault.Fault }

// Begin is fault.Fault.
func (f unhurried) Begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	return f.Fault.Begin(ctx)
}

// mark and note add to the report.
func (r *runner) mark(m report.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Marks = append(r.report.Marks, m)
}

func (r *runner) note(missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.report.Missing, missing) {
		r.report.Missing = append(r.report.Missing, missing)
	}
}

// fault makes a fault for this turn; why says why there is none.
func (u *turn) fault(spec *FaultAt) (f fault.Fault, why string) {
	c := u.target.cluster
	switch spec.Kind {
	case fault.KindBrokerRestart, fault.KindBrokerKill:
		if c.real == nil {
			return nil, "its brokers were not started by this run"
		}
		if spec.Node >= len(c.real.Nodes()) {
			return nil, fmt.Sprintf("there is no broker %d", spec.Node)
		}
		n := c.real.Nodes()[spec.Node]
		what := fmt.Sprintf("broker %d", n.NodeID())
		if spec.Kind == fault.KindBrokerKill {
			return fault.NewKill(spec.Kind, what, n), ""
		}
		return fault.NewRestart(spec.Kind, what, n), ""
	case fault.KindProxyRestart:
		if u.target.launch == nil {
			return nil, "it has no process of this run"
		}
		return fault.NewRestart(spec.Kind, u.target.spec.Name, restartable{u.target}), ""
	case fault.KindLeaderMove:
		return fault.NewLeaderMove(c.admin, u.topicOf(spec.Topic)), ""
	case fault.KindLatency, fault.KindBandwidth, fault.KindCutFIN, fault.KindCutRST, fault.KindHalfOpen, fault.KindBlackhole:
	}
	relays := u.target.relays[spec.Side]
	if u.target.spec.Kind == TargetDirect {
		relays = u.target.relays[SideClients]
	}
	if len(relays) == 0 {
		return nil, "its connections do not go through a relay, for the brokers' addresses are not this run's to choose"
	}
	seed := u.number
	switch spec.Kind {
	case fault.KindLatency:
		return fault.NewLatency(time.Duration(spec.Latency), time.Duration(spec.Jitter), relays...), ""
	case fault.KindBandwidth:
		return fault.NewBandwidth(int64(spec.Rate), relays...), ""
	case fault.KindCutRST:
		return fault.NewCut(fault.RST, spec.Share, seed, relays...), ""
	case fault.KindHalfOpen:
		return fault.NewHalfOpen(spec.Share, seed, relays...), ""
	case fault.KindBlackhole:
		return fault.NewBlackhole(relays...), ""
	case fault.KindCutFIN, fault.KindBrokerRestart, fault.KindBrokerKill, fault.KindProxyRestart, fault.KindLeaderMove:
	}
	return fault.NewCut(fault.FIN, spec.Share, seed, relays...), ""
}

// topicOf is the topic of a workload in this turn, or a shared one.
func (u *turn) topicOf(name string) string {
	for _, j := range u.jobs {
		if r, ok := j.(*recordsJob); ok && r.spec.Name == name {
			return r.topic
		}
	}
	return name
}

// restartable is a target as an operator restarts it.
type restartable struct{ *target }

// Stop is fault.Restartable.
func (r restartable) Stop(ctx context.Context) error { return r.stop(ctx) }

// Start is fault.Restartable.
func (r restartable) Start(ctx context.Context) error { return r.start(ctx) }

// oneLine is the start of a text that may be long: errors of brokers bring their log.
func oneLine(text string) string {
	text, _, cut := strings.Cut(text, "\n")
	if len(text) > 300 {
		text, cut = text[:300], true
	}
	if cut {
		text += " ..."
	}
	return text
}
