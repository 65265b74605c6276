// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"
)

//go:embed scenarios/*.yaml
var builtin embed.FS // only read

// Scenarios returns the built-in scenarios by name.
func Scenarios() ([]*Scenario, error) {
	files, err := fs.Glob(builtin, "scenarios/*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*Scenario
	for _, file := range files {
		text, err := builtin.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := Parse(path.Base(file), text)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// Open returns the scenario of a file or, where there is none of that name, the built-in
// one.
func Open(name string) (*Scenario, error) {
	text, err := os.ReadFile(name)
	if err == nil {
		return Parse(name, text)
	}
	if !errors.Is(err, fs.ErrNotExist) || strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml") {
		return nil, err
	}
	text, builtinErr := builtin.ReadFile("scenarios/" + name + ".yaml")
	if builtinErr != nil {
		return nil, fmt.Errorf("there is neither a file nor a built-in scenario %q", name)
	}
	return Parse(name+".yaml", text)
}

// splitAddresses reads host:port,host:port.
func splitAddresses(s string) ([]string, error) {
	list := strings.Split(s, ",")
	for _, a := range list {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return nil, fmt.Errorf(`%q is neither "real" nor "sim" nor an address; wanted host:port, several separated by commas`, a)
		}
	}
	return list, nil
}
