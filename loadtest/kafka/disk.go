// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Disk is what lies on disk of a partition, local and remote: a witness that is not the
// broker's answer.
type Disk struct {
	// Segments are the base offsets of the local segments, ascending; the last one is
	// the active segment.
	Segments []int64
	// Uploaded are the offset ranges of the uploaded segments, ascending.
	Uploaded []Range
}

// Range is a range of offsets, both ends included.
type Range struct{ First, Last int64 }

// String shows both lists.
func (d Disk) String() string { return fmt.Sprintf("segments %v, uploaded %v", d.Segments, d.Uploaded) }

// Active returns the base offset of the active segment.
func (d Disk) Active() int64 { return d.Segments[len(d.Segments)-1] }

// HighestUploaded returns the last uploaded offset, -1 when there is none.
func (d Disk) HighestUploaded() int64 {
	if len(d.Uploaded) == 0 {
		return -1
	}
	return d.Uploaded[len(d.Uploaded)-1].Last
}

// Disk reads the folders of the leader and of the remote storage. Segments that are
// marked as deleted do not count.
func (l *Log) Disk() (Disk, error) {
	var d Disk
	for _, n := range l.cluster.nodes {
		local, err := logFiles(filepath.Join(n.DataDir(), l.Topic+"-0"))
		if err != nil {
			return Disk{}, err
		}
		for _, path := range local {
			base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64)
			if err != nil {
				return Disk{}, fmt.Errorf("segment file %s: %w", path, err)
			}
			d.Segments = append(d.Segments, base)
		}
	}
	if len(d.Segments) == 0 {
		return Disk{}, fmt.Errorf("%s-0 has no segment on disk: %w", l.Topic, errNotYet)
	}
	return d, l.readRemote(&d)
}

// readRemote adds what LocalTieredStorage holds: one folder per topic partition, named
// topic-partition-topicId, and per segment a .log file among others.
func (l *Log) readRemote(d *Disk) error {
	folders, err := filepath.Glob(filepath.Join(l.cluster.RemoteDir(), "*", l.Topic+"-0-*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		files, err := logFiles(folder)
		if err != nil {
			return err
		}
		for _, path := range files {
			r, err := batchRange(path)
			if err != nil {
				return err
			}
			d.Uploaded = append(d.Uploaded, r)
		}
	}
	slices.SortFunc(d.Uploaded, func(a, b Range) int { return int(a.First - b.First) })
	return nil
}

// logFiles returns the .log files of a folder, sorted; none for a missing folder.
func logFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files, nil
}

// batchRange reads the headers of a segment's record batches: base offset (8 bytes),
// length of what follows (4), and at 23 the last offset's distance (4). Source:
// DefaultRecordBatch.
func batchRange(path string) (Range, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Range{}, fmt.Errorf("uploaded segment: %w", err)
	}
	const header, lastOffsetDelta = 61, 23
	r := Range{First: -1, Last: -1}
	for len(b) >= header {
		base := int64(binary.BigEndian.Uint64(b))
		if r.First < 0 {
			r.First = base
		}
		r.Last = base + int64(binary.BigEndian.Uint32(b[lastOffsetDelta:]))
		b = b[min(12+int(binary.BigEndian.Uint32(b[8:])), len(b)):]
	}
	if r.First < 0 {
		return Range{}, fmt.Errorf("uploaded segment %s holds no batch: %w", path, errNotYet)
	}
	return r, nil
}
