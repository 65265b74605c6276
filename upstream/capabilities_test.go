// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// row is a capability as text.
func row(c Capability) string {
	return fmt.Sprintf("%d %s err=%v lo=%d epoch=%d remote=%s/%v release=%s",
		c.NodeID, c.Address(), c.Err, c.Versions.ListOffsets.Highest, c.Versions.OffsetForLeaderEpoch.Highest, c.RemoteStorage, c.RemoteStorageErr, c.Release)
}

func wantRows(t *testing.T, got []Capability, want ...string) {
	t.Helper()
	var rows []string
	for _, c := range got {
		rows = append(rows, row(c))
	}
	if text, wanted := strings.Join(rows, "\n"), strings.Join(want, "\n"); text != wanted {
		t.Fatalf("capabilities\n%s\nwant\n%s", text, wanted)
	}
}

func TestCapabilities(t *testing.T) {
	k := newKafka(t)
	k.offer(kversion.V4_1_0())
	k.system("true", "false", "true")
	k.errs["2"] = kerr.ClusterAuthorizationFailed
	at := k.ListenAddrs()
	c := newTestCluster(t, Options{BootstrapServers: at[:1]}, time.Now)

	// Node 9 was seen by a session and is down: the service client never heard of it.
	down := refusing(t)
	_, digits, _ := net.SplitHostPort(down)
	port, _ := strconv.Atoi(digits)
	c.ObserveNodes(Node{NodeID: 9, Host: "127.0.0.1", Port: int32(port)})

	wantRows(t, c.Capabilities(testContext(t)),
		"0 "+at[0]+" err=<nil> lo=10 epoch=4 remote=enabled/<nil> release=v4.1",
		"1 "+at[1]+" err=<nil> lo=10 epoch=4 remote=disabled/<nil> release=v4.1",
		"2 "+at[2]+" err=<nil> lo=10 epoch=4 remote=unknown/CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed. release=v4.1",
		"9 "+down+" err="+down+": connect: connection refused lo=-1 epoch=-1 remote=unknown/<nil> release=",
	)

	// One address: with its node id when the map has it.
	wantRows(t, []Capability{c.CapabilityOf(testContext(t), at[1]), c.CapabilityOf(testContext(t), "kafka")},
		"1 "+at[1]+" err=<nil> lo=10 epoch=4 remote=disabled/<nil> release=v4.1",
		`-1 kafka:0 err=address "kafka": want host:port, and an IPv6 address in brackets lo=-1 epoch=-1 remote=unknown/<nil> release=`,
	)
}

func TestReleaseOfWhatIsNoKafka(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	for _, key := range []int16{0, 1, 2, 3, 18} {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: 3})
	}
	if got := release(resp); got != "" {
		t.Fatalf("release %q, want none", got)
	}
}

// offer makes the cluster's ApiVersions answers those of a release: kfake knows fewer
// APIs than Kafka has.
func (k *kafka) offer(release *kversion.Versions) {
	k.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		release.EachMaxKeyVersion(func(key, version int16) {
			row := kmsg.NewApiVersionsResponseApiKey()
			row.ApiKey, row.MaxVersion = key, version
			resp.ApiKeys = append(resp.ApiKeys, row)
		})
		return resp, nil, true
	})
}

func TestCapabilitiesOfAnAddressWithoutMetadata(t *testing.T) {
	k := newKafka(t, kfake.NumBrokers(1))
	k.offer(kversion.V3_9_0())
	at := k.ListenAddrs()[0]
	c := newTestCluster(t, Options{BootstrapServers: []string{at}}, time.Now)
	wantRows(t, []Capability{c.CapabilityOf(testContext(t), at)},
		"-1 "+at+" err=<nil> lo=9 epoch=4 remote=unknown/the node id of "+at+" is not known release=v3.9")
}

func TestCapabilitiesOfAClusterThatIsDown(t *testing.T) {
	one, two := refusing(t), refusing(t)
	c := newTestCluster(t, Options{BootstrapServers: []string{one, two}}, time.Now)
	rows := c.Capabilities(testContext(t))
	for i := range rows { // the look-up before may have left a memory of the failure
		text, _, _ := strings.Cut(rows[i].Err.Error(), " (remembered")
		rows[i].Err = fmt.Errorf("%s", text)
	}
	wantRows(t, rows,
		"-1 "+one+" err="+one+": connect: connection refused lo=-1 epoch=-1 remote=unknown/<nil> release=",
		"-1 "+two+" err="+two+": connect: connection refused lo=-1 epoch=-1 remote=unknown/<nil> release=")
}
