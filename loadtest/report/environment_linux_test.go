// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"runtime"
	"testing"
)

func TestThisEnvironment(t *testing.T) {
	e := ThisEnvironment()
	if e.Cores != runtime.NumCPU() || e.Go != runtime.Version() || e.Kernel == "" || e.Memory < 1<<20 {
		t.Errorf("%+v", e)
	}
	equal(t, "model", modelOf([]byte("processor\t: 0\nmodel name\t: Example 3000 @ 3: fast\nflags\t: fpu\nmodel name\t: other\n")), "Example 3000 @ 3: fast")
	equal(t, "no model", modelOf([]byte("Features : fp\n")), "")
}
