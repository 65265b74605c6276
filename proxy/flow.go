// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
)

// stall says why a flow of requests does not go on although the sockets would.
type stall uint8

const (
	// goes: nothing stalls.
	goes stall = iota
	// stallDial: the broker connection is not open yet.
	stallDial
	// stallInflight: as many exchanges as allowed are unanswered.
	stallInflight
	// stallLookup: an answer of our own is being made; requests behind it wait, as they
	// would at the broker.
	stallLookup
	// stallHandshake: a SaslHandshake of version 0 is unanswered, and the answer says how
	// the next bytes are framed.
	stallHandshake
	// stallMemory: the account of memory has no room for the next piece of a frame that is
	// collected. Responses wait like this too.
	stallMemory
	// stallMachine: a -6 lookup is worked on off the loop, and nothing of its session may
	// change. Responses wait like this too.
	stallMachine
	// stallFault: what the client sent cannot be read on. What is owed is still delivered.
	stallFault
	// stallClosed: the session only finishes what it owes.
	stallClosed
)

// part says what becomes of the rest of the frame that a flow is in.
type part uint8

const (
	// partPass streams to the other side.
	partPass part = iota
	// partHold is collected.
	partHold
	// partFront is collected until the walker can change what it wants to; the rest of the
	// frame is then partPass.
	partFront
	// partWalk streams to the other side while flow.stream follows its structure; its end
	// is then collected.
	partWalk
)

// Signals of walker.open; the walk leaves the frame where it is.
var (
	// errNeedMore: the head is not there whole.
	errNeedMore = errors.New("need more bytes")
	// errStalled: the flow has stalled, and the frame is not begun.
	errStalled = errors.New("stalled")
)

// flow is one direction of a session.
type flow struct {
	session  *session
	from, to *conn
	// walker reads heads and changes frames: the session's requests or responses.
	walker walker
	limits codec.Limits
	stall  stall
	part   part
	queued bool
	// begun: at least one frame of this direction was seen.
	begun bool
	// starved: carry cannot go on without more bytes.
	starved bool
	// bulk: the present frame, or the one before, is large enough to be spliced. What comes
	// next may be as large, so only its head is looked at, until it turns out to be small.
	bulk bool
	// spliced: a part of the bytes that stream now went through a pipe.
	spliced bool
	// done: the end of this direction was seen and passed on.
	done bool
	// left is how many bytes of the present frame have not come yet.
	left int64
	// stream follows the present frame in partWalk; opaque is how many bytes of the frame
	// pass before it must look again.
	stream *rewrite.Stream
	opaque int64
	// held collects a frame that is wanted whole, or its front. A front is looked at again
	// when lookAt bytes are there: twice as many as the last time, so that a front that comes
	// byte by byte costs no more than twice one that comes at once.
	held   []byte
	lookAt int
	// received counts bytes, frames those that were begun; coming watches that a frame
	// which is collected goes on to come.
	received, frames uint64
	coming           progress
	// waitsSince is when the flow began to wait in stallMemory; waitsBegun: it counts as one
	// whose frame was begun.
	waitsSince time.Time
	waitsBegun bool
	// carry are bytes that were read and not walked: the head of a frame that is not
	// there whole, or what was read when the flow stalled.
	carry []byte
}

// walker is what differs between requests and responses.
type walker interface {
	// open reads the head of a frame (at least its size field) and says what becomes of
	// the frame. errNeedMore and errStalled mean that nothing was
	// done and the call will come again; any other error ends the session.
	open(head []byte) (part, error)
	// collected is called with a whole frame of partHold, or with the first bytes, at least
	// the fixed fields, of a frame of partFront, of which more bytes follow; there errNeedMore
	// asks for a call with a longer front. It may change frame, which is the flow's again
	// afterwards. What it returns takes the place of frame on the flow's other side and may
	// be frame, a part of it, another slice, or nothing.
	collected(frame []byte, more int64) ([]byte, error)
	// opaque reports whether the frame whose head has begun to come, but is not there
	// whole, would pass as it is.
	opaque() bool
}

