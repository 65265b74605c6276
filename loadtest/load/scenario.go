// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"errors"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"tiergate/internal/strictyaml"
	"tiergate/loadtest/fault"
	"tiergate/loadtest/report"
)

// Scenario is what a run does. docs/loadtest.md has every key with unit and default.
type Scenario struct {
	Name     string    `yaml:"name"`
	About    string    `yaml:"about"`
	Clusters []Cluster `yaml:"clusters"`
	Topics   []Topic   `yaml:"topics"`
	Targets  []Target  `yaml:"targets"`
	Phases   []Phase   `yaml:"phases"`
	Bounds   []Bound   `yaml:"bounds"`

	// Text is what was read.
	Text string
}

// Cluster is where brokers come from.
type Cluster struct {
	Name string      `yaml:"name"`
	Kind ClusterKind `yaml:"kind"`
	// Version of Kafka: of a real cluster, and what a simulated one answers as.
	Version string `yaml:"version"`
	// Brokers is their number.
	Brokers int  `yaml:"brokers"`
	Tiered  bool `yaml:"tiered"`
	// Heap is the largest heap of a real broker.
	Heap Size `yaml:"heap"`
	// JVM are more options of the real brokers' Java.
	JVM []string `yaml:"jvm"`
	// Dir keeps the files of a real cluster.
	Dir        string            `yaml:"dir"`
	Properties map[string]string `yaml:"properties"`
	// Bootstrap are the addresses of an existing cluster.
	Bootstrap []string `yaml:"bootstrap"`
}

func (c *Cluster) setDefaults() {
	*c = Cluster{Kind: ClusterReal, Version: "4.1.1", Brokers: 1, Tiered: true, Heap: 384 << 20}
}

// Topic exists before the first phase on every cluster, and is shared by workloads.
type Topic struct {
	Name       string            `yaml:"name"`
	Partitions int               `yaml:"partitions"`
	Replicas   int               `yaml:"replicas"`
	Tiered     bool              `yaml:"tiered"`
	Configs    map[string]string `yaml:"configs"`
	// Records are produced before the first phase, in all partitions together.
	Records    int  `yaml:"records"`
	RecordSize Size `yaml:"record_size"`
	// Uploaded waits until every partition with records has some that are only in remote storage.
	Uploaded bool `yaml:"uploaded"`
	// Flow is how many records per second are appended all the time, so that offsets move.
	Flow int `yaml:"flow"`
}

func (t *Topic) setDefaults() {
	*t = Topic{Partitions: 1, Replicas: 1, RecordSize: 1 << 10}
}

// Target is one way to the brokers.
type Target struct {
	Name string     `yaml:"name"`
	Kind TargetKind `yaml:"kind"`
	// Cluster is the name of one; empty for the first.
	Cluster string `yaml:"cluster"`
	// Baseline is the target that this one is compared with.
	Baseline string `yaml:"baseline"`
	// Bootstrap are the addresses of an external target.
	Bootstrap []string `yaml:"bootstrap"`
	// Binary of tiergate; empty: built from this repository.
	Binary string `yaml:"binary"`
	Mode   Mode   `yaml:"mode"`
	// Threads is how many threads move bytes; 0: as many as there are cores.
	Threads int `yaml:"threads"`
	// Metrics is the URL of an external target's Prometheus endpoint.
	Metrics string `yaml:"metrics"`
}

func (t *Target) setDefaults() { t.Mode = ModeRewrite }

// Phase is workloads that run at the same time, on one target after the other.
type Phase struct {
	Name string `yaml:"name"`
	// Targets that take part; empty: all.
	Targets   []string   `yaml:"targets"`
	Rounds    int        `yaml:"rounds"`
	WarmUp    Duration   `yaml:"warm_up"`
	Duration  Duration   `yaml:"duration"`
	Workloads []Workload `yaml:"workloads"`
	Faults    []FaultAt  `yaml:"faults"`
}

func (p *Phase) setDefaults() { *p = Phase{Rounds: 1, Duration: Duration(10 * time.Second)} }

// Workload is what some clients do.
type Workload struct {
	Name string       `yaml:"name"`
	Kind WorkloadKind `yaml:"kind"`
	// Targets that it runs on; empty: those of the phase.
	Targets []string `yaml:"targets"`
	// Topic is one of Scenario.Topics; empty: a new one for each turn.
	Topic string `yaml:"topic"`
	// Clients is the number of producers, consumers, members or connections.
	Clients int `yaml:"clients"`

	Partitions int               `yaml:"partitions"`
	Replicas   int               `yaml:"replicas"`
	Configs    map[string]string `yaml:"configs"`

	RecordSize  Size        `yaml:"record_size"`
	Batch       Size        `yaml:"batch"`
	Linger      Duration    `yaml:"linger"`
	Acks        Acks        `yaml:"acks"`
	Compression Compression `yaml:"compression"`
	Keys        int         `yaml:"keys"`
	Idempotent  bool        `yaml:"idempotent"`
	// Transaction is the number of records in one; 0: none.
	Transaction int     `yaml:"transaction"`
	AbortShare  float64 `yaml:"abort_share"`
	// InFlight bounds the records of a producer that are not acknowledged.
	InFlight int `yaml:"in_flight"`
	Requests int `yaml:"requests_in_flight"`

	// Rate is of all clients together, per second: records, connections or requests. 0:
	// as many as possible, a closed loop.
	Rate   float64 `yaml:"rate"`
	RateOf *RateOf `yaml:"rate_of"`

	Consumers int `yaml:"consumers"`
	// ConsumeRate slows every consumer down to so many records per second; 0: not.
	ConsumeRate float64 `yaml:"consume_rate"`
	FetchBytes  Size    `yaml:"fetch_bytes"`

	// Every is the time between two changes of a group's members, or two requests of a client.
	Every Duration `yaml:"every"`
	// Hold is how long a connection is kept.
	Hold Duration `yaml:"hold"`

	// Timestamp is what pending-upload asks for.
	Timestamp int `yaml:"timestamp"`
}

