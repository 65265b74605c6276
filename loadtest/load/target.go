// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"tiergate/loadtest/fault"
	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// outputLog is the file in a target's folder that its processes write to.
const outputLog = "output.log"

// target is a way to the brokers that is open.
type target struct {
	spec    Target
	cluster *cluster
	// bootstrap is where clients connect first.
	bootstrap []string
	// text is one line for the report.
	text string
	// metrics is the URL of the Prometheus endpoint, or empty.
	metrics string

	// listener of the brokers for this target; nil: clients and proxy use the one for all.
	listener *listenerFor
	// listens is where the target's processes listen, by index of the node, when they stand
	// at the brokers' advertised addresses.
	listens []string
	// relays that faults work on.
	relays map[Side][]*fault.Relay
	folder string
	log    *os.File // outputLog, for processes but tiergate

	// launch starts the processes; nil for targets without any.
	launch func(context.Context) ([]*kafka.Process, error)
	mu     sync.Mutex
	up     []*kafka.Process
}

// newTarget reserves what a target needs to know before its brokers start: on a real
// cluster a listener of its own, which advertises the place where this target's clients
// are to connect. relayed says at which sides a relay for faults stands.
func newTarget(spec Target, c Cluster, index int, folder string, relayed map[Side]bool) (*target, error) {
	t := &target{spec: spec, folder: filepath.Join(folder, spec.Name), relays: make(map[Side][]*fault.Relay)}
	if err := os.MkdirAll(t.folder, 0o755); err != nil {
		return nil, fmt.Errorf("target %s: %w", spec.Name, err)
	}
	for side, is := range relayed {
		if is {
			t.relays[side] = []*fault.Relay{}
		}
	}
	if c.Kind != ClusterReal || spec.Kind == TargetExternal || spec.Kind == TargetDirect && !relayed[SideClients] {
		return t, nil
	}
	if err := t.reserve(c.Brokers, index); err != nil {
		t.close()
		return nil, fmt.Errorf("target %s: %w", spec.Name, err)
	}
	return t, nil
}

// reserve takes ports for n brokers and for what stands before them:
//
//	clients > relay > target > relay > listener
//
// Each is optional. The listener advertises the first thing that clients meet, or for a
// target that rewrites addresses the first thing behind it.
func (t *target) reserve(n, index int) error {
	ports, err := kafka.FreePorts(2 * n)
	if err != nil {
		return err
	}
	t.listener = &listenerFor{name: fmt.Sprintf("TARGET%d", index), ports: ports[:n]}
	behind := make([]string, n)
	for i := range n {
		behind[i] = kafka.Loopback(ports[i])
	}
	if behind, err = t.relay(SideBrokers, behind); err != nil {
		return err
	}
	switch {
	case t.spec.Kind == TargetDirect:
		t.listener.advertised, err = t.relay(SideClients, behind)
	case t.spec.atBrokersAddress():
		for i := range n {
			t.listens = append(t.listens, kafka.Loopback(ports[n+i]))
		}
		t.listener.advertised, err = t.relay(SideClients, t.listens)
	default: // the relays before it are made when its ports are known
		t.listener.advertised = behind
	}
	return err
}

// relay puts a relay before each address, if faults need it at that side, and returns
// where to connect instead.
func (t *target) relay(side Side, addresses []string) ([]string, error) {
	if _, wanted := t.relays[side]; !wanted {
		return addresses, nil
	}
	var at []string
	for i, a := range addresses {
		r, err := fault.NewRelay("127.0.0.1:0", a, uint64(i))
		if err != nil {
			return nil, err
		}
		t.relays[side] = append(t.relays[side], r)
		at = append(at, r.Address())
	}
	return at, nil
}

// atBrokersAddress says whether the target stands at the addresses that brokers advertise.
func (t *Target) atBrokersAddress() bool {
	return t.Kind == TargetHAProxy || t.Kind == TargetNginx || t.Kind == TargetTiergate && t.Mode == ModeDirect
}

// open starts the target before the brokers of c.
func (t *target) open(ctx context.Context, c *cluster, binary string) error {
	t.cluster = c
	var err error
	if t.spec.Kind == TargetHAProxy || t.spec.Kind == TargetNginx {
		if t.log, err = os.Create(filepath.Join(t.folder, outputLog)); err != nil {
			return err
		}
	}
	switch t.spec.Kind {
	case TargetDirect:
		t.bootstrap, t.text = c.bootstrap, "no proxy"
		if t.listener != nil {
			t.bootstrap = t.listener.advertised
		}
	case TargetExternal:
		t.bootstrap, t.metrics = t.spec.Bootstrap, t.spec.Metrics
		t.text = "at " + strings.Join(t.bootstrap, ", ")
	case TargetTiergate:
		err = t.openTiergate(ctx, binary)
	case TargetHAProxy, TargetNginx:
		t.bootstrap = t.listener.advertised
		t.text, t.launch = t.relayText(), t.startRelays
	}
	if err == nil {
		err = t.start(ctx)
	}
	if err != nil {
		return fmt.Errorf("target %s: %w", t.spec.Name, err)
	}
	return nil
}

