// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tiergate/loadtest/kafka"
)

// jars returns the tools of a version.
func jars(t *testing.T, ctx context.Context, version string) kafka.Jars {
	t.Helper()
	j, err := kafka.Fetch(ctx, version, progress())
	must(t, err)
	return j
}

// testNewcomer is the main job as a newcomer meets it: GetOffsetShell of Kafka 4.3 refuses
// the older broker, and through tiergate it prints what a native broker would. The
// right offsets come from the model of the log's history.
func testNewcomer(t *testing.T, ctx context.Context, s *stand) {
	for _, state := range []string{"uploaded, all still local", "several epochs, several uploads", "tiered, only the active segment", kafka.NotTiered} {
		l := s.log(t, state)
		r := pendingUploadShell(t, ctx, s.rewriteA.Address(), l.Topic)
		if want := s.shellLine(t, ctx, l); r.ExitCode != 0 || r.Stdout != want {
			t.Errorf("log state %q through tiergate: %v\nwant on stdout %q", state, r, want)
		}
	}
	checkShell(t, ctx, s, s.directA.Address())

	const refusal = "does not support LIST_OFFSETS with version in range [11,11]"
	r := pendingUploadShell(t, ctx, s.cluster.Node(nodeID).Address(), s.log(t, "uploaded, all still local").Topic)
	if !strings.Contains(r.Stdout+r.Stderr, refusal) {
		t.Errorf("directly, GetOffsetShell does not say %q: %v", refusal, r)
	}
}

// pendingUploadShell runs GetOffsetShell of Kafka 4.3, the first that knows the name.
func pendingUploadShell(t *testing.T, ctx context.Context, bootstrap, topics string) kafka.Result {
	t.Helper()
	r, err := jars(t, ctx, kafka.Kafka43).Run(ctx, kafka.Tool{Class: getOffsetShell, Args: []string{
		"--bootstrap-server", bootstrap, "--topic", topics, "--time", "earliest-pending-upload",
	}})
	must(t, err)
	return r
}

// checkShell compares what GetOffsetShell prints of all log states with the model. Before
// a native broker, directly, this shows that the model is right.
func checkShell(t *testing.T, ctx context.Context, s *stand, bootstrap string) {
	t.Helper()
	var want []string
	for _, l := range s.logs {
		want = append(want, s.shellLine(t, ctx, l))
	}
	slices.Sort(want)
	if r := pendingUploadShell(t, ctx, bootstrap, "state.*"); r.ExitCode != 0 || r.Stdout != strings.Join(want, "") {
		t.Errorf("all log states: %v\nwant on stdout\n%s", r, strings.Join(want, ""))
	}
}

// shellLine is what GetOffsetShell prints of a log.
func (s *stand) shellLine(t *testing.T, ctx context.Context, l kafka.StateLog) string {
	t.Helper()
	epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
	must(t, err)
	a := replay(t, l, epoch).NativeEarliestPendingUpload(readUncommitted, consumer, anyEpoch)
	return shellLine(l.Topic, 0, a.Offset)
}

// shellLine is GetOffsetShell's line of a partition: none where there is no offset.
func shellLine(topic string, partition int32, offset int64) string {
	if offset < 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d\n", topic, partition, offset)
}

// TestWithoutJava runs this test binary again as on a machine without Java and Maven.
func TestWithoutJava(t *testing.T) {
	realBrokers(t)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "PATH=", kafka.CacheEnv+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	const want = "tests with real Kafka brokers need Java 17 or newer and Maven, and this machine lacks " +
		"Java 17 or newer (no java in PATH) and Maven (no mvn in PATH): " +
		"install them (on Debian or Ubuntu: apt-get install openjdk-17-jdk-headless maven)\n"
	if string(out) != want || err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got exit code %d and %q\nwant exit code 1 and %q", cmd.ProcessState.ExitCode(), out, want)
	}
}
