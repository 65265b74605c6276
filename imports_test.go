// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package tiergate_test holds what is true of the module as a whole: which room may
// import what, and the licence header of every file. ARCHITECTURE.md has the rooms;
// depguard in .golangci.yml says the coarse half of it again, in the editor.
package tiergate_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "tiergate"

// room is a folder with all folders in it, and what its product code may import: of
// ours, and of others. Every entry stands for a package and those below it. The
// standard library is free, but for cores.
type room struct {
	folder string
	ours   []string
	others []string
	tests  []string // what its tests may import of ours besides
	core   bool     // no socket, goroutine or clock: time and answers are arguments
}

const (
	franz      = "github.com/twmb/franz-go/pkg/"
	gnet       = "github.com/panjf2000/gnet/v2"
	prometheus = "github.com/prometheus/client_golang/prometheus"
)

// rooms returns the rules. The row with the longest matching folder counts. Default
// answer to a dependency is no: a new one is argued for in ARCHITECTURE.md.
func rooms() []room {
	return []room{
		{folder: "codec", others: []string{franz + "kmsg", franz + "kerr"}, core: true},
		{folder: "rewrite/pendingupload", ours: []string{"codec"}, others: []string{franz + "kmsg", franz + "kerr"}, core: true},
		{folder: "rewrite", ours: []string{"codec", "rewrite/pendingupload"}, others: []string{franz + "kmsg", franz + "kerr"}, core: true},
		{folder: "cache", others: []string{"github.com/hashicorp/golang-lru/v2"}},
		{folder: "cache/tiered", ours: []string{"codec"}, core: true},
		{
			folder: "upstream", ours: []string{"cache", "codec"},
			others: []string{franz + "kgo", franz + "kmsg", franz + "kerr", franz + "kversion", franz + "sasl", prometheus, "golang.org/x/sync"},
		},
		{
			folder: "proxy", ours: []string{"codec", "rewrite"},
			others: []string{gnet + "/pkg", prometheus, "github.com/pires/go-proxyproto", "golang.org/x/sys", "golang.org/x/time"},
		},
		{folder: "internal/strictyaml", others: []string{"github.com/goccy/go-yaml"}},
		{folder: "config", ours: []string{"codec", "internal/strictyaml"}, others: []string{"github.com/goccy/go-yaml"}},
		{
			folder: "cmd/tiergate", ours: []string{"codec", "rewrite", "cache", "upstream", "proxy", "config", "cmd/tiergate"},
			others: []string{franz + "kgo", franz + "kmsg", franz + "kerr", franz + "kversion", prometheus, "github.com/alecthomas/kong"},
			tests:  []string{"internal/testkit", "loadtest/kafka"},
		},
		{
			folder: "loadtest/bench", ours: []string{"codec", "rewrite", "proxy", "loadtest", "internal/testkit"}, // the proxy without cmd, beside its peers
			others: []string{franz, prometheus, "github.com/alecthomas/kong", "golang.org/x/sync", "golang.org/x/sys"},
		},
		{
			folder: "internal/e2e", ours: []string{"codec", "rewrite", "loadtest", "internal/testkit"}, // rewrite's list of addresses beside Kafka's definitions
			others: []string{franz, "golang.org/x/sync", "golang.org/x/sys"},
		},
		{
			folder: "internal/e2e/oldbrokers", ours: []string{"codec", "cache/tiered", "upstream", "loadtest", "internal/testkit"}, // the reader beside the broker's memory
			others: []string{franz},
		},
		{
			folder: "cmd/loadtest", ours: []string{"loadtest"}, // the harness is a client of the product, as users are
			others: []string{franz, "github.com/alecthomas/kong", "golang.org/x/sync", "golang.org/x/sys"},
		},
		{
			folder: "internal/testkit", ours: []string{"codec", "internal/testkit", "loadtest/gate", "loadtest/kafka"},
			others: []string{franz},
		},
		{
			folder: "loadtest", ours: []string{"codec", "loadtest", "internal/strictyaml", "internal/testkit"},
			others: []string{
				franz, prometheus, "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/time", "github.com/goccy/go-yaml",
				"github.com/prometheus/common", "github.com/HdrHistogram/hdrhistogram-go",
			},
		},
	}
}

