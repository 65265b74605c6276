// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiered

import "encoding/binary"

// MetadataPartition returns the partition of the metadata topic, which has n, that holds
// the records of a partition (RemoteLogMetadataTopicPartitioner.metadataPartition).
func MetadataPartition(topic UUID, partition int32, n int) int32 {
	// Objects.hash(leastSignificantBits, mostSignificantBits, partition), in int32.
	hash := uint32(1)
	for _, h := range []uint32{hashLong(topic[8:]), hashLong(topic[:8]), uint32(partition)} {
		hash = 31*hash + h
	}
	positive := murmur2(hash) & 0x7fffffff
	return int32(positive % uint32(n))
}

// hashLong is Long.hashCode of eight bytes.
func hashLong(b []byte) uint32 {
	return binary.BigEndian.Uint32(b) ^ binary.BigEndian.Uint32(b[4:])
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2 of the four bytes of v, most
// significant first.
func murmur2(v uint32) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		size = 4
	)
	var b [size]byte
	binary.BigEndian.PutUint32(b[:], v)
	k := binary.LittleEndian.Uint32(b[:]) * m
	k = (k ^ k>>24) * m
	h := uint32(seed ^ size)
	h = h*m ^ k
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
