// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tiergate/loadtest/kafka"
)

// LocalRemote is the remote storage of the launcher's clusters, LocalTieredStorage: one
// folder per topic partition, and in it for every segment a .log file, a
// .leader_epoch_checkpoint file and others.
type LocalRemote struct {
	// Dir is Cluster.RemoteDir.
	Dir string
	// Topic whose partition 0 it is.
	Topic string
}

// Segment looks for the segment in the folder. Uploads go on; one that is not whole yet is
// none, as it is for the broker's metadata.
func (l LocalRemote) Segment(offset int64, epoch int32) (Segment, bool, error) {
	files, err := l.files()
	if err != nil {
		return Segment{}, false, err
	}
	for _, path := range files {
		if first, err := firstOffset(path); err != nil || first > offset {
			continue // also one that is just being written, or deleted
		}
		s, ok, err := readStored(path)
		if err != nil {
			return Segment{}, false, fmt.Errorf("remote segment %s: %w", path, err)
		}
		if ok && offset <= s.Last && s.Epochs.At(offset) == epoch {
			return s.Segment, true, nil
		}
	}
	return Segment{}, false, nil
}

// files returns the segments' .log files, from the last to the first: their names begin
// with the base offset, in 20 digits.
func (l LocalRemote) files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.Dir, "*", l.Topic+"-0-*", "*.log"))
	slices.Sort(files)
	slices.Reverse(files)
	return files, err
}

// firstOffset reads the base offset of a segment's first batch.
func firstOffset(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return -1, err
	}
	defer file.Close()
	var b [8]byte
	if _, err := file.ReadAt(b[:], 0); err != nil {
		return -1, err
	}
	return int64(binary.BigEndian.Uint64(b[:])), nil
}

// stored is a segment and its .log file.
type stored struct {
	Segment
	path string
}

// segments returns all of them, ascending.
func (l LocalRemote) segments() ([]stored, error) {
	files, err := l.files()
	if err != nil {
		return nil, err
	}
	var all []stored
	for _, path := range files {
		s, ok, err := readStored(path)
		if err != nil {
			return nil, fmt.Errorf("remote segment %s: %w", path, err)
		}
		if ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return int(a.First - b.First) })
	return all, nil
}

// readStored reads a segment's range and its epochs.
func readStored(path string) (stored, bool, error) {
	epochs, err := readCheckpoint(strings.TrimSuffix(path, ".log") + ".leader_epoch_checkpoint")
	if os.IsNotExist(err) {
		return stored{}, false, nil
	}
	if err != nil {
		return stored{}, false, err
	}
	s := stored{path: path, Segment: Segment{First: -1, Epochs: epochs}}
	return s, true, eachBatch(path, func(_ []byte, b batch) error {
		if s.First < 0 {
			s.First = b.first
		}
		s.Last = b.last
		return nil
	})
}

// readCheckpoint reads a leader epoch checkpoint: its version, the number of lines, and
// then epoch and start offset in each.
func readCheckpoint(path string) (Epochs, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(strings.NewReader(string(b)))
	var version, lines int
	if _, err := fmt.Fscan(r, &version, &lines); err != nil || version != 0 {
		return nil, fmt.Errorf("checkpoint %q: version %d (%w)", b, version, err)
	}
	var epochs Epochs
	for range lines {
		var e kafka.Position
		if _, err := fmt.Fscan(r, &e.Epoch, &e.Offset); err != nil {
			return nil, fmt.Errorf("checkpoint %q: %w", b, err)
		}
		epochs = append(epochs, e)
	}
	return epochs, nil
}

// eachBatch reads a segment file and hands out its batches.
func eachBatch(path string, visit func([]byte, batch) error) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		got, err := readBatch(b)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := visit(b[:got.size], got); err != nil {
			return err
		}
		b = b[got.size:]
	}
	return nil
}
