// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer sends numbered records to one topic. Records and values are made once, and
// used again when they were acknowledged: what is left for each record is its number,
// its time and its checksum.
type producer struct {
	// life ends when records under way are to be dropped. The context of run ends earlier
	// when another client fails, and records that carry it would fail with it.
	life   context.Context
	spec   *Workload
	id     uint32
	topic  string
	client *kgo.Client
	opts   []kgo.Opt
	gauge  *gauge
	ledger *ledger

	streams []*stream // by partition
	free    chan *slot
	sent    int64 // records, to spread them over partitions
	burst   int64 // records in a row for a partition
	keys    [][]byte

	failed atomic.Pointer[error] // the first record that failed for good
}

// slot is a record that is used again and again.
type slot struct {
	record kgo.Record
	stream *stream
	number uint64
	due    time.Time
	done   func(*kgo.Record, error)
}

// burstBytes go to one partition before the next one gets some: what a producer with sticky
// partitions does, and what makes batches.
const burstBytes = 64 << 10

// newProducer connects producer number id. inFlight bounds its records.
func newProducer(life context.Context, spec *Workload, bootstrap []string, topic string, id int, l *ledger, g *gauge) (*producer, error) {
	p := &producer{
		life: life, spec: spec, id: uint32(id), topic: topic, gauge: g, ledger: l,
		free: make(chan *slot, spec.InFlight), burst: max(1, burstBytes/int64(spec.RecordSize)),
	}
	for partition := range spec.Partitions {
		p.streams = append(p.streams, l.stream(p.id, int32(partition)))
	}
	for i := range spec.Keys {
		p.keys = append(p.keys, fmt.Appendf(nil, "key-%08d", i))
	}
	for range spec.InFlight {
		s := &slot{record: kgo.Record{Topic: topic, Value: fillValue(int(spec.RecordSize))}}
		s.done = func(_ *kgo.Record, err error) { p.done(s, err) }
		p.free <- s
	}
	p.opts = append(baseOptions(bootstrap), p.options()...)
	if spec.Transaction > 0 {
		p.opts = append(p.opts, kgo.TransactionalID(fmt.Sprintf("%s-%d", topic, id)), kgo.TransactionTimeout(time.Minute))
	}
	var err error
	p.client, err = kgo.NewClient(p.opts...)
	return p, err
}

func (p *producer) options() []kgo.Opt {
	codecs := map[Compression]kgo.CompressionCodec{
		CompressionNone: kgo.NoCompression(), CompressionGzip: kgo.GzipCompression(), CompressionSnappy: kgo.SnappyCompression(),
		CompressionLZ4: kgo.Lz4Compression(), CompressionZstd: kgo.ZstdCompression(),
	}
	acks := map[Acks]kgo.Acks{AcksAll: kgo.AllISRAcks(), AcksLeader: kgo.LeaderAck(), AcksNone: kgo.NoAck()}
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[p.spec.Compression]),
		kgo.ProducerBatchMaxBytes(int32(p.spec.Batch)),
		kgo.ProducerLinger(time.Duration(p.spec.Linger)),
		kgo.RequiredAcks(acks[p.spec.Acks]),
		kgo.MaxBufferedRecords(p.spec.InFlight + 1),
		kgo.UnknownTopicRetries(-1),
		kgo.WithHooks(retries{p.gauge}),
	}
	if !p.spec.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(p.spec.Requests))
	}
	return opts
}

// done is called by the client when a record was acknowledged, or failed for good.
func (p *producer) done(s *slot, err error) {
	now := time.Now()
	switch {
	case err != nil && p.life.Err() == nil && !errors.Is(err, kgo.ErrAborting) && !errors.Is(err, kgo.ErrClientClosed):
		p.failed.CompareAndSwap(nil, &err)
		p.gauge.fail(s.due, now)
	case err == nil:
		if p.spec.Transaction == 0 {
			s.stream.ack(s.number)
		}
		p.gauge.record(s.due, now, len(s.record.Value)+len(s.record.Key))
	}
	p.free <- s
}

// slot returns a record that is free; false when ctx or stop ended first.
func (p *producer) slot(ctx context.Context, stop <-chan struct{}) (*slot, bool) {
	select {
	case s := <-p.free:
		return s, true
	default:
	}
	select {
	case s := <-p.free:
		return s, true
	case <-stop:
		return nil, false
	case <-ctx.Done():
		return nil, false
	}
}

