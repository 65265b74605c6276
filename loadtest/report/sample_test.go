// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"time"
)

// began is when all runs of the tests began.
func began() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func histogramOf(latencies ...time.Duration) *Histogram {
	h := NewHistogram()
	for _, d := range latencies {
		h.Record(d)
	}
	return h
}

// roundOf returns a round of two seconds and a half: in each second so many bytes and
// operations, in the last half second half of them.
func roundOf(number int, at, bytes, operations int64, latencies ...time.Duration) Round {
	r := Round{Round: number, Start: began().Add(time.Duration(at) * time.Second), Seconds: 2.5}
	for second := range 3 {
		share := int64(2)
		if second == 2 {
			share = 1
		}
		r.Series = append(r.Series, Point{
			Second: float64(second), Bytes: bytes * share / 2, Operations: operations * share / 2,
			P50: 1000, P99: 2000, P999: 3000, Max: 4000,
		})
	}
	r.Latency = histogramOf(latencies...)
	return r
}

// turnOf returns the turn to a round of roundOf.
func turnOf(phase string, number int, at int64, cpu float64, rss int64) Turn {
	return Turn{
		Phase: phase, Round: number, Start: began().Add(time.Duration(at) * time.Second), Seconds: 2.5,
		Process: []ProcessPoint{{Second: 1, CPU: cpu / 2, RSS: rss / 2}, {Second: 2, CPU: cpu / 4, RSS: rss}, {Second: 2.5, CPU: cpu / 4, RSS: rss / 4}},
		Metrics: []Metric{
			{Name: `tiergate_exchanges_total{api="Fetch"}`, Counter: true, Points: []MetricPoint{{0, 10}, {1, 30}, {2, 60}}},
			{Name: "tiergate_sessions", Points: []MetricPoint{{0, 4}, {1, 5}, {2, 5}}},
		},
	}
}

const ms = time.Millisecond

// handmade is a run whose figures can be told by hand: direct has 100, 200 and 400 MB/s in
// its three rounds, and tiergate 0.9, 0.95 and 0.98 of that.
func handmade() *Run {
	direct := Target{Name: "direct", Kind: TargetDirect, Text: "127.0.0.1:9092"}
	gate := Target{Name: "tiergate", Kind: TargetTiergate, Text: "tiergate 1.0, 2 loops", Baseline: "direct"}
	produce := Workload{
		Name: "produce-1k", Kind: "produce", Phase: "throughput", Text: "4 producers of records of 1 KiB", Operation: "records",
		Latency: "from the time a record was due until it was acknowledged",
	}
	look := Workload{Name: "look-ups", Kind: "lookups", Phase: "throughput", Text: "64 clients that ask 1,000 partitions each", Operation: "answers"}
	shares := []float64{0.90, 0.95, 0.98}
	for _, target := range []*Target{&direct, &gate} {
		p, l := produce, look
		for i := range 3 {
			share, delay, at := 1.0, 0*ms, int64(10*i)
			if target == &gate {
				share, delay, at = shares[i], ms/10, at+5
			}
			bytes := int64(math.Round(1e8 * float64(int(1)<<i) * share))
			round := roundOf(i+1, at, bytes, bytes/1000, ms+delay, ms+delay, ms+delay, 4*ms+delay)
			round.Counts = Counts{Sent: 1000, Received: 1000}
			p.Rounds = append(p.Rounds, round)
			answers := roundOf(i+1, at, 0, 2000)
			answers.Latency, answers.Counts = nil, Counts{Answers: 5000, Retriable: int64(i)}
			l.Rounds = append(l.Rounds, answers)
			if target == &gate {
				target.Turns = append(target.Turns, turnOf("throughput", i+1, at, 0.2, 64<<20))
			}
		}
		target.Workloads = []Workload{p, l}
	}
	half, most := 0.95, 150.0
	r := &Run{
		Format: Format, Tool: "v1", Started: began(), Seconds: 95.4, Rounds: 3, Targets: []Target{direct, gate},
		Environment: Environment{
			CPU: "Example 3000", Cores: 2, Memory: 24 << 30, System: "linux/amd64", Kernel: "6.1.0", Congestion: "cubic", Go: "go1.26",
			Software: []Software{{"Kafka", "4.1.1"}},
		},
		Scenario: Scenario{Name: "handmade", Text: "name: handmade\nrounds: 3 # </script><b>\n"},
		Marks: []Mark{
			{At: began().Add(6 * time.Second), Until: began().Add(7 * time.Second), Kind: "latency", Text: "20 ms more on every answer", Target: "tiergate"},
			{At: began().Add(12 * time.Second), Kind: "cut", Text: "3 connections | by RST"},
		},
		Bounds: []Bound{
			{Text: "produce throughput beside direct", Target: "tiergate", Workload: "produce-1k", Figure: FigureThroughput, By: ByRatio, Against: "direct", AtLeast: &half},
			{Text: "added p50 of produce", Target: "tiergate", Workload: "produce-1k", Figure: FigureP50, By: ByDifference, Against: "direct", AtMost: &most},
		},
		Tables: []Table{{Title: "Followers", Text: "Bytes until in sync.", Head: []string{"case", "bytes"}, Rows: [][]string{{"empty follower", "1,000"}}}},
	}
	r.Verdict = Judge(r)
	return r
}

