// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

// Format is the version of the JSON form of a Run. It grows when a field changes its
// meaning; a field that is added does not change it.
const Format = 1

// Run is all that a run of the load test found out. Its JSON form is kept stable: it is
// what `loadtest compare` reads, and what a user sends along with a question.
//
// A run is made of phases, one after the other. In each phase every target has one turn
// per round, the turns of a round right after each other, so that what the machine does
// meanwhile befalls all targets alike. In a turn all workloads of the phase run at the
// same time against one target. What is compared is compared within a round.
//
// Bytes are bytes, seconds are seconds, latencies are microseconds, times are absolute.
type Run struct {
	Format int `json:"format"`
	// Tool is the version of the load test.
	Tool string `json:"tool"`
	// Started is when the run began and Seconds how long it took, warm-up included.
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Interrupted says that the run was ended before it was through.
	Interrupted bool        `json:"interrupted,omitempty"`
	Environment Environment `json:"environment"`
	Scenario    Scenario    `json:"scenario"`
	// Rounds is how many turns each target was to have in each phase, at most.
	Rounds  int      `json:"rounds"`
	Targets []Target `json:"targets"`
	// Marks are the faults, in the order of At.
	Marks []Mark `json:"marks,omitempty"`
	// Bounds are what the scenario demands of the figures; Check says whether they hold.
	Bounds []Bound `json:"bounds,omitempty"`
	// Tables are results of another shape, such as those of the followers.
	Tables []Table `json:"tables,omitempty"`
	// Verdict is what became of the verification. Judge makes it from all the rest.
	Verdict Verdict `json:"verdict"`
	// Missing says in a sentence each, without a full stop, what was not measured and why.
	Missing []string `json:"missing,omitempty"`
}

// Environment is where a run took place. What could not be found out is empty.
type Environment struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	// Memory of the machine in bytes.
	Memory int64 `json:"memory_bytes,omitempty"`
	// System and Kernel are such as "linux/amd64" and "6.1.0".
	System string `json:"system"`
	Kernel string `json:"kernel,omitempty"`
	// Congestion is TCP's congestion control.
	Congestion string `json:"congestion_control,omitempty"`
	Go         string `json:"go"`
	// Software is what else took part: brokers, peers, Java.
	Software []Software `json:"software,omitempty"`
}

// Software is the name and the version of a program.
type Software struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Scenario is what was asked for.
type Scenario struct {
	Name string `json:"name"`
	// Text is the whole YAML text, as it was read.
	Text string `json:"text"`
}

// TargetKind says what stands between the clients and the brokers.
type TargetKind string

// The kinds of targets.
const (
	// TargetDirect: nothing.
	TargetDirect TargetKind = "direct"
	// TargetTiergate: a tiergate that the load test started.
	TargetTiergate TargetKind = "tiergate"
	// TargetHAProxy and TargetNginx: layer 4 proxies that the load test started.
	TargetHAProxy TargetKind = "haproxy"
	TargetNginx   TargetKind = "nginx"
	// TargetExternal: whatever listens at an address that the user gave.
	TargetExternal TargetKind = "external"
)

// Target is one way to the brokers.
type Target struct {
	// Name is unique in the run.
	Name string     `json:"name"`
	Kind TargetKind `json:"kind"`
	// Text is one line on what it is: addresses, versions, settings that matter.
	Text string `json:"text,omitempty"`
	// Baseline is the name of the target that this one is compared with in the tables;
	// empty for a baseline itself.
	Baseline string `json:"baseline,omitempty"`
	// Workloads in the order of the scenario.
	Workloads []Workload `json:"workloads"`
	// Turns in the order in which they took place.
	Turns []Turn `json:"turns"`
}

// Turn is the time that one target had in a round of a phase, without the warm-up.
type Turn struct {
	// Phase is the name of the phase. Each of the target's workloads with that phase has
	// a Round with the same number.
	Phase string `json:"phase"`
	// Round counts from 1.
	Round   int       `json:"round"`
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	// Process has one point a second, the last one at the end of the turn; it is empty
	// when the processes of the target are not known.
	Process []ProcessPoint `json:"process,omitempty"`
	// Metrics are chosen series of the target's Prometheus endpoint.
	Metrics []Metric `json:"metrics,omitempty"`
}

