// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package wholecluster

import (
	"context"
	"testing"
	"time"
)

// TestWholeCluster is one cluster's way from 4.1.1 to 4.3.0.
func TestWholeCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("a -short run starts no real Kafka brokers; run without -short, with Java 17+, Maven, gcc and Python 3")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	w := startWhole(t, ctx).open(t, ctx, "auto")
	t.Run("4.1.1", func(t *testing.T) {
		t.Run("calls", func(t *testing.T) { testCalls(t, ctx, w, "old") })
		t.Run("leak", func(t *testing.T) { testLeakIsSeen(t, ctx, w) })
		t.Run("tools", func(t *testing.T) { testTools(t, ctx, w) })
		t.Run("disturbed", func(t *testing.T) { testDisturbed(t, ctx, w, "disturbed-old", 2) })
		t.Run("fetch", func(t *testing.T) { testFetch(t, ctx, w) })
		t.Run("pending upload", func(t *testing.T) { testPending(t, ctx, w, "pending-old") })
	})
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, ctx, w) })
	t.Run("4.3.0", func(t *testing.T) {
		t.Run("calls", func(t *testing.T) { testCalls(t, ctx, w, "new") })
		t.Run("disturbed", func(t *testing.T) { testDisturbed(t, ctx, w, "disturbed-new", 3) })
		t.Run("pending upload", func(t *testing.T) { testPending(t, ctx, w.open(t, ctx, "always"), "pending-new") })
	})
}
