// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Sizes of a stream, in bytes.
const (
	readSize = 64 << 10
	// smallSize is what is copied rather than kept in a buffer of readSize.
	smallSize = 4 << 10
	// queueSize is what a stream holds, delayedSize while there is a latency.
	queueSize   = 256 << 10
	delayedSize = 4 << 20
)

// stream is one direction of a pair.
type stream struct {
	pair      *pair
	direction direction
	from, to  *net.TCPConn
	queue     *queue
	luck      *rand.Rand // the writer's
}

// chunk is bytes that arrived together. The last one of a stream has none: it is FIN.
type chunk struct {
	bytes   []byte
	buffer  *[readSize]byte // that bytes are in; nil when they have memory of their own
	arrived time.Time
}

// read puts what comes into the queue, and throws it away when the pair does not pass.
func (s *stream) read() {
	for {
		c, err := s.next()
		if c.bytes != nil && !s.put(c) {
			break
		}
		if errors.Is(err, io.EOF) {
			if s.put(chunk{arrived: c.arrived}) {
				return
			}
			break
		}
		if err != nil {
			s.broken()
			break
		}
	}
	s.pair.discard(s.from)
}

// next reads what has arrived.
func (s *stream) next() (chunk, error) {
	buffer := s.pair.relay.buffers.Get().(*[readSize]byte)
	n, err := s.from.Read(buffer[:])
	c := chunk{arrived: time.Now()}
	if n > smallSize {
		c.bytes, c.buffer = buffer[:n], buffer
		return c, err
	}
	if n > 0 {
		c.bytes = append([]byte(nil), buffer[:n]...)
	}
	s.pair.relay.buffers.Put(buffer)
	return c, err
}

// put is false when the pair does not pass.
func (s *stream) put(c chunk) bool {
	limit := queueSize
	if s.pair.relay.link.Load().latency > 0 {
		limit = delayedSize
	}
	return s.queue.put(c, limit, s.pair.left)
}

// write sends what is in the queue, when it is time.
func (s *stream) write() {
	for {
		c, ok := s.queue.take(s.pair.left)
		if !ok || !s.delay(c.arrived) {
			return
		}
		if c.bytes == nil {
			_ = s.to.CloseWrite()
			return
		}
		if !s.send(c.bytes) {
			return
		}
		if c.buffer != nil {
			s.pair.relay.buffers.Put(c.buffer)
		}
	}
}

// delay waits until bytes that arrived at a time are due, under the condition in force
// while it waits; false when the pair stops passing meanwhile.
func (s *stream) delay(arrived time.Time) bool {
	luck := 2*s.luck.Float64() - 1
	for {
		l := s.pair.relay.link.Load()
		if ok, again := s.wait(time.Until(arrived.Add(l.delay(luck))), l); !again {
			return ok
		}
	}
}

// send writes bytes at the rate in force.
func (s *stream) send(b []byte) bool {
	for len(b) > 0 {
		n, l := len(b), s.pair.relay.link.Load()
		if limiter := l.limits[s.direction]; limiter != nil {
			n = min(n, limiter.Burst())
			reserved := limiter.ReserveN(time.Now(), n)
			ok, again := s.wait(reserved.Delay(), l)
			if again {
				reserved.Cancel()
				continue
			}
			if !ok {
				return false
			}
		}
		if _, err := s.to.Write(b[:n]); err != nil {
			s.broken()
			return false
		}
		b = b[n:]
	}
	return true
}

// wait waits for a time under a condition. again says that the condition changed first.
func (s *stream) wait(d time.Duration, under *link) (ok, again bool) {
	if d <= 0 {
		return true, false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, false
	case <-under.changed:
		return false, true
	case <-s.pair.left:
		return false, false
	}
}

// broken passes the reset of one side on to the other, unless the pair is silent.
func (s *stream) broken() {
	if s.pair.is(passing) {
		s.pair.reset()
	}
}

// queue is the bytes between one reader and one writer.
type queue struct {
	mu     sync.Mutex
	chunks []chunk
	size   int
	// room and more have a token when there may be room, or something to take.
	room, more chan struct{}
}

func newQueue() *queue {
	return &queue{room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
}

func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// put waits until fewer bytes than the limit are there; false when left is closed first.
func (q *queue) put(c chunk, limit int, left <-chan struct{}) bool {
	for {
		select {
		case <-left:
			return false
		default:
		}
		q.mu.Lock()
		fits := q.size < limit
		if fits {
			q.chunks = append(q.chunks, c)
			q.size += len(c.bytes)
		}
		q.mu.Unlock()
		if fits {
			signal(q.more)
			return true
		}
		select {
		case <-q.room:
		case <-left:
			return false
		}
	}
}

// take waits for a chunk; false when left is closed first.
func (q *queue) take(left <-chan struct{}) (chunk, bool) {
	for {
		q.mu.Lock()
		if len(q.chunks) > 0 {
			c := q.chunks[0]
			q.chunks[0] = chunk{}
			q.chunks = q.chunks[1:]
			q.size -= len(c.bytes)
			q.mu.Unlock()
			signal(q.room)
			return c, true
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-left:
			return chunk{}, false
		}
	}
}
