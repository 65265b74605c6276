// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// decoder fills the types of Config from a YAML tree and notes every fault on the way
// instead of stopping at the first. yaml.Unmarshal would stop there.
type decoder struct {
	faults []Fault
	// folder is where relative file names begin: that of the file itself.
	folder string
	// places is where each path that the file names stands.
	places map[string]place
	// texts is what the file has at the paths of single values.
	texts map[string]string
	// faulty holds paths whose value cannot be used: already reported, so nothing
	// that follows from them is reported again.
	faulty map[string]bool
}

type place struct{ line, column int }

func placeOf(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the mapping's own token is its first colon
	}
	return tokenPlace(n.GetToken())
}

func tokenPlace(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// fault reports problem at the path, or at the nearest parent that the file names.
func (d *decoder) fault(path, format string, args ...any) {
	d.faulty[path] = true
	d.faultAt(d.placeOf(path), path, format, args...)
}

func (d *decoder) faultAt(at place, path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Line: at.line, Column: at.column, Field: path, Problem: fmt.Sprintf(format, args...)})
}

func (d *decoder) placeOf(path string) place {
	for {
		if at, ok := d.places[path]; ok || path == "" {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// given says whether the file has a usable value at the path.
func (d *decoder) given(path string) bool {
	_, ok := d.places[path]
	return ok && !d.faulty[path]
}

// missing says whether the file has nothing at the path and nothing was reported that
// explains why.
func (d *decoder) missing(path string) bool {
	_, ok := d.places[path]
	return !ok && !d.faulty[path]
}

// defaulter is a block whose keys have defaults once the file has the block.
type defaulter interface{ setDefaults() }

func setDefaults(v reflect.Value) {
	if block, ok := v.Addr().Interface().(defaulter); ok {
		block.setDefaults()
	}
}

// optional reads a block that means something by being there, also if it is empty. A
// block whose keys are all commented out is no empty one: whoever wrote "tls:" shall
// not get plaintext.
func (d *decoder) optional(path string, n ast.Node, into reflect.Value) {
	block := reflect.New(into.Type().Elem())
	if _, isNull := n.(*ast.NullNode); isNull {
		d.places[path] = placeOf(n)
		d.fault(path, "has no keys; wanted %s, {} for one with all defaults, or leave the key out", wantedOf(block.Elem()))
		return
	}
	setDefaults(block.Elem())
	d.value(path, n, block.Elem())
	if !d.faulty[path] {
		into.Set(block)
	}
}

func (d *decoder) value(path string, n ast.Node, into reflect.Value) {
	if into.Kind() == reflect.Pointer {
		d.optional(path, n, into)
		return
	}
	d.places[path] = placeOf(n)
	switch n.(type) {
	case *ast.NullNode:
		if into.Kind() == reflect.Struct && !isScalar(into.Type()) && path != "" {
			return // a section whose keys are all commented out
		}
		d.fault(path, "has no value; wanted %s, or leave the key out", wantedOf(into))
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fault(path, "anchors, aliases and tags are not read; wanted %s written out", wantedOf(into))
		return
	}
	switch target := into.Addr().Interface().(type) {
	case scalar:
		d.scalar(path, n, target)
		return
	case *Routes:
		d.routes(path, n, target)
		return
	case *NodeAddresses:
		d.nodeAddresses(path, n, target)
		return
	case *Hosts:
		d.hosts(path, n, target)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.mapping(path, n, into)
	case reflect.Slice:
		d.sequence(path, n, into)
	case reflect.Bool:
		d.truth(path, n, into)
	default:
		d.integer(path, n, into)
	}
}

func (d *decoder) truth(path string, n ast.Node, into reflect.Value) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(into))
		return
	}
	into.SetBool(b.Value)
}

func (d *decoder) scalar(path string, n ast.Node, into scalar) {
	var text string
	switch n := n.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	case *ast.MappingNode:
		split, ok := splitAtColon(n)
		if !ok {
			d.fault(path, "%s; wanted %s", describe(path, n), into.wanted())
			return
		}
		text = split
	case *ast.IntegerNode:
		if _, ok := into.(*Size); !ok {
			d.fault(path, "%s; wanted %s", describe(path, n), into.wanted())
			return
		}
		text = n.Token.Value
	case *ast.FloatNode:
		if _, ok := into.(*TLSVersion); !ok {
			d.fault(path, "%s; wanted %s", describe(path, n), into.wanted())
			return
		}
		text = n.Token.Value
	default:
		d.fault(path, "%s; wanted %s", describe(path, n), into.wanted())
		return
	}
	d.texts[path] = text
	var unfit unquotable
	switch err := into.parse(text); {
	case errors.As(err, &unfit):
		d.fault(path, "%v", err)
	case err != nil:
		d.fault(path, "%s%v", shown(path, strconv.Quote(text)), err)
	}
}

// unquotable is the error of a text that may be a secret, or is long.
type unquotable string

func (e unquotable) Error() string { return string(e) }

// shown is a value as a fault begins with it. It is empty for keys that a password may have
// been pasted into.
func shown(path, value string) string {
	if key := path[strings.LastIndexByte(path, '.')+1:]; key == "sasl" || key == "password_env" || key == "password_file" {
		return ""
	}
	return value + " "
}

