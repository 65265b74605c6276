// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"

	"tiergate/loadtest/kafka"
)

// TestFollower plays replicas against leaders that say what a script says. A script has the
// command
//
//	catch-up policy=<-4|-6> [storage=local] [has=<first>-<end>@<epoch>[,...]]
//	leader <epoch>
//	remote <first>-<last> <epoch>@<offset> ...
//	<ask> : <answer>
//
// where has is what the replica comes with. Until the next leader line the asks must come
// in this order, with these arguments:
//
//	Fetch <offset>/<last fetched epoch> : <first>-<end>@<epoch> hw=<offset> start=<log start>
//	Fetch <offset>/<last fetched epoch> : diverging <epoch>@<end>
//	<timestamp> : <offset>/<epoch>
//	epochs <first>-<last> : <epoch>@<end> ...
//	<any> : <ERROR>
//
// remote is a segment that is uploaded before the asks that follow, with its checkpoint. The
// result is what the replica decided and what it ended up with.
func TestFollower(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "catch-up" {
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			return catchUp(t, d)
		})
	})
}

// batchSize is the number of records of a batch in scripts, but for the last of a range.
const batchSize = 10

func catchUp(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	script := &script{d: d, lines: strings.Split(strings.TrimSpace(d.Input), "\n")}
	f := &Follower{Storage: Tiered, Finder: script, Remote: script, Replica: emptyReplica(t)}
	for _, arg := range d.CmdArgs {
		switch value := strings.Join(arg.Vals, ","); arg.Key {
		case "policy":
			f.Policy = Policy(value)
		case "storage":
			f.Storage = LocalOnly
		case "has":
			for part := range strings.SplitSeq(value, ",") {
				_, err := f.Replica.Append(rangeOf(t, d, part))
				must(t, err)
			}
		default:
			d.Fatalf(t, "no argument %q", arg.Key)
		}
	}
	o, err := f.CatchUp(t.Context())
	out := strings.Join(append(o.Steps, ""), "\n")
	if err != nil {
		return out + fmt.Sprintf("error: %v\n", err)
	}
	if len(script.lines) > 0 {
		d.Fatalf(t, "never asked: %q", script.lines)
	}
	return out + fmt.Sprintf("start %d, log start %d, replica [%d, %d), copied %d bytes, epochs %v, waits %d, leader changes %d\n",
		o.Start, o.LogStart, f.Replica.Start(), o.End, o.CopiedBytes, f.Replica.Epochs, o.Waits, o.LeaderChanges)
}

// script is the leaders and the remote storage.
type script struct {
	d        *datadriven.TestData
	lines    []string
	segments []Segment
}

// next takes the answer to an ask, which must be the one that comes next.
func (s *script) next(ask string) (string, error) {
	s.upload()
	if len(s.lines) == 0 {
		return "", fmt.Errorf("the script has no answer to %q", ask)
	}
	want, answer, ok := strings.Cut(s.lines[0], " : ")
	if !ok || want != ask {
		return "", fmt.Errorf("asked %q, and the script goes on with %q", ask, s.lines[0])
	}
	s.lines = s.lines[1:]
	for _, known := range []*kerr.Error{
		kerr.OffsetOutOfRange, kerr.OffsetMovedToTieredStorage, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch,
		kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.UnknownServerError,
	} {
		if answer == known.Message {
			return "", known
		}
	}
	return answer, nil
}

// upload takes the remote lines that come next.
func (s *script) upload() {
	for len(s.lines) > 0 && strings.HasPrefix(s.lines[0], "remote ") {
		fields := strings.Fields(s.lines[0])
		var segment Segment
		s.scan(fields[1], "%d-%d", &segment.First, &segment.Last)
		for _, field := range fields[2:] {
			var e kafka.Position
			s.scan(field, "%d@%d", &e.Epoch, &e.Offset)
			segment.Epochs = append(segment.Epochs, e)
		}
		s.segments = append(s.segments, segment)
		s.lines = s.lines[1:]
	}
}

func (s *script) scan(text, format string, into ...any) {
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		panic(fmt.Sprintf("%s: %q is not of the form %s: %v", s.d.Pos, text, format, err))
	}
}

// Leader takes a leader line.
func (s *script) Leader(context.Context) (Leader, int32, error) {
	s.upload()
	if len(s.lines) == 0 || !strings.HasPrefix(s.lines[0], "leader ") {
		return nil, 0, fmt.Errorf("the script has no leader here but %q", s.lines)
	}
	var epoch int32
	s.scan(s.lines[0], "leader %d", &epoch)
	s.lines = s.lines[1:]
	return scriptLeader{script: s, epoch: epoch}, epoch, nil
}

func (s *script) Segment(offset int64, epoch int32) (Segment, bool, error) {
	for _, segment := range s.segments {
		if segment.First <= offset && offset <= segment.Last && segment.Epochs.At(offset) == epoch {
			return segment, true, nil
		}
	}
	return Segment{}, false, nil
}

