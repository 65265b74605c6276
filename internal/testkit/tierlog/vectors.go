// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tierlog

import "tiergate/codec"

// OffsetEpoch is an offset and its leader epoch; -1 and -1 mean none.
type OffsetEpoch struct {
	Offset int64
	Epoch  int32
}

// Vector is one log state of the specification and what real brokers answered in it to
// a consumer that reads uncommitted.
type Vector struct {
	Name string
	// Log returns a new log in that state.
	Log func() *Log
	// Start, Local, Tier and Last are the answers to -2, -4, -5 and -1.
	Start, Local, Tier, Last OffsetEpoch
	// Ends are the answers of OffsetForLeaderEpoch by requested epoch.
	Ends map[int32]EpochEnd
	// PendingUpload is the native answer to -6.
	PendingUpload OffsetEpoch
}

// Vectors returns the log states of the specification. They were observed on Kafka
// 3.9.1, 4.1.1 and 4.3.0.
func Vectors() []Vector {
	none := OffsetEpoch{-1, -1}
	return []Vector{
		{
			Name: "not tiered, data",
			Log: func() *Log {
				l := New(0)
				l.Append(20000)
				l.Restart(6)
				l.Append(5000)
				return l
			},
			Tier: none, Last: OffsetEpoch{25000, 6}, PendingUpload: none,
		},
		{
			Name: "tiered, empty",
			Log:  func() *Log { return newTiered(0) },
			Tier: none, PendingUpload: none,
		},
		{
			Name: "tiered, only the active segment",
			Log: func() *Log {
				l := newTiered(0)
				l.Append(300)
				l.Restart(4)
				l.Append(100)
				return l
			},
			Tier: none, Last: OffsetEpoch{400, 4},
		},
		{
			Name:  "uploaded, all still local",
			Log:   uploaded,
			Tier:  OffsetEpoch{9785, 0},
			Last:  OffsetEpoch{10000, 2},
			Ends:  map[int32]EpochEnd{0: {Epoch: 0, EndOffset: 10000}},
			Local: OffsetEpoch{0, 0}, PendingUpload: OffsetEpoch{9786, 0},
		},
		{
			Name: "uploaded, local part deleted",
			Log: func() *Log {
				l := uploaded()
				l.DeleteLocal(9786)
				return l
			},
			Local: OffsetEpoch{9786, 0}, Tier: OffsetEpoch{9785, 0}, Last: OffsetEpoch{10000, 2},
			Ends:          map[int32]EpochEnd{0: {Epoch: 0, EndOffset: 10000}},
			PendingUpload: OffsetEpoch{9786, 0},
		},
		{
			Name: "everything uploaded",
			Log: func() *Log {
				l := uploaded()
				l.Upload(9999)
				l.DeleteLocal(10000)
				return l
			},
			Local: OffsetEpoch{10000, 2}, Tier: OffsetEpoch{9999, 0}, Last: OffsetEpoch{10000, 2},
			PendingUpload: none,
		},
		{
			Name:  "X is the first offset of a later epoch",
			Log:   laterEpoch,
			Local: OffsetEpoch{25000, 8}, Tier: OffsetEpoch{24999, 6}, Last: OffsetEpoch{25020, 8},
			Ends: map[int32]EpochEnd{
				6: {Epoch: 6, EndOffset: 25000}, 7: {Epoch: 6, EndOffset: 25000}, 8: {Epoch: 8, EndOffset: 25020},
			},
			PendingUpload: OffsetEpoch{25000, 8},
		},
		{
			Name: "records deleted past the tiered part",
			Log: func() *Log {
				l := newTiered(0)
				l.Append(20000)
				l.Restart(6)
				l.Append(5000)
				l.Upload(24919)
				l.NewLeaderEpoch(8)
				l.Append(20)
				l.DeleteRecords(25010)
				return l
			},
			Start: OffsetEpoch{25010, 8}, Local: OffsetEpoch{25010, 8}, Tier: OffsetEpoch{24919, -1}, Last: OffsetEpoch{25020, 8},
			Ends:          map[int32]EpochEnd{8: {Epoch: 8, EndOffset: 25020}},
			PendingUpload: OffsetEpoch{25010, 8},
		},
		{
			Name: "all deleted",
			Log: func() *Log {
				l := laterEpoch()
				l.Upload(25019)
				l.Append(20)
				l.NewLeaderEpoch(10)
				l.DeleteRecords(25040)
				return l
			},
			Start: OffsetEpoch{25040, 10}, Local: OffsetEpoch{25040, 10}, Tier: OffsetEpoch{25019, -1}, Last: OffsetEpoch{25040, 10},
			PendingUpload: none,
		},
		{
			Name: "remote storage switched off for the topic",
			Log: func() *Log {
				l := newTiered(0)
				l.Append(10000)
				l.Upload(9785)
				l.SetRemoteStorage(codec.RemoteStorageDisabled)
				return l
			},
			Tier: none, Last: OffsetEpoch{10000, 0}, PendingUpload: none,
		},
		{
			Name: "copying switched off, after a restart",
			Log: func() *Log {
				l := newTiered(0)
				l.Append(10000)
				l.Upload(9785)
				l.StopCopying()
				l.Restart(2)
				l.LearnRemote()
				return l
			},
			Tier: none, Last: OffsetEpoch{10000, 2},
		},
	}
}

func newTiered(leaderEpoch int32) *Log {
	l := New(leaderEpoch)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	return l
}

func uploaded() *Log {
	l := newTiered(0)
	l.Append(10000)
	l.Upload(9785)
	l.Restart(2)
	l.LearnRemote()
	return l
}

func laterEpoch() *Log {
	l := newTiered(0)
	l.Append(20000)
	l.Restart(6)
	l.Append(5000)
	l.Upload(24999)
	l.Restart(8)
	l.Append(20)
	l.LearnRemote()
	l.DeleteLocal(25000)
	return l
}
