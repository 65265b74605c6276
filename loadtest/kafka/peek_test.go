// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"testing"
)

func TestPeekOutput(t *testing.T) {
	const id = "000102030405060708090a0b0c0d0e0f"
	got, err := parsePeek("t 3 " + id + " 41\ntask t 3 " + id + " 42\ntask u 0 " + id + " none\nend\n")
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.Topic != "t" || a.Partition != 3 || a.TopicID[15] != 15 || a.Log != 41 || a.Task == nil || *a.Task != 42 {
		t.Errorf("first: %+v", a)
	}
	if b := got[1]; b.Topic != "u" || b.Log != -1 || b.Task != nil {
		t.Errorf("second: %+v", b)
	}
	for _, bad := range []string{"", "t 3 " + id + " 41\n", "t 3 " + id + "\nend\n", "t x " + id + " 41\nend\n", "t 3 00 41\nend\n", "t 3 " + id + " x\nend\n"} {
		if got, err := parsePeek(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}
