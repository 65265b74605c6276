// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong in a configuration file.
type Fault struct {
	// Line and Column say where, both from 1; 0 if it is the file as a whole.
	Line, Column int
	// Field is the path of the key, such as listeners[0].nodes; empty for the file.
	Field string
	// Problem names the value and the wanted form.
	Problem string
}

// Error is every fault of one file, sorted by place; at least one.
type Error struct {
	// File is the name that Parse was given.
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

func sortFaults(faults []Fault) {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