// scriptLeader is the leader under one epoch.
type scriptLeader struct {
	script *script
	epoch  int32
}

func (l scriptLeader) checkEpoch(epoch int32) error {
	if epoch != l.epoch {
		return fmt.Errorf("current leader epoch %d, not %d", epoch, l.epoch)
	}
	return nil
}

func (l scriptLeader) Fetch(_ context.Context, ask FetchAsk) (Fetched, error) {
	if err := l.checkEpoch(ask.CurrentEpoch); err != nil {
		return Fetched{}, err
	}
	answer, err := l.script.next(fmt.Sprintf("Fetch %d/%d", ask.Offset, ask.LastFetchedEpoch))
	if err != nil {
		return Fetched{}, err
	}
	if rest, ok := strings.CutPrefix(answer, "diverging "); ok {
		var end EpochEnd
		l.script.scan(rest, "%d@%d", &end.Epoch, &end.Offset)
		return Fetched{Diverging: &end}, nil
	}
	fields := strings.Fields(answer)
	var got Fetched
	l.script.scan(fields[1], "hw=%d", &got.HighWatermark)
	l.script.scan(fields[2], "start=%d", &got.LogStart)
	if fields[0] != "nothing" {
		got.Batches = rangeOf(nil, l.script.d, fields[0])
	}
	return got, nil
}

func (l scriptLeader) ListOffset(_ context.Context, epoch int32, timestamp int64) (kafka.Position, error) {
	var got kafka.Position
	err := l.checkEpoch(epoch)
	if err != nil {
		return got, err
	}
	answer, err := l.script.next(fmt.Sprint(timestamp))
	if err == nil {
		l.script.scan(answer, "%d/%d", &got.Offset, &got.Epoch)
	}
	return got, err
}

func (l scriptLeader) EpochEnds(_ context.Context, epoch int32, asked []int32) ([]EpochEnd, error) {
	if err := l.checkEpoch(epoch); err != nil {
		return nil, err
	}
	answer, err := l.script.next(fmt.Sprintf("epochs %d-%d", asked[0], asked[len(asked)-1]))
	if err != nil {
		return nil, err
	}
	var ends []EpochEnd
	for field := range strings.FieldsSeq(answer) {
		var end EpochEnd
		l.script.scan(field, "%d@%d", &end.Epoch, &end.Offset)
		ends = append(ends, end)
	}
	return ends, nil
}

// rangeOf returns the batches of <first>-<end>@<epoch>.
func rangeOf(_ *testing.T, d *datadriven.TestData, text string) []byte {
	var first, end int64
	var epoch int32
	(&script{d: d}).scan(text, "%d-%d@%d", &first, &end, &epoch)
	var b []byte
	for first < end {
		n := min(batchSize, end-first)
		b = written{first: first, records: int(n), valueSize: 16, epoch: epoch}.appendTo(b)
		first += n
	}
	return b
}