// pump moves bytes until one side would block, the flow stalls, or the budget is used.
// An error is a fault of the protocol that must end the session.
func (f *flow) pump() error {
	budget := f.session.loop.budget
	if f.from.tls != nil || f.to.tls != nil {
		budget = min(budget, tlsBudget)
	}
	for {
		f.to.flush()
		switch {
		case f.to.owes():
			return nil
		case f.done:
			f.to.shutdown()
			return nil
		case f.stall == stallClosed:
			f.to.shutdown()
			f.discard()
			return nil
		case f.stall != goes:
			return nil
		case budget <= 0:
			f.session.loop.queueTurn(f)
			return nil
		}
		if f.splices() {
			n, ok, err := f.splice()
			if err != nil {
				f.finish(err)
			}
			if ok {
				budget -= n
				continue
			}
		}
		begun, err := f.peek()
		if err != nil {
			return err
		}
		if begun {
			continue
		}
		window, err := f.fill()
		if err != nil {
			f.finish(err)
			continue
		}
		if len(window) == 0 {
			if f.from.mayRead() && !f.from.ended {
				// TLS records without data in them.
				f.session.loop.queueTurn(f)
			}
			return nil
		}
		used, err := f.walk(window)
		if err != nil {
			return err
		}
		budget -= max(used, f.from.cost())
		f.keep(window[used:])
	}
}

// blocked reports whether the flow would not read now, although there were bytes. One that
// waits for its next turn would.
func (f *flow) blocked() bool {
	return !f.queued && (f.to.owes() || f.stall != goes && f.stall != stallClosed)
}

// fill returns the bytes to walk next: what was carried over, and what one read adds
// where that is needed. The result points into the loop's buffer; it is empty when
// there is nothing to do.
func (f *flow) fill() ([]byte, error) {
	buf := f.session.loop.buf
	n := copy(buf, f.carry)
	if n > 0 && !f.starved {
		return buf[:n], nil
	}
	if f.from.ended {
		return nil, errPeerClosed
	}
	if !f.from.mayRead() {
		return nil, nil
	}
	size := readSize
	switch rest := f.streams(); {
	case f.bulk && rest > 0:
		size = int(min(rest, readSize)) // of a spliced frame
	case f.bulk:
		size = spliceReadSize // the head of the next
	}
	m, err := f.from.read(buf[n:min(n+size, len(buf))])
	if err != nil || m == 0 {
		return nil, err
	}
	f.session.received(f, m)
	return buf[:n+m], nil
}

// peek begins the next frame of a run of large ones without reading its head, which is then
// spliced with the rest. It reports whether there is something to do for the caller but to
// read. A frame that will be changed must be read: its size field may change.
func (f *flow) peek() (bool, error) {
	if !f.bulk || f.left > 0 || len(f.carry) > 0 || !f.from.readable || f.from.ended || !f.piped() || !f.walker.opaque() {
		return false, nil
	}
	n, err := f.from.peek(f.session.loop.buf[:spliceReadSize])
	if err != nil {
		f.finish(err)
		return true, nil
	}
	if n == 0 {
		return false, nil
	}
	err = f.begin(f.session.loop.buf[:n])
	switch {
	case errors.Is(err, errNeedMore):
		return false, nil // it is read, and carried over until more has come
	case errors.Is(err, errStalled):
		return true, nil
	}
	return err == nil, err
}

// keep carries over what a walk left.
func (f *flow) keep(rest []byte) {
	if len(rest) == 0 {
		f.carry, f.starved = nil, false
		return
	}
	f.carry = append(f.carry[:0], rest...)
}

// walk reads the frames in window, writes on what passes, and returns how far it got.
// It stops early at a head that is not whole (starved), and when the flow stalls or
// the other side takes no more. What stands before a fault is written on.
func (f *flow) walk(window []byte) (int, error) {
	// run is the start of the bytes that pass and are not written yet, head that of the
	// present frame or, when it began earlier, of window.
	run, head, at := 0, 0, 0
	f.starved = false
	for at < len(window) && f.stall == goes && !f.to.owes() && !f.starved {
		rest := window[at:]
		if f.left == 0 {
			err := f.begin(rest)
			if errors.Is(err, errNeedMore) || errors.Is(err, errStalled) {
				f.starved = errors.Is(err, errNeedMore)
				break
			}
			if err != nil {
				f.to.write(window[run:at])
				return at, err
			}
			head = at
		}
		if f.part != partHold && f.part != partFront {
			n, err := f.pass(rest)
			if err != nil {
				f.to.write(window[run:at])
				return at, err
			}
			at += n
			continue
		}
		n := int(min(f.left, int64(len(rest))))
		if !f.grow(n) {
			f.session.loop.wait(f)
			break
		}
		f.to.write(window[run:at])
		run = at
		if err := f.collect(rest[:n]); err != nil {
			return at, err
		}
		at += n
		run = at
	}
	if f.splicable(f.streams()) {
		// Frames that are complete do not wait for the rest of this one.
		head = max(run, head)
		f.to.write(window[run:head])
		f.to.writeHead(window[head:at])
	} else {
		f.to.write(window[run:at])
	}
	return at, nil
}

