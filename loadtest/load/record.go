// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// A record's value, all numbers big endian:
//
//	 0  4 bytes  magic
//	 4  4        CRC-32C of all that follows
//	 8  8        run: which topic of which turn it was made for
//	16  4        producer, counted from 0
//	20  4        partition
//	24  8        number of its producer in its partition, from 0
//	32  8        due: when it was to be sent, nanoseconds since 1970
//	40  ...      filling, the same in every record
const (
	recordMagic = 0x74676c64 // "tgld"
	headerSize  = 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // in hardware, several GB/s; only read

// stamp is what a record says of itself.
type stamp struct {
	run       uint64
	producer  uint32
	partition int32
	number    uint64
	due       int64
}

// fillValue makes a new value of size bytes, at least headerSize, with the filling.
// Batches of one filling compress well, as real ones do, but not to nothing.
func fillValue(size int) []byte {
	v := make([]byte, size)
	x := uint32(0x9e3779b9)
	for i := headerSize; i < size; i++ {
		x = x*1664525 + 1013904223
		v[i] = "abcdefghijklmnopqrstuvwxyz012345"[x>>27]
	}
	binary.BigEndian.PutUint32(v, recordMagic)
	return v
}

// put writes s into a value that fillValue made, and its checksum.
func (s stamp) put(value []byte) {
	binary.BigEndian.PutUint64(value[8:], s.run)
	binary.BigEndian.PutUint32(value[16:], s.producer)
	binary.BigEndian.PutUint32(value[20:], uint32(s.partition))
	binary.BigEndian.PutUint64(value[24:], s.number)
	binary.BigEndian.PutUint64(value[32:], uint64(s.due))
	binary.BigEndian.PutUint32(value[4:], crc32.Checksum(value[8:], castagnoli))
}

// readStamp returns what a value says of itself; an error when it is not as it was made.
func readStamp(value []byte) (stamp, error) {
	if len(value) < headerSize || binary.BigEndian.Uint32(value) != recordMagic {
		return stamp{}, fmt.Errorf("a value of %d bytes that is no record of the load test: %x", len(value), value[:min(len(value), 16)])
	}
	if want, got := binary.BigEndian.Uint32(value[4:]), crc32.Checksum(value[8:], castagnoli); want != got {
		return stamp{}, fmt.Errorf("a value of %d bytes with checksum %08x and not %08x", len(value), got, want)
	}
	return stamp{
		run: binary.BigEndian.Uint64(value[8:]), producer: binary.BigEndian.Uint32(value[16:]),
		partition: int32(binary.BigEndian.Uint32(value[20:])), number: binary.BigEndian.Uint64(value[24:]),
		due: int64(binary.BigEndian.Uint64(value[32:])),
	}, nil
}

// dueTime is when the record was to be sent.
func (s stamp) dueTime() time.Time { return time.Unix(0, s.due) }