func emptyReplica(t *testing.T) *Replica {
	t.Helper()
	r, err := NewReplica(filepath.Join(t.TempDir(), "replica.log"))
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The answers of Kafka's LeaderEpochFileCache.endOffsetFor, of a log that ends at 100.
func TestEpochEnd(t *testing.T) {
	cache := Epochs{{Offset: 10, Epoch: 2}, {Offset: 40, Epoch: 5}, {Offset: 70, Epoch: 6}}
	for _, c := range []struct {
		of    int32
		cache Epochs
		want  EpochEnd
	}{
		{-1, cache, EpochEnd{-1, -1}},
		{0, cache, EpochEnd{0, 10}},
		{1, cache, EpochEnd{1, 10}},
		{2, cache, EpochEnd{2, 40}},
		{3, cache, EpochEnd{2, 40}},
		{4, cache, EpochEnd{2, 40}},
		{5, cache, EpochEnd{5, 70}},
		{6, cache, EpochEnd{6, 100}},
		{7, cache, EpochEnd{-1, -1}},
		{0, nil, EpochEnd{-1, -1}},
	} {
		if got := c.cache.EndOf(c.of, 100); got != c.want {
			t.Errorf("epoch %d of %v: %+v, want %+v", c.of, c.cache, got, c.want)
		}
	}
}

func TestEpochsOfAChangedLog(t *testing.T) {
	cache := Epochs{{Offset: 10, Epoch: 2}, {Offset: 40, Epoch: 5}, {Offset: 70, Epoch: 6}}
	for _, c := range []struct {
		name string
		got  Epochs
		want string
	}{
		{"from 0", cache.From(0), "2@10 5@40 6@70"},
		{"from 39", cache.From(39), "2@39 5@40 6@70"},
		{"from 40", cache.From(40), "5@40 6@70"},
		{"from 99", cache.From(99), "6@99"},
		{"before 100", cache.Before(100), "2@10 5@40 6@70"},
		{"before 70", cache.Before(70), "2@10 5@40"},
		{"before 10", cache.Before(10), ""},
		{"noted again", cache.Noted(6, 90), "2@10 5@40 6@70"},
		{"noted", cache.Noted(9, 90), "2@10 5@40 6@70 9@90"},
	} {
		if got := c.got.String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if cache.At(9) != -1 || cache.At(69) != 5 || cache.At(70) != 6 {
		t.Errorf("epochs at 9, 69 and 70: %d, %d, %d, want -1, 5, 6", cache.At(9), cache.At(69), cache.At(70))
	}
}

// A Fetch answer may end anywhere within a batch.
func TestReplicaTakesWholeBatches(t *testing.T) {
	whole := rangeOf(t, nil, "0-20@3")
	size := len(whole) / 2
	for n := range len(whole) + 1 {
		r := emptyReplica(t)
		took, err := r.Append(whole[:n])
		if want := n / size; err != nil || took != want*size || r.End() != int64(want*batchSize) || r.Bytes() != int64(want*size) {
			t.Fatalf("%d of %d bytes: took %d, ends at %d with %d bytes, %v", n, len(whole), took, r.End(), r.Bytes(), err)
		}
	}
}

func TestReplicaRefuses(t *testing.T) {
	bad := slices.Clone(rangeOf(t, nil, "0-10@0"))
	bad[len(bad)-1] ^= 1
	for name, b := range map[string][]byte{
		"a flipped bit": bad,
		"a gap":         rangeOf(t, nil, "10-20@0"),
		"no batch":      make([]byte, batchHeader),
	} {
		r := emptyReplica(t)
		if n, err := r.Append(b); err == nil {
			t.Errorf("%s: took %d bytes: %x", name, n, b)
		}
		if r.End() != 0 || r.Bytes() != 0 {
			t.Errorf("%s: the replica ends at %d with %d bytes", name, r.End(), r.Bytes())
		}
	}
}

// A log that starts within a batch is copied from the batch on.
func TestReplicaStartsWithinABatch(t *testing.T) {
	r := emptyReplica(t)
	must(t, r.Restart(15))
	_, err := r.Append(rangeOf(t, nil, "10-30@4"))
	must(t, err)
	if r.Start() != 10 || r.End() != 30 || r.LogStart != 10 || r.Epochs.String() != "4@10" {
		t.Errorf("replica [%d, %d), log start %d, epochs %v, want [10, 30), 10, 4@10", r.Start(), r.End(), r.LogStart, r.Epochs)
	}
	r.StartAt(15)
	if r.LogStart != 15 || r.Epochs.String() != "4@15" {
		t.Errorf("log start %d, epochs %v, want 15, 4@15", r.LogStart, r.Epochs)
	}
	must(t, r.Truncate(25))
	if r.End() != 20 || r.Bytes() != int64(len(rangeOf(t, nil, "10-20@4"))) {
		t.Errorf("truncated to 25 it ends at %d with %d bytes", r.End(), r.Bytes())
	}
}

func TestWithoutRepeats(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "a a": "a", "a b": "a b", "x a b a b": "x a b", "a b c a b c": "a b c", "a b a": "a b a",
	} {
		if got := strings.Join(withoutRepeats(strings.Fields(in)), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNativePendingUpload(t *testing.T) {
	for version, want := range map[string]bool{"3.9.1": false, "4.1.1": false, "4.2.0": true, "4.3.0": true, "4.10.0": true, "5.0.0": true, "x": false} {
		if got := nativePendingUpload(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}

// Segments of LocalTieredStorage as it lays them out, one of them not uploaded whole yet.
func TestLocalRemote(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "kafka-tiered-storage", "orders-0-x7JqPkVhQ3aX4d2mE5sG6w")
	must(t, os.MkdirAll(folder, 0o755))
	for name, content := range map[string]string{
		"00000000000000000000-a.log":                     string(rangeOf(t, nil, "0-50@0")),
		"00000000000000000000-a.leader_epoch_checkpoint": "0\n1\n0 0\n",
		"00000000000000000050-b.log":                     string(rangeOf(t, nil, "50-80@0")) + string(rangeOf(t, nil, "80-100@3")),
		"00000000000000000050-b.leader_epoch_checkpoint": "0\n2\n0 0\n3 80\n",
		"00000000000000000100-c.log":                     string(rangeOf(t, nil, "100-150@3"))[:100],
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644))
	}
	remote := LocalRemote{Dir: dir, Topic: "orders"}
	for _, c := range []struct {
		offset int64
		epoch  int32
		want   string
	}{
		{0, 0, "[0, 49] 0@0"},
		{49, 0, "[0, 49] 0@0"},
		{50, 0, "[50, 99] 0@0 3@80"},
		{99, 3, "[50, 99] 0@0 3@80"},
		{99, 0, "none"},
		{100, 3, "none"},
	} {
		s, ok, err := remote.Segment(c.offset, c.epoch)
		must(t, err)
		got := "none"
		if ok {
			got = fmt.Sprintf("[%d, %d] %v", s.First, s.Last, s.Epochs)
		}
		if got != c.want {
			t.Errorf("offset %d under epoch %d: %s, want %s", c.offset, c.epoch, got, c.want)
		}
	}
}
