// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The JSON form is what other programs read: it may not change by accident.
func TestJSON(t *testing.T) {
	var first, second bytes.Buffer
	if err := WriteJSON(&first, handmade()); err != nil {
		t.Fatal(err)
	}
	golden(t, "handmade.json", first.String())
	read, err := ReadJSON(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&second, read); err != nil {
		t.Fatal(err)
	}
	equal(t, "written, read and written", second.String(), first.String())
	equal(t, "text of what was read", Text(read), Text(handmade()))
}

func TestReadJSONOfOthers(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		r, err := ReadJSON(strings.NewReader(text))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = r.Scenario.Name
		}
		equal(t, text, got, want)
	}
	f(`{"format": 1, "scenario": {"name": "x"}, "new_field": [1]}`, "x")
	f(`{"format": 2}`, "read run: format 2, this load test reads up to 1")
	f(`{"scenario": {"name": "x"}}`, "read run: format 0, this load test reads up to 1")
	f(`{"format": 1`, "read run: unexpected EOF")
}

func TestFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.json")
	write := func(r *Run) error {
		return WriteFile(name, func(w io.Writer) error { return WriteJSON(w, r) })
	}
	if err := write(handmade()); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("disk on fire")
	err := WriteFile(name, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	r, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "read", Text(r), Text(handmade()))
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v, want the one file", entries, err)
	}
	if _, err := ReadFile(name + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that there is no such file", err)
	}
}
