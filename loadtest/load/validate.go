// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"tiergate/loadtest/fault"
	"tiergate/loadtest/report"
)

func reflectOf(s *Scenario) reflect.Value { return reflect.ValueOf(s).Elem() }

// validator finds what is wrong beyond the form of single values.
type validator struct {
	*decoder
	scenario *Scenario
	names    map[string]bool // of workloads seen, with their targets
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,60}$`)

// named reports a name that the scenario does not have.
func (v *validator) named(path, name, what string, known func(string) bool) {
	if name != "" && !known(name) {
		v.Fault(path, "%q is no %s of this scenario", name, what)
	}
}

// fine is what became of a check.
type fine bool

// need reports a key that is not as it must be, or not there.
func (v *validator) need(path string, ok fine, want string) {
	if !bool(ok) && !v.Faulty[path] {
		v.Fault(path, "wanted %s", want)
	}
}

func (v *validator) name(path, name string) {
	v.need(path, fine(plainName.MatchString(name)), `letters, digits, ".", "_" and "-", from 1 to 60`)
}

func (v *validator) isTarget(name string) bool  { return v.scenario.target(name) != nil }
func (v *validator) isCluster(name string) bool { return v.scenario.cluster(name) != nil }
func (v *validator) isTopic(name string) bool   { return v.scenario.topic(name) != nil }

func (v *validator) scenarioFaults() {
	s := v.scenario
	v.name("name", s.Name)
	v.need("targets", len(s.Targets) > 0, "at least one target")
	v.need("phases", len(s.Phases) > 0, "at least one phase")
	for i := range s.Clusters {
		v.clusterFaults(fmt.Sprintf("clusters[%d]", i), &s.Clusters[i])
	}
	unique(v, "clusters", s.Clusters, func(c Cluster) string { return c.Name })
	for i, t := range s.Topics {
		path := fmt.Sprintf("topics[%d]", i)
		v.name(path+".name", t.Name)
		v.need(path+".partitions", t.Partitions > 0, "at least 1")
		v.need(path+".replicas", t.Replicas > 0, "at least 1")
		v.need(path+".record_size", t.RecordSize >= headerSize, fmt.Sprintf("at least %d bytes, for number and checksum", headerSize))
		v.need(path+".records", t.Records >= 0, "0 or more")
		v.need(path+".flow", t.Flow >= 0, "0 or more")
		v.need(path+".uploaded", fine(!t.Uploaded || t.Tiered && t.Records > 0), "false, or a topic that is tiered and has records")
	}
	unique(v, "topics", s.Topics, func(t Topic) string { return t.Name })
	for i := range s.Targets {
		v.targetFaults(fmt.Sprintf("targets[%d]", i), &s.Targets[i])
	}
	unique(v, "targets", s.Targets, func(t Target) string { return t.Name })
	v.names = make(map[string]bool)
	for i := range s.Phases {
		v.phaseFaults(fmt.Sprintf("phases[%d]", i), &s.Phases[i])
	}
	unique(v, "phases", s.Phases, func(p Phase) string { return p.Name })
	for i := range s.Bounds {
		v.boundFaults(fmt.Sprintf("bounds[%d]", i), &s.Bounds[i])
	}
}

// unique reports names of a list that are there twice.
func unique[T any](v *validator, path string, list []T, name func(T) string) {
	seen := make(map[string]int)
	for i, item := range list {
		if first, ok := seen[name(item)]; ok {
			v.Fault(fmt.Sprintf("%s[%d]", path, i), "has the name %q, which %s[%d] has; wanted another one", name(item), path, first)
		}
		if _, ok := seen[name(item)]; !ok {
			seen[name(item)] = i
		}
	}
}

var kafkaVersion = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func (v *validator) clusterFaults(path string, c *Cluster) {
	v.name(path+".name", c.Name)
	v.need(path+".version", fine(kafkaVersion.MatchString(c.Version)), "a Kafka version such as 4.1.1")
	v.need(path+".brokers", c.Brokers >= 1 && c.Brokers <= 9, "from 1 to 9")
	v.need(path+".heap", c.Heap >= 64<<20, "at least 64MiB")
	v.need(path+".bootstrap", c.Kind != ClusterExisting || len(c.Bootstrap) > 0, "addresses of the existing cluster")
	if c.Kind != ClusterExisting && v.Given(path+".bootstrap") {
		v.Fault(path+".bootstrap", "is for kind: existing only")
	}
}

func (v *validator) targetFaults(path string, t *Target) {
	v.need(path+".kind", t.Kind != "", "direct, tiergate, haproxy, nginx or external")
	if t.Kind != "" {
		v.name(path+".name", t.Name) // by default it is the kind
	}
	v.named(path+".cluster", t.Cluster, "cluster", v.isCluster)
	v.named(path+".baseline", t.Baseline, "target", v.isTarget)
	v.need(path+".bootstrap", t.Kind != TargetExternal || len(t.Bootstrap) > 0, "addresses of the external target")
	v.need(path+".threads", t.Threads >= 0, "0 or more")
	for key, kinds := range map[string][]TargetKind{
		"bootstrap": {TargetExternal}, "metrics": {TargetExternal}, "binary": {TargetTiergate}, "mode": {TargetTiergate},
		"threads": {TargetTiergate, TargetHAProxy, TargetNginx},
	} {
		if t.Kind != "" && v.Given(path+"."+key) && !slices.Contains(kinds, t.Kind) {
			v.Fault(path+"."+key, "is not for kind: %s", t.Kind)
		}
	}
	if c := v.scenario.cluster(t.Cluster); c != nil && c.Kind != ClusterReal && t.atBrokersAddress() {
		v.Fault(path, "rewrites no addresses, so it needs a broker that advertises its port: wanted a cluster of kind: real")
	}
}

func (v *validator) phaseFaults(path string, p *Phase) {
	v.name(path+".name", p.Name)
	for i, name := range p.Targets {
		v.named(fmt.Sprintf("%s.targets[%d]", path, i), name, "target", v.isTarget)
	}
	v.need(path+".rounds", p.Rounds > 0, "at least 1")
	v.need(path+".duration", p.Duration > 0, "a time above 0")
	v.need(path+".workloads", len(p.Workloads) > 0, "at least one workload")
	for i := range p.Workloads {
		v.workloadFaults(fmt.Sprintf("%s.workloads[%d]", path, i), p, &p.Workloads[i])
	}
	for i := range p.Faults {
		v.faultFaults(fmt.Sprintf("%s.faults[%d]", path, i), p, &p.Faults[i])
	}
}

// keysFor are the keys that belong to some kinds of workloads only.
func keysFor() map[string][]WorkloadKind {
	produce := []WorkloadKind{WorkloadProduce, WorkloadProduceConsume, WorkloadGroupChurn}
	consume := []WorkloadKind{WorkloadConsume, WorkloadProduceConsume, WorkloadCatchUp}
	rated := slices.Concat(produce, []WorkloadKind{WorkloadConnections, WorkloadAdmin})
	keys := map[string][]WorkloadKind{
		"rate": rated, "rate_of": rated,
		"consumers":    {WorkloadProduceConsume, WorkloadGroupChurn},
		"consume_rate": consume, "fetch_bytes": consume,
		"every":     {WorkloadGroupChurn, WorkloadPendingUpload, WorkloadTiering},
		"hold":      {WorkloadConnections},
		"timestamp": {WorkloadPendingUpload},
		"topic":     {WorkloadConsume, WorkloadCatchUp, WorkloadPendingUpload, WorkloadConnections, WorkloadAdmin},
	}
	for _, key := range strings.Fields("partitions replicas configs record_size batch linger acks compression keys idempotent transaction " +
		"abort_share in_flight requests_in_flight") {
		keys[key] = produce
	}
	keys["replicas"] = slices.Concat(produce, []WorkloadKind{WorkloadTiering})
	return keys
}

func (v *validator) workloadFaults(path string, p *Phase, w *Workload) {
	v.need(path+".kind", w.Kind != "", "the kind of a workload, such as produce")
	if w.Kind != "" {
		v.name(path+".name", w.Name) // by default it is the kind
	}
	for i, name := range w.Targets {
		at := path + ".targets"
		if v.Given(at) {
			at = fmt.Sprintf("%s[%d]", at, i)
		}
		v.named(at, name, "target", v.isTarget)
		if v.isTarget(name) && !slices.Contains(p.Targets, name) {
			v.Fault(at, "%q is not among the targets of the phase", name)
		}
		if t := v.scenario.target(name); t != nil && w.Kind == WorkloadTiering {
			c := v.scenario.cluster(t.Cluster)
			v.need(path+".kind", c == nil || c.Kind != ClusterSim, "another kind for a simulated cluster, whose topics cannot be altered")
		}
		if id := w.Name + "\x00" + name; v.names[id] {
			v.Fault(path, "has the name %q, which another workload has on target %s; wanted another one", w.Name, name)
		} else {
			v.names[id] = true
		}
	}
	for key, kinds := range keysFor() {
		if w.Kind != "" && v.Given(path+"."+key) && !slices.Contains(kinds, w.Kind) {
			v.Fault(path+"."+key, "is not for kind: %s", w.Kind)
		}
	}
	v.named(path+".topic", w.Topic, "topic", v.isTopic)
	if slices.Contains([]WorkloadKind{WorkloadConsume, WorkloadCatchUp, WorkloadPendingUpload}, w.Kind) {
		v.need(path+".topic", w.Topic != "", "the name of one of the scenario's topics")
	}
	if t := v.scenario.topic(w.Topic); t != nil && (w.Kind == WorkloadConsume || w.Kind == WorkloadCatchUp) {
		v.need(path+".topic", t.Records > 0 && t.Flow == 0, "a topic with records and without flow, so that all of them are known")
	}
	v.numberFaults(path, w)
}

// numberFaults checks the numbers of a workload.
func (v *validator) numberFaults(path string, w *Workload) {
	for key, ok := range map[string]fine{
		"clients": w.Clients > 0, "partitions": w.Partitions > 0, "replicas": w.Replicas > 0, "batch": w.Batch >= 1<<10,
		"in_flight": w.InFlight > 0, "requests_in_flight": w.Requests > 0, "consumers": w.Consumers > 0, "fetch_bytes": w.FetchBytes > 0,
	} {
		v.need(path+"."+key, ok, "more")
	}
	for key, ok := range map[string]fine{"rate": w.Rate >= 0, "keys": w.Keys >= 0, "transaction": w.Transaction >= 0, "consume_rate": w.ConsumeRate >= 0} {
		v.need(path+"."+key, ok, "0 or more")
	}
	v.need(path+".record_size", w.RecordSize >= headerSize, fmt.Sprintf("at least %d bytes, for number and checksum", headerSize))
	v.need(path+".record_size", w.RecordSize+1024 <= w.Batch, "no more than batch")
	v.need(path+".abort_share", w.AbortShare >= 0 && w.AbortShare < 1, "from 0 to below 1")
	v.need(path+".abort_share", w.AbortShare == 0 || w.Transaction > 0, "0, or a workload with transaction")
	v.need(path+".transaction", fine(w.Transaction == 0 || w.Acks == AcksAll && w.Idempotent), "0, or acks: all and idempotent: true")
	v.need(path+".idempotent", fine(!v.Given(path+".idempotent") || w.Idempotent || w.Transaction == 0), "true with transaction")
	v.need(path+".hold", w.Kind != WorkloadConnections || w.Rate > 0 || w.RateOf != nil || w.Clients > 0, "a rate or clients")
	if w.RateOf == nil {
		return
	}
	v.need(path+".rate_of.share", w.RateOf.Share > 0, "a share above 0")
	v.named(path+".rate_of.target", w.RateOf.Target, "target", v.isTarget)
	if !v.names[w.RateOf.Workload+"\x00"+w.RateOf.Target] {
		v.Fault(path+".rate_of", "there is no workload %q on target %q before this one", w.RateOf.Workload, w.RateOf.Target)
	}
	v.need(path+".rate", w.Rate == 0, "only one of rate and rate_of")
}

// keysOfFaults are the keys that belong to some kinds of faults only.
func keysOfFaults() map[string][]fault.Kind {
	relayed := []fault.Kind{fault.KindLatency, fault.KindBandwidth, fault.KindCutFIN, fault.KindCutRST, fault.KindHalfOpen, fault.KindBlackhole}
	return map[string][]fault.Kind{
		"node": {fault.KindBrokerRestart, fault.KindBrokerKill}, "topic": {fault.KindLeaderMove}, "side": relayed,
		"share":   {fault.KindCutFIN, fault.KindCutRST, fault.KindHalfOpen},
		"latency": {fault.KindLatency}, "jitter": {fault.KindLatency}, "rate": {fault.KindBandwidth},
	}
}

func (v *validator) faultFaults(path string, p *Phase, f *FaultAt) {
	var kind fault.Kind
	if err := oneOf(&kind, string(f.Kind), fault.Kinds()...); err != nil {
		v.Fault(path+".kind", "%q %v", f.Kind, err)
		return
	}
	for key, kinds := range keysOfFaults() {
		if v.Given(path+"."+key) && !slices.Contains(kinds, kind) {
			v.Fault(path+"."+key, "is not for kind: %s", kind)
		}
	}
	v.need(path+".at", f.At < p.Duration, "a time before the end of the phase, "+p.Duration.String())
	v.need(path+".every", f.Every == 0 || f.Every > f.For, "0, or more than for")
	v.need(path+".share", f.Share > 0 && f.Share <= 1, "above 0, up to 1")
	v.need(path+".latency", kind != fault.KindLatency || f.Latency > 0, "a time above 0")
	v.need(path+".jitter", f.Jitter <= f.Latency, "at most latency")
	v.need(path+".rate", kind != fault.KindBandwidth || f.Rate >= 1<<10, "bytes per second, at least 1KiB")
	if kind == fault.KindLeaderMove {
		known := v.isTopic(f.Topic) || slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Name == f.Topic })
		v.need(path+".topic", fine(known), "one of the scenario's topics, or a workload of the phase")
	}
}

func (v *validator) boundFaults(path string, b *Bound) {
	v.named(path+".target", b.Target, "target", v.isTarget)
	v.named(path+".against", b.Against, "target", v.isTarget)
	v.need(path+".target", b.Target != "", "a target")
	v.need(path+".workload", b.Workload != "", "a workload")
	v.need(path+".at_most", b.AtLeast != nil || b.AtMost != nil, "at_least or at_most")
	figures := []report.Figure{
		report.FigureThroughput, report.FigureRate, report.FigureP50, report.FigureP99, report.FigureP999, report.FigureMax,
		report.FigureCPUPerGB, report.FigureCPUPerMillion, report.FigurePeakRSS,
	}
	var figure report.Figure
	if err := oneOf(&figure, b.Figure, figures...); err != nil {
		v.Fault(path+".figure", "%q %v", b.Figure, err)
	}
	var by report.By
	if err := oneOf(&by, b.By, report.ByRatio, report.ByDifference, report.ByValue, report.BySpread); err != nil {
		v.Fault(path+".by", "%q %v", b.By, err)
	}
	v.need(path+".against", b.Against != "" || by == report.ByValue, "a target to compare with")
}
