// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestFaultsOfScenarios(t *testing.T) {
	f := func(name, yaml string, want ...string) {
		t.Helper()
		s, err := Parse("s.yaml", []byte(yaml))
		if err == nil {
			t.Errorf("%s: no fault in\n%s(%+v)", name, yaml, s)
			return
		}
		if got := err.Error(); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
		}
	}
	const ok = `name: a
targets: [{kind: direct}]
phases:
  - name: p
    workloads: [{kind: produce}]
`
	if _, err := Parse("s.yaml", []byte(ok)); err != nil {
		t.Fatalf("the least that works: %v", err)
	}
	f("empty", "", "s.yaml: wanted one YAML document with the keys name, targets and phases")
	f("broken", "name: [", `s.yaml:1:7: sequence end token ']' not found`)
	f("nothing in it", "about: x\n",
		`s.yaml: name: wanted letters, digits, ".", "_" and "-", from 1 to 60`,
		"s.yaml: targets: wanted at least one target",
		"s.yaml: phases: wanted at least one phase")
	f("misspelt", strings.Replace(ok, "workloads", "worklods", 1), `s.yaml:5:5: phases[0].worklods: unknown key: did you mean "workloads"?`)
	f("unknown", "nonsense: 1\n"+ok, "s.yaml:1:1: nonsense: is not known; wanted one of name, about, clusters, topics, targets, phases, bounds")
	f("twice", ok+"name: b\n", "s.yaml:6:1: name: duplicate key, first on line 1: remove one of them")
	f("wrong types", `name: a
targets: direct
phases:
  - name: p
    rounds: many
    duration: 10
    workloads: [{kind: produce, record_size: big, idempotent: 7}]
`,
		`s.yaml:2:10: targets: "direct"; wanted a list`,
		`s.yaml:5:13: phases[0].rounds: "many"; wanted a whole number`,
		`s.yaml:6:15: phases[0].duration: "10" is no time; wanted a time with its unit, such as 500ms, 10s or 2h`,
		`s.yaml:7:46: phases[0].workloads[0].record_size: "big" is no size; wanted bytes, or a number with KiB, MiB or GiB behind it`,
		`s.yaml:7:63: phases[0].workloads[0].idempotent: "7"; wanted true or false`)
	f("kinds", `name: a
targets: [{kind: dirct}, {name: x, kind: haproxy, binary: b}]
phases:
  - name: p
    workloads:
      - {kind: consume, record_size: 1KiB}
      - {kind: produce, timestamp: -6}
      - {kind: produce, name: second, transaction: 5, acks: leader}
`,
		`s.yaml:2:18: targets[0].kind: "dirct" is not known; did you mean "direct"?`,
		`s.yaml:2:59: targets[1].binary: is not for kind: haproxy`,
		`s.yaml:6:9: phases[0].workloads[0].topic: wanted the name of one of the scenario's topics`,
		`s.yaml:6:38: phases[0].workloads[0].record_size: is not for kind: consume`,
		`s.yaml:7:36: phases[0].workloads[1].timestamp: is not for kind: produce`,
		`s.yaml:8:52: phases[0].workloads[2].transaction: wanted 0, or acks: all and idempotent: true`)
	f("names", `name: a
clusters: [{name: c, kind: sim}]
targets: [{kind: direct, cluster: d}, {kind: nginx, baseline: y}]
phases:
  - name: p
    targets: [direct]
    workloads:
      - {kind: produce, targets: [nginx]}
      - {kind: consume, topic: t}
      - {name: half, kind: produce, rate_of: {workload: full, target: direct, share: 0.5}}
`,
		`s.yaml:3:35: targets[0].cluster: "d" is no cluster of this scenario`,
		`s.yaml:3:39: targets[1]: rewrites no addresses, so it needs a broker that advertises its port: wanted a cluster of kind: real`,
		`s.yaml:3:63: targets[1].baseline: "y" is no target of this scenario`,
		`s.yaml:8:35: phases[0].workloads[0].targets[0]: "nginx" is not among the targets of the phase`,
		`s.yaml:9:32: phases[0].workloads[1].topic: "t" is no topic of this scenario`,
		`s.yaml:10:46: phases[0].workloads[2].rate_of: there is no workload "full" on target "direct" before this one`)
	f("faults", `name: a
targets: [{kind: direct}]
phases:
  - name: p
    duration: 5s
    workloads: [{kind: produce}]
    faults:
      - {at: 1s, kind: latencey, latency: 1ms}
      - {at: 9s, kind: cut-rst, latency: 1ms}
      - {at: 1s, kind: leader-move}
      - {at: 1s, kind: latency}
`,
		`s.yaml:8:24: phases[0].faults[0].kind: "latencey" is not known; did you mean "latency"?`,
		`s.yaml:9:14: phases[0].faults[1].at: wanted a time before the end of the phase, 5s`,
		`s.yaml:9:42: phases[0].faults[1].latency: is not for kind: cut-rst`,
		`s.yaml:10:9: phases[0].faults[2].topic: wanted one of the scenario's topics, or a workload of the phase`,
		`s.yaml:11:9: phases[0].faults[3].latency: wanted a time above 0`)
}

func TestBuiltinScenarios(t *testing.T) {
	list, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
		again, err := Open(s.Name)
		if err != nil || again.Text != s.Text || s.About == "" {
			t.Errorf("%s: its file is called otherwise, or it says nothing about itself: %v", s.Name, err)
		}
	}
	if got, want := strings.Join(names, " "), "day-of-faults endurance maximum-and-half pending-upload-storm quick"; got != want {
		t.Errorf("scenarios %s, want %s", got, want)
	}
	quick := list[len(list)-1]
	if total, err := time.ParseDuration(quick.Time()); err != nil || total > 25*time.Second {
		t.Errorf("quick takes %s", quick.Time())
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/loadtest.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range Keys() {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/loadtest.md has no word on `%s`", key)
		}
	}
}

func TestOverrides(t *testing.T) {
	s, err := Open("maximum-and-half")
	if err != nil {
		t.Fatal(err)
	}
	c, missing, err := s.with(Options{Cluster: "sim", Duration: time.Second, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Targets) != 2 || c.Clusters[0].Kind != ClusterSim || c.Phases[0].Rounds != 2 || c.Phases[2].Duration != Duration(time.Second) {
		t.Errorf("%+v", c)
	}
	// haproxy rewrites no addresses, and what is bound to it cannot be checked.
	if len(missing) != 6 || !strings.HasPrefix(missing[0], "target haproxy is left out: ") || len(c.Bounds) != 1 || c.Bounds[0].Against != "direct" {
		t.Errorf("missing %q, bounds %+v", missing, c.Bounds)
	}
	if _, _, err := s.with(Options{Cluster: "nowhere"}); err == nil || err.Error() != `"nowhere" is neither "real" nor "sim" nor an address; wanted host:port, several separated by commas` {
		t.Errorf("cluster nowhere: %v", err)
	}
	if _, _, err := s.with(Options{Targets: []string{"x"}}); err == nil || err.Error() != `scenario maximum-and-half has no target "x"` {
		t.Errorf("target x: %v", err)
	}
	if s.Clusters[0].Kind != ClusterReal || len(s.Targets) != 3 || len(s.Bounds) != 6 {
		t.Errorf("the scenario itself was changed: %+v", s)
	}
}
