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

// Load reads and checks the file at path. Its error is an *Error when the file could be
// read but is not right.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse checks data, and the files that it names, and returns it with every default
// filled in. file is the name that stands before each fault; names of files in data
// begin in its folder. Its error is an *Error.
func Parse(file string, data []byte) (*Config, error) {
	d := &decoder{folder: filepath.Dir(file), Findings: strictyaml.NewFindings(), texts: map[string]string{}}
	c := Defaults()
	d.document(data, &c)
	if err := d.Err(file); err != nil {
		return nil, err
	}
	return &c, nil
}

// utf8BOM is what some editors, those of Windows among them, begin a text in UTF-8 with.
var utf8BOM = []byte("\xef\xbb\xbf")

// isUTF16 reports whether text is UTF-16 or UTF-32, with a byte order mark or without. YAML
// that is worth reading begins with an ASCII character, which has a zero byte there.
func isUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.IndexByte(text[:min(len(text), 2)], 0) >= 0
}

func (d *decoder) document(data []byte, c *Config) {
	if isUTF16(data) {
		d.Fault("", "is UTF-16 or UTF-32; wanted UTF-8: save it in that encoding")
		return
	}
	data = bytes.TrimPrefix(data, utf8BOM)
	// Keys given twice are let through here, to be reported with all the rest.
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
		d.Fault("", "is empty; wanted upstream.bootstrap_servers and listeners at the least: "+
			"docs/tiergate.example.yaml is a file to start from")
		return
	case len(bodies) > 1:
		d.FaultAt(strictyaml.PlaceOf(bodies[1]), "", "a second YAML document begins here; wanted one")
	}
	d.value("", bodies[0], reflect.ValueOf(c).Elem())
	if d.Faulty[""] {
		return
	}
	d.validate(c)
}

// bareIPv6 is an IPv6 address that YAML reads as a list, for want of quotes.
var bareIPv6 = regexp.MustCompile(`(^|[\s:,{])\[[0-9a-fA-F:.]*::?[0-9a-fA-F:.]*\]:\d`)

// quotedText is what a message of the YAML library quotes of the file: it may be a secret.
var quotedText = regexp.MustCompile(`:? "(?:[^"\\]|\\.)*"`)

// syntax reports what the YAML library could not read. It stops at the first such
// place, so that is the one case where faults further down stay unseen.
func (d *decoder) syntax(data []byte, err error) {
	var at strictyaml.Place
	message := "it cannot be parsed"
	var located yaml.Error
	if errors.As(err, &located) {
		at, message = strictyaml.TokenPlace(located.GetToken()), quotedText.ReplaceAllString(located.GetMessage(), "")
	}
	lines := bytes.Split(data, []byte("\n"))
	if at.Line > 0 && at.Line <= len(lines) && bareIPv6.Match(lines[at.Line-1]) {
		message += `; an IPv6 address needs quotes: "[::1]:9092"`
	}
	d.FaultAt(at, "", "is no YAML: %s", message)
}