// splitAtColon puts text together again that is plain by the rules of YAML (a colon
// without a space behind it), but that the library splits when it stands in a list
// within braces: {bootstrap_servers: [kafka-0:9092]}.
func splitAtColon(m *ast.MappingNode) (text string, ok bool) {
	if len(m.Values) != 1 {
		return "", false
	}
	key, colon, value := m.Values[0].Key.GetToken(), m.Values[0].Start, m.Values[0].Value.GetToken()
	if key.Position.Line != value.Position.Line || colon.Position.Column != key.Position.Column+len(key.Value) ||
		value.Position.Column != colon.Position.Column+1 {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

// decimal is what an integer may look like. YAML's 0x10, 0o10, 010 and 1_000 are
// integers as well, but surprise more than they help.
var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (d *decoder) integer(path string, n ast.Node, into reflect.Value) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(into))
		return
	}
	v, err := strconv.ParseInt(i.Token.Value, 10, into.Type().Bits())
	if err != nil || !decimal.MatchString(i.Token.Value) {
		d.fault(path, "%s is out of range or not in decimal; wanted %s", i.Token.Value, wantedOf(into))
		return
	}
	d.texts[path] = i.Token.Value
	into.SetInt(v)
}

func (d *decoder) sequence(path string, n ast.Node, into reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(into))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		setDefaults(into.Index(i))
		d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    place
	value ast.Node
}

// entries returns the keys of a mapping in order, each once.
func (d *decoder) entries(path string, m *ast.MappingNode, pathOf func(path, key string) string) []entry {
	var list []entry
	for _, v := range m.Values {
		at := placeOf(v.Key)
		key, ok := v.Key.(ast.ScalarNode)
		if _, isMerge := v.Key.(*ast.MergeKeyNode); !ok || isMerge || v.Key.GetToken() == nil {
			d.faultAt(at, path, "has a key that is no plain text")
			continue
		}
		name := key.GetToken().Value
		if i := slices.IndexFunc(list, func(e entry) bool { return e.key == name }); i >= 0 {
			d.faultAt(at, pathOf(path, name), "is given twice, first on line %d; keep one of them", list[i].at.line)
			continue
		}
		list = append(list, entry{key: name, at: at, value: v.Value})
	}
	return list
}

func (d *decoder) mapping(path string, n ast.Node, into reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(into))
		return
	}
	fields := fieldsOf(into.Type())
	var unknown []entry
	for _, e := range d.entries(path, m, join) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key })
		if i < 0 {
			unknown = append(unknown, e)
			continue
		}
		d.value(join(path, e.key), e.value, into.FieldByIndex(fields[i].index))
	}
	for _, e := range unknown {
		d.unknown(path, e, fields)
	}
}

// renamed are keys of earlier versions, and what they are called now.
func renamed() map[string]string {
	return map[string]string{"limits.verdict_timeout": "remote_storage_timeout"}
}

// unknown reports a key that is not known at path, and what was meant by it.
func (d *decoder) unknown(path string, e entry, fields []field) {
	if now := renamed()[join(path, e.key)]; now != "" {
		d.faultAt(e.at, join(path, e.key), "is called %q now: rename the key", now)
		return
	}
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	if meant := nearest(e.key, keys); meant != "" {
		if d.missing(join(path, meant)) {
			d.faulty[join(path, meant)] = true // misspelt: not to be called missing as well
		}
		d.faultAt(e.at, join(path, e.key), "is not known; did you mean %q?", meant)
		return
	}
	var elsewhere []string
	for _, known := range Keys() {
		// A key of that name, or a block.
		if i := strings.Index("."+known+".", "."+e.key+"."); i >= 0 {
			elsewhere = append(elsewhere, strconv.Quote(known[:i+len(e.key)]))
		}
	}
	elsewhere = slices.Compact(elsewhere)
	if len(elsewhere) > 0 {
		d.faultAt(e.at, join(path, e.key), "is not known here; did you mean %s?", strings.Join(elsewhere, " or "))
		return
	}
	d.faultAt(e.at, join(path, e.key), "is not known; wanted one of %s", strings.Join(keys, ", "))
}

// routes reads a mapping of listen address to broker address.
func (d *decoder) routes(path string, n ast.Node, into *Routes) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) == 0 {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
		return
	}
	for _, e := range d.entries(path, m, routePath) {
		r := Route{key: e.key}
		key := routePath(path, e.key)
		d.places[key] = e.at
		switch err := r.Listen.parse(e.key); {
		case err != nil && m.IsFlowStyle && !strings.Contains(e.key, ":"):
			// The library takes the first colon for the end of the key.
			d.fault(key, "%q %v; within braces both addresses need quotes", e.key, err)
			continue
		case err != nil:
			d.fault(key, "%q %v", e.key, err)
		}
		d.value(key+".broker", e.value, reflect.ValueOf(&r.Broker).Elem())
		if d.faulty[key+".broker"] {
			d.faults[len(d.faults)-1].Field = key
		}
		*into = append(*into, r)
	}
}

