// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
	"tiergate/rewrite/pendingupload"
)

// lookup is a ListOffsets request that was taken out of the flow of requests.
type lookup struct {
	// waiting is the client's request while the broker's versions are asked for.
	waiting []byte
	// machine makes the -6 answer once they are known.
	machine pendingupload.Exchange
	// size is what the lookup takes in the account of memory.
	size int64
	// heard is when the broker responded last, for LookupTimeout.
	heard time.Time
}

// largeFrame is the size from which a ListOffsets frame is worked on off the loop: some
// thousand partitions, which take some milliseconds. Such a frame was collected, so its
// bytes are not the loop's.
const largeFrame = bufferSize

// minRowBytes is the length of a partition in a ListOffsets response.
const minRowBytes = 27

// apiVersionsKey is the API key of ApiVersions; its version 0 is what every broker
// answers (KIP-511, KIP-896).
const apiVersionsKey = 18

// listOffsets deals with a ListOffsets request above the broker's version. What it
// returns goes to the broker. frame is the caller's again afterwards.
func (s *session) listOffsets(frame []byte) ([]byte, error) {
	var step rewrite.Step
	var out []byte
	var machine pendingupload.Exchange
	id, size := codec.RequestCorrelationID(frame), len(frame)
	return s.work(&s.requests, size, func() (err error) {
		if step, out, machine, err = s.talk.ListOffsets(frame); err != nil {
			return fmt.Errorf("list offsets request: %w", err)
		}
		return nil
	}, func() ([]byte, error) {
		switch step {
		case rewrite.AskVersions:
			s.lookup = &lookup{waiting: bytes.Clone(frame), size: int64(size), heard: s.loop.now}
			s.requests.stall = stallLookup
			return nil, s.askVersions(frame)
		case rewrite.Answer:
			s.lookup = &lookup{machine: machine, heard: s.loop.now}
			s.requests.stall = stallLookup
			_, err := s.proceed()
			return nil, err
		case rewrite.Forward:
		}
		s.exchanges.push(exchange{correlationID: id, key: codec.RequestKey(out), version: codec.RequestVersion(out)})
		return out, nil
	})
}

