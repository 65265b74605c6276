// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
	"tiergate/loadtest/load"
	"tiergate/loadtest/report"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"tiergate-loadtest": main}) }

// The scripts of testdata/script, with tiergate at $TIERGATE, and two free ports from $P_0 on
// in front of $P_2, which is taken.
func TestScripts(t *testing.T) {
	binary, err := gate.Binary(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			ports, err := kafka.FreePorts(3)
			if err != nil {
				return err
			}
			taken, err := net.Listen("tcp", kafka.Loopback(ports[2]))
			if err != nil {
				return err
			}
			env.Defer(func() { _ = taken.Close() })
			env.Vars = append(env.Vars, "TIERGATE="+binary, fmt.Sprintf("P_0=%d", ports[0]), fmt.Sprintf("P_2=%d", ports[2]))
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// command runs a command line and returns what it printed.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(args, Stop{Soon: t.Context(), Now: context.Background()}, &Streams{Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestCommandLine(t *testing.T) {
	f := func(args string, wantCode int, wantOut, wantErr string) {
		t.Helper()
		code, out, errs := command(t, strings.Fields(args)...)
		if code != wantCode || !strings.Contains(out, wantOut) || !strings.Contains(errs, wantErr) || (wantErr == "") != (errs == "") {
			t.Errorf("%q: exit code %d, want %d\nout %s\nwant %s\nerr %s\nwant %s", args, code, wantCode, out, wantOut, errs, wantErr)
		}
	}
	f("", 0, "Usage: tiergate-loadtest <command>", "")
	f("run --help", 0, "Ctrl-C ends the run and reports what there is so far", "")
	f("scenarios", 0, "maximum-and-half", "")
	f("scenarios quick", 0, "name: quick\n", "")
	f("scenarios nothing", 1, "", `tiergate-loadtest: there is neither a file nor a built-in scenario "nothing"`)
	f("version", 0, "tiergate-loadtest ", "")
	f("run", 64, "", "expected \"<scenario>\"")
	f("run quick --rounds=-1", 64, "", "--rounds=-1: must be above 0")
	f("run quick --duration fast", 64, "", "--duration")
	f("run nothing.yaml", 1, "", "no such file")
	f("compare a b", 64, "", "a")
	f("abuse --attack flood --tiergate /bin/true --out "+t.TempDir(), 1, "", `unknown attack "flood": want one of half frames, `)
}

func TestFaultsOfAScenarioAreAllPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("name: a\ntargets: [{kind: direct}]\nphases: [{name: p, durtion: 1s, workloads: [{kind: prod}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := command(t, "run", file)
	want := file + `:3:20: phases[0].durtion: unknown key: did you mean "duration"?` + "\n" +
		file + `:3:52: phases[0].workloads[0].kind: "prod" is not known; wanted one of produce, consume, produce-consume, catch-up, group-churn, connections, admin, pending-upload, tiering-changes` + "\n" +
		"tiergate-loadtest: 2 faults in " + file + "\n"
	if code != exitFault || errs != want {
		t.Errorf("exit code %d\ngot  %s\nwant %s", code, errs, want)
	}
}

// A whole run: its reports are there, and compare finds nothing between a report and itself.
func TestRunAndCompare(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "s.yaml")
	text := `name: small
clusters: [{kind: sim}]
targets: [{kind: direct}]
phases: [{name: p, duration: 1s, workloads: [{kind: produce, rate: 200, partitions: 2, in_flight: 100}]}]
`
	doc := filepath.Join(folder, "doc.md")
	for name, content := range map[string]string{file: text, doc: "# Doc\n\n<!-- loadtest small: begin -->\nold\n<!-- loadtest small: end -->\nbehind\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(folder, "out")
	code, printed, errs := command(t, "run", file, "--out", out, "--doc", doc)
	if code != exitOK || !strings.Contains(printed, "Load test: small") {
		t.Fatalf("exit code %d\n%s\n%s", code, printed, errs)
	}
	json := filepath.Join(out, "report.json")
	r, err := report.ReadFile(json)
	if err != nil {
		t.Fatal(err)
	}
	if r.Scenario.Text != text || r.Verdict.Outcome != report.Passed {
		t.Errorf("%+v", r.Scenario)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !bytes.Contains(page, []byte("small")) {
		t.Errorf("report.html: %v", err)
	}
	inserted, err := os.ReadFile(doc)
	if err != nil || !bytes.Contains(inserted, []byte("### Load test: small")) || bytes.Contains(inserted, []byte("old")) || !bytes.HasSuffix(inserted, []byte("behind\n")) {
		t.Errorf("doc: %v\n%s", err, inserted)
	}
	if code, printed, errs = command(t, "compare", json, json); code != exitOK {
		t.Errorf("compare with itself: exit code %d\n%s\n%s", code, printed, errs)
	}
}

func TestProgress(t *testing.T) {
	got := line(load.Second{
		Phase: "p", Target: "tiergate", Round: 2, Rounds: 3, Elapsed: 4e9, Duration: 10e9, Workloads: []string{"produce"},
		Points: []report.Point{{Bytes: 300e6, Operations: 1000, P99: 1234, Errors: 2}},
	})
	if want := "p 2/3 tiergate 4s of 10s | produce 1000/s 300 MB/s p99 1.23ms 2 ERRORS"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var b bytes.Buffer
	p := newProgress(&b)
	p.Second(load.Second{})
	p.Say("a %d", 1)
	p.done()
	if b.String() != "a 1\n" {
		t.Errorf("not on a terminal: %q", b.String())
	}
}
