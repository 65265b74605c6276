// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"tiergate/internal/testkit/tierlog"

	"tiergate/codec"
)

// SampleTopics returns topics in every state that matters to the -6 answer, for the
// demo and for tests. The models are new with each call.
//
//	orders-0    uploaded up to 4,199, local copies kept from 3,000 on, three leader epochs
//	orders-1    the first record that is not uploaded is the first of a later epoch
//	orders-2    uploaded in part, nothing deleted locally yet
//	payments-0  everything uploaded
//	payments-1  records deleted past the uploaded part
//	clicks-0    only the active segment: nothing uploaded yet
//	sensors-0   tiered and empty
//	sessions-0  not tiered
//	sessions-1  not tiered
func SampleTopics() []Topic {
	return []Topic{
		{Name: "orders", Partitions: []*tierlog.Log{ordersLocalDeleted(), ordersLaterEpoch(), ordersAllLocal()}},
		{Name: "payments", Partitions: []*tierlog.Log{paymentsAllUploaded(), paymentsRecordsDeleted()}},
		{Name: "clicks", Partitions: []*tierlog.Log{tieredWith(400)}},
		{Name: "sensors", Partitions: []*tierlog.Log{tieredWith(0)}},
		{Name: "sessions", Partitions: []*tierlog.Log{untieredWith(900), untieredWith(0)}},
	}
}

func tieredWith(records int64) *tierlog.Log {
	l := tierlog.New(0)
	l.SetRemoteStorage(codec.RemoteStorageEnabled)
	l.Append(records)
	return l
}

func untieredWith(records int64) *tierlog.Log {
	l := tierlog.New(0)
	l.Append(records)
	return l
}

func ordersLocalDeleted() *tierlog.Log {
	l := tieredWith(2500)
	l.NewLeaderEpoch(2)
	l.Append(1500)
	l.NewLeaderEpoch(4)
	l.Append(1200)
	l.Upload(4199)
	l.DeleteLocal(3000)
	return l
}

func ordersLaterEpoch() *tierlog.Log {
	l := tieredWith(2000)
	l.Upload(1999)
	l.DeleteLocal(2000)
	l.NewLeaderEpoch(2)
	l.NewLeaderEpoch(4)
	l.Append(500)
	return l
}

func ordersAllLocal() *tierlog.Log {
	l := tieredWith(1800)
	l.Upload(999)
	return l
}

func paymentsAllUploaded() *tierlog.Log {
	l := tieredWith(1500)
	l.NewLeaderEpoch(1)
	l.Append(500)
	l.Upload(1999)
	l.DeleteLocal(2000)
	return l
}

func paymentsRecordsDeleted() *tierlog.Log {
	l := tieredWith(1500)
	l.NewLeaderEpoch(2)
	l.Append(600)
	l.Upload(1299)
	l.DeleteLocal(1300)
	l.DeleteRecords(1700)
	return l
}
