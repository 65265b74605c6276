// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Fault is one thing wrong in a scenario file.
type Fault struct {
	// Line and Column say where, both from 1; 0 if it is the file as a whole.
	Line, Column int
	// Field is the path of the key, such as phases[0].duration; empty for the file.
	Field string
	// Problem names the value and the wanted form.
	Problem string
}

// Error is every fault of one scenario file, sorted by place; at least one.
type Error struct {
	// File is the name that Parse was given.
	File   string
	Faults []Fault
}

// Error returns one line per fault: file:line:column: field: problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		at, field := "", ""
		if f.Line > 0 {
			at = fmt.Sprintf(":%d:%d", f.Line, f.Column)
		}
		if f.Field != "" {
			field = f.Field + ": "
		}
		lines[i] = e.File + at + ": " + field + f.Problem
	}
	return strings.Join(lines, "\n")
}

// decoder fills the types of Scenario from a YAML tree and notes every fault on the way
// instead of stopping at the first, as the decoder of package config does.
type decoder struct {
	faults []Fault
	places map[string]place // of each path that the file names
	faulty map[string]bool  // paths that were reported already
}

type place struct{ line, column int }

func placeOf(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the mapping's own token is its first colon
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return place{t.Position.Line, t.Position.Column}
	}
	return place{}
}

// fault reports problem at the path, or at the nearest parent that the file names.
func (d *decoder) fault(path, format string, args ...any) {
	d.faulty[path] = true
	at, parent := place{}, path
	for parent != "" {
		if p, ok := d.places[parent]; ok {
			at = p
			break
		}
		parent = parent[:max(strings.LastIndexAny(parent, ".["), 0)]
	}
	d.faults = append(d.faults, Fault{Line: at.line, Column: at.column, Field: path, Problem: fmt.Sprintf(format, args...)})
}

func (d *decoder) faultAt(at place, path, format string, args ...any) {
	d.faulty[path] = true
	d.faults = append(d.faults, Fault{Line: at.line, Column: at.column, Field: path, Problem: fmt.Sprintf(format, args...)})
}

// given says whether the file has something at the path.
func (d *decoder) given(path string) bool {
	_, ok := d.places[path]
	return ok
}

// text is a value that is written as one piece of text.
type text interface {
	// parse sets the value or says what is wrong: "is no time; wanted 500ms, 10s, 2h".
	parse(string) error
}

// defaulter is a mapping whose keys have defaults.
type defaulter interface{ setDefaults() }

func (d *decoder) value(path string, n ast.Node, into reflect.Value) {
	d.places[path] = placeOf(n)
	switch n.(type) {
	case *ast.NullNode:
		d.fault(path, "has no value; leave the key out, or give it %s", wanted(into))
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fault(path, "anchors, aliases and tags are not read; write %s", wanted(into))
		return
	}
	if t, ok := into.Addr().Interface().(text); ok {
		d.text(path, n, t)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		block := reflect.New(into.Type().Elem())
		d.value(path, n, block.Elem())
		into.Set(block)
	case reflect.Struct:
		d.mapping(path, n, into)
	case reflect.Slice:
		d.sequence(path, n, into)
	case reflect.Map:
		d.properties(path, n, into)
	default:
		d.single(path, n, into)
	}
}

func (d *decoder) text(path string, n ast.Node, into text) {
	s, ok := plain(n)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(n), wanted(reflect.ValueOf(into).Elem()))
		return
	}
	if err := into.parse(s); err != nil {
		d.fault(path, "%q %v", s, err)
	}
}