// send numbers a record and hands it to the client. due is when it was to be sent.
func (p *producer) send(s *slot, due time.Time) {
	partition := int32(p.sent / p.burst % int64(len(p.streams)))
	if len(p.keys) > 0 {
		k := int(p.sent % int64(len(p.keys)))
		s.record.Key, partition = p.keys[k], int32(k%len(p.streams))
	}
	p.sent++
	s.stream, s.due = p.streams[partition], due
	s.number = s.stream.take()
	stamp{run: p.ledger.run, producer: p.id, partition: partition, number: s.number, due: due.UnixNano()}.put(s.record.Value)
	s.record.Partition, s.record.Timestamp = partition, time.Time{}
	p.client.Produce(p.life, &s.record, s.done)
}

// run sends until stop: at a pace, or with pace nil as many as possible.
func (p *producer) run(ctx context.Context, stop <-chan struct{}, pace *pace) error {
	defer p.gauge.miss(pace)
	if p.spec.Transaction > 0 {
		return p.runTransactions(ctx, stop, pace)
	}
	for {
		if p.one(ctx, stop, pace) == nil {
			return nil
		}
	}
}

// one sends one record, when it is due; nil when the end came first.
func (p *producer) one(ctx context.Context, stop <-chan struct{}, pace *pace) *slot {
	due := time.Time{}
	if pace != nil {
		var ok bool
		if due, ok = pace.wait(ctx, stop); !ok {
			return nil
		}
	} else {
		select {
		case <-stop:
			return nil
		default:
		}
	}
	if pace != nil {
		stop = nil // what was due is sent, however long that takes
	}
	s, ok := p.slot(ctx, stop)
	if !ok {
		return nil
	}
	if pace == nil {
		due = time.Now()
	}
	p.send(s, due)
	return s
}

// runTransactions sends records in transactions, of which some are aborted.
func (p *producer) runTransactions(ctx context.Context, stop <-chan struct{}, pace *pace) error {
	aborts := 0.0
	for {
		end := kgo.TryCommit
		if aborts += p.spec.AbortShare; aborts >= 1 {
			aborts--
			end = kgo.TryAbort
		}
		open, err := p.transaction(ctx, stop, pace, end)
		if err != nil && ctx.Err() == nil {
			// What became of it is not known: a coordinator that restarts, say.
			p.gauge.retry()
			err = p.recover(ctx)
		}
		if err != nil || !open {
			return err
		}
	}
}

// numbered is a record of a transaction.
type numbered struct {
	of     *stream
	number uint64
}

// transaction is one transaction from begin to end; open says whether there is time for another.
func (p *producer) transaction(ctx context.Context, stop <-chan struct{}, pace *pace, end kgo.TransactionEndTry) (open bool, err error) {
	if err := p.client.BeginTransaction(); err != nil {
		return true, fmt.Errorf("begin a transaction: %w", err)
	}
	var sent []numbered
	for open = true; open && len(sent) < p.spec.Transaction; {
		s := p.one(ctx, stop, pace)
		if open = s != nil; open {
			sent = append(sent, numbered{s.stream, s.number})
		}
	}
	if end == kgo.TryAbort { // noted before: a record that is seen from here on is one too many
		for _, n := range sent {
			n.of.abort(n.number)
		}
	}
	if err = p.client.Flush(ctx); err == nil {
		err = p.client.EndTransaction(ctx, end)
	}
	if err != nil {
		return open, fmt.Errorf("end a transaction: %w", err)
	}
	if end == kgo.TryCommit {
		for _, n := range sent {
			n.of.ack(n.number)
		}
	}
	return open, nil
}

// recover aborts the transaction. A client that cannot is replaced by a new one, which
// fences it.
func (p *producer) recover(ctx context.Context) error {
	err := p.client.AbortBufferedRecords(ctx)
	if err == nil {
		err = p.client.EndTransaction(ctx, kgo.TryAbort)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	p.client.Close()
	p.client, err = kgo.NewClient(p.opts...)
	return err
}

// flush waits until every record is acknowledged or has failed.
func (p *producer) flush(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("producer %d: %d records were not acknowledged: %w", p.id, p.client.BufferedProduceRecords(), err)
	}
	return nil
}

// failure says why the first record failed that did for good, if any.
func (p *producer) failure() error {
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("producer %d: a record failed for good: %w", p.id, *err)
	}
	return nil
}

// retries counts requests that failed on their connection; the client tries them again.
type retries struct{ gauge *gauge }

var _ kgo.HookBrokerE2E = retries{}

// OnBrokerE2E is called after every request.
func (r retries) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	if err := e.Err(); err != nil && !errors.Is(err, context.Canceled) {
		r.gauge.retry()
	}
}
