// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"fmt"
	"slices"
	"testing"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// TestVectors composes the answer in every log state of the specification.
func TestVectors(t *testing.T) {
	for _, v := range tierlog.Vectors() {
		for _, version := range []int16{9, 10} {
			t.Run(fmt.Sprintf("%s/v%d", v.Name, version), func(t *testing.T) {
				b := &broker{t: t, maxVersion: version, logs: map[string][]*tierlog.Log{"t": {v.Log()}}}
				frame := encodeRequest(listOffsetsRequest(0, -1, pending("t", 0)), []byte("c"), 99)
				got, report := run(t, frame, version, b, nil)
				want := encodeResponse(answerWith(tierlog.Answer{
					Timestamp: -1, Offset: v.PendingUpload.Offset, Epoch: v.PendingUpload.Epoch,
				}), 99)
				if !slices.Equal(got, want) {
					t.Errorf("got  %x\nwant %x\nlog: %v", got, want, v.Log())
				}
				settled := v.Tier.Offset >= 0 && (v.Tier.Offset+1 >= v.Last.Offset || v.Tier.Epoch == v.Last.Epoch)
				open := 0
				if v.Log().RemoteStorage() == codec.RemoteStorageEnabled && !settled {
					open = 1
				}
				if b.requests != report.Asks || report.Asks != 4+report.EpochRounds || report.EpochRounds > 1 {
					t.Errorf("%d requests, report %+v", b.requests, report)
				}
				b.plan = TwoFirst
				again, report := run(t, frame, version, b, nil)
				if !slices.Equal(again, want) || report.Asks != 2+4*open+report.EpochRounds || report.Open != open {
					t.Errorf("two at first: got %x\nwant %x\nreport %+v", again, want, report)
				}
			})
		}
	}
}
