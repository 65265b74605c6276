// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkProduceAcks is asked for every Produce request.
func BenchmarkProduceAcks(b *testing.B) {
	frame, _ := produceFrame(12, kmsg.StringPtr("client"), nil, -1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ProduceAcks(frame); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplyEdits replaces ten addresses in 64 KiB.
func BenchmarkApplyEdits(b *testing.B) {
	frame := make([]byte, 64<<10)
	var edits []Edit
	for i := range 10 {
		edits = append(edits, Edit{From: 100 + 40*i, To: 120 + 40*i, With: []byte("tiergate.example.com:9092")})
	}
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		ApplyEdits(nil, frame, edits)
	}
}
