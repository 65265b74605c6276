// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import "runtime"

// ThisEnvironment describes this machine; Software is left to the caller. On systems other
// than Linux it knows the cores, the system and Go only.
func ThisEnvironment() Environment {
	e := Environment{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	e.look()
	return e
}
