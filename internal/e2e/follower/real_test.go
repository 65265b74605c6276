// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tiergate/internal/testkit/stand"
	"tiergate/loadtest/follower"
	"tiergate/loadtest/kafka"
)

// TestMain builds the binary. Without Java and Maven it fails with one sentence: these tests
// are never left out in silence.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e/follower: a -short run starts no real Kafka brokers and tests nothing here; run without -short, with Java 17+ and Maven")
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := kafka.Check(context.Background(), kafka.Kafka41, kafka.Kafka43); err != nil {
		fmt.Println(err)
		return 1
	}
	dir, err := os.MkdirTemp("", "tiergate-follower-test-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := stand.Build(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

// want is a row: what a replica copies from where on, in records of the small shape, whose
// segments hold 100.
type want struct {
	start, end map[follower.Policy]int64
}

// rows are the exact offsets of every case, written down by hand.
func rows() map[string]want {
	both := func(local, pending int64) map[follower.Policy]int64 {
		return map[follower.Policy]int64{follower.EarliestLocal: local, follower.EarliestPendingUpload: pending}
	}
	return map[string]want{
		"nothing uploaded":                               {start: both(0, 0), end: both(50, 50)},
		"nothing uploaded, log start above 0":            {start: both(20, 50), end: both(50, 100)},
		"uploaded, all still local":                      {start: both(0, 0), end: both(550, 550)},
		"uploaded, all still local, log start above 0":   {start: both(150, 500), end: both(550, 550)},
		"uploaded, part gone locally":                    {start: both(200, 500), end: both(550, 550)},
		"uploaded, part gone locally, log start above 0": {start: both(200, 500), end: both(550, 550)},
		"everything uploaded and gone locally":           {start: both(500, 500), end: both(500, 550)},
		"remote storage off":                             {start: both(0, 0), end: both(550, 550)},
		"remote storage off, log start above 0":          {start: both(150, 150), end: both(550, 550)},
		"leader change while copying":                    {start: both(200, 500), end: both(550, 550)},
		"replica ends below the log start":               {start: both(200, 200), end: both(550, 550)},
		"replica ends above the end, epoch unknown":      {start: both(550, 550), end: both(550, 550)},
		"replica ends above the end, epoch known":        {start: both(550, 550), end: both(550, 550)},
	}
}

// batchBytes is the size of a batch of the small shape: a header of 61 bytes, and ten records
// of 1009 bytes, of which the value is 1000.
const batchBytes = 61 + 10*1009

// TestFollowers plays every case before an older broker and a native one. Run itself checks
// every byte that the replicas end up with, their leader epochs, the ISR, and Kafka's own
// follower of each version; what is left is to compare the rows with what was written down,
// and with each other.
func TestFollowers(t *testing.T) {
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with Java 17+ and Maven")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	report, err := follower.Run(ctx, follower.Options{
		Versions: []string{kafka.Kafka41, kafka.Kafka43}, Binary: stand.Binary(), Cases: follower.Cases(),
		Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	checkRows(t, report)
	checkOwn(t, report)
}

// checkRows compares every row with what was written down.
func checkRows(t *testing.T, report *follower.Report) {
	t.Helper()
	count := make(map[string]int)
	for _, r := range report.Rows {
		w, ok := rows()[r.Case]
		if !ok {
			t.Errorf("case %q is not written down here", r.Case)
			continue
		}
		start, end := w.start[r.Policy], w.end[r.Policy]
		if r.Start != start || r.End != end || r.CopiedBytes != (end-start)/10*batchBytes {
			t.Errorf("%s %s, %q, policy %s: copied [%d, %d), %d bytes, want [%d, %d), %d bytes", r.Kafka, r.Path, r.Case, r.Policy,
				r.Start, r.End, r.CopiedBytes, start, end, (end-start)/10*batchBytes)
		}
		if asked := slices.ContainsFunc(r.Steps, func(step string) bool { return strings.HasPrefix(step, "-6: ") }); asked && r.Policy != follower.EarliestPendingUpload {
			t.Errorf("%s %s, %q: asked for -6 under policy %s: %q", r.Kafka, r.Path, r.Case, r.Policy, r.Steps)
		}
		count[r.Kafka+" "+r.Path+" "+string(r.Policy)]++
	}
	for _, way := range []string{"4.1.1 through tiergate", "4.3.0 directly", "4.3.0 through tiergate"} {
		for _, policy := range []follower.Policy{follower.EarliestLocal, follower.EarliestPendingUpload} {
			if n := count[way+" "+string(policy)]; n != len(rows()) {
				t.Errorf("%s, policy %s: %d rows, want %d", way, policy, n, len(rows()))
			}
		}
	}
}

// checkOwn compares Kafka's own followers, which come to every case but those of a replica
// that has something.
func checkOwn(t *testing.T, report *follower.Report) {
	t.Helper()
	if got, want := len(report.Own), 3*10; got != want {
		t.Errorf("%d rows of Kafka's own followers, want %d", got, want)
	}
	waits := map[string]string{
		"nothing uploaded, log start above 0":  "Couldn't build the state from remote store",
		"everything uploaded and gone locally": "the leader does not know the earliest pending upload offset",
	}
	for _, o := range report.Own {
		if says, ok := waits[o.Case]; ok && o.Policy == follower.EarliestPendingUpload {
			if o.Start != -1 || !strings.Contains(o.Waiting, says) {
				t.Errorf("own follower of %s, %q: begins at %d and says %q, want it to wait and say %q", o.Kafka, o.Case, o.Start, o.Waiting, says)
			}
			continue
		}
		if want := rows()[o.Case].start[o.Policy]; o.Start != want {
			t.Errorf("own follower of %s, %q, policy %s: begins at %d, want %d", o.Kafka, o.Case, o.Policy, o.Start, want)
		}
	}
}
