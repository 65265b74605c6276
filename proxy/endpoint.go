// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"tiergate/rewrite"
)

// endpoint is a listening socket and what belongs to it.
type endpoint struct {
	Endpoint
	server   *Server
	index    int
	listener net.Listener
	faults   quiet
	// unanswerable: a broker too old for -6 is warned of once.
	unanswerable sync.Once
	unmapped     unmappedNodes
}

// Accepting backs off like this when the process or the machine has no descriptors
// left: the condition passes when sessions end.
const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// accept hands connections to the loops until the listener is closed.
func (e *endpoint) accept() {
	backoff := acceptBackoffMin
	for {
		c, err := e.listener.Accept()
		if err == nil {
			backoff = acceptBackoffMin
			if !e.server.paced() {
				resetConn(c)
				return
			}
			e.admit(&arrival{endpoint: e, conn: c, peer: c.RemoteAddr(), local: c.LocalAddr()})
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		e.unaccepted(err)
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, acceptBackoffMax)
		case <-e.server.ctx.Done():
			return
		}
	}
}

// unaccepted counts a failed accept and says why, once in a while.
func (e *endpoint) unaccepted(err error) {
	why, sentence := "other", "cannot accept connections, trying again"
	if localShortage(err) {
		why = "local_shortage"
		sentence = "cannot accept connections, trying again: no file descriptor or memory is left; raise ulimit -n (LimitNOFILE in systemd), or set max_sessions"
	}
	e.server.metrics.unaccepted.WithLabelValues(why).Inc()
	if n, ok := e.faults.allow(); ok {
		e.server.log.Warn(sentence, "listener", e.Listener, "address", e.Address, "error", err, "suppressed", n)
	}
}

// logEnd writes one line for a session that a fault ended, and none at this level for
// those that a peer ended.
func (e *endpoint) logEnd(s *session, why reason, err error) {
	if !why.fault() || reported(err) {
		e.server.log.Debug("session ended", "listener", e.Listener, "client", s.peer.String(), "broker", s.behind(), "reason", why.String())
		return
	}
	if n, ok := e.faults.allow(); ok {
		e.server.log.Warn("session closed: "+why.sentence(), "listener", e.Listener, "client", s.peer.String(),
			"broker", s.behind(), "reason", why.String(), "error", err, "suppressed", n)
	}
}

const (
	// maxWarned bounds the nodes without an address that one endpoint warns of: an upstream
	// may invent node ids.
	maxWarned = 1000
	// maxListed is how many of them one line lists.
	maxListed = 10
)

// unmappedNodes are the nodes without an address that an endpoint warns of. The zero value
// has none.
type unmappedNodes struct {
	mu sync.Mutex
	// seen are those that were warned of or wait, maxWarned at most.
	seen map[int32]struct{}
	// waiting are those for the next line, which may be written from next on.
	waiting []int32
	next    time.Time
}

// add enters nodes.
func (u *unmappedNodes) add(nodes []int32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range nodes {
		if len(u.seen) == maxWarned {
			return
		}
		if _, seen := u.seen[id]; seen {
			continue
		}
		if u.seen == nil {
			u.seen = map[int32]struct{}{}
		}
		u.seen[id] = struct{}{}
		u.waiting = append(u.waiting, id)
	}
}

// take returns the nodes for a line that may be written now, if there are any.
func (u *unmappedNodes) take(now time.Time) []int32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.waiting) == 0 || now.Before(u.next) {
		return nil
	}
	nodes := u.waiting
	u.waiting, u.next = nil, now.Add(quietEvery)
	return nodes
}

// warnUnmapped warns of each node once per endpoint, in one line every quietEvery. Loops
// call it when a response has named nodes without an address, and at each tick.
func (e *endpoint) warnUnmapped(now time.Time) {
	nodes := e.unmapped.take(now)
	if len(nodes) == 0 {
		return
	}
	var list strings.Builder
	for i, id := range nodes {
		if i == maxListed {
			fmt.Fprintf(&list, " and %d more", len(nodes)-i)
			break
		}
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "%d", id)
	}
	e.server.log.Warn("brokers have no address on this listener, so clients cannot reach them through tiergate; extend the listener's nodes",
		"listener", e.Listener, "nodes", list.String(), "unmapped_nodes", e.Rules.Unmapped.String())
}

// warnUnanswerable says once per endpoint that -6 cannot be answered before its broker.
func (e *endpoint) warnUnanswerable() {
	if e.Rules.PendingUpload == rewrite.PendingUploadOff {
		return
	}
	e.unanswerable.Do(func() {
		e.server.log.Warn("-6 (earliest pending upload) cannot be answered before this broker: its ListOffsets ends below version 9, "+
			"as in Kafka 3.8 and earlier; everything passes as it is", "listener", e.Listener, "broker", e.Broker)
	})
}

// quiet lets a burst of log lines through and then one every so often, so that a
// broker that is down, or a scanner, does not fill the log.
type quiet struct {
	mu         sync.Mutex
	from       time.Time
	lines      int
	suppressed int
}

const (
	quietBurst = 20
	quietEvery = 10 * time.Second
)

// allow reports whether a line may be written now, and how many were suppressed since
// the last one. Safe for any goroutine.
func (q *quiet) allow() (suppressed int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.from) >= quietEvery {
		q.from, q.lines = now, 0
	}
	if q.lines >= quietBurst {
		q.suppressed++
		return 0, false
	}
	q.lines++
	suppressed, q.suppressed = q.suppressed, 0
	return suppressed, true
}
