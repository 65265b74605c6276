// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

// backlog is bytes that wait to be written, oldest first. The zero value is empty, and an
// empty one keeps no memory.
type backlog struct {
	bytes []byte
	// done is how many of them were written.
	done int
}

// len returns how many bytes wait.
func (b *backlog) len() int { return len(b.bytes) - b.done }

// memory returns how many bytes are allocated, written ones included.
func (b *backlog) memory() int { return cap(b.bytes) }

// front returns the bytes that wait.
func (b *backlog) front() []byte { return b.bytes[b.done:] }

// drop takes the first n bytes off.
func (b *backlog) drop(n int) {
	if b.done += n; b.done == len(b.bytes) {
		*b = backlog{}
	}
}

// add appends a copy of p.
func (b *backlog) add(p []byte) {
	if b.done > 0 && len(b.bytes)+len(p) > cap(b.bytes) {
		// Rather than to grow by bytes that were written already.
		b.bytes, b.done = append([]byte(nil), b.bytes[b.done:]...), 0
	}
	b.bytes = append(b.bytes, p...)
}

// give appends p, which is the backlog's from then on.
func (b *backlog) give(p []byte) {
	if b.len() > 0 {
		b.add(p)
		return
	}
	b.bytes, b.done = p, 0
}
