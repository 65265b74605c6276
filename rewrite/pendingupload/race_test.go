// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"testing"

	"pgregory.net/rapid"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// watched is a log and every answer that a native broker could have given since the
// client's request arrived.
type watched struct {
	log       *tierlog.Log
	native    map[tierlog.Answer]bool
	isolation int8
	replicaID int32
	// currentEpoch is the client's, or -1.
	currentEpoch int32
	// lowest is the lowest offset that was the first one not uploaded.
	lowest int64
	past   []string
}

// note adds the answer of this instant.
func (w *watched) note(name string) {
	w.native[nativeAnswer(w.log, w.isolation, w.replicaID, w.currentEpoch)] = true
	// Where nativeAnswer and the native broker differ, both are right.
	w.native[w.log.NativeEarliestPendingUpload(w.isolation, w.replicaID, w.currentEpoch)] = true
	w.lowest = min(w.lowest, max(w.log.HighestRemote()+1, w.log.LogStart()))
	w.past = append(w.past, name+": "+w.log.String())
}

// startPassed says whether the log start passed the first offset that was not uploaded.
func (w *watched) startPassed() bool { return w.lowest < w.log.LogStart() }

// TestModelOfRaces moves the logs between the look-ups: each composed answer must be one
// that a native broker could have given at some instant between the client's request and
// the answer. The one exception is the one that the package documentation names.
func TestModelOfRaces(t *testing.T) {
	answers, moved, gone, noticed := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			b := &broker{t: t, maxVersion: 10, plan: oneOf(t, "plan", TwoFirst, AllFour), logs: map[string][]*tierlog.Log{}}
			isolation, replicaID := oneOf[int8](t, "isolation", 0, 1), oneOf[int32](t, "replica id", -1, -1, 3)
			// A leader change shows only if the client says which leader it knows.
			checksEpoch := evenly(t, 2, "checks epoch") == 0
			moves := append(growth(), move{"resign", func(_ *rapid.T, l *tierlog.Log) { l.Resign() }})
			if checksEpoch {
				moves = append(moves, election())
			}
			var all []*watched
			var askings []asking
			for i := range 3 {
				l := history(t)
				l.SetRemoteStorage(codec.RemoteStorageEnabled)
				l.NewLeaderEpoch(nextEpoch(t, l))
				b.logs["t"] = append(b.logs["t"], l)
				w := &watched{log: l, native: map[tierlog.Answer]bool{}, isolation: isolation, replicaID: replicaID, currentEpoch: -1, lowest: l.LogEnd()}
				if checksEpoch {
					w.currentEpoch = l.LeaderEpoch()
				}
				askings = append(askings, asking{"t", int32(i), codec.EarliestPendingUploadTimestamp, w.currentEpoch})
				w.note("request")
				all = append(all, w)
			}
			frame := encodeRequest(listOffsetsRequest(isolation, replicaID, askings...), nil, 1)
			got, _ := run(t, frame, 10, b, func() {
				for _, w := range all {
					for range evenly(t, 5, "moves") {
						m := oneOf(t, "move", moves...)
						m.on(t, w.log)
						w.note(m.name)
					}
					w.past = append(w.past, "answered")
				}
			})
			for i, p := range decodeListOffsets(t, got, 11).Topics[0].Partitions {
				w := all[i]
				a := tierlog.Answer{ErrorCode: p.ErrorCode, Timestamp: p.Timestamp, Offset: p.Offset, Epoch: p.LeaderEpoch}
				answers++
				if len(w.native) > 2 {
					moved++
				}
				switch {
				case w.native[a]:
				case a.ErrorCode == 0 && a.Offset >= 0 && a.Offset < w.log.LogStart():
					gone++
				case a.ErrorCode == offsetNotAvailable && w.startPassed():
					noticed++
				default:
					t.Fatalf("got %+v, a native broker could have said one of %+v\nlog:\n%q", a, w.native, w.past)
				}
			}
		}
	})
	t.Logf("%d answers, %d of them while the native answer changed twice or more, 0 that no native broker could have given, but for records deleted meanwhile: %d with an offset that is gone, %d where the search noticed",
		answers, moved, gone, noticed)
}
