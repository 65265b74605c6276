// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"tiergate/loadtest/kafka"
)

// testDirectBytes has ordinary clients talk through tiergate in direct mode, and compares
// every byte of both directions on its two sides. The stand was opened for this test.
func testDirectBytes(t *testing.T, ctx context.Context, s *stand, listOffsetsMax int16, versions ...string) {
	franzTraffic(t, ctx, s.directA.Address(), "direct-franz-go")
	for _, v := range versions {
		javaTraffic(t, ctx, jars(t, ctx, v), s.directA.Address(), "direct-java-"+v)
	}
	c := compareSides(t, ctx, s, listOffsetsMax)
	report(t, "direct mode before Kafka %s, clients franz-go and Java %v: %v", s.cluster.Jars().Version, versions, c)
	if least := 80 + 200*len(versions); c.frames < least {
		t.Errorf("%d frames are fewer than %d, too few to be the traffic of all clients", c.frames, least)
	}
	if c.raised == 0 || c.lowered == 0 {
		t.Errorf("%d ApiVersions answers raised and %d ListOffsets requests lowered: both must have happened", c.raised, c.lowered)
	}
}

// testNativeUntouched is the same before a native broker, -6 and the newest APIs
// included: there is nothing that may differ.
func testNativeUntouched(t *testing.T, ctx context.Context, s *stand) {
	tools := jars(t, ctx, kafka.Kafka43)
	franzTraffic(t, ctx, s.directA.Address(), "native-franz-go")
	checkShell(t, ctx, s, s.directA.Address())
	newProtocolsTraffic(t, ctx, tools, s.directA.Address(), "native-java")
	c := compareSides(t, ctx, s, 11)
	report(t, "direct mode before native Kafka %s: %v", s.cluster.Jars().Version, c)
	if c.raised != 0 || c.lowered != 0 {
		t.Errorf("%d ApiVersions answers raised and %d ListOffsets requests lowered before a native broker", c.raised, c.lowered)
	}
}

// compareSides waits until all clients have gone and compares what was recorded.
func compareSides(t *testing.T, ctx context.Context, s *stand, listOffsetsMax int16) tally {
	t.Helper()
	must(t, s.directA.AwaitEnd(ctx))
	must(t, s.directB.AwaitEnd(ctx))
	return sides{listOffsetsMax}.compareAll(t, s.directA, s.directB)
}