// work runs do, which reads a frame of the given size that came through f, and then
// finish. What finish returns goes to f's other side. A large frame is read off the loop,
// so that other sessions wait for milliseconds at most; meanwhile both flows of the session
// stand still, so that do may use what is the session's alone.
func (s *session) work(f *flow, size int, do func() error, finish func() ([]byte, error)) ([]byte, error) {
	if size <= largeFrame {
		if err := do(); err != nil {
			return nil, err
		}
		return finish()
	}
	s.requests.stall, s.responses.stall = stallMachine, stallMachine
	s.working = int64(size) * f.cost()
	s.loop.server.background(func() {
		err := s.loop.server.recovered(func() error {
			select {
			case s.loop.server.heavy <- struct{}{}:
				defer func() { <-s.loop.server.heavy }()
				return do()
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
		s.loop.post(func() { s.loop.guard(s, func() { s.worked(f, err, finish) }) })
	})
	return nil, nil
}

// worked is the end of work off the loop.
func (s *session) worked(f *flow, err error, finish func() ([]byte, error)) {
	if s.state != stateOpen {
		return
	}
	s.requests.stall, s.responses.stall, s.working = goes, goes, 0
	if s.lookup != nil {
		s.requests.stall = stallLookup
	}
	var out []byte
	if err == nil {
		out, err = finish()
	}
	if err != nil {
		s.fail(f, reasonOf(err), err)
		return
	}
	f.to.give(out)
	s.advance(&s.responses)
	if s.state != stateEnded {
		s.advance(&s.requests)
	}
}

// ask sends a request of our own. It borrows the client's identity only in its client
// id; the correlation id is ours.
func (s *session) ask(a pendingupload.Ask) {
	s.askID++
	codec.PutRequestCorrelationID(a.Frame, s.askID)
	s.exchanges.push(exchange{correlationID: s.askID, key: a.Key, version: a.Version, answer: answerAsk})
	s.broker.give(a.Frame)
}

// askVersions asks the broker what it can, for a client that never did.
func (s *session) askVersions(frame []byte) error {
	clientID, _, err := codec.RequestBody(frame, codec.Flexible)
	if err != nil {
		return fmt.Errorf("list offsets request: %w", err)
	}
	ask := make([]byte, codec.RequestFixedLen, codec.RequestFixedLen+2+len(clientID))
	binary.BigEndian.PutUint16(ask[4:], apiVersionsKey)
	ask = codec.AppendNullableString(ask, codec.Classic, clientID)
	codec.PutSize(ask)
	s.ask(pendingupload.Ask{Key: apiVersionsKey, Version: 0, Frame: ask})
	return nil
}

// answered takes the answer to an ask. What it returns goes to the client.
func (s *session) answered(e exchange, frame []byte) ([]byte, error) {
	s.lookup.heard = s.loop.now
	if machine := s.lookup.machine; machine != nil {
		return s.work(&s.responses, len(frame), func() error {
			if err := machine.Step(frame); err != nil {
				return fmt.Errorf("lookup %s v%d: %w", rewrite.KeyName(e.key), e.version, err)
			}
			return nil
		}, s.proceed)
	}
	if err := s.talk.Learn(e.version, frame); err != nil {
		return nil, err
	}
	waiting := s.lookup.waiting
	s.lookup = nil
	out, err := s.listOffsets(waiting)
	s.broker.give(out)
	return nil, err
}

// proceed does what the machine wants next. When the answer is complete it is returned
// for the client, and the lookup is over.
func (s *session) proceed() ([]byte, error) {
	for {
		m := s.lookup.machine
		switch m.State() {
		case pendingupload.AwaitAnswers:
			s.sendLookups()
			return nil, nil
		case pendingupload.AwaitRemoteStorage:
			if !s.cachedStatuses(m) {
				s.resolveStatuses(m.Topics())
				return nil, nil
			}
		case pendingupload.AwaitUploaded:
			s.resolveUploads(m.(*pendingupload.Older)) // the only one that waits for it
			return nil, nil
		case pendingupload.Done:
			s.lookup = nil
			s.serve()
			s.report(m)
			return m.Response(), nil
		}
	}
}

// sendLookups sends what the machine wants sent, one request at a time: the next when the
// broker's socket has taken the one before, so that one is in memory. It is called whenever
// the socket may have.
func (s *session) sendLookups() {
	m := s.lookup.machine
	for !s.broker.owes() {
		a, ok := m.Ready()
		if !ok {
			break
		}
		s.ask(a)
	}
	s.lookup.size = m.Size()
}

// cachedStatuses gives the machine its statuses when all are known already.
func (s *session) cachedStatuses(m pendingupload.Exchange) bool {
	known := map[string]bool{}
	for _, topic := range m.Topics() {
		enabled, ok := s.endpoint.RemoteStorage.CachedRemoteStorage(topic)
		if !ok {
			return false
		}
		known[topic] = enabled
	}
	m.SetRemoteStorage(statusOf(known))
	return true
}

// resolveStatuses looks the statuses up off the loop.
func (s *session) resolveStatuses(topics []string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.loop.server.opts.RemoteStorageTimeout)
	topics = slices.Clone(topics)
	s.loop.server.background(func() {
		defer cancel()
		var known map[string]bool
		err := s.loop.server.recovered(func() error {
			known = s.endpoint.RemoteStorage.ResolveRemoteStorage(ctx, topics)
			return nil
		})
		s.loop.post(func() { s.loop.guard(s, func() { s.resolved(known, err) }) })
	})
}

// resolved is the end of resolveStatuses.
func (s *session) resolved(known map[string]bool, err error) {
	s.resume(err, func() ([]byte, error) {
		s.lookup.machine.SetRemoteStorage(statusOf(known))
		return s.proceed()
	})
}

// resolveUploads finds out off the loop what is uploaded.
func (s *session) resolveUploads(m *pendingupload.Older) {
	ctx, cancel := context.WithTimeout(s.ctx, s.loop.server.opts.RemoteStorageTimeout)
	s.loop.server.background(func() {
		defer cancel()
		var known []pendingupload.Uploaded
		err := s.loop.server.recovered(func() error {
			wanted, again := m.Wanted() // nothing changes the machine while it waits for this
			if again {
				known = s.endpoint.Uploads.ResolveCurrentUploads(ctx, wanted)
			} else {
				known = s.endpoint.Uploads.ResolveUploads(ctx, wanted)
			}
			return nil
		})
		s.loop.post(func() { s.loop.guard(s, func() { s.uploadsResolved(m, known, err) }) })
	})
}

// uploadsResolved is the end of resolveUploads.
func (s *session) uploadsResolved(m *pendingupload.Older, known []pendingupload.Uploaded, err error) {
	s.resume(err, func() ([]byte, error) {
		return s.work(&s.responses, len(known)*minRowBytes, func() error { return m.Take(known) }, s.proceed)
	})
}

// resume goes on with a lookup after something was found out off the loop. err is that of
// finding it out; proceed returns what goes to the client.
func (s *session) resume(err error, proceed func() ([]byte, error)) {
	switch {
	case s.state == stateEnded || s.lookup == nil:
		return
	case s.ctx.Err() != nil:
		// Not "unknown": nobody was asked to the end.
		s.end(reasonShutdown, nil)
		return
	case err != nil:
		s.end(reasonPanic, err)
		return
	}
	out, err := proceed()
	if err != nil {
		s.end(reasonOf(err), err)
		return
	}
	s.client.give(out)
	s.advance(&s.requests)
}

// statusOf reads a map in which unknown topics are absent.
func statusOf(known map[string]bool) func(string) codec.RemoteStorage {
	return func(topic string) codec.RemoteStorage {
		enabled, ok := known[topic]
		switch {
		case !ok:
			return codec.RemoteStorageUnknown
		case enabled:
			return codec.RemoteStorageEnabled
		default:
			return codec.RemoteStorageDisabled
		}
	}
}

// report counts an answered request and passes on what it proved.
func (s *session) report(m pendingupload.Exchange) {
	r := m.Report()
	s.loop.count.lookup(r)
	if older, ok := m.(*pendingupload.Older); ok {
		s.loop.count.unknownUploads += uint64(older.UnknownUploads())
	}
	s.talk.PendingUploadAnswered(r)
	if len(r.Tiered) > 0 {
		s.endpoint.RemoteStorage.ObserveRemoteStorage(r.Tiered)
	}
}
