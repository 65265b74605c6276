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

	"tiergate/internal/strictyaml"
)

// Error is every fault of one scenario file, sorted by place; at least one.
type Error = strictyaml.Error

// decoder fills the types of Scenario from a YAML tree and notes every fault on the way
// instead of stopping at the first, as the decoder of package config does.
type decoder struct{ strictyaml.Findings }

// text is a value that is written as one piece of text.
type text interface {
	// parse sets the value or says what is wrong: "is no time; wanted 500ms, 10s, 2h".
	parse(string) error
}

// defaulter is a mapping whose keys have defaults.
type defaulter interface{ setDefaults() }

func (d *decoder) value(path string, n ast.Node, into reflect.Value) {
	d.Places[path] = strictyaml.PlaceOf(n)
	switch n.(type) {
	case *ast.NullNode:
		d.Fault(path, "has no value; leave the key out, or give it %s", wanted(into))
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.Fault(path, "anchors, aliases and tags are not read; write %s", wanted(into))
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
		d.Fault(path, "%s; wanted %s", describe(n), wanted(reflect.ValueOf(into).Elem()))
		return
	}
	if err := into.parse(s); err != nil {
		d.Fault(path, "%q %v", s, err)
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
		d.Fault(path, "%s; wanted %s", describe(n), wanted(into))
	}
}

func (d *decoder) sequence(path string, n ast.Node, into reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.Fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

// properties reads a mapping of the user's own keys to text.
func (d *decoder) properties(path string, n ast.Node, into reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.Fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, e := range d.Entries(path, m, strictyaml.Join) {
		name := e.Key
		d.Places[strictyaml.Join(path, name)] = strictyaml.PlaceOf(e.Value)
		s, ok := plain(e.Value)
		if !ok {
			d.Fault(strictyaml.Join(path, name), "%s; wanted text or a number", describe(e.Value))
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
		d.Fault(path, "%s; wanted %s", describe(n), wanted(into))
		return
	}
	known := strictyaml.FieldsOf(into.Type())
	names := strictyaml.Names(known)
	for _, e := range d.Entries(path, m, strictyaml.Join) {
		if i := slices.Index(names, e.Key); i >= 0 {
			d.value(strictyaml.Join(path, e.Key), e.Value, into.FieldByIndex(known[i].Index))
		} else if !d.Misspelt(path, e, names) {
			d.FaultAt(e.At, strictyaml.Join(path, e.Key), "is not known; wanted one of %s", strings.Join(names, ", "))
		}
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

// Keys returns the path of every key of a scenario in the order of the types, list items
// as []: "phases[].workloads[].rate".
func Keys() []string {
	var keys []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for _, k := range strictyaml.FieldsOf(t) {
			p, ft := strictyaml.Join(path, k.Key), t.FieldByIndex(k.Index).Type
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
