// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tiergate/loadtest/report"
)

// job is one workload in one turn. The runner calls its methods in this order, each
// once; close in any case.
type job interface {
	// prepare creates topics and clients.
	prepare(ctx context.Context) error
	// run puts load on the target until stop is closed. What was begun then comes to its
	// end. ctx ends only when all is to be dropped.
	run(ctx context.Context, stop <-chan struct{}) error
	// finish verifies: every record is read back.
	finish(ctx context.Context) error
	// measured are the workloads of the report, the same from prepare on.
	measured() []*measured
	// close closes the clients and deletes what the job created.
	close(ctx context.Context)
}

// measured is what a job measures: a workload of the report, without rounds.
type measured struct {
	workload report.Workload
	meter    *meter
	counts   report.Counts
	// notes are the first faults that verification found, in words.
	notes []string
}

// setting is where a job works.
type setting struct {
	spec    Workload // Rate is filled in
	phase   string
	target  *target
	cluster *cluster
	// number is in every record of this turn; topic is the name for a new topic.
	number uint64
	topic  string
}

// newJob returns the job of a workload.
func newJob(s setting) job {
	switch s.spec.Kind {
	case WorkloadProduce, WorkloadProduceConsume, WorkloadGroupChurn:
		return &recordsJob{setting: s}
	case WorkloadConsume, WorkloadCatchUp:
		return &consumeJob{setting: s}
	case WorkloadConnections:
		return &connectionsJob{setting: s}
	case WorkloadAdmin:
		return &adminJob{setting: s}
	case WorkloadPendingUpload:
		return &pendingUploadJob{setting: s}
	case WorkloadTiering:
		return &tieringJob{setting: s}
	}
	panic("no job for kind " + string(s.spec.Kind)) // Parse let it through
}

// measure makes what a job measures.
func (s *setting) measure(suffix, text, operation, latency string, l loop) *measured {
	return &measured{
		workload: report.Workload{
			Name: s.spec.Name + suffix, Kind: string(s.spec.Kind), Phase: s.phase, Text: text, Operation: operation, Latency: latency,
		},
		meter: newMeter(l),
	}
}

// loop is open when the workload has a rate.
func (s *setting) loop() loop {
	if s.spec.Rate > 0 {
		return openLoop
	}
	return closedLoop
}

// pace of client i of n that m measures; nil in a closed loop.
func (s *setting) pace(m *meter, start time.Time, i, n int) *pace {
	if s.spec.Rate <= 0 {
		return nil
	}
	p := newPace(start, s.spec.Rate, i, n)
	p.ended = m.ended
	return p
}

// finishTimeout bounds the time for what is under way to end, and for reading all back.
const finishTimeout = 2 * time.Minute

// recordsJob produces to a topic of its own, maybe consumes it meanwhile, and reads all
// of it back.
type recordsJob struct {
	setting
	ledger    *ledger
	producers []*producer
	consumers []*consumer
	group     *group
	reading   []*reading
	sent      *measured
	got       *measured // nil when nothing is consumed meanwhile
}

func (j *recordsJob) measured() []*measured {
	if j.got != nil {
		return []*measured{j.sent, j.got}
	}
	return []*measured{j.sent}
}

func (j *recordsJob) prepare(ctx context.Context) error {
	w := &j.spec
	if err := j.cluster.createTopic(ctx, newTopic{j.topic, w.Partitions, w.Replicas, false, w.Configs}); err != nil {
		return err
	}
	j.ledger = newLedger(j.number)
	if w.Acks == AcksNone {
		j.ledger.mayLose = tolerated
	}
	if !w.Idempotent || w.Kind == WorkloadGroupChurn {
		j.ledger.mayDouble = tolerated
	}
	since := "from when a record was due until it was acknowledged"
	if w.Rate <= 0 {
		since = "from when a record was handed to the client until it was acknowledged"
	}
	j.sent = j.measure("", w.produceText(), "records", since, j.loop())
	for i := range w.Clients {
		p, err := newProducer(ctx, w, j.target.bootstrap, j.topic, i, j.ledger, j.sent.meter.gauge())
		if err != nil {
			return err
		}
		j.producers = append(j.producers, p)
	}
	if w.Kind == WorkloadProduceConsume {
		j.got = j.measure("-consumed", w.consumeText(), "records", "from when a record was due until a consumer had it", j.loop())
		return j.consume(j.got.meter, latencyOfRecords)
	}
	if w.Kind == WorkloadGroupChurn {
		j.got = j.measure("-consumed", w.churnText(), "records", "from when a record was due until a member of the group had it", j.loop())
		j.reading = []*reading{newReading(j.ledger)}
		j.group = &group{spec: w, bootstrap: j.target.bootstrap, topic: j.topic, reading: j.reading[0], gauge: j.got.meter.gauge()}
	}
	return nil
}

