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

	"tiergate/internal/strictyaml"
)

// decoder fills the types of Config from a YAML tree and collects every fault. yaml.Unmarshal
// would stop at the first.
type decoder struct {
	strictyaml.Findings
	// folder is the folder of the file. Relative file names start there.
	folder string
	// texts is the text of each scalar value in the file, by path.
	texts map[string]string
}

// defaulter is a block whose keys have defaults if the file has the block.
type defaulter interface{ setDefaults() }

func setDefaults(v reflect.Value) {
	if block, ok := v.Addr().Interface().(defaulter); ok {
		block.setDefaults()
	}
}

// optional reads a block whose presence has a meaning, even if it is empty ({}). A block
// whose keys are all commented out is a fault: "tls:" must not result in plaintext.
func (d *decoder) optional(path string, n ast.Node, into reflect.Value) {
	block := reflect.New(into.Type().Elem())
	if _, isNull := n.(*ast.NullNode); isNull {
		d.Places[path] = strictyaml.PlaceOf(n)
		d.Fault(path, "missing keys: want %s, {} for all defaults, or remove the key", wantedOf(block.Elem()))
		return
	}
	setDefaults(block.Elem())
	d.value(path, n, block.Elem())
	if !d.Faulty[path] {
		into.Set(block)
	}
}

func (d *decoder) value(path string, n ast.Node, into reflect.Value) {
	if into.Kind() == reflect.Pointer {
		d.optional(path, n, into)
		return
	}
	d.Places[path] = strictyaml.PlaceOf(n)
	switch n.(type) {
	case *ast.NullNode:
		if into.Kind() == reflect.Struct && !isScalar(into.Type()) && path != "" {
			return // a section whose keys are all commented out
		}
		d.Fault(path, "missing value: want %s, or remove the key", wantedOf(into))
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.Fault(path, "anchors, aliases and tags are not supported: want %s", wantedOf(into))
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
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(into))
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
			d.Fault(path, "%s: want %s", describe(path, n), into.wanted())
			return
		}
		text = split
	case *ast.IntegerNode:
		if _, ok := into.(*Size); !ok {
			d.Fault(path, "%s: want %s", describe(path, n), into.wanted())
			return
		}
		text = n.Token.Value
	case *ast.FloatNode:
		if _, ok := into.(*TLSVersion); !ok {
			d.Fault(path, "%s: want %s", describe(path, n), into.wanted())
			return
		}
		text = n.Token.Value
	default:
		d.Fault(path, "%s: want %s", describe(path, n), into.wanted())
		return
	}
	d.texts[path] = text
	var secret unquotable
	switch err := into.parse(text); {
	case errors.As(err, &secret):
		d.Fault(path, "invalid %s: %v", into.kind(), err)
	case err != nil:
		d.Fault(path, "invalid %s%s: %v", into.kind(), shown(path, strconv.Quote(text)), err)
	}
}

// unquotable is the error of a text that can be a secret, or is long.
type unquotable string

func (e unquotable) Error() string { return string(e) }

// shown is a value as a fault quotes it, with a space in front. It is empty for keys that
// somebody may have pasted a password into.
func shown(path, value string) string {
	if key := path[strings.LastIndexByte(path, '.')+1:]; key == "sasl" || key == "password_env" || key == "password_file" {
		return ""
	}
	return " " + value
}

// splitAtColon joins text that the library splits at a colon in a list within braces:
// {bootstrap_servers: [kafka-0:9092]}. By the rules of YAML a colon without a space after it
// is part of the text.
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

// decimal is the accepted form of an integer. YAML also has 0x10, 0o10, 010 and 1_000, which
// are easily misread.
var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (d *decoder) integer(path string, n ast.Node, into reflect.Value) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(into))
		return
	}
	v, err := strconv.ParseInt(i.Token.Value, 10, into.Type().Bits())
	if err != nil || !decimal.MatchString(i.Token.Value) {
		d.Fault(path, "invalid value %s (out of range, or not decimal): want %s", i.Token.Value, wantedOf(into))
		return
	}
	d.texts[path] = i.Token.Value
	into.SetInt(v)
}

