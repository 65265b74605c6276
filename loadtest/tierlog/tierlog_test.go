// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tierlog

import (
	"testing"
)

// TestVectors holds the model to what real brokers answered (the specification's table).
func TestVectors(t *testing.T) {
	for _, v := range Vectors() {
		t.Run(v.Name, func(t *testing.T) {
			l := v.Log()
			for _, look := range []struct {
				timestamp int64
				want      OffsetEpoch
			}{
				{EarliestTimestamp, v.Start},
				{EarliestLocalTimestamp, v.Local},
				{LatestTieredTimestamp, v.Tier},
				{LatestTimestamp, v.Last},
			} {
				want := Answer{Timestamp: -1, Offset: look.want.Offset, Epoch: look.want.Epoch}
				if got := l.ListOffset(look.timestamp, ReadUncommitted, ConsumerReplicaID, -1); got != want {
					t.Errorf("timestamp %d: got %+v, want %+v\nlog: %v", look.timestamp, got, want, l)
				}
			}
			for epoch, want := range v.Ends {
				if got := l.EpochEndOffset(epoch, -1); got != want {
					t.Errorf("epoch %d: got %+v, want %+v\nlog: %v", epoch, got, want, l)
				}
			}
			want := Answer{Timestamp: -1, Offset: v.PendingUpload.Offset, Epoch: v.PendingUpload.Epoch}
			if got := l.NativeEarliestPendingUpload(ReadUncommitted, ConsumerReplicaID, -1); got != want {
				t.Errorf("-6: got %+v, want %+v\nlog: %v", got, want, l)
			}
		})
	}
}
