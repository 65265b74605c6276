// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"tiergate/codec"
	"tiergate/rewrite"
	"tiergate/rewrite/pendingupload"
)

// lookup is a ListOffsets request that was taken out of the flow of requests.
type lookup struct {
	// waiting is the client's request while the broker's versions are asked for.
	waiting []byte
	// machine makes the -6 answer once they are known.
	machine *pendingupload.Machine
}

// apiVersionsKey is the API key of ApiVersions; its version 0 is what every broker
// answers (KIP-511, KIP-896).
const apiVersionsKey = 18

// listOffsets deals with a ListOffsets request above the broker's version. What it
// returns goes to the broker. frame is the caller's again afterwards.
func (s *session) listOffsets(frame []byte) ([]byte, error) {
	id := codec.RequestCorrelationID(frame)
	step, out, machine, err := s.talk.ListOffsets(frame)
	if err != nil {
		return nil, fmt.Errorf("list offsets request: %w", err)
	}
	switch step {
	case rewrite.AskVersions:
		s.lookup = &lookup{waiting: bytes.Clone(frame)}
		s.requests.stall = stallLookup
		return nil, s.askVersions(frame)
	case rewrite.Answer:
		s.lookup = &lookup{machine: machine}
		s.requests.stall = stallLookup
		_, err := s.proceed()
		return nil, err
	case rewrite.Forward:
	}
	s.exchanges.push(exchange{correlationID: id, key: codec.RequestKey(out), version: codec.RequestVersion(out)})
	return out, nil
}

// ask sends a request of our own. It borrows the client's identity only in its client
// id; the correlation id is ours.
func (s *session) ask(a pendingupload.Ask) {
	s.askID++
	codec.PutRequestCorrelationID(a.Frame, s.askID)
	s.exchanges.push(exchange{correlationID: s.askID, key: a.Key, version: a.Version, answer: answerAsk})
	s.broker.write(a.Frame)
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
	if s.lookup.machine != nil {
		if err := s.lookup.machine.Step(frame); err != nil {
			return nil, fmt.Errorf("look-up %s v%d: %w", rewrite.KeyName(e.key), e.version, err)
		}
		return s.proceed()
	}
	if err := s.talk.Learn(e.version, frame); err != nil {
		return nil, err
	}
	waiting := s.lookup.waiting
	s.lookup = nil
	out, err := s.listOffsets(waiting)
	s.broker.write(out)
	return nil, err
}

// proceed does what the machine wants next. When the answer is complete it is returned
// for the client, and the lookup is over.
func (s *session) proceed() ([]byte, error) {
	for {
		m := s.lookup.machine
		switch m.State() {
		case pendingupload.AwaitAnswers:
			for a, ok := m.Ready(); ok; a, ok = m.Ready() {
				s.ask(a)
			}
			return nil, nil
		case pendingupload.AwaitVerdicts:
			if !s.cachedVerdicts(m) {
				s.resolveVerdicts(m.Topics())
				return nil, nil
			}
		case pendingupload.Done:
			s.lookup = nil
			s.serve()
			s.report(m.Report())
			return m.Response(), nil
		}
	}
}

// cachedVerdicts gives the machine its verdicts when all are known already.
func (s *session) cachedVerdicts(m *pendingupload.Machine) bool {
	known := map[string]bool{}
	for _, topic := range m.Topics() {
		enabled, ok := s.endpoint.Verdicts.CachedRemoteStorage(topic)
		if !ok {
			return false
		}
		known[topic] = enabled
	}
	m.Verdicts(verdictsOf(known))
	return true
}

// resolveVerdicts looks the verdicts up off the loop.
func (s *session) resolveVerdicts(topics []string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.loop.server.opts.VerdictTimeout)
	topics = slices.Clone(topics)
	s.loop.server.background(func() {
		defer cancel()
		var known map[string]bool
		err := s.loop.server.recovered(func() error {
			known = s.endpoint.Verdicts.ResolveRemoteStorage(ctx, topics)
			return nil
		})
		s.loop.post(func() { s.loop.guard(s, func() { s.resolved(known, err) }) })
	})
}

// resolved is the end of resolveVerdicts.
func (s *session) resolved(known map[string]bool, err error) {
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
	s.lookup.machine.Verdicts(verdictsOf(known))
	out, err := s.proceed()
	if err != nil {
		s.end(reasonOf(err), err)
		return
	}
	s.client.write(out)
	s.advance(&s.requests)
}

// verdictsOf reads a map in which unknown topics are absent.
func verdictsOf(known map[string]bool) func(string) pendingupload.RemoteStorage {
	return func(topic string) pendingupload.RemoteStorage {
		enabled, ok := known[topic]
		switch {
		case !ok:
			return pendingupload.RemoteStorageUnknown
		case enabled:
			return pendingupload.RemoteStorageEnabled
		default:
			return pendingupload.RemoteStorageDisabled
		}
	}
}

// report counts an answered request and passes on what it proved.
func (s *session) report(r pendingupload.Report) {
	s.loop.count.lookup(r)
	s.talk.PendingUploadAnswered(r)
	if len(r.Tiered) > 0 {
		s.endpoint.Verdicts.ObserveRemoteStorage(r.Tiered)
	}
}
