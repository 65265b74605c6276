// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the fields of a record batch stand. Source: DefaultRecordBatch.
const (
	batchLengthAt    = 8
	batchEpochAt     = 12
	batchMagicAt     = 16
	batchCRCAt       = 17
	batchBodyAt      = 21 // what the CRC covers
	batchLastDeltaAt = 23
	batchHeader      = 61
)

// errPartialBatch says that the bytes end within a batch, as those of a Fetch may.
var errPartialBatch = errors.New("a partial batch")

// batch is what a replica reads of a record batch's header.
type batch struct {
	first, last int64
	epoch       int32
	size        int // bytes, all of them
}

// readBatch reads the batch that b begins with and checks its CRC.
func readBatch(b []byte) (batch, error) {
	if len(b) < batchHeader {
		return batch{}, errPartialBatch
	}
	size := batchEpochAt + int(int32(binary.BigEndian.Uint32(b[batchLengthAt:])))
	if size < batchHeader || b[batchMagicAt] != 2 {
		return batch{}, fmt.Errorf("no record batch: %x", b[:batchHeader])
	}
	if size > len(b) {
		return batch{}, errPartialBatch
	}
	want := binary.BigEndian.Uint32(b[batchCRCAt:])
	if got := crc32.Checksum(b[batchBodyAt:size], castagnoli()); got != want {
		return batch{}, fmt.Errorf("the batch says CRC %08x and has %08x: %x", want, got, b[:batchHeader])
	}
	first := int64(binary.BigEndian.Uint64(b))
	return batch{
		first: first, last: first + int64(binary.BigEndian.Uint32(b[batchLastDeltaAt:])),
		epoch: int32(binary.BigEndian.Uint32(b[batchEpochAt:])), size: size,
	}, nil
}

// castagnoli returns the polynomial of record batches; the package crc32 keeps one table.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// written is a batch that a Topic produced: all that its bytes are made from.
type written struct {
	first     int64
	records   int
	valueSize int
	epoch     int32 // that the leader wrote it under
	timestamp int64 // milliseconds
}

// next is the offset after the batch.
func (w written) next() int64 { return w.first + int64(w.records) }

// produced returns the batch as a producer sends it: the leader fills in offset and epoch,
// which the CRC does not cover.
func (w written) produced() []byte {
	b := w.appendTo(nil)
	binary.BigEndian.PutUint64(b, 0)
	binary.BigEndian.PutUint32(b[batchEpochAt:], math.MaxUint32) // -1
	return b
}

// appendTo appends the batch as it lies in the leader's log.
func (w written) appendTo(dst []byte) []byte {
	var records []byte
	value := make([]byte, w.valueSize)
	for i := range w.records {
		fillValue(value, w.first+int64(i))
		r := kmsg.Record{OffsetDelta: int32(i), Value: value}
		body := r.AppendTo(nil)
		r.Length = int32(len(body) - 1) // the length 0 that stands before takes a byte
		records = r.AppendTo(records)
	}
	rb := kmsg.RecordBatch{
		FirstOffset: w.first, Length: int32(batchHeader - batchEpochAt + len(records)), PartitionLeaderEpoch: w.epoch, Magic: 2,
		LastOffsetDelta: int32(w.records - 1), FirstTimestamp: w.timestamp, MaxTimestamp: w.timestamp,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(w.records), Records: records,
	}
	at := len(dst)
	dst = rb.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at+batchCRCAt:], crc32.Checksum(dst[at+batchBodyAt:], castagnoli()))
	return dst
}

// fillValue makes the value of the record at an offset: the offset, and bytes that follow
// from it and do not repeat (splitmix64).
func fillValue(value []byte, offset int64) {
	state := uint64(offset) * 0x9e3779b97f4a7c15
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], uint64(offset))
	for at := copy(value, word[:]); at < len(value); {
		state += 0x9e3779b97f4a7c15
		x := state
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.BigEndian.PutUint64(word[:], x^x>>31)
		at += copy(value[at:], word[:])
	}
}