// pass says how many bytes of rest go on as they are, and takes them off the frame.
func (f *flow) pass(rest []byte) (int, error) {
	if f.part == partWalk && f.opaque == 0 {
		n, skip, tail, err := f.stream.Next(rest, f.left)
		if err != nil {
			return 0, err
		}
		f.opaque = skip
		f.spliced = false
		f.bulk = f.bulk && skip == 0 || f.splicable(skip)
		f.left -= int64(n)
		if tail {
			f.part = partHold
			return n, f.mayHold(f.left)
		}
		// A piece of structure is small. One that does not end in a whole buffer is none.
		f.starved = n == 0 && skip == 0
		if f.starved && len(rest) >= readSize {
			return 0, fmt.Errorf("structure of a response does not end within %d bytes", len(rest))
		}
		return n, nil
	}
	n := min(f.streams(), int64(len(rest)))
	f.left -= n
	if f.part == partWalk {
		f.opaque -= n
	}
	return int(n), nil
}

// streams returns how many bytes of the frame pass next without being looked at.
func (f *flow) streams() int64 {
	switch f.part {
	case partPass:
		return f.left
	case partWalk:
		return f.opaque
	case partHold, partFront:
	}
	return 0
}

// begin starts the frame at the front of rest.
func (f *flow) begin(rest []byte) error {
	if len(rest) < codec.SizeLen {
		return errNeedMore
	}
	if err := f.check(rest); err != nil {
		return err
	}
	part, err := f.walker.open(rest)
	if err != nil {
		return err
	}
	f.part, f.left, f.begun, f.lookAt = part, codec.SizeLen+int64(codec.Size(rest)), true, 0
	f.frames++
	f.spliced = false
	switch part {
	case partHold:
		f.bulk = false
		return f.mayHold(f.left)
	case partWalk:
		// The end will be longer than it comes; see rewrite.Stream.
		longer := f.left - codec.SizeLen + int64(f.stream.Growth())
		if longer > math.MaxInt32 {
			return fmt.Errorf("%w: %d bytes, and no room to rewrite its addresses", codec.ErrFrameTooLarge, f.left)
		}
		binary.BigEndian.PutUint32(rest, uint32(longer))
	case partPass:
		f.bulk = f.splicable(f.left)
	case partFront:
		f.bulk = false
	}
	return nil
}

// How many times its size a collected frame takes in memory until it has been dealt with: a
// response is copied when it is rewritten, and a ListOffsets request becomes a
// pendingupload.Machine, and lookups.
const (
	responseCost = 2
	requestCost  = 4
)

// splicable reports whether n bytes that pass are enough to be spliced.
func (f *flow) splicable(n int64) bool { return n >= spliceMin && f.piped() }

// cost is how many bytes of memory a byte of a collected frame takes.
func (f *flow) cost() int64 {
	if f == &f.session.requests {
		return requestCost
	}
	return responseCost
}

// mayHold checks n bytes of the present frame against the limits of what is held of one.
func (f *flow) mayHold(n int64) error {
	s, opts := f.session, &f.session.loop.server.opts
	switch limit := int64(opts.MaxUnauthenticatedBytes); {
	case n > int64(opts.MaxHeldBytes):
		return fmt.Errorf("%w: %d bytes must be held to be changed, max_held_bytes is %d", errHeldTooLarge, n, opts.MaxHeldBytes)
	case f == &s.requests && !s.authenticated && n > limit:
		return fmt.Errorf("%w: %d bytes before the broker has accepted any request of the client but SASL's; max_unauthenticated_bytes is %d",
			errHeldTooLarge, n, limit)
	case n > readSize && n*f.cost() > s.loop.server.account.forFrames():
		return fmt.Errorf("%w: a frame of %d bytes needs up to %d bytes of memory, and 7/8 of max_buffered_bytes are %d",
			errBufferFull, n, n*f.cost(), s.loop.server.account.forFrames())
	}
	return nil
}

