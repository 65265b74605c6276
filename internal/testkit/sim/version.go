// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kversion"
)

// Version is the Kafka release that a broker answers as.
type Version uint8

// The zero Version is Kafka 4.1: the newest release that has tiered storage and does
// not know -6.
const (
	Kafka41 Version = iota // ListOffsets up to 10
	Kafka38                // ListOffsets up to 8: no -5, so nothing to synthesise -6 from
	Kafka39                // ListOffsets up to 9
	Kafka40                // ListOffsets up to 10
	Kafka42                // ListOffsets up to 11: -6 is answered by the broker itself
	Kafka43                // as Kafka42
)

// String returns the release as people write it, such as "4.1".
func (v Version) String() string {
	switch v {
	case Kafka38:
		return "3.8"
	case Kafka39:
		return "3.9"
	case Kafka40:
		return "4.0"
	case Kafka41:
		return "4.1"
	case Kafka42:
		return "4.2"
	case Kafka43:
		return "4.3"
	}
	return fmt.Sprintf("Version(%d)", uint8(v))
}

// versions is the table of API versions that the release has.
func (v Version) versions() (*kversion.Versions, error) {
	switch v {
	case Kafka38:
		return kversion.V3_8_0(), nil
	case Kafka39:
		return kversion.V3_9_0(), nil
	case Kafka40:
		return kversion.V4_0_0(), nil
	case Kafka41:
		return kversion.V4_1_0(), nil
	case Kafka42:
		return kversion.V4_2_0(), nil
	case Kafka43:
		return kversion.V4_3_0(), nil
	}
	return nil, fmt.Errorf("sim: unknown %v", v)
}

// maxListOffsets is the newest ListOffsets version that the release has.
// Source: ListOffsetsRequest.json at the release's tag; KIP-1005 (9), KIP-1075 (10),
// KIP-1023 (11).
func (v Version) maxListOffsets() int16 {
	switch v {
	case Kafka38:
		return 8
	case Kafka39:
		return 9
	case Kafka42, Kafka43:
		return 11
	case Kafka40, Kafka41:
	}
	return 10
}

// minListOffsets is the oldest ListOffsets version that the release has. KIP-896 took
// version 0 out of Kafka 4.0.
func (v Version) minListOffsets() int16 {
	switch v {
	case Kafka38, Kafka39:
		return 0
	case Kafka40, Kafka41, Kafka42, Kafka43:
	}
	return 1
}