// notInCores is what a core has no use for.
func notInCores() []string {
	return []string{"context", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "time"}
}

// below is true when name is one of roots or a package below one. A root that ends
// in a slash stands for what is below it only.
func below(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return name == root || strings.HasPrefix(name, strings.TrimSuffix(root, "/")+"/")
	})
}

// roomOf returns the room of a folder.
func roomOf(folder string) (room, bool) {
	var found room
	for _, r := range rooms() {
		if below(folder, []string{r.folder}) && len(r.folder) > len(found.folder) {
			found = r
		}
	}
	return found, found.folder != ""
}

// may says whether a file of folder may import name; why not, if not.
func may(folder, name string, test bool) (why string) {
	r, ok := roomOf(folder)
	switch own, ours := strings.CutPrefix(name, module+"/"); {
	case !ok:
		return "its folder is no room of imports_test.go"
	case below(name, []string{gnet}) && r.folder != "proxy":
		return "the reactor is proxy's own"
	case ours && below(own, []string{"config"}) && r.folder != "cmd/tiergate" && r.folder != "config":
		return "config is imported by cmd/tiergate only: rooms take their own Options"
	case ours && (below(own, r.ours) || below(own, []string{folder})):
		return "" // also: a test of package x_test imports x, and a room's packages those below them
	case ours && test && (own == "internal/testkit/tierlog" || own == "internal/testkit/authority" || below(own, r.tests)):
		return ""
	case ours:
		return "the room imports of ours " + only(r.ours)
	case strings.Contains(strings.Split(name, "/")[0], "."):
		if test || below(name, r.others) {
			return ""
		}
		return "the room imports of others " + only(r.others)
	case r.core && !test && below(name, notInCores()):
		return "a core has no socket, goroutine or clock"
	}
	return ""
}

func only(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "only " + strings.Join(names, ", ")
}

// goFiles calls visit with the slash-separated path of every Go file of the module,
// whatever its build constraints are: `go list` would see one platform only.
func goFiles(t *testing.T, visit func(file string)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(base, ".go") {
			seen++
			visit(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil || seen < 20 {
		t.Fatalf("%d Go files seen, %v: this test runs in the root of the module", seen, err)
	}
}

func TestImports(t *testing.T) {
	goFiles(t, func(file string) {
		folder, test := path.Dir(file), strings.HasSuffix(file, "_test.go")
		if folder == "." {
			return // this file
		}
		for name, at := range importsOf(t, file) {
			if why := may(folder, name, test); why != "" {
				t.Errorf("%s imports %s: %s", at, name, why)
			}
		}
		if r, _ := roomOf(folder); r.core && !test {
			files, parsed := parse(t, file)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s starts a goroutine: a core has none", files.Position(n.Pos()))
				}
				return true
			})
		}
	})
}

func parse(t *testing.T, file string) (*token.FileSet, *ast.File) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return files, parsed
}

// importsOf returns what a file imports, and where.
func importsOf(t *testing.T, file string) map[string]token.Position {
	t.Helper()
	files, parsed := parse(t, file)
	imports := map[string]token.Position{}
	for _, spec := range parsed.Imports {
		name, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		imports[name] = files.Position(spec.Pos())
	}
	return imports
}