// consume connects consumers from the start of the topic.
func (j *recordsJob) consume(m *meter, l latency) error {
	n := min(j.spec.Consumers, j.spec.Partitions)
	for i := range n {
		r := newReading(j.ledger)
		c, err := newConsumer(&j.spec, j.target.bootstrap, j.topic, mineOf(j.spec.Partitions, i, n), nil, r, m.gauge())
		if err != nil {
			return err
		}
		c.latency = l
		j.reading, j.consumers = append(j.reading, r), append(j.consumers, c)
	}
	return nil
}

func (j *recordsJob) run(ctx context.Context, stop <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for i, p := range j.producers {
		g.Go(func() error { return p.run(ctx, stop, j.pace(j.sent.meter, start, i, len(j.producers))) })
	}
	for _, c := range j.consumers {
		g.Go(func() error { return c.run(ctx, stop) })
	}
	if j.group != nil {
		g.Go(func() error { return j.group.run(ctx, stop) })
	}
	return g.Wait()
}

func (j *recordsJob) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var flushed []error
	for _, p := range j.producers {
		flushed = append(flushed, p.flush(ctx))
		if err := p.failure(); err != nil { // counted as an error; what became of it is not known
			j.sent.notes = append(j.sent.notes, err.Error())
		}
	}
	if j.spec.Kind == WorkloadProduce {
		if err := j.consume(newMeter(closedLoop), latencyNone); err != nil {
			return err
		}
	}
	return errors.Join(errors.Join(flushed...), j.verify(ctx))
}

// verify reads the topic to its end, and compares.
func (j *recordsJob) verify(ctx context.Context) error {
	ends, err := j.cluster.endOffsets(ctx, j.topic)
	if err != nil {
		return err
	}
	var g errgroup.Group // one that fails does not stop the others
	for _, c := range j.consumers {
		g.Go(func() error { return c.until(ctx, ends) })
	}
	if j.group != nil {
		g.Go(func() error { return j.group.finish(ctx) })
	}
	// What was not read is not lost: the error says how far it was read.
	err, x := g.Wait(), whole
	if err != nil {
		x = partial
		if j.group != nil { // its members leave gaps to each other
			j.ledger.mayLose = tolerated
		}
	}
	counts := report.Counts{Sent: j.ledger.sent()}
	for i, r := range j.reading {
		mine := all
		if j.group == nil {
			mine = func(p int32) bool { return int(p)%len(j.reading) == i }
		}
		counts.Add(r.verdict(x, mine))
		j.sent.notes = append(j.sent.notes, r.faults()...)
	}
	j.sent.counts = counts
	return err
}

func (j *recordsJob) close(ctx context.Context) {
	for _, p := range j.producers {
		p.client.Close()
	}
	for _, c := range j.consumers {
		c.client.Close()
	}
	if j.group != nil {
		j.group.close()
	}
	_ = j.cluster.deleteTopic(ctx, j.topic) // the next turn has another one
}

// consumeJob reads a shared topic whose records are known, over and over.
type consumeJob struct {
	setting
	shared    *sharedTopic
	ends      map[int32]int64
	consumers []*consumer
	got       *measured
}

func (j *consumeJob) measured() []*measured { return []*measured{j.got} }

func (j *consumeJob) prepare(ctx context.Context) error {
	j.shared = j.cluster.topics[j.spec.Topic]
	j.ends = j.shared.ends
	if j.spec.Kind == WorkloadCatchUp {
		var err error
		if j.ends, err = j.shared.localStarts(ctx, j.cluster); err != nil {
			return err
		}
	}
	j.got = j.measure("", j.spec.readText(j.shared.spec), "records", "", closedLoop)
	n := min(j.spec.Clients, j.shared.spec.Partitions)
	for i := range n {
		c, err := newConsumer(&j.spec, j.target.bootstrap, j.spec.Topic, mineOf(j.shared.spec.Partitions, i, n), j.shared.starts,
			newReading(j.shared.ledger), j.got.meter.gauge())
		if err != nil {
			return err
		}
		j.consumers = append(j.consumers, c)
	}
	return nil
}