func (d *decoder) sequence(path string, n ast.Node, into reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(into))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		setDefaults(into.Index(i))
		d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

func (d *decoder) mapping(path string, n ast.Node, into reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(into))
		return
	}
	fields := strictyaml.FieldsOf(into.Type())
	var unknown []strictyaml.Entry
	for _, e := range d.Entries(path, m, strictyaml.Join) {
		i := slices.IndexFunc(fields, func(f strictyaml.Field) bool { return f.Key == e.Key })
		if i < 0 {
			unknown = append(unknown, e)
			continue
		}
		d.value(strictyaml.Join(path, e.Key), e.Value, into.FieldByIndex(fields[i].Index))
	}
	for _, e := range unknown {
		d.unknown(path, e, fields)
	}
}

// renamed are keys of earlier versions, and their new names.
func renamed() map[string]string {
	return map[string]string{"limits.verdict_timeout": "remote_storage_timeout"}
}

// unknown reports a key that is not known at path, with a suggestion.
func (d *decoder) unknown(path string, e strictyaml.Entry, fields []strictyaml.Field) {
	if now := renamed()[strictyaml.Join(path, e.Key)]; now != "" {
		d.FaultAt(e.At, strictyaml.Join(path, e.Key), "renamed key: write %q instead", now)
		return
	}
	keys := strictyaml.Names(fields)
	if d.Misspelt(path, e, keys) {
		return
	}
	var elsewhere []string
	for _, known := range Keys() {
		// A key of that name, or a block.
		if i := strings.Index("."+known+".", "."+e.Key+"."); i >= 0 {
			elsewhere = append(elsewhere, strconv.Quote(known[:i+len(e.Key)]))
		}
	}
	elsewhere = slices.Compact(elsewhere)
	if len(elsewhere) > 0 {
		d.FaultAt(e.At, strictyaml.Join(path, e.Key), "unknown key here: did you mean %s?", strings.Join(elsewhere, " or "))
		return
	}
	d.FaultAt(e.At, strictyaml.Join(path, e.Key), "unknown key: want one of %s", strings.Join(keys, ", "))
}

// routes reads a mapping of listen address to broker address.
func (d *decoder) routes(path string, n ast.Node, into *Routes) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) == 0 {
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
		return
	}
	for _, e := range d.Entries(path, m, routePath) {
		r := Route{key: e.Key}
		key := routePath(path, e.Key)
		d.Places[key] = e.At
		switch err := r.Listen.parse(e.Key); {
		case err != nil && m.IsFlowStyle && !strings.Contains(e.Key, ":"):
			// For the library the key ends at the first colon.
			d.Fault(key, "invalid address %q: %v; within braces both addresses need quotes", e.Key, err)
			continue
		case err != nil:
			d.Fault(key, "invalid address %q: %v", e.Key, err)
		}
		d.value(key+".broker", e.Value, reflect.ValueOf(&r.Broker).Elem())
		if d.Faulty[key+".broker"] {
			d.MoveLast(key)
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
		d.Fault(path, "%s: want %s", describe(path, n), wantedOf(reflect.ValueOf(into).Elem()))
		return
	}
	for _, e := range d.Entries(path, m, nodePath) {
		a := NodeAddress{key: e.Key}
		key := nodePath(path, e.Key)
		d.Places[key] = e.At
		id, err := strconv.ParseInt(e.Key, 10, 32)
		if err != nil || !decimal.MatchString(e.Key) || id < 0 {
			d.Fault(key, "invalid node id %q: want an integer from 0 to %d", e.Key, math.MaxInt32)
		}
		a.NodeID = int32(id)
		block, isBlock := e.Value.(*ast.MappingNode)
		if isBlock {
			_, isText := splitAtColon(block)
			isBlock = !isText
		}
		if isBlock {
			d.mapping(key, block, reflect.ValueOf(&a).Elem())
		} else {
			d.value(key+".bind", e.Value, reflect.ValueOf(&a.Bind).Elem())
			if d.Faulty[key+".bind"] {
				d.MoveLast(key)
				d.Faulty[key] = true
			}
		}
		*into = append(*into, a)
	}
}

