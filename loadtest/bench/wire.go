// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"tiergate/codec"
)

// The requests are these two. Fetch 11 has the old request header; Produce 9 is
// flexible and lets a proxy find acks.
const (
	produceKey     = 0
	produceVersion = 9
	fetchKey       = 1
	fetchVersion   = 11
	clientID       = "proxybench"
)

// fetchHead and produceHead are how many bytes of a request say something; the rest is
// padding.
const (
	fetchHead   = codec.RequestFixedLen + 2 + len(clientID) + 4
	produceHead = codec.RequestFixedLen + 2 + len(clientID) + 1 + 1 + 2
)

// appendHead appends the fixed part of a request and the client id.
func appendHead(dst []byte, key, version int16, id int32, length int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(length-codec.SizeLen))
	dst = binary.BigEndian.AppendUint16(dst, uint16(key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	return append(dst, clientID...)
}

// appendFetchHead appends the head of a Fetch frame of length bytes that asks for a frame
// of answer bytes.
func appendFetchHead(dst []byte, id int32, length, answer int) []byte {
	dst = appendHead(dst, fetchKey, fetchVersion, id, length)
	return binary.BigEndian.AppendUint32(dst, uint32(answer))
}

// appendProduceHead appends the head of a Produce frame of length bytes with acks -1.
func appendProduceHead(dst []byte, id int32, length int) []byte {
	dst = appendHead(dst, produceKey, produceVersion, id, length)
	// No header tags, no transactional id, acks.
	return append(dst, 0, 0, 0xff, 0xff)
}

// appendAnswerHead appends the head of a response frame of length bytes.
func appendAnswerHead(dst []byte, id int32, length int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(length-codec.SizeLen))
	return binary.BigEndian.AppendUint32(dst, uint32(id))
}

// patternPeriod is a prime, so that a loss or a repetition of any likely size shows.
const patternPeriod = 1<<20 - 3

// pattern gives the bytes of answers: those of another correlation id stand elsewhere in
// the same random period. It is immutable and safe for concurrent use.
type pattern struct {
	twice []byte
}

func newPattern() *pattern {
	p := &pattern{twice: make([]byte, 2*patternPeriod)}
	source := rand.NewChaCha8([32]byte{'p', 'r', 'o', 'x', 'y'})
	_, _ = source.Read(p.twice[:patternPeriod])
	copy(p.twice[patternPeriod:], p.twice[:patternPeriod])
	return p
}

// at returns up to n bytes, at least one, that stand at offset off of the answer to id.
func (p *pattern) at(id int32, off int64, n int) []byte {
	from := (int64(uint32(id))*7919 + off) % patternPeriod
	return p.twice[from : from+int64(min(n, patternPeriod))]
}

// compare says at which byte got, at offset off of the answer to id, is wrong.
func (p *pattern) compare(id int32, off int64, got []byte) error {
	for len(got) > 0 {
		want := p.at(id, off, len(got))
		if !bytes.Equal(got[:len(want)], want) {
			for i := range want {
				if got[i] != want[i] {
					return fmt.Errorf("answer %d, byte %d: %#02x, want %#02x", id, off+int64(i), got[i], want[i])
				}
			}
		}
		off += int64(len(want))
		got = got[len(want):]
	}
	return nil
}
