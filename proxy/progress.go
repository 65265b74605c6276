// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"time"
)

// minProgress is how many bytes must move within Options.ProgressTimeout where a peer keeps
// memory of the proxy occupied: 64 KiB, one read. Less counts as none, or a peer could
// keep a frame for days, byte by byte.
const minProgress = 64 << 10

// progress watches bytes that must move. The zero value watches nothing yet.
type progress struct {
	// moved and frame are what the counters were at the time at.
	moved, frame uint64
	at           time.Time
}

// stuck reports whether too little has moved for limit: of the same frame, by counters
// that only grow.
func (p *progress) stuck(moved, frame uint64, now time.Time, limit time.Duration) bool {
	if p.at.IsZero() || moved-p.moved >= minProgress || frame != p.frame {
		*p = progress{moved: moved, frame: frame, at: now}
		return false
	}
	return now.Sub(p.at) >= limit
}

// stop forgets what was watched.
func (p *progress) stop() { *p = progress{} }

// deadline says which deadline of an open session has passed, if one has. A stream that
// waits with no more than one read has none: a consumer may not poll for minutes.
func (s *session) deadline() (why reason, err error) {
	now, opts := s.loop.now, &s.loop.server.opts
	switch {
	case !s.requests.begun && now.Sub(s.opened) >= opts.FirstRequestTimeout:
		return reasonNoRequest, fmt.Errorf("no request within %v", opts.FirstRequestTimeout)
	case s.lookupSilent(now):
		return reasonLookupTimeout, fmt.Errorf("no response to a lookup request within %v", opts.LookupTimeout)
	}
	for _, side := range []struct {
		name string
		from *flow
		to   *conn
	}{{"client", &s.requests, &s.client}, {"broker", &s.responses, &s.broker}} {
		switch {
		case side.from.stuck(now):
			return reasonNoProgress, fmt.Errorf("the %s sent less than %d bytes of an incomplete frame within %v", side.name, minProgress, opts.ProgressTimeout)
		case side.to.stuck(now):
			return reasonNoProgress, fmt.Errorf("the %s read less than %d of %d bytes within %v", side.name, minProgress, side.to.pending(), opts.ProgressTimeout)
		}
	}
	return 0, nil
}

// stuck reports whether a frame that the proxy keeps until it is complete has stopped to
// come, although nothing keeps the flow from reading.
func (f *flow) stuck(now time.Time) bool {
	incomplete := f.left > 0 && (f.part == partHold || f.part == partFront) || f.starved && len(f.carry) > 0
	if !incomplete || f.stall != goes || f.to.owes() || f.from.ended {
		f.coming.stop()
		return false
	}
	return f.coming.stuck(f.received, f.frames, now, f.session.loop.server.opts.ProgressTimeout)
}

// stuck reports whether the peer has stopped to take what the proxy keeps for it: more than
// one read brings, so a response that was collected whole.
func (c *conn) stuck(now time.Time) bool {
	if c.pending() <= bufferSize {
		c.going.stop()
		return false
	}
	return c.going.stuck(c.taken, 0, now, c.session.loop.server.opts.ProgressTimeout)
}

// lookupSilent reports whether the broker is silent while it works on a lookup request.
// What it does for earlier requests of the client may take as long as the client likes.
func (s *session) lookupSilent(now time.Time) bool {
	if s.lookup == nil {
		return false
	}
	if e := s.exchanges.owed(); e == nil || e.answer != answerAsk || s.lookup.heard.IsZero() {
		s.lookup.heard = now
		return false
	}
	return now.Sub(s.lookup.heard) >= s.loop.server.opts.LookupTimeout
}