// ProcessPoint is what was used since the point before it, or since the turn began.
type ProcessPoint struct {
	// Second is the end of the interval, in seconds since the turn began.
	Second float64 `json:"second"`
	// CPU is the CPU time of the target's processes in seconds: of the proxy, not of the
	// brokers. It is 0 for TargetDirect.
	CPU float64 `json:"cpu_s"`
	// CPUHarness is that of the load test itself, and CPUMachine that of all processes on
	// the machine; 0 when not known.
	CPUHarness float64 `json:"cpu_harness_s,omitempty"`
	CPUMachine float64 `json:"cpu_machine_s,omitempty"`
	// RSS is the resident memory of the target's processes at the end, in bytes.
	RSS int64 `json:"rss_bytes"`
}

// Metric is one series of a Prometheus endpoint.
type Metric struct {
	// Name with its labels, as in the text format: tiergate_exchanges_total{api="Fetch"}.
	Name string `json:"name"`
	// Counter says that the value only grows, and that its growth is what to look at.
	Counter bool          `json:"counter,omitempty"`
	Points  []MetricPoint `json:"points"`
}

// MetricPoint is the value of a metric at a time, in seconds since the turn began.
type MetricPoint struct {
	Second float64 `json:"second"`
	Value  float64 `json:"value"`
}

// OperationRecords is the Operation of workloads that move records.
const OperationRecords = "records"

// Workload is what some clients did, in all rounds.
type Workload struct {
	// Name is unique in the target, and the same for all targets.
	Name string `json:"name"`
	// Kind is the scenario's word for what the clients do: produce, consume, lookups.
	Kind string `json:"kind"`
	// Phase names the phase; the workloads of a phase run at the same time.
	Phase string `json:"phase"`
	// Text is one line on it: sizes, rates, numbers of clients.
	Text string `json:"text,omitempty"`
	// Operation is what Operations count, in the plural: OperationRecords, "answers". Of
	// workloads that move records the bytes are what counts, of others the operations.
	Operation string `json:"operation"`
	// Latency is what the latencies are of, such as "from the time a record was due until
	// it was acknowledged"; empty when there are none.
	Latency string `json:"latency,omitempty"`
	// Planned is how many rounds there were to be; 0: as many as the Run has.
	Planned int `json:"planned_rounds,omitempty"`
	// Rounds in their order.
	Rounds []Round `json:"rounds"`
}

// Round is what one workload did in one turn of one target.
type Round struct {
	// Round is that of the Turn.
	Round int `json:"round"`
	// Start and Seconds are what was measured, without the warm-up. A workload with a
	// given amount of work may end before the turn does.
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	// Series has one point for each second that has begun, the last one shorter when
	// Seconds is no whole number.
	Series []Point `json:"series"`
	// Latency is of all operations of the round; nil when there are none.
	Latency *Histogram `json:"latency_us,omitempty"`
	Counts  Counts     `json:"counts"`
}

