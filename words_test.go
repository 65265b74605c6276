// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiergate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// habit is a phrase that plain words replace, and what to write instead.
type habit struct {
	pattern *regexp.Regexp
	better  string
}

// habits returns phrases that have no other use in this project, so that a match is always
// a finding. Words with a proper use, such as "answer" and "ask", are left to reviewers.
func habits() []habit {
	of := func(pattern, better string) habit {
		return habit{regexp.MustCompile(`(?i)\b(` + pattern + `)\b`), better}
	}
	return []habit{
		of(`verdicts?`, "remote storage status, or result"),
		of(`owes|owed|owing`, "pending, or unsent"),
		of(`without a word`, "without sending any data, or without an error"),
		of(`complained of|complains of`, "logged, or reported"),
		of(`spoken of`, "logged, or reported"),
		of(`(is|are|was|were) told`, "advertised, or given"),
		of(`taken for|takes? (it|this|that|these|them) for`, "mistaken for"),
		of(`look-ups?`, "lookup"),
		of(`an asks?`, "a lookup request"),
		of(`(stands?|stood) (before|behind)`, "is in front of, or is after"),
		of(`before (native|older|such) brokers`, "in front of"),
	}
}

// pagesToRewrite and roomsToRewrite are not in plain words yet. Both lists only shrink: an
// entry without a finding fails the test, and a new page or room is never added.
func pagesToRewrite() []string {
	return []string{
		"CHANGELOG.md",
		"docs/follower.md",
		"docs/loadtest.md",
	}
}

func roomsToRewrite() []string {
	return []string{
		"cache",
		"cmd/loadtest",
		"cmd/tiergate",
		"cmd/tiergate/certs",
		"codec",
		"internal/e2e",
		"internal/e2e/wholecluster",
		"internal/testkit/sim",
		"loadtest/bench",
		"loadtest/bench/cmd/proxybench",

		"loadtest/fault",
		"loadtest/follower",
		"loadtest/kafka",
		"loadtest/load",
		"loadtest/report",
		"proxy",
		"rewrite",
		"rewrite/pendingupload",
		"upstream",
	}
}

var (
	allHabits = habits()
	codeSpan  = regexp.MustCompile("`[^`]*`")
)

// findings returns the habits in the lines of a text, each with its line counted from first.
// Code in backticks is not prose.
func findings(file string, first int, text string) []string {
	var found []string
	for i, line := range strings.Split(text, "\n") {
		prose := codeSpan.ReplaceAllString(line, "``")
		for _, h := range allHabits {
			for _, match := range h.pattern.FindAllString(prose, -1) {
				found = append(found, fmt.Sprintf("%s:%d: %q: write %s", file, first+i, match, h.better))
			}
		}
	}
	return found
}

// withoutCode empties the lines of fenced blocks, and keeps the number of lines.
func withoutCode(page string) string {
	lines, fenced := strings.Split(page, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fenced || fence {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return strings.Join(lines, "\n")
}

// report fails for what is found, apart from the exempted places, and for an exemption that
// is not needed any more.
func report(t *testing.T, found map[string][]string, exempted []string) {
	t.Helper()
	for place, lines := range found {
		if !slices.Contains(exempted, place) {
			for _, line := range lines {
				t.Error(line)
			}
		}
	}
	for _, place := range exempted {
		if len(found[place]) == 0 {
			t.Errorf("%s has no finding: remove it from the list in words_test.go", place)
		}
	}
}

func TestWordsOfPages(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, more...)
	if len(pages) < 5 {
		t.Fatalf("pages %q: this test runs in the root of the module", pages)
	}
	found := map[string][]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		page = filepath.ToSlash(page)
		found[page] = findings(page, 1, withoutCode(string(text)))
	}
	report(t, found, pagesToRewrite())
}

func TestWordsOfComments(t *testing.T) {
	found := map[string][]string{}
	goFiles(t, func(file string) {
		folder := path.Dir(file)
		if folder == "." {
			return // the phrases themselves are here
		}
		files, parsed := parseComments(t, file)
		for _, group := range parsed.Comments {
			for _, c := range group.List {
				found[folder] = append(found[folder], findings(file, files.Position(c.Pos()).Line, c.Text)...)
			}
		}
	})
	report(t, found, roomsToRewrite())
}

// The search itself, so that one that finds nothing is noticed.
func TestWordsAreFound(t *testing.T) {
	page := "The verdict is\nlogged. `verdict` and\n```\nowes\n```\nclients are told a port, not foretold\nlimits.verdict_timeout\n"
	want := []string{
		`x.md:1: "verdict": write remote storage status, or result`,
		`x.md:6: "are told": write advertised, or given`,
	}
	if got := findings("x.md", 1, withoutCode(page)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, phrase := range []string{
		"verdicts", "a side that owes", "waits without a word", "is complained of", "is spoken of", "Clients are told", "taken for",
		"take them for", "a look-up", "an ask", "it stands before", "before native brokers",
	} {
		if got := findings("x.md", 1, phrase); len(got) != 1 {
			t.Errorf("%q: %q, want one finding", phrase, got)
		}
	}
	for _, phrase := range []string{"a task", "two asks", "a lookup", "before TLS", "told", "stands for", "ask"} {
		if got := findings("x.md", 1, phrase); len(got) != 0 {
			t.Errorf("%q: %q, want none", phrase, got)
		}
	}
}

func parseComments(t *testing.T, file string) (*token.FileSet, *ast.File) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return files, parsed
}