// plain returns the text of a value that is no mapping or list.
func plain(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// single reads text, a truth value or a number.
func (d *decoder) single(path string, n ast.Node, into reflect.Value) {
	s, ok := plain(n)
	var err error
	switch {
	case !ok:
	case into.Kind() == reflect.String:
		into.SetString(s)
	case into.Kind() == reflect.Bool:
		var b *ast.BoolNode
		if b, ok = n.(*ast.BoolNode); ok {
			into.SetBool(b.Value)
		}
	case into.Kind() == reflect.Float64:
		var v float64
		v, err = strconv.ParseFloat(s, 64)
		into.SetFloat(v)
	default:
		var v int64
		v, err = strconv.ParseInt(s, 10, into.Type().Bits())
		into.SetInt(v)
	}
	if !ok || err != nil {
		d.fault(path, "%s; wanted %s", describe(n), wanted(into))
	}
}

func (d *decoder) sequence(path string, n ast.Node, into reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

// entries returns the keys of a mapping in order, each once.
func (d *decoder) entries(path string, m *ast.MappingNode) []*ast.MappingValueNode {
	var list []*ast.MappingValueNode
	for _, v := range m.Values {
		name := v.Key.GetToken().Value
		i := slices.IndexFunc(list, func(e *ast.MappingValueNode) bool { return e.Key.GetToken().Value == name })
		if i >= 0 {
			d.faultAt(placeOf(v.Key), join(path, name), "is given twice, first on line %d", placeOf(list[i].Key).line)
			continue
		}
		list = append(list, v)
	}
	return list
}

// properties reads a mapping of the user's own keys to text.
func (d *decoder) properties(path string, n ast.Node, into reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, e := range d.entries(path, m) {
		name := e.Key.GetToken().Value
		d.places[join(path, name)] = placeOf(e.Value)
		s, ok := plain(e.Value)
		if !ok {
			d.fault(join(path, name), "%s; wanted text or a number", describe(e.Value))
			continue
		}
		into.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(s))
	}
}

func (d *decoder) mapping(path string, n ast.Node, into reflect.Value) {
	if block, ok := into.Addr().Interface().(defaulter); ok {
		block.setDefaults()
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	known := keysOf(into.Type())
	for _, e := range d.entries(path, m) {
		name := e.Key.GetToken().Value
		i := slices.IndexFunc(known, func(k key) bool { return k.name == name })
		if i >= 0 {
			d.value(join(path, name), e.Value, into.FieldByIndex(known[i].index))
			continue
		}
		var names []string
		for _, k := range known {
			names = append(names, k.name)
		}
		problem := "is not known; wanted one of " + strings.Join(names, ", ")
		if meant := nearest(name, names); meant != "" {
			problem = fmt.Sprintf("is not known; did you mean %q?", meant)
			d.faulty[join(path, meant)] = true // misspelt: not to be called missing as well
		}
		d.faultAt(placeOf(e.Key), join(path, name), "%s", problem)
	}
}

// describe says what a node is, for a value of a wrong type.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		return "is a mapping"
	case *ast.SequenceNode:
		return "is a list"
	default:
		return strconv.Quote(n.GetToken().Value)
	}
}

// wanted names the form of a field.
func wanted(v reflect.Value) string {
	switch v.Addr().Interface().(type) {
	case *Duration:
		return wantDuration
	case *Size:
		return wantSize
	case text:
		return "one word"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "a mapping"
	}
	return "a whole number"
}

type key struct {
	name  string
	index []int
}

// keysOf returns the keys of a mapping: the tagged fields, and those of embedded types.
func keysOf(t reflect.Type) []key {
	var keys []key
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" {
			keys = append(keys, key{name, f.Index})
		}
	}
	return keys
}

// Keys returns the path of every key of a scenario in the order of the types, list items
// as []: "phases[].workloads[].rate".
func Keys() []string {
	var keys []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for _, k := range keysOf(t) {
			p, ft := join(path, k.name), t.FieldByIndex(k.index).Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch {
			case ft.Kind() == reflect.Struct:
				walk(p, ft)
			case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
				walk(p+"[]", ft.Elem())
			default:
				keys = append(keys, p)
			}
		}
	}
	walk("", reflect.TypeFor[Scenario]())
	return keys
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// nearest returns the known key that s most likely misspells, or "".
func nearest(s string, known []string) string {
	best, least := "", max(len(s)/3, 1)+1
	for _, k := range known {
		if n := distance(s, k); n < least {
			best, least = k, n
		}
	}
	return best
}

// distance is the number of bytes to insert, drop or replace to get from a to b.
func distance(a, b string) int {
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