// start starts the processes.
func (t *target) start(ctx context.Context) error {
	if t.launch == nil {
		return nil
	}
	up, err := t.launch(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up = up
	return err
}

// stop ends the processes as an operator does: SIGTERM, and a minute to drain.
func (t *target) stop(ctx context.Context) error {
	t.mu.Lock()
	up := t.up
	t.up = nil
	t.mu.Unlock()
	var errs []error
	for _, p := range up {
		errs = append(errs, p.Terminate(ctx))
	}
	return errors.Join(errs...)
}

func (t *target) close() {
	t.mu.Lock()
	up := t.up
	t.up = nil
	t.mu.Unlock()
	for _, p := range up {
		p.Kill()
	}
	for _, relays := range t.relays {
		for _, r := range relays {
			r.Close()
		}
	}
	if t.log != nil {
		t.log.Close()
	}
}

// pids returns the processes that were started, without their children.
func (t *target) pids() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var pids []int
	for _, p := range t.up {
		select {
		case <-p.Done():
		default:
			pids = append(pids, p.PID())
		}
	}
	return pids
}

// running is an error when a process has ended that nobody ended.
func (t *target) running() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.up {
		select {
		case <-p.Done():
			return fmt.Errorf("target %s has ended by itself (%w); it said:\n%s", t.spec.Name, errors.Join(p.Err(), errors.New("see below")), t.lastWords())
		default:
		}
	}
	return nil
}

// lastWords is the end of what the processes said.
func (t *target) lastWords() string {
	text, err := os.ReadFile(filepath.Join(t.folder, outputLog))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// threads is how many threads move bytes.
func (t *target) threads() int {
	if t.spec.Threads > 0 {
		return t.spec.Threads
	}
	return runtime.NumCPU()
}

// brokers returns the addresses that this target's own connections go to, by index of
// the node.
func (t *target) brokers() []string {
	if t.listener == nil {
		return t.cluster.bootstrap
	}
	var list []string
	for i, p := range t.listener.ports {
		list = append(list, kafka.Loopback(p))
		if relays := t.relays[SideBrokers]; len(relays) > 0 {
			list[i] = relays[i].Address()
		}
	}
	return list
}

// openTiergate writes the configuration of tiergate and says how to start it.
func (t *target) openTiergate(ctx context.Context, binary string) error {
	config, err := t.tiergateConfig(ctx)
	if err != nil {
		return err
	}
	o := gate.Options{Binary: binary, Folder: t.folder, Config: config, Log: outputLog}
	if t.spec.Threads > 0 {
		o.Env = []string{fmt.Sprintf("GOMAXPROCS=%d", t.spec.Threads)}
	}
	g, err := gate.New(o)
	if err != nil {
		return err
	}
	version := "of unknown version"
	if out, err := exec.CommandContext(ctx, binary, "version").Output(); err == nil {
		version = strings.TrimSpace(string(out))
	}
	t.text = fmt.Sprintf("%s, %s addresses", version, map[Mode]string{ModeRewrite: "rewrites", ModeDirect: "leaves"}[t.spec.Mode])
	t.metrics = g.MetricsURL()
	t.launch = func(ctx context.Context) ([]*kafka.Process, error) {
		if err := g.Start(ctx); err != nil {
			return nil, err
		}
		return []*kafka.Process{g.Process()}, nil
	}
	return nil
}

// tiergateConfig is what an operator would write, with an endpoint for every broker.
func (t *target) tiergateConfig(ctx context.Context) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "upstream:\n  bootstrap_servers: [%s]\nlisteners:\n  - name: clients\n", quoted(t.brokers()))
	if t.spec.Mode == ModeDirect {
		t.bootstrap = t.listener.advertised
		b.WriteString("    direct:\n")
		for i, broker := range t.brokers() {
			fmt.Fprintf(&b, "      %q: %q\n", t.listens[i], broker)
		}
		return b.String(), nil
	}
	nodes, err := t.cluster.nodes(ctx)
	if err != nil {
		return "", err
	}
	ports, err := kafka.FreePorts(1 + len(nodes))
	if err != nil {
		return "", err
	}
	var binds []string
	for _, p := range ports {
		binds = append(binds, kafka.Loopback(p))
	}
	advertised, err := t.relay(SideClients, binds)
	if err != nil {
		return "", err
	}
	t.bootstrap = advertised[:1]
	fmt.Fprintf(&b, "    bootstrap: %q\n    node_addresses:\n", binds[0])
	for i, id := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(&b, "      %d: {bind: %q, advertised: %q}\n", id, binds[1+i], advertised[1+i])
	}
	return b.String(), nil
}

func quoted(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(q, ", ")
}
