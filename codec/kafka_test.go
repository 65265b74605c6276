// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"fmt"
	"testing"

	"tiergate/codec"
)

func TestBrokerVersions(t *testing.T) {
	b := codec.NoVersions()
	for _, version := range []int16{0, 4, 12} {
		if b.ListOffsets.Has(version) || b.OffsetForLeaderEpoch.Has(version) || b.Metadata.Has(version) {
			t.Errorf("a broker that offers nothing has version %d", version)
		}
	}
	b.Add(codec.KeyListOffsets, 1, 10)
	b.Add(codec.KeyOffsetForLeaderEpoch, 2, 4)
	b.Add(codec.KeyMetadata, 0, 13)
	b.Add(codec.KeyFetch, 4, 17) // of no interest
	want := codec.BrokerVersions{
		ListOffsets: codec.VersionRange{Lowest: 1, Highest: 10}, OffsetForLeaderEpoch: codec.VersionRange{Lowest: 2, Highest: 4},
		Metadata: codec.VersionRange{Highest: 13},
	}
	if b != want {
		t.Errorf("got %+v, want %+v", b, want)
	}
	for version, has := range map[int16]bool{1: false, 2: true, 4: true, 5: false} {
		if b.OffsetForLeaderEpoch.Has(version) != has {
			t.Errorf("OffsetForLeaderEpoch %d: %v, want %v", version, !has, has)
		}
	}
}

func TestNeverTiered(t *testing.T) {
	for topic, want := range map[string]bool{
		"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true, "__remote_log_metadata": true,
		"__cluster_metadata": true, "orders": false, "__orders": false, "": false,
	} {
		if got := codec.NeverTiered(topic); got != want {
			t.Errorf("%q: %v, want %v", topic, got, want)
		}
	}
}

func TestRemoteStorageNames(t *testing.T) {
	got := fmt.Sprint(codec.RemoteStorageUnknown, codec.RemoteStorageDisabled, codec.RemoteStorageEnabled, codec.RemoteStorage(9))
	if want := "unknown disabled enabled unknown"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
