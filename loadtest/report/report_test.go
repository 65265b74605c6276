// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var (
	// update writes what the tests want anew: look at the difference.
	update = flag.Bool("update", false, "write testdata")
	// keep writes a page to look at, of a made-up run or of one from a file.
	keep = flag.String("keep", "", "folder to write report.html, report.json and report.md of a lifelike run to")
	from = flag.String("from", "", "with -keep: the JSON file of another run")
)

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was; -update writes it anew. Now:\n%s", path, got)
	}
}

func TestText(t *testing.T) {
	golden(t, "handmade.md", Text(handmade()))
}

// A workload that differs by target says so.
func TestSentences(t *testing.T) {
	r := handmade()
	equal(t, "one text", r.sentences("look-ups"), "64 clients that ask 1,000 partitions each.")
	r.Target("tiergate").Workload("look-ups").Text = "64 clients that ask for -6"
	r.Target("tiergate").Workload("look-ups").Latency = "there"
	equal(t, "two texts", r.sentences("look-ups"), "On direct: 64 clients that ask 1,000 partitions each. On tiergate: 64 clients that ask for -6.")
}

func TestKeep(t *testing.T) {
	r := lifelike()
	var page, data bytes.Buffer
	if err := HTML(&page, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&data, r); err != nil {
		t.Fatal(err)
	}
	// A run of ten minutes can be sent by mail.
	if page.Len() > 1<<20 || data.Len() > 2<<20 {
		t.Errorf("%d bytes of HTML, %d bytes of JSON", page.Len(), data.Len())
	}
	if *keep == "" {
		return
	}
	if *from != "" {
		other, err := ReadFile(*from)
		if err != nil {
			t.Fatal(err)
		}
		page.Reset()
		if err := HTML(&page, other); err != nil {
			t.Fatal(err)
		}
		r = other
	}
	for name, content := range map[string][]byte{"report.html": page.Bytes(), "report.json": data.Bytes(), "report.md": []byte(Text(r))} {
		if err := os.WriteFile(filepath.Join(*keep, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