// grow makes room for the next n bytes of a frame that is collected, and reports whether
// there is any. Memory follows what has come, never what the size field promises. What fits
// one read always has room.
func (f *flow) grow(n int) bool {
	need := len(f.held) + n
	if need <= cap(f.held) || len(f.held) == 0 && (int64(n) == f.left || f.part == partFront) {
		return true // a front that is there with the first read is not collected
	}
	size := int(min(int64(max(need, 2*cap(f.held))), int64(len(f.held))+f.left))
	if size > readSize && !f.mayGrow(size) {
		return false
	}
	f.held = append(make([]byte, 0, size), f.held...)
	f.session.account()
	return true
}

// mayGrow reports whether the account has room for a collected frame to take size bytes.
func (f *flow) mayGrow(size int) bool {
	a := &f.session.loop.server.account
	if !f.large() && a.begun.Load() > 0 {
		return false
	}
	return a.room(int64(size-cap(f.held)) * f.cost())
}

// large reports whether more than one read of a frame has been collected.
func (f *flow) large() bool { return cap(f.held) > readSize }

// check refuses impossible sizes, and says so when a first frame looks like another
// protocol.
func (f *flow) check(size []byte) error {
	if !f.begun {
		if err := codec.ForeignBytes(size); err != nil {
			return err
		}
	}
	return f.limits.Check(size)
}

// least asks for more bytes until head holds n, the least that a Kafka message has.
func (f *flow) least(head []byte, n int) error {
	if size := codec.SizeLen + int(codec.Size(head)); size < n {
		return fmt.Errorf("%w: %d bytes, at least %d are needed", codec.ErrFrameImpossible, size-codec.SizeLen, n-codec.SizeLen)
	}
	if len(head) < n {
		return errNeedMore
	}
	return nil
}

// collect takes the next piece of a frame that is wanted whole, or as far as its front
// reaches, and deals with it once it is there. What the window holds whole is not copied.
func (f *flow) collect(piece []byte) error {
	f.left -= int64(len(piece))
	frame := piece
	if len(f.held) > 0 {
		f.held = append(f.held, piece...)
		frame = f.held
	}
	out, err := f.look(frame)
	if errors.Is(err, errNeedMore) {
		if len(f.held) == 0 {
			f.held = append(f.held, piece...)
		}
		if f.part == partFront {
			return f.mayHold(int64(len(f.held)))
		}
		return nil
	}
	collected := f.held != nil
	f.held, f.part = nil, partPass
	if err != nil {
		return err
	}
	if collected {
		f.to.give(out)
	} else {
		f.to.write(out)
	}
	return nil
}

// look gives the walker what was collected of a frame, or returns errNeedMore.
func (f *flow) look(frame []byte) ([]byte, error) {
	// A front that would be too large is looked at once more: it may be there by now.
	tooSoon := len(frame) < f.lookAt && len(frame) <= f.session.loop.server.opts.MaxHeldBytes
	if f.left > 0 && (f.part == partHold || tooSoon) {
		return nil, errNeedMore
	}
	f.lookAt = 2 * len(frame)
	return f.walker.collected(frame, f.left)
}

// finish passes the end of the direction on, after everything that came before it.
func (f *flow) finish(err error) {
	if !errors.Is(err, errPeerClosed) {
		// Reset: nothing can be sent there either.
		f.from.gone()
	}
	// The start of a frame that never came whole: the other side is to see what it
	// would have seen without us, unless the frame was one that we change.
	if f.left > 0 || f.walker.opaque() {
		f.to.write(f.carry)
	}
	f.carry, f.held, f.done = nil, nil, true
	f.to.shutdown()
}

// discard reads and drops what still comes in a session that only finishes what it
// owes. Closing a socket with unread bytes would reset it, and a reset may overtake
// the last response.
func (f *flow) discard() {
	f.carry, f.held = nil, nil
	for budget := f.session.loop.budget; f.from.mayRead() && !f.from.ended && budget > 0; {
		n, err := f.from.read(f.session.loop.buf)
		if err != nil {
			f.done = true
		}
		if n == 0 {
			break
		}
		budget -= n
	}
	if f.from.mayRead() && !f.from.ended {
		// What is left brings no further edge.
		f.session.loop.queueTurn(f)
	}
}
