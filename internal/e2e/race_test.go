// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package e2e

// raceFlags build the binary as the tests themselves are built.
var raceFlags = []string{"-race"}
