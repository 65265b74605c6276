// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"encoding/hex"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func testContext(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestDecodeResponseRefusesBytesLeftOver(t *testing.T) {
	good := []byte{0, 0, 0, 6, 0, 0, 0, 1, 0, 0}
	if _, err := DecodeResponse(int16(kmsg.Heartbeat), 0, good); err != nil {
		t.Errorf("%x: %v", good, err)
	}
	bad := []byte{0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0}
	if _, err := DecodeResponse(int16(kmsg.Heartbeat), 0, bad); err == nil {
		t.Errorf("%x: no error for a byte too many", bad)
	}
}

func TestFreePortsAreInARowBelowTheEphemeralRange(t *testing.T) {
	ports, err := FreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && reservePorts(ports[1:2]) {
		t.Errorf("port %d can be had twice", ports[1])
	}
	for i, p := range ports {
		if p != ports[0]+i || p >= ephemeralLow() {
			t.Fatalf("ports %v are not in a row below %d", ports, ephemeralLow())
		}
	}
}

func TestDecodeResponseOfAnApiVersionsRefusal(t *testing.T) {
	frame, err := hex.DecodeString("0000001000000000002300000001001200000004") // to a request v5, by Kafka 4.1
	if err != nil {
		t.Fatal(err)
	}
	resp, err := DecodeResponse(int16(kmsg.ApiVersions), 5, frame)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.ApiVersionsResponse)
	if got.ErrorCode != 35 || len(got.ApiKeys) != 1 || got.ApiKeys[0].ApiKey != 18 || got.ApiKeys[0].MaxVersion != 4 {
		t.Errorf("got %+v, want error 35 and ApiVersions up to 4", got)
	}
}