// The rules themselves, so that one that lets all through is noticed.
func TestImportRules(t *testing.T) {
	for _, c := range []struct {
		folder, name string
		test, free   bool
	}{
		{"codec", "tiergate/rewrite", false, false},
		{"codec", "tiergate/rewrite", true, false},
		{"codec", "tiergate/codec", true, true},
		{"codec", "tiergate/internal/testkit/tierlog", true, true},
		{"codec", "tiergate/internal/testkit/tierlog", false, false},
		{"upstream", "tiergate/internal/testkit/authority", true, true},
		{"upstream", "tiergate/internal/testkit/authority", false, false},
		{"codec", "tiergate/internal/testkit/sim", true, false},
		{"codec", "encoding/binary", false, true},
		{"codec", "time", false, false},
		{"codec", "time", true, true},
		{"codec", "net/netip", false, false},
		{"codec", franz + "kmsg", false, true},
		{"codec", franz + "kgo", false, false},
		{"codec", franz + "kgo", true, true},
		{"rewrite", "tiergate/rewrite/pendingupload", false, true},
		{"rewrite/pendingupload", "tiergate/codec", false, true},
		{"rewrite/pendingupload", "tiergate/rewrite", false, false},
		{"cache", "tiergate/codec", false, false},
		{"cache/tiered", "tiergate/codec", false, true},
		{"cache/tiered", "sync", false, false},
		{"cache/tiered", "tiergate/upstream", false, false},
		{"upstream", "tiergate/cache", false, true},
		{"upstream", "tiergate/codec", false, true},
		{"upstream", "tiergate/rewrite", false, false},
		{"upstream", "tiergate/config", false, false},
		{"upstream", gnet + "/pkg/netpoll", false, false},
		{"upstream", gnet + "/pkg/netpoll", true, false},
		{"proxy", gnet + "/pkg/netpoll", false, true},
		{"proxy", gnet, false, false}, // the reactor, not the engine
		{"proxy", "tiergate/rewrite/pendingupload", false, true},
		{"proxy", "tiergate/upstream", false, false},
		{"proxy", "tiergate/config", true, false},
		{"proxy", franz + "kgo", false, false},
		{"config", "tiergate/codec", false, true},
		{"config", "tiergate/rewrite", false, false},
		{"config", "tiergate/internal/strictyaml", false, true},
		{"config", "tiergate/internal/testkit/sim", false, false},
		{"cmd/tiergate", "tiergate/config", false, true},
		{"cmd/tiergate", "tiergate/internal/testkit/sim", false, false},
		{"cmd/tiergate", "tiergate/internal/testkit/sim", true, true},
		{"cmd/tiergate", "tiergate/loadtest/kafka", false, false},
		{"cmd/tiergate", "tiergate/loadtest/load", true, false},
		{"cmd/tiergate", franz + "kfake", false, false},
		{"cmd/loadtest", "tiergate/proxy", false, false},
		{"cmd/tiergate", gnet, false, false},
		{"internal/testkit/sim", "tiergate/internal/testkit/tierlog", false, true},
		{"internal/testkit/sim", "tiergate/proxy", false, false},
		{"internal/testkit/sim", "tiergate/loadtest/load", false, false},
		{"loadtest/load", "tiergate/internal/testkit/sim", false, true},
		{"loadtest/load", "tiergate/internal/e2e", true, false},
		{"loadtest/bench", "tiergate/proxy", false, true},
		{"loadtest/kafka", "tiergate/config", true, false},
		{"internal/e2e", "tiergate/rewrite", true, true},
		{"internal/e2e", "tiergate/proxy", true, false},
		{"loadtest/kafka", "tiergate/rewrite", true, false},
		{"nowhere", "fmt", false, false},
	} {
		if why := may(c.folder, c.name, c.test); (why == "") != c.free {
			t.Errorf("%s importing %s (test %v): %q, want allowed %v", c.folder, c.name, c.test, why, c.free)
		}
	}
}

func TestEveryGoFileHasTheLicenceHeader(t *testing.T) {
	want := []byte("// SPDX-FileCopyrightText: the tiergate authors\n// SPDX-License-Identifier: Apache-2.0\n")
	goFiles(t, func(file string) {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		if !bytes.HasPrefix(got, want) {
			t.Errorf("%s begins with %s, want\n%s", file, fmt.Sprintf("%q", got[:min(len(got), len(want))]), want)
		}
	})
}