func (j *consumeJob) run(ctx context.Context, stop <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	passes := make([]report.Counts, len(j.consumers))
	notes := make([][]string, len(j.consumers))
	for i, c := range j.consumers {
		g.Go(func() error {
			ctx, cancel := stopContext(ctx, stop)
			defer cancel()
			for ctx.Err() == nil {
				began := time.Now()
				n, err := c.poll(ctx)
				if err != nil {
					return err
				}
				if c.at(j.ends) {
					passes[i].Add(c.reading.verdict(partial, j.mine(c)))
					notes[i] = append(notes[i], c.reading.faults()...)
					passes[i].Lost += j.short(c)
					c.rewind(j.shared.starts, newReading(j.shared.ledger))
				}
				if c.rate > 0 && !pause(ctx, stop, time.Duration(float64(n)/c.rate*float64(time.Second))-time.Since(began)) {
					break
				}
			}
			return nil
		})
	}
	err := g.Wait()
	for i := range passes {
		j.got.counts.Add(passes[i])
		j.got.notes = append(j.got.notes, notes[i]...)
	}
	return err
}

// mine says which partitions a consumer has.
func (j *consumeJob) mine(c *consumer) func(int32) bool {
	return func(p int32) bool {
		for _, m := range c.mine {
			if m == p {
				return true
			}
		}
		return false
	}
}

// short counts the records at the end of partitions that a pass did not bring: a partial
// verdict sees gaps only. Every offset of a shared topic below its end is a record.
func (j *consumeJob) short(c *consumer) int64 {
	want := int64(0)
	for _, p := range c.mine {
		want += j.ends[p] - j.shared.starts[p]
	}
	got := c.reading.verdict(partial, j.mine(c)).Received
	return max(0, want-got)
}

func (j *consumeJob) finish(context.Context) error {
	for _, c := range j.consumers {
		j.got.counts.Add(c.reading.verdict(partial, j.mine(c)))
		j.got.notes = append(j.got.notes, c.reading.faults()...)
	}
	if j.got.counts.Received == 0 {
		return errors.New("no record was read in all the time")
	}
	return nil
}

func (j *consumeJob) close(context.Context) {
	for _, c := range j.consumers {
		c.client.Close()
	}
}

// produceText is one line on what producers do.
func (w *Workload) produceText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, records of %s, %d partitions, acks %s, batches of up to %s", several(w.Clients, "producer"), w.RecordSize, w.Partitions, w.Acks, w.Batch)
	if w.Linger > 0 {
		fmt.Fprintf(&b, ", linger %s", w.Linger)
	}
	if w.Compression != CompressionNone {
		fmt.Fprintf(&b, ", %s", w.Compression)
	}
	if w.Keys > 0 {
		fmt.Fprintf(&b, ", %d keys", w.Keys)
	}
	if w.Idempotent {
		b.WriteString(", idempotent")
	}
	if w.Transaction > 0 {
		fmt.Fprintf(&b, ", transactions of %d records, %.0f %% aborted", w.Transaction, 100*w.AbortShare)
	}
	if w.Rate > 0 {
		fmt.Fprintf(&b, ", %.0f records/s in all (open loop)", w.Rate)
	} else {
		fmt.Fprintf(&b, ", as fast as possible with %d records in flight each", w.InFlight)
	}
	return b.String()
}

func (w *Workload) consumeText() string {
	text := fmt.Sprintf("%s of the same records", several(w.Consumers, "consumer"))
	if w.ConsumeRate > 0 {
		text += fmt.Sprintf(", slow: %.0f records/s each", w.ConsumeRate)
	}
	return text
}

func (w *Workload) churnText() string {
	return fmt.Sprintf("a group of %d members, one of which leaves for a new one every %s", w.Consumers, w.every())
}

func (w *Workload) readText(t Topic) string {
	text := fmt.Sprintf("%s of topic %s from its start, over and over: %d records of %s in %d partitions", several(w.Clients, "reader"), t.Name, t.Records, t.RecordSize, t.Partitions)
	if w.Kind == WorkloadCatchUp {
		text += ", the part that only remote storage has"
	}
	if w.ConsumeRate > 0 {
		text += fmt.Sprintf(", slow: %.0f records/s each", w.ConsumeRate)
	}
	return text
}

// several is a number of things.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