// routePath names one entry of a direct listener: listeners[0].direct["0.0.0.0:9092"].
func routePath(path, listen string) string { return fmt.Sprintf("%s[%q]", path, listen) }

// nodeAddresses reads a mapping of node id to address, or to bind and advertised.
func (d *decoder) nodeAddresses(path string, n ast.Node, into *NodeAddresses) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) == 0 {
		d.fault(path, "%s; wanted %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
		return
	}
	for _, e := range d.entries(path, m, nodePath) {
		a := NodeAddress{key: e.key}
		key := nodePath(path, e.key)
		d.places[key] = e.at
		id, err := strconv.ParseInt(e.key, 10, 32)
		if err != nil || !decimal.MatchString(e.key) || id < 0 {
			d.fault(key, "%q is no node id; wanted a whole number from 0 to %d", e.key, math.MaxInt32)
		}
		a.NodeID = int32(id)
		block, isBlock := e.value.(*ast.MappingNode)
		if isBlock {
			_, isText := splitAtColon(block)
			isBlock = !isText
		}
		if isBlock {
			d.mapping(key, block, reflect.ValueOf(&a).Elem())
		} else {
			d.value(key+".bind", e.value, reflect.ValueOf(&a.Bind).Elem())
			if d.faulty[key+".bind"] {
				d.faults[len(d.faults)-1].Field = key
				d.faulty[key] = true
			}
		}
		*into = append(*into, a)
	}
}

// nodePath names one entry of node_addresses: listeners[0].node_addresses[3].
func nodePath(path, nodeID string) string { return fmt.Sprintf("%s[%s]", path, nodeID) }

// describe says what the node at a path is, for a value of a wrong type.
func describe(path string, n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) == 0 {
			return "is an empty mapping"
		}
		return "is a mapping"
	case *ast.SequenceNode:
		return "is a list"
	case *ast.StringNode:
		return shown(path, strconv.Quote(n.Value)) + "is text"
	case *ast.LiteralNode:
		return "is a block of text"
	case *ast.BoolNode:
		return shown(path, n.Token.Value) + "is a truth value"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return shown(path, n.GetToken().Value) + "is a number"
	}
	return "is a " + strings.ToLower(n.Type().String())
}

// wantedOf names the form of a field.
func wantedOf(v reflect.Value) string {
	switch target := v.Addr().Interface().(type) {
	case scalar:
		return target.wanted()
	case *Routes:
		return `a mapping of listen address to broker address, such as {"0.0.0.0:9092": "kafka-0:9092"}`
	case *NodeAddresses:
		return `a mapping of node id to address, such as {0: "kafka-0.example.com:9092"}, or to {bind: "0.0.0.0:9200", advertised: "kafka-0.example.com:9092"}`
	case *Hosts:
		return `a mapping of host name to IP address, such as {kafka-0.internal: "10.0.0.10"}, or to a list of them`
	case *[]HostPort:
		return `a list of host:port, such as ["kafka-0:9092", "kafka-1:9092"]`
	case *[]TopicName:
		return "a list of topic names, such as [orders, payments]"
	}
	if v.Kind() == reflect.Slice {
		return "a list of mappings"
	}
	if v.Kind() == reflect.Struct {
		var keys []string
		for _, f := range fieldsOf(v.Type()) {
			keys = append(keys, f.key)
		}
		return "a mapping with the keys " + strings.Join(keys, ", ")
	}
	if v.Kind() == reflect.Bool {
		return "true or false"
	}
	return "a whole number in decimal"
}

type field struct {
	key   string
	index []int
}

// fieldsOf returns the keys of a mapping: the tagged fields, and those of embedded types.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		if key := f.Tag.Get("yaml"); key != "" {
			fields = append(fields, field{key, f.Index})
		}
	}
	return fields
}

// Keys returns the path of every key of a configuration file in the order of the types,
// list items as []: "listeners[].nodes". The keys below direct, node_addresses and hosts
// are the user's own; those below clusters are, but for the name, those of the top.
func Keys() []string {
	var keys []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for _, f := range fieldsOf(t) {
			key := join(path, f.key)
			ft := t.FieldByIndex(f.index).Type
			switch {
			case isScalar(ft):
				keys = append(keys, key)
			case ft.Kind() == reflect.Struct:
				walk(key, ft)
			case ft.Kind() == reflect.Pointer:
				walk(key, ft.Elem())
			case ft.Kind() == reflect.Slice && ft.Elem() == reflect.TypeFor[Listener]():
				walk(key+"[]", ft.Elem())
			case ft.Kind() == reflect.Slice && ft.Elem() == reflect.TypeFor[NamedCluster]():
				keys = append(keys, key+"[].name")
			default:
				keys = append(keys, key)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
	return keys
}

func isScalar(t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[scalar]()) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest returns the known key that text most likely misspells, or "".
func nearest(text string, known []string) string {
	best, least := "", max(len(text)/3, 1)+1
	for _, k := range known {
		if n := editDistance(strings.ToLower(text), k); n < least {
			best, least = k, n
		}
	}
	return best
}

// editDistance is the number of bytes to insert, drop or replace to get from a to b.
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
