// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"tiergate/internal/strictyaml"
)

// Load reads and checks the file at path. Its error is an *Error if the file can be read but
// is invalid.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse checks data, and the files that it names, and returns it with every default
// filled in. file is the name that each fault begins with; file names in data are relative to
// its folder. Its error is an *Error.
func Parse(file string, data []byte) (*Config, error) {
	d := &decoder{folder: filepath.Dir(file), Findings: strictyaml.NewFindings(), texts: map[string]string{}}
	c := Defaults()
	d.document(data, &c)
	if err := d.Err(file); err != nil {
		return nil, err
	}
	return &c, nil
}

// utf8BOM is the byte order mark that some editors, e.g. on Windows, write first.
var utf8BOM = []byte("\xef\xbb\xbf")

// isUTF16 reports whether text is UTF-16 or UTF-32, with or without a byte order mark. A
// configuration begins with an ASCII character, which has a zero byte in these encodings.
func isUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.IndexByte(text[:min(len(text), 2)], 0) >= 0
}

func (d *decoder) document(data []byte, c *Config) {
	if isUTF16(data) {
		d.Fault("", "invalid encoding UTF-16 or UTF-32: want UTF-8; save the file in that encoding")
		return
	}
	data = bytes.TrimPrefix(data, utf8BOM)
	// Duplicate keys are accepted here, and reported with the other faults.
	tree, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(data, err)
		return
	}
	var bodies []ast.Node
	for _, doc := range tree.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		d.Fault("", "empty file: want at least upstream.bootstrap_servers and listeners; "+
			"start from docs/tiergate.example.yaml")
		return
	case len(bodies) > 1:
		d.FaultAt(strictyaml.PlaceOf(bodies[1]), "", "a second YAML document begins here: want one document")
	}
	d.value("", bodies[0], reflect.ValueOf(c).Elem())
	if d.Faulty[""] {
		return
	}
	d.validate(c)
}

// bareIPv6 is an IPv6 address without quotes, which YAML parses as a list.
var bareIPv6 = regexp.MustCompile(`(^|[\s:,{])\[[0-9a-fA-F:.]*::?[0-9a-fA-F:.]*\]:\d`)

// quotedText is the part of the file that a message of the YAML library quotes. It can be a
// secret.
var quotedText = regexp.MustCompile(`:? "(?:[^"\\]|\\.)*"`)

// syntax reports a syntax error of the YAML library. The library stops at the first one, so
// this is the only case in which later faults are not reported.
func (d *decoder) syntax(data []byte, err error) {
	var at strictyaml.Place
	message := "cannot be parsed"
	var located yaml.Error
	if errors.As(err, &located) {
		at, message = strictyaml.TokenPlace(located.GetToken()), quotedText.ReplaceAllString(located.GetMessage(), "")
	}
	lines := bytes.Split(data, []byte("\n"))
	if at.Line > 0 && at.Line <= len(lines) && bareIPv6.Match(lines[at.Line-1]) {
		message += `; an IPv6 address needs quotes: "[::1]:9092"`
	}
	d.FaultAt(at, "", "invalid YAML: %s", message)
}