func (w *Workload) setDefaults() {
	*w = Workload{
		Clients: 1, Partitions: 12, Replicas: 1, RecordSize: 1 << 10, Batch: 1 << 20, Acks: AcksAll, Compression: CompressionNone,
		Idempotent: true, InFlight: 10_000, Requests: 5, Consumers: 1, FetchBytes: 1 << 20, Timestamp: -6,
	}
}

// RateOf is a share of what a workload of an earlier phase reached.
type RateOf struct {
	Workload string  `yaml:"workload"`
	Target   string  `yaml:"target"`
	Share    float64 `yaml:"share"`
}

// FaultAt is a fault at a time after the start of a turn's measured time.
type FaultAt struct {
	At   Duration   `yaml:"at"`
	Kind fault.Kind `yaml:"kind"`
	// Within delays every beginning by a random time up to this.
	Within Duration `yaml:"within"`
	// For is how long it lasts; Every repeats it, 0: once.
	For   Duration `yaml:"for"`
	Every Duration `yaml:"every"`
	// Node is the index of the broker that is meant.
	Node int `yaml:"node"`
	// Topic is a shared one, or a workload with a topic of its own.
	Topic string `yaml:"topic"`
	Side  Side   `yaml:"side"`
	// Share of the connections.
	Share   float64  `yaml:"share"`
	Latency Duration `yaml:"latency"`
	Jitter  Duration `yaml:"jitter"`
	// Rate in bytes per second.
	Rate Size `yaml:"rate"`
}

func (f *FaultAt) setDefaults() { *f = FaultAt{Side: SideClients, Share: 1} }

// Bound is what a figure of the report must hold; see report.Bound.
type Bound struct {
	Text            string   `yaml:"text"`
	Target          string   `yaml:"target"`
	Workload        string   `yaml:"workload"`
	Figure          string   `yaml:"figure"`
	By              string   `yaml:"by"`
	Against         string   `yaml:"against"`
	AgainstWorkload string   `yaml:"against_workload"`
	AtLeast         *float64 `yaml:"at_least"`
	AtMost          *float64 `yaml:"at_most"`
}

// Parse reads a scenario. An *Error has every fault of it; file is what they name it.
func Parse(file string, source []byte) (*Scenario, error) {
	tree, err := parser.ParseBytes(source, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, &Error{File: file, Faults: []strictyaml.Fault{syntaxFault(err)}}
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return nil, &Error{File: file, Faults: []strictyaml.Fault{{Problem: "wanted one YAML document with the keys name, targets and phases"}}}
	}
	s := &Scenario{Text: string(source)}
	d := &decoder{strictyaml.NewFindings()}
	d.value("", tree.Docs[0].Body, reflectOf(s))
	delete(d.Places, "") // what the scenario lacks as a whole has no place
	s.fill()
	(&validator{decoder: d, scenario: s}).scenarioFaults()
	if err := d.Err(file); err != nil {
		return nil, err
	}
	return s, nil
}

// syntaxFault is the library's complaint with its place.
func syntaxFault(err error) strictyaml.Fault {
	f := strictyaml.Fault{Problem: err.Error()}
	var y yaml.Error
	if errors.As(err, &y) {
		f.Problem = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
		}
	}
	return f
}

// fill gives what follows from the rest.
func (s *Scenario) fill() {
	if len(s.Clusters) == 0 {
		c := Cluster{}
		c.setDefaults()
		s.Clusters = []Cluster{c}
	}
	for i := range s.Clusters {
		s.Clusters[i].Name = cmp.Or(s.Clusters[i].Name, "main")
	}
	for i := range s.Targets {
		t := &s.Targets[i]
		t.Name = cmp.Or(t.Name, string(t.Kind))
		t.Cluster = cmp.Or(t.Cluster, s.Clusters[0].Name)
	}
	for i := range s.Phases {
		p := &s.Phases[i]
		if len(p.Targets) == 0 {
			for _, t := range s.Targets {
				p.Targets = append(p.Targets, t.Name)
			}
		}
		for j := range p.Workloads {
			w := &p.Workloads[j]
			w.Name = cmp.Or(w.Name, string(w.Kind))
			if len(w.Targets) == 0 {
				w.Targets = p.Targets
			}
			if w.Acks != AcksAll {
				w.Idempotent = false
			}
		}
	}
}

// target returns the target of that name, or nil.
func (s *Scenario) target(name string) *Target {
	for i := range s.Targets {
		if s.Targets[i].Name == name {
			return &s.Targets[i]
		}
	}
	return nil
}

// cluster returns the cluster of that name, or nil.
func (s *Scenario) cluster(name string) *Cluster {
	for i := range s.Clusters {
		if s.Clusters[i].Name == name {
			return &s.Clusters[i]
		}
	}
	return nil
}

// topic returns the shared topic of that name, or nil.
func (s *Scenario) topic(name string) *Topic {
	for i := range s.Topics {
		if s.Topics[i].Name == name {
			return &s.Topics[i]
		}
	}
	return nil
}

// bounds returns the bounds as the report has them.
func (s *Scenario) bounds() []report.Bound {
	var list []report.Bound
	for _, b := range s.Bounds {
		list = append(list, report.Bound{
			Text: b.Text, Target: b.Target, Workload: b.Workload, Figure: report.Figure(b.Figure), By: report.By(b.By),
			Against: b.Against, AgainstWorkload: b.AgainstWorkload, AtLeast: b.AtLeast, AtMost: b.AtMost,
		})
	}
	return list
}