// nodePath names one entry of node_addresses: listeners[0].node_addresses[3].
func nodePath(path, nodeID string) string { return fmt.Sprintf("%s[%s]", path, nodeID) }

// describe names the value at a path and its type, for a value of a wrong type.
func describe(path string, n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) == 0 {
			return "invalid value (an empty mapping)"
		}
		return "invalid value (a mapping)"
	case *ast.SequenceNode:
		return "invalid value (a list)"
	case *ast.StringNode:
		return "invalid value" + shown(path, strconv.Quote(n.Value)) + " (text)"
	case *ast.LiteralNode:
		return "invalid value (a block of text)"
	case *ast.BoolNode:
		return "invalid value" + shown(path, n.Token.Value) + " (a boolean)"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "invalid value" + shown(path, n.GetToken().Value) + " (a number)"
	}
	return "invalid value (a " + strings.ToLower(n.Type().String()) + ")"
}

// wantedOf is the accepted form of a field, as it follows "want ".
func wantedOf(v reflect.Value) string {
	switch target := v.Addr().Interface().(type) {
	case scalar:
		return target.wanted()
	case *Routes:
		return `a mapping of listen address to broker address, e.g. {"0.0.0.0:9092": "kafka-0:9092"}`
	case *NodeAddresses:
		return `a mapping of node id to address, e.g. {0: "kafka-0.example.com:9092"}, or to {bind: "0.0.0.0:9200", advertised: "kafka-0.example.com:9092"}`
	case *Hosts:
		return `a mapping of host name to IP address, e.g. {kafka-0.internal: "10.0.0.10"}, or to a list of them`
	case *[]HostPort:
		return `a list of host:port, e.g. ["kafka-0:9092", "kafka-1:9092"]`
	case *[]TopicName:
		return "a list of topic names, e.g. [orders, payments]"
	}
	if v.Kind() == reflect.Slice {
		return "a list of mappings"
	}
	if v.Kind() == reflect.Struct {
		return "a mapping with the keys " + strings.Join(strictyaml.Names(strictyaml.FieldsOf(v.Type())), ", ")
	}
	if v.Kind() == reflect.Bool {
		return "true or false"
	}
	return "a decimal integer"
}

// Keys returns the path of every key of a configuration file in the order of the types,
// list items as []: "listeners[].nodes". The keys below direct, node_addresses and hosts are
// chosen by the user. Apart from the name, the keys below clusters are those of the top level.
func Keys() []string {
	var keys []string
	var visit func(path string, t reflect.Type)
	visit = func(path string, t reflect.Type) {
		for _, f := range strictyaml.FieldsOf(t) {
			key := strictyaml.Join(path, f.Key)
			ft := t.FieldByIndex(f.Index).Type
			switch {
			case isScalar(ft):
				keys = append(keys, key)
			case ft.Kind() == reflect.Struct:
				visit(key, ft)
			case ft.Kind() == reflect.Pointer:
				visit(key, ft.Elem())
			case ft.Kind() == reflect.Slice && ft.Elem() == reflect.TypeFor[Listener]():
				visit(key+"[]", ft.Elem())
			case ft.Kind() == reflect.Slice && ft.Elem() == reflect.TypeFor[NamedCluster]():
				keys = append(keys, key+"[].name")
			default:
				keys = append(keys, key)
			}
		}
	}
	visit("", reflect.TypeFor[Config]())
	return keys
}

func isScalar(t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[scalar]()) }
