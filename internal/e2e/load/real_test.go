// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tiergate/loadtest/kafka"
	"tiergate/loadtest/load"
	"tiergate/loadtest/report"
)

// scenario has every kind of target, and faults of every place.
const scenario = `
name: real
clusters: [{kind: real, version: 4.1.1, brokers: 3, heap: 256MiB}]
topics:
  - {name: history, partitions: 2, replicas: 3, tiered: true, records: 6000, uploaded: true}
  - {name: moving, partitions: 6, tiered: true, records: 120, record_size: 100, flow: 20, configs: {segment.ms: "2000", local.retention.ms: "1000"}}
targets:
  - {name: direct, kind: direct}
  - {name: haproxy, kind: haproxy, baseline: direct}
  - {name: nginx, kind: nginx, baseline: direct}
  - {name: tiergate, kind: tiergate, baseline: haproxy}
  - {name: sidecar, kind: tiergate, mode: direct, baseline: haproxy}
phases:
  - name: calm
    duration: 3s
    workloads:
      - {name: mix, kind: produce-consume, rate: 200, partitions: 3, replicas: 3, in_flight: 2000}
      - {name: transactions, kind: produce-consume, rate: 100, partitions: 2, replicas: 3, transaction: 20, abort_share: 0.3, in_flight: 1000}
      - {name: catch-up, kind: catch-up, topic: history, consume_rate: 2000}
      - {name: lookups, kind: pending-upload, topic: moving, clients: 2, every: 50ms, targets: [tiergate, sidecar]}
  - name: faults
    targets: [haproxy, sidecar, tiergate]
    duration: 15s
    workloads:
      - {name: mix-under-faults, kind: produce-consume, rate: 100, partitions: 3, replicas: 3, in_flight: 5000, configs: {min.insync.replicas: "2"}}
      - {name: lookups-under-faults, kind: pending-upload, topic: moving, clients: 2, every: 50ms, targets: [tiergate, sidecar]}
    faults:
      - {at: 1s, kind: cut-rst, share: 0.5}
      - {at: 2s, kind: cut-fin, share: 0.5, side: brokers}
      - {at: 3s, kind: leader-move, topic: mix-under-faults, for: 500ms}
      - {at: 5s, kind: proxy-restart}
      - {at: 7s, kind: broker-restart, node: 1}
`

// progress shows a run in the test's log.
type progress struct{ *testing.T }

func (p progress) Say(format string, args ...any) { p.Logf(format, args...) }
func (p progress) Second(load.Second)             {}

// installed returns the targets that this machine has. The peers are no prerequisite, in CI
// neither: what is tested of them is that the harness can start them.
func installed(t *testing.T) []string {
	targets := []string{"direct", "tiergate", "sidecar"}
	for _, peer := range []string{"haproxy", "nginx"} {
		_, err := exec.LookPath(peer)
		if peer == "nginx" && err != nil { // only root has sbin in the path
			_, err = exec.LookPath("/usr/sbin/nginx")
		}
		if err != nil {
			t.Logf("%s is not installed, so it takes no part (apt-get install haproxy nginx libnginx-mod-stream)", peer)
			continue
		}
		targets = append(targets, peer)
	}
	return targets
}

// Nothing is lost, doubled or wrong on any way to three real brokers, with faults, and
// every fault is played on every target.
func TestEveryWayToRealBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with Java 17+ and Maven")
	}
	if err := kafka.Check(t.Context(), kafka.Kafka41); err != nil {
		t.Fatal(err)
	}
	s, err := load.Parse("real.yaml", []byte(scenario))
	if err != nil {
		t.Fatal(err)
	}
	targets := installed(t)
	r, err := load.Run(t.Context(), load.Options{Scenario: s, Tool: "test", Progress: progress{t}, Targets: targets})
	if r != nil {
		t.Log("\n" + report.Text(r))
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict.Outcome != report.Passed { // a proxy that is not installed is named here
		t.Errorf("%s: %s", r.Verdict.Outcome, strings.Join(r.Verdict.Reasons, "; "))
	}
	for _, target := range []string{"haproxy", "tiergate", "sidecar"} {
		if !slices.Contains(targets, target) {
			continue
		}
		var kinds []string
		for _, m := range r.Marks {
			if m.Target == target {
				kinds = append(kinds, m.Kind)
			}
		}
		slices.Sort(kinds)
		if got, want := strings.Join(kinds, " "), "broker-restart cut-fin cut-rst leader-move proxy-restart"; got != want {
			t.Errorf("faults on %s: %s; want %s", target, got, want)
		}
	}
	for _, target := range []string{"tiergate", "sidecar"} {
		for _, name := range []string{"lookups", "lookups-under-faults"} {
			if w := r.Target(target).Workload(name); w == nil || w.Counts().Answers == 0 {
				t.Errorf("%s, %s: no answer was judged", target, name)
			}
		}
	}
}