// Point is one second of a round.
type Point struct {
	// Second is where the interval begins, in seconds since the start of the round.
	Second float64 `json:"second"`
	// Bytes are those of keys and values, before compression, that were acknowledged
	// (producers) or arrived (consumers). Workloads without records count the bytes of
	// their responses.
	Bytes int64 `json:"bytes"`
	// Operations that came to an end, well or not, and those of them that did not end well.
	Operations int64 `json:"operations"`
	Errors     int64 `json:"errors,omitempty"`
	// Latencies of the operations that ended in this second, in microseconds; 0 without any.
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

// Counts are what verification found in a round.
type Counts struct {
	// Sent are records that were acknowledged to a producer, Received those that a
	// consumer was given, doubles included.
	Sent     int64 `json:"sent,omitempty"`
	Received int64 `json:"received,omitempty"`
	// Lost were acknowledged and never arrived.
	Lost int64 `json:"lost,omitempty"`
	// Duplicated arrived more than once; DuplicatesAllowed did too, where the scenario
	// allows it: producers that are not idempotent, groups that rebalance.
	Duplicated        int64 `json:"duplicated,omitempty"`
	DuplicatesAllowed int64 `json:"duplicates_allowed,omitempty"`
	// Reordered arrived after a later record of the same producer and partition.
	Reordered int64 `json:"reordered,omitempty"`
	// Corrupt had another checksum than they were sent with.
	Corrupt int64 `json:"corrupt,omitempty"`
	// Errors are operations that failed for good, Retriable those that failed and were
	// tried again, as is to be expected under faults.
	Errors    int64 `json:"errors,omitempty"`
	Retriable int64 `json:"retriable,omitempty"`
	// Answers are look-ups (partitions, not requests) whose answer was checked, Wrong
	// those of them with another answer than the right one.
	Answers int64 `json:"answers,omitempty"`
	Wrong   int64 `json:"wrong,omitempty"`
}

// Mark is a fault, or something else that a reader of a plot must know of.
type Mark struct {
	At time.Time `json:"at"`
	// Until is when it was over; the zero time for what happens at once.
	Until time.Time `json:"until,omitzero"`
	// Kind is that of a fault of package fault, or another single word.
	Kind string `json:"kind"`
	// Text is one line on what was done, and how it went.
	Text string `json:"text"`
	// Target is the name of the one target that is meant; empty for all.
	Target string `json:"target,omitempty"`
}

// Figure is a number that a target has in a round of a workload.
type Figure string

// The figures, with their units.
const (
	FigureThroughput    Figure = "throughput"      // bytes per second
	FigureRate          Figure = "rate"            // operations per second
	FigureP50           Figure = "p50"             // microseconds
	FigureP99           Figure = "p99"             // microseconds
	FigureP999          Figure = "p999"            // microseconds
	FigureMax           Figure = "max"             // microseconds
	FigureCPUPerGB      Figure = "cpu_per_gb"      // CPU seconds of the target per 10^9 bytes
	FigureCPUPerMillion Figure = "cpu_per_million" // CPU seconds of the target per 10^6 operations
	FigurePeakRSS       Figure = "peak_rss"        // bytes
)

// By says how a bound compares.
type By string

// The ways to compare.
const (
	// ByRatio: the median over rounds of the target's figure by that of Against.
	ByRatio By = "ratio"
	// ByDifference: the median over rounds of the target's figure less that of Against.
	ByDifference By = "difference"
	// ByValue: the median over rounds of the target's figure.
	ByValue By = "value"
	// BySpread: the target's median by the worst round of Against: no worse than Against
	// beyond the spread of its own rounds is AtMost 1, or AtLeast 1 when more is better.
	BySpread By = "spread"
)

// Bound is what a figure must hold. At least one of AtLeast and AtMost is set.
type Bound struct {
	// Text is what a reader is told: "produce throughput beside HAProxy's".
	Text     string `json:"text"`
	Target   string `json:"target"`
	Workload string `json:"workload"`
	Figure   Figure `json:"figure"`
	By       By     `json:"by"`
	// Against is the other target, empty with ByValue.
	Against string `json:"against,omitempty"`
	// AgainstWorkload is the other workload, when it is not the same.
	AgainstWorkload string   `json:"against_workload,omitempty"`
	AtLeast         *float64 `json:"at_least,omitempty"`
	AtMost          *float64 `json:"at_most,omitempty"`
}

// Table is a result in words.
type Table struct {
	Title string `json:"title"`
	// Text stands below the title, may be empty.
	Text string     `json:"text,omitempty"`
	Head []string   `json:"head"`
	Rows [][]string `json:"rows"`
}

// Outcome is a verdict in a word.
type Outcome string

// The outcomes, the worst one first.
const (
	// Failed: a record was lost, doubled, out of order or corrupt, an answer was wrong, an
	// operation failed for good, or a bound does not hold.
	Failed Outcome = "failed"
	// Incomplete: nothing wrong was seen, but not all was measured.
	Incomplete Outcome = "incomplete"
	// Passed: all was measured, and all is right.
	Passed Outcome = "passed"
)

// Verdict is what became of the verification.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Reasons are plain sentences without a full stop, the worst first.
	Reasons []string `json:"reasons,omitempty"`
}