// lifelike is a run as long as `make load`, for looks at the page.
func lifelike() *Run {
	random := rand.New(rand.NewPCG(1, 2))
	r := handmade()
	r.Scenario.Name, r.Rounds, r.Seconds, r.Marks = "load", 5, 600, nil
	speeds := map[string]float64{"direct": 520, "haproxy": 400, "tiergate": 395}
	added := map[string]float64{"direct": 0, "haproxy": 0.06, "tiergate": 0.07}
	r.Targets = []Target{
		{Name: "direct", Kind: TargetDirect, Text: "127.0.0.1:9092"},
		{Name: "haproxy", Kind: TargetHAProxy, Text: "HAProxy 2.6, splice, 2 threads", Baseline: "direct"},
		{Name: "tiergate", Kind: TargetTiergate, Text: "tiergate 1.0, 2 loops", Baseline: "direct"},
	}
	for phase, name := range []string{"produce", "consume"} {
		for i := range r.Targets {
			t := &r.Targets[i]
			w := Workload{
				Name: name + "-1k", Kind: name, Phase: name, Text: "4 clients, records of 1 KiB, acks=all", Operation: "records",
				Latency: "from the time a record was due until it was acknowledged",
			}
			for round := range 5 {
				start := began().Add(time.Duration(phase*300+round*60+i*20) * time.Second)
				lap := Round{Round: round + 1, Start: start, Seconds: 16, Latency: NewHistogram(), Counts: Counts{Sent: 6_000_000, Received: 6_000_000}}
				turn := Turn{Phase: name, Round: round + 1, Start: start, Seconds: 16}
				exchanges := Metric{Name: `tiergate_exchanges_total{api="Produce"}`, Counter: true}
				for second := range 16 {
					speed := speeds[t.Name] * (0.92 + 0.16*random.Float64()) * 1e6
					slow := second == 8 && round == 2
					second1 := NewHistogram()
					for range 400 {
						v := (0.8 + added[t.Name]) * math.Exp(random.NormFloat64()*0.35)
						if slow && random.IntN(3) == 0 {
							v += 120
						}
						second1.Record(time.Duration(v * float64(ms)))
					}
					lap.Latency.Merge(second1)
					lap.Series = append(lap.Series, Point{
						Second: float64(second), Bytes: int64(speed), Operations: int64(speed / 1024),
						P50: second1.Quantile(.5), P99: second1.Quantile(.99), P999: second1.Quantile(.999), Max: second1.Max(),
					})
					turn.Process = append(turn.Process, ProcessPoint{Second: float64(second + 1), CPU: 0.3 + 0.1*random.Float64(), CPUMachine: 1.7 + 0.2*random.Float64(), RSS: int64(20+i*6+second%3) << 20})
					exchanges.Points = append(exchanges.Points, MetricPoint{float64(second), float64(round*1_000_000 + second*40_000)})
				}
				if t.Name == "tiergate" {
					turn.Metrics = []Metric{exchanges, {Name: "tiergate_sessions", Points: []MetricPoint{{0, 16}, {8, 16}, {15, 17}}}}
				}
				w.Rounds = append(w.Rounds, lap)
				t.Turns = append(t.Turns, turn)
			}
			t.Workloads = append(t.Workloads, w)
		}
	}
	r.Marks = []Mark{
		{At: began().Add(127 * time.Second), Until: began().Add(131 * time.Second), Kind: "broker-restart", Text: "broker 1 stopped and started"},
		{At: began().Add(430 * time.Second), Until: began().Add(450 * time.Second), Kind: "latency", Text: "20 ms ± 5 ms on every answer"},
		{At: began().Add(500 * time.Second), Kind: "cut", Text: "3 connections by RST"},
	}
	r.Verdict = Judge(r)
	return r
}
