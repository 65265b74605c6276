// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package tiergate_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/dependencies.md")

const dependenciesPage = "docs/dependencies.md"

// released are the binaries of `make dist`, and platforms what it builds them for.
func released() []string  { return []string{"tiergate", "loadtest"} }
func platforms() []string { return []string{"linux/amd64", "linux/arm64", "darwin/arm64"} }

// allowedLicences are those that a static binary under Apache-2.0 may be distributed with.
// MPL-2.0 is among them because it covers only its own files, which are linked unchanged;
// docs/dependencies.md says where their source is.
func allowedLicences() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
}

// licencesIn returns the SPDX identifiers of the licences whose text is in a file. One
// file may have several.
func licencesIn(text string) []string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "*", " ")), " ")
	bsd := strings.Count(text, "Redistribution and use in source and binary forms")
	noEndorsement := len(regexp.MustCompile(`(?i)to endorse or promote products`).FindAllString(text, -1))
	var found []string
	for id, is := range map[string]bool{
		"Apache-2.0":   strings.Contains(text, "Apache License Version 2.0, January 2004"),
		"BSD-2-Clause": bsd > noEndorsement,
		"BSD-3-Clause": bsd > 0 && noEndorsement > 0,
		"ISC":          strings.Contains(text, "Permission to use, copy, modify, and/or distribute this software"),
		"MIT":          strings.Contains(text, "Permission is hereby granted, free of charge, to any person obtaining a copy"),
		"MPL-2.0":      strings.Contains(text, "Mozilla Public License, version 2.0"),
		// Not allowed, but named when they are found.
		"GPL, LGPL or AGPL": strings.Contains(text, "GNU GENERAL PUBLIC LICENSE") || strings.Contains(text, "GNU LESSER GENERAL PUBLIC LICENSE") || strings.Contains(text, "GNU AFFERO GENERAL PUBLIC LICENSE"),
	} {
		if is {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return found
}

// licencesOf returns the licences of the files named LICENSE or COPYING in the folders of a
// module's packages, and in those above them up to the module's.
func licencesOf(root string, folders []string) ([]string, error) {
	looked := map[string]bool{}
	found := map[string]bool{}
	for _, folder := range folders {
		for ; !looked[folder] && strings.HasPrefix(folder, root); folder = filepath.Dir(folder) {
			looked[folder] = true
			entries, err := os.ReadDir(folder)
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				name := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(entry.Name()), ".TXT"), ".MD")
				if entry.IsDir() || name != "LICENSE" && name != "LICENCE" && name != "COPYING" {
					continue
				}
				text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
				if err != nil {
					return nil, err
				}
				ids := licencesIn(string(text))
				if len(ids) == 0 {
					return nil, fmt.Errorf("%s: unknown licence", filepath.Join(folder, entry.Name()))
				}
				for _, id := range ids {
					found[id] = true
				}
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no file LICENSE or COPYING", root)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// linkedModule is a module of which a released binary has packages.
type linkedModule struct {
	path, version, dir string
	folders            []string
	binaries           map[string]bool
	systems            map[string]bool
	importers          map[string]bool // modules of which a linked package imports this one
}

// linkedModules asks the go command which modules the released binaries are made of.
func linkedModules(t *testing.T) []*linkedModule {
	t.Helper()
	type pkg struct {
		ImportPath, Dir string
		Imports         []string
		Module          *struct{ Path, Version, Dir string }
	}
	modules := map[string]*linkedModule{}
	for _, binary := range released() {
		for _, platform := range platforms() {
			system, arch, _ := strings.Cut(platform, "/")
			cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Imports,Module", "./cmd/"+binary)
			cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
			owner := map[string]string{} // of a package: its module
			var all []pkg
			for d := json.NewDecoder(strings.NewReader(string(out))); ; {
				var p pkg
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if p.Module != nil {
					all = append(all, p)
					owner[p.ImportPath] = p.Module.Path
				}
			}
			for _, p := range all {
				m := modules[p.Module.Path]
				if m == nil {
					m = &linkedModule{
						path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir,
						binaries: map[string]bool{}, systems: map[string]bool{}, importers: map[string]bool{},
					}
					modules[m.path] = m
				}
				m.binaries[binary], m.systems[system] = true, true
				m.folders = append(m.folders, p.Dir)
			}
			for _, p := range all {
				for _, name := range p.Imports {
					if to := owner[name]; to != "" && to != p.Module.Path {
						modules[to].importers[p.Module.Path] = true
					}
				}
			}
		}
	}
	delete(modules, module)
	return slices.SortedFunc(maps.Values(modules), func(a, b *linkedModule) int { return cmp.Compare(a.path, b.path) })
}

// where says which binaries a module is linked into.
func (m *linkedModule) where() string {
	where := "both"
	switch {
	case !m.binaries["loadtest"]:
		where = "tiergate"
	case !m.binaries["tiergate"]:
		where = "tiergate-loadtest"
	}
	if len(m.systems) == 1 {
		where += ", " + slices.Sorted(maps.Keys(m.systems))[0] + " only"
	}
	return where
}

// The page lists what the released binaries are made of, and the licences are allowed ones.
func TestDependencies(t *testing.T) {
	why := dependencyReasons(t)
	var page strings.Builder
	page.WriteString(`<!--
SPDX-FileCopyrightText: the tiergate authors
SPDX-License-Identifier: Apache-2.0
-->

# What the released binaries are made of

` + "Generated by `go test . -run TestDependencies -update`; the same test compares it in `make test`.\n" +
		"Licences are read from the modules' own files. Accepted are only " + strings.Join(allowedLicences(), ", ") + `.

| module | version | licence | linked into | why |
|---|---|---|---|---|
`)
	row := func(name, version string, licences []string, where, why string) {
		for _, id := range licences {
			if !slices.Contains(allowedLicences(), id) {
				t.Errorf("%s %s: licence %s is not one of %s", name, version, id, strings.Join(allowedLicences(), ", "))
			}
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n", name, version, strings.Join(licences, ", "), where, why)
	}
	for _, m := range linkedModules(t) {
		licences, err := licencesOf(m.dir, m.folders)
		if err != nil {
			t.Errorf("%s %s: %v", m.path, m.version, err)
		}
		reason := why[m.path]
		if reason == "" {
			reason = "imported by " + strings.Join(slices.Sorted(maps.Keys(m.importers)), ", ")
		}
		row(m.path, m.version, licences, m.where(), reason)
	}
	version, licences := uPlot(t)
	row("uPlot (JavaScript)", version, licences, "tiergate-loadtest", why["loadtest/report/uplot"])
	row("the Go standard library and runtime", "that of the compiler", []string{"BSD-3-Clause"}, "both", "the language")

	if *update {
		if err := os.WriteFile(dependenciesPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(dependenciesPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page.String() {
		t.Errorf("%s is\n%s\nwant (go test . -run TestDependencies -update writes it)\n%s", dependenciesPage, got, page.String())
	}
}

// What runs at a user's has no test framework in it, and tiergate no simulated broker and
// nothing of the load test.
func TestReleasedBinariesLinkNoTestCode(t *testing.T) {
	for binary, without := range map[string][]string{
		"tiergate": {"testing", franz + "kfake", module + "/loadtest", module + "/internal/testkit", module + "/internal/e2e"},
		"loadtest": {"testing"},
	} {
		out, err := exec.Command("go", "list", "-deps", "./cmd/"+binary).Output()
		if err != nil {
			t.Fatalf("go list -deps ./cmd/%s: %v", binary, err)
		}
		linked := strings.Fields(string(out))
		if !slices.Contains(linked, module+"/cmd/"+binary) {
			t.Fatalf("go list -deps ./cmd/%s lists %d packages without its own", binary, len(linked))
		}
		for _, name := range linked {
			if below(name, without) {
				t.Errorf("cmd/%s links %s", binary, name)
			}
		}
	}
}

// uPlot returns the version and the licence of the plots' library, which is embedded.
func uPlot(t *testing.T) (version string, licences []string) {
	t.Helper()
	text, err := os.ReadFile("loadtest/report/uplot/uPlot.iife.min.js")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`uPlot \((v[0-9.]+)\)`).FindSubmatch(text[:min(len(text), 200)])
	if found == nil {
		t.Fatal("uPlot.iife.min.js: no version in its first line")
	}
	licences, err = licencesOf("loadtest/report/uplot", []string{"loadtest/report/uplot"})
	if err != nil {
		t.Error(err)
	}
	return string(found[1]), licences
}

// The classification itself: a text that it takes for another licence would let it in.
func TestLicencesIn(t *testing.T) {
	const bsd2 = "Redistribution and use in source and binary forms, with or without modification, are permitted"
	const bsd3 = bsd2 + " ... Neither the name of X nor the names of its contributors may be used to endorse or\n * promote products derived from this software"
	for _, c := range []struct{ text, want string }{
		{"Apache License\n   Version 2.0, January 2004", "[Apache-2.0]"},
		{bsd2, "[BSD-2-Clause]"},
		{bsd3, "[BSD-3-Clause]"},
		{bsd3 + "\n" + bsd2, "[BSD-2-Clause BSD-3-Clause]"},
		{"Permission is hereby granted, free of charge, to any person obtaining\na copy", "[MIT]"},
		{"GNU LESSER GENERAL PUBLIC LICENSE", "[GPL, LGPL or AGPL]"},
		{"Business Source License 1.1", "[]"},
	} {
		if got := fmt.Sprint(licencesIn(c.text)); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

// architectureTable returns the cells of the rows of the first table below a heading of
// ARCHITECTURE.md.
func architectureTable(t *testing.T, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("ARCHITECTURE.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("ARCHITECTURE.md: no table under %q", heading)
	}
	return rows[2:] // below the heads and the line under them
}

// dependencyReasons returns why each module is there, by its path.
func dependencyReasons(t *testing.T) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	for _, row := range architectureTable(t, "Dependencies") {
		reasons[strings.Trim(row[0], "`")] = row[1]
	}
	return reasons
}

// ARCHITECTURE.md argues for each module that go.mod requires, and for no other.
func TestArchitectureDependencies(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]bool{"loadtest/report/uplot": true} // embedded, not a module
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)         // indirect ones have a comment behind the version
	for _, found := range direct.FindAllSubmatch(text, -1) {
		required[string(found[1])] = true
	}
	argued := dependencyReasons(t)
	for name := range required {
		if argued[name] == "" {
			t.Errorf("ARCHITECTURE.md, Dependencies: no row for %s", name)
		}
	}
	for name := range argued {
		if !required[name] {
			t.Errorf("ARCHITECTURE.md, Dependencies: go.mod does not require %s", name)
		}
	}
}

// shortName is how the table of rooms names what is not ours: a package of franz-go by
// its name, else the module, without host and owner.
func shortName(name string) string {
	if rest, ok := strings.CutPrefix(name, franz); ok {
		return strings.Split(rest, "/")[0]
	}
	if rest, ok := strings.CutPrefix(name, "golang.org/"); ok {
		return path.Join(strings.Split(rest, "/")[:2]...)
	}
	return strings.Split(name, "/")[2]
}

// The table of rooms says exactly what product code imports, on any platform.
func TestArchitectureRooms(t *testing.T) {
	type imports struct{ ours, others map[string]bool }
	rows := architectureTable(t, "Rooms")
	rooms := map[string]imports{}
	for _, row := range rows {
		rooms[strings.Trim(row[0], "`/")] = imports{map[string]bool{}, map[string]bool{}}
	}
	rowOf := func(folder string) string {
		for ; folder != "."; folder = path.Dir(folder) {
			if _, ok := rooms[folder]; ok {
				return folder
			}
		}
		return ""
	}
	goFiles(t, func(file string) {
		if path.Dir(file) == "." || strings.HasSuffix(file, "_test.go") {
			return
		}
		in := rowOf(path.Dir(file))
		if in == "" {
			t.Errorf("ARCHITECTURE.md, Rooms: no row for %s", path.Dir(file))
			return
		}
		for name := range importsOf(t, file) {
			switch own, ours := strings.CutPrefix(name, module+"/"); {
			case ours && rowOf(own) != in:
				rooms[in].ours[rowOf(own)] = true
			case !ours && strings.Contains(strings.Split(name, "/")[0], "."):
				rooms[in].others[shortName(name)] = true
			}
		}
	})
	for _, row := range rows {
		in := strings.Trim(row[0], "`/")
		ours := strings.Join(slices.Sorted(maps.Keys(rooms[in].ours)), "`, `")
		if ours != "" {
			ours = "`" + ours + "`"
		}
		others := strings.Join(slices.Sorted(maps.Keys(rooms[in].others)), ", ")
		for i, want := range []string{cmp.Or(ours, "-"), cmp.Or(others, "-")} {
			if row[2+i] != want {
				t.Errorf("ARCHITECTURE.md, Rooms: %s: %q, but the code imports %q: correct the table, or the import", in, row[2+i], want)
			}
		}
	}
}
