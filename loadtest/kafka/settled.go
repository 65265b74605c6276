// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import "fmt"

// The Settled functions of LogStates. They look at what the broker answers to -2, -4,
// -5 and -1, and at what lies on disk; never at -6.

// nothingUploaded: the whole log is local and no remote part is known.
func nothingUploaded(_ *Log, k Lookups, d Disk) error {
	if k.Tiered != NoPosition || k.Local != k.Start || len(d.Uploaded) != 0 {
		return errNotYet
	}
	return nil
}

// uploadedUpTo: the broker knows of all that was uploaded, which ends before offset.
func uploadedUpTo(offset int64, k Lookups, d Disk) error {
	if k.Tiered.Offset != offset-1 || d.HighestUploaded() != offset-1 {
		return fmt.Errorf("not all before %d is uploaded", offset)
	}
	return nil
}

// uploadedAllLocal: all but the active segment is uploaded, and all is local too.
func uploadedAllLocal(_ *Log, k Lookups, d Disk) error {
	if len(d.Segments) < 2 || k.Local.Offset != 0 {
		return errNotYet
	}
	return uploadedUpTo(d.Active(), k, d)
}

// uploadedLocalDeleted: all but the active segment is uploaded, and gone locally.
func uploadedLocalDeleted(_ *Log, k Lookups, d Disk) error {
	if d.Active() == 0 || k.Local.Offset != d.Active() {
		return errNotYet
	}
	return uploadedUpTo(d.Active(), k, d)
}

// uploadedPartLocal: all but the active segment is uploaded, and some of it is local too.
func uploadedPartLocal(_ *Log, k Lookups, d Disk) error {
	if k.Local.Offset <= 0 || k.Local.Offset >= d.Active() {
		return errNotYet
	}
	return uploadedUpTo(d.Active(), k, d)
}

// everythingUploaded: nothing is left in the active segment.
func everythingUploaded(l *Log, k Lookups, d Disk) error {
	if k.Local.Offset != l.End {
		return errNotYet
	}
	return uploadedUpTo(l.End, k, d)
}

// pendingFrom: everything but the last records is uploaded.
func pendingFrom(records int64) func(*Log, Lookups, Disk) error {
	return func(l *Log, k Lookups, d Disk) error {
		if k.Local.Offset != l.End-records {
			return errNotYet
		}
		return uploadedUpTo(l.End-records, k, d)
	}
}

// startsLocal: records were deleted past the remote part, whose segments go. The broker
// may or may not remember the tiered offset: in memory it does, after a restart not.
func startsLocal(l *Log, k Lookups, d Disk) error {
	if k.Local.Offset != l.LogStart || len(d.Uploaded) != 0 {
		return errNotYet
	}
	return nil
}

// uploadForgotten: remote segments exist, but no task reads their metadata any more.
func uploadForgotten(_ *Log, k Lookups, d Disk) error {
	if k.Tiered != NoPosition || k.Local != k.Start || len(d.Uploaded) == 0 {
		return errNotYet
	}
	return nil
}
