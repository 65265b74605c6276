// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Row is one catch-up.
type Row struct {
	Case   string `json:"case"`
	Kafka  string `json:"kafka"`
	Path   string `json:"path"`
	Policy Policy `json:"policy"`
	Outcome
	Traffic Traffic `json:"traffic"`
	// InISR is the time from the first Fetch until the metadata shows the replica in the
	// ISR. It has a Fetch at the end in it, which waits for 100 ms.
	InISR time.Duration `json:"in_isr_ns"`
	// LogBytes are those of the leader's log from the log start on, uploaded ones too.
	LogBytes int64 `json:"log_bytes"`
	// WaitsFor is what the replica had to wait for; "" if nothing.
	WaitsFor string `json:"waits_for,omitempty"`
}

// Report is what Run did.
type Report struct {
	Started       time.Time `json:"started"`
	Shape         Shape     `json:"shape"`
	Rows          []Row     `json:"rows"`
	Own           []Own     `json:"own"`
	HeadlineShape *Shape    `json:"headline_shape,omitempty"`
	Headline      []Row     `json:"headline,omitempty"`
}

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Unequal returns what differs between versions and paths: nil when every follower decided
// the same, copied the same and ended up with the same everywhere.
func (r *Report) Unequal() error {
	return errors.Join(unequal(r.Rows), unequal(r.Headline))
}

func unequal(rows []Row) error {
	type key struct {
		name   string
		policy Policy
	}
	var errs []error
	first := make(map[key]Row)
	for _, row := range rows {
		k := key{row.Case, row.Policy}
		if _, ok := first[k]; !ok {
			first[k] = row
		}
		if a, b := first[k].exact(), row.exact(); a != b {
			errs = append(errs, fmt.Errorf("case %q, policy %s: Kafka %s %s\n%s\nand Kafka %s %s\n%s",
				row.Case, row.Policy, first[k].Kafka, first[k].Path, a, row.Kafka, row.Path, b))
		}
	}
	return errors.Join(errs...)
}

// exact is all of a row that does not depend on time.
func (r Row) exact() string {
	return fmt.Sprintf("steps %q, start %d, log start %d, end %d, copied %d of %d bytes, %d leader changes, waits for %q",
		r.Steps, r.Start, r.LogStart, r.End, r.CopiedBytes, r.LogBytes, r.LeaderChanges, r.WaitsFor)
}

// WriteText writes the tables for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var errs []error
	if len(r.Rows) > 0 {
		fmt.Fprintf(w, "Replicas in sync: what they copied. Segments of %s; %d segments, or the active one alone\n\n",
			bytesText(r.Shape.batchBytes()*int64(r.Shape.SegmentBatches)), r.Shape.DeletedSegments+r.Shape.LocalSegments)
		errs = append(errs, r.writeDecisions(w), r.writeTimes(w, r.Rows))
	}
	if len(r.Headline) > 0 {
		fmt.Fprintln(w, r.headlineText())
		errs = append(errs, r.writeTimes(w, r.Headline))
	}
	return errors.Join(errs...)
}

// pair is the rows of a case under both policies, of one version and path.
type pair struct{ local, pending Row }

// pairs returns the first pair of each case, in order.
func pairs(rows []Row) []pair {
	var all []pair
	for _, row := range rows {
		i := slices.IndexFunc(all, func(p pair) bool { return p.local.Case == row.Case })
		switch {
		case i < 0 && row.Policy == EarliestLocal:
			all = append(all, pair{local: row})
		case i >= 0 && row.Policy == EarliestPendingUpload && all[i].pending.Case == "":
			all[i].pending = row
		}
	}
	return all
}

// saved is how much less a replica copied with -6.
func (p pair) saved() string {
	switch {
	case p.pending.WaitsFor != "":
		return "waits for " + p.pending.WaitsFor
	case p.local.CopiedBytes == p.pending.CopiedBytes:
		return "nothing"
	}
	saved := p.local.CopiedBytes - p.pending.CopiedBytes
	return fmt.Sprintf("%s, %.1f %%", bytesText(saved), 100*float64(saved)/float64(p.local.CopiedBytes))
}

// writeDecisions writes what follows from the logs: the same in all versions and paths.
func (r *Report) writeDecisions(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\t\tWITHOUT -6\t\tWITH -6\t\t\tKAFKA'S OWN")
	fmt.Fprintln(t, "CASE\tLOG\tFROM\tCOPIED\tFROM\tCOPIED\tSAVED\tFOLLOWER")
	for _, p := range pairs(r.Rows) {
		fmt.Fprintf(t, "%s\t[%d, %d)\t%d\t%s\t%d\t%s\t%s\t%s\n", p.local.Case, p.local.LogStart, p.local.End,
			p.local.Start, bytesText(p.local.CopiedBytes), p.pending.Start, bytesText(p.pending.CopiedBytes), p.saved(), r.ownText(p.local.Case))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// ownText says where Kafka's own followers of all versions began.
func (r *Report) ownText(name string) string {
	text := map[Policy]string{EarliestLocal: "-", EarliestPendingUpload: "-"}
	for _, o := range r.Own {
		if o.Case != name {
			continue
		}
		text[o.Policy] = fmt.Sprint(o.Start)
		if o.Waiting != "" {
			text[o.Policy] = "waits"
		}
	}
	if text[EarliestLocal] == "-" {
		return "-"
	}
	return fmt.Sprintf("%s; %s", text[EarliestLocal], text[EarliestPendingUpload])
}

// writeTimes writes the times until the last record, without and with -6.
func (r *Report) writeTimes(w io.Writer, rows []Row) error {
	var ways []string
	times := make(map[string]time.Duration)
	var cases []string
	for _, row := range rows {
		way := row.Kafka + " " + row.Path
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
		if !slices.Contains(cases, row.Case) {
			cases = append(cases, row.Case)
		}
		times[row.Case+way+string(row.Policy)] = row.CaughtUp
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "MILLISECONDS UNTIL IN SYNC, WITHOUT; WITH -6")
	for _, way := range ways {
		fmt.Fprintf(t, "\t%s", way)
	}
	fmt.Fprintln(t)
	for _, c := range cases {
		fmt.Fprint(t, c)
		for _, way := range ways {
			fmt.Fprintf(t, "\t%s; %s", millis(times[c+way+string(EarliestLocal)]), millis(times[c+way+string(EarliestPendingUpload)]))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// headlineText is the headline: what -6 saved, and on what topic.
func (r *Report) headlineText() string {
	s, p := *r.HeadlineShape, pairs(r.Headline)[0]
	segment := s.batchBytes() * int64(s.SegmentBatches)
	return fmt.Sprintf("Headline: a topic of %s in segments of %s, of which %s are uploaded only (local.retention.bytes=%s),\n"+
		"%s uploaded and still local, and %s not uploaded yet. An empty replica copies\n"+
		"  without -6: %s from %d on\n  with -6:    %s from %d on; saved: %s\n",
		bytesText(p.local.LogBytes), bytesText(segment), bytesText(segment*int64(s.DeletedSegments)), s.localRetention(),
		bytesText(segment*int64(s.LocalSegments)), bytesText(s.batchBytes()*int64(s.ActiveBatches)),
		bytesText(p.local.CopiedBytes), p.local.Start, bytesText(p.pending.CopiedBytes), p.pending.Start, p.saved())
}

// bytesText is a size in the unit that fits.
func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// millis is a time in milliseconds.
func millis(d time.Duration) string {
	return fmt.Sprintf("%d", d.Round(time.Millisecond).Milliseconds())
}
