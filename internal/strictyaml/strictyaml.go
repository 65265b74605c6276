// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package strictyaml is shared by the parsers of configuration files and of scenarios: the
// faults of a file with their positions, and known, misspelt and duplicate keys.
package strictyaml

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Fault is one error in a file.
type Fault struct {
	// Line and Column are the position, both from 1; 0 for the file as a whole.
	Line, Column int
	// Field is the path of the key, such as listeners[0].nodes; empty for the file.
	Field string
	// Problem names the value that was found and the accepted form.
	Problem string
}

// Error is every fault of one file, sorted by position; at least one.
type Error struct {
	// File is the name that the caller gave it.
	File   string
	Faults []Fault
}

// Error returns one line per fault: file:line:column: field: problem.
func (e *Error) Error() string {
	var b strings.Builder
	for i, f := range e.Faults {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		b.WriteString(": ")
		if f.Field != "" {
			b.WriteString(f.Field)
			b.WriteString(": ")
		}
		b.WriteString(f.Problem)
	}
	return b.String()
}

// Place is a line and a column, both from 1; 0 for the file as a whole.
type Place struct{ Line, Column int }

// PlaceOf returns the position of a node.
func PlaceOf(n ast.Node) Place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the mapping's own token is its first colon
	}
	return TokenPlace(n.GetToken())
}

// TokenPlace returns the position of a token.
func TokenPlace(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{t.Position.Line, t.Position.Column}
}

// Findings are the faults of a file, and its paths. All faults are collected; yaml.Unmarshal
// would stop at the first.
type Findings struct {
	faults []Fault
	// Places is the position of each path in the file.
	Places map[string]Place
	// Faulty are the paths of invalid values. They are reported already, and faults that
	// follow from them are not reported.
	Faulty map[string]bool
}

// NewFindings returns the findings of a file that is not parsed yet.
func NewFindings() Findings {
	return Findings{Places: map[string]Place{}, Faulty: map[string]bool{}}
}

// Err returns all faults as an *Error of the named file; nil if there are none.
func (f *Findings) Err(file string) error {
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(f.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{File: file, Faults: f.faults}
}

// Fault reports a problem at the path, or at its nearest parent in the file.
func (f *Findings) Fault(path, format string, args ...any) {
	f.Faulty[path] = true
	at, parent := Place{}, path
	for ; parent != ""; parent = parent[:max(strings.LastIndexAny(parent, ".["), 0)] {
		if p, ok := f.Places[parent]; ok {
			at = p
			break
		}
	}
	if parent == "" {
		at = f.Places[""]
	}
	f.FaultAt(at, path, format, args...)
}

// FaultAt reports a problem at a position.
func (f *Findings) FaultAt(at Place, path, format string, args ...any) {
	f.faults = append(f.faults, Fault{Line: at.Line, Column: at.Column, Field: path, Problem: fmt.Sprintf(format, args...)})
}

// MoveLast changes the path of the last reported fault.
func (f *Findings) MoveLast(path string) { f.faults[len(f.faults)-1].Field = path }

// Given reports whether the file has a valid value at the path.
func (f *Findings) Given(path string) bool {
	_, ok := f.Places[path]
	return ok && !f.Faulty[path]
}

// Missing reports whether the file has nothing at the path, and no reported fault explains
// that.
func (f *Findings) Missing(path string) bool {
	_, ok := f.Places[path]
	return !ok && !f.Faulty[path]
}

// Entry is one key of a mapping with its value.
type Entry struct {
	Key   string
	At    Place
	Value ast.Node
}

// Entries returns the keys of a mapping in order, each once. pathOf names the path of a key.
func (f *Findings) Entries(path string, m *ast.MappingNode, pathOf func(path, key string) string) []Entry {
	var list []Entry
	for _, v := range m.Values {
		at := PlaceOf(v.Key)
		key, ok := v.Key.(ast.ScalarNode)
		if _, isMerge := v.Key.(*ast.MergeKeyNode); !ok || isMerge || v.Key.GetToken() == nil {
			f.FaultAt(at, path, "invalid key: want plain text")
			continue
		}
		name := key.GetToken().Value
		if i := slices.IndexFunc(list, func(e Entry) bool { return e.Key == name }); i >= 0 {
			f.FaultAt(at, pathOf(path, name), "duplicate key, first on line %d: remove one of them", list[i].At.Line)
			continue
		}
		list = append(list, Entry{Key: name, At: at, Value: v.Value})
	}
	return list
}

// Misspelt reports an unknown key if it is close to a known one, which does not count as
// missing then.
func (f *Findings) Misspelt(path string, e Entry, known []string) bool {
	meant := Nearest(e.Key, known)
	if meant == "" {
		return false
	}
	if f.Missing(Join(path, meant)) {
		f.Faulty[Join(path, meant)] = true
	}
	f.FaultAt(e.At, Join(path, e.Key), "unknown key: did you mean %q?", meant)
	return true
}

// Field is a key of a mapping, and the field that it fills.
type Field struct {
	Key   string
	Index []int
}

// FieldsOf returns the keys of a mapping: the tagged fields, and those of embedded types.
func FieldsOf(t reflect.Type) []Field {
	var fields []Field
	for _, f := range reflect.VisibleFields(t) {
		if key := f.Tag.Get("yaml"); key != "" {
			fields = append(fields, Field{key, f.Index})
		}
	}
	return fields
}

// Names are the keys of fields.
func Names(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Key
	}
	return names
}

// Join is the path of a key below path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Nearest returns the known key that text most likely stands for, or "".
func Nearest(text string, known []string) string {
	best, least := "", max(len(text)/3, 1)+1
	for _, k := range known {
		if n := editDistance(strings.ToLower(text), k); n < least {
			best, least = k, n
		}
	}
	return best
}

// editDistance is the number of bytes to insert, delete or replace to get from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost++
			}
			above = row[j+1]
			row[j+1] = min(cost, above+1, row[j]+1)
		}
	}
	return row[len(b)]
}
