// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/rewrite/pendingupload"
)

// readiness is an Uploads that is ready or not.
type readiness bool

func (r readiness) UploadsReady() bool { return bool(r) }

// older is the ApiVersions response of a broker whose ListOffsets ends at a version.
func older(listOffsets, epochs, metadata int16) []byte {
	answer := kmsg.NewPtrApiVersionsResponse()
	answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
		{ApiKey: 2, MaxVersion: listOffsets}, {ApiKey: codec.KeyMetadata, MaxVersion: metadata}, {ApiKey: codec.KeyOffsetForLeaderEpoch, MaxVersion: epochs},
	}
	return frameOf(answer, codec.Classic)
}

func TestBrokersWithoutLatestTiered(t *testing.T) {
	for _, c := range []struct {
		name             string
		rules            Rules
		broker           []byte
		support          Support
		offered, treated int16 // the highest version of ListOffsets that is offered, the lowest that is held
	}{
		{"read", Rules{Uploads: readiness(true)}, older(8, 4, 12), SupportMetadataTopic, 11, 9},
		{"not read yet", Rules{Uploads: readiness(false)}, older(8, 4, 12), SupportMetadataTopic, 8, 9},
		{"not configured", Rules{}, older(8, 4, 12), SupportNone, 8, 0},
		{"off", Rules{PendingUpload: PendingUploadOff, Uploads: readiness(true), Addresses: fleet{host: "proxy"}}, older(8, 4, 12), SupportMetadataTopic, 8, 0},
		{"without -4 too", Rules{Uploads: readiness(true)}, older(7, 4, 12), SupportNone, 7, 0},
		{"without epochs", Rules{Uploads: readiness(true)}, older(8, 3, 12), SupportNone, 8, 0},
		{"without topic ids", Rules{Uploads: readiness(true)}, older(8, 4, 11), SupportNone, 8, 0},
		{"3.9", Rules{Uploads: readiness(true)}, older(9, 4, 12), SupportSynthesised, 11, 10},
		{"native", Rules{Uploads: readiness(true)}, older(11, 4, 13), SupportNative, 11, 0},
	} {
		v := NewConversation(&c.rules)
		out, _, err := v.Response(codec.KeyApiVersions, 0, bytes.Clone(c.broker))
		if err != nil {
			t.Fatal(err)
		}
		rows, _, _, err := apiVersionRows(0, out)
		if err != nil || v.Support() != c.support || rows[0].max != c.offered {
			t.Errorf("%s: support %s, offered %d, %v; want %s, %d", c.name, v.Support(), rows[0].max, err, c.support, c.offered)
		}
		for version := int16(0); version <= 13; version++ {
			got, _, err := v.Request(codec.KeyListOffsets, version)
			if want := c.treated > 0 && version >= c.treated && version <= 11; err != nil || (got == Hold) != want {
				t.Errorf("%s: version %d is held: %t, %v; want %t", c.name, version, got == Hold, err, want)
			}
		}
	}
}

func TestRequestsInFrontOfABrokerWithoutLatestTiered(t *testing.T) {
	request := func(version int16, timestamps ...int64) []byte {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.TimeoutMillis = version, -1, 3000
		topic := kmsg.ListOffsetsRequestTopic{Topic: "t"}
		for i, timestamp := range timestamps {
			topic.Partitions = append(topic.Partitions, kmsg.ListOffsetsRequestTopicPartition{Partition: int32(i), CurrentLeaderEpoch: -1, Timestamp: timestamp})
		}
		req.Topics = append(req.Topics, topic)
		frame := append([]byte{0, 0, 0, 0, 0, 2, 0, byte(version), 0, 0, 0, 7, 0xff, 0xff, 0}, req.AppendTo(nil)...)
		codec.PutSize(frame)
		return frame
	}
	for _, c := range []struct {
		version    int16
		timestamps []int64
		want       Step
	}{
		{9, []int64{-1, -2, -3, -4, 0}, Forward},
		{10, []int64{-1, 1_700_000_000_000}, Forward},
		{11, []int64{-4}, Forward},
		{9, []int64{-1, -5}, Answer},
		{10, []int64{-5}, Answer},
		{11, []int64{-5, -6}, Answer},
		{9, []int64{-6}, Answer}, // the broker would take it for a time
		{11, []int64{-1, -7}, Answer},
	} {
		v := NewConversation(&Rules{Uploads: readiness(false)})
		if step, _, _, _ := v.ListOffsets(request(c.version, c.timestamps...)); step != AskVersions {
			t.Errorf("v%d %v to an unknown broker: step %d, want AskVersions", c.version, c.timestamps, step)
		}
		if err := v.Learn(0, older(8, 4, 12)); err != nil {
			t.Fatal(err)
		}
		step, out, machine, err := v.ListOffsets(request(c.version, c.timestamps...))
		if err != nil || step != c.want || (machine != nil) != (c.want == Answer) {
			t.Fatalf("v%d %v: step %d, machine %v, %v; want step %d", c.version, c.timestamps, step, machine, err, c.want)
		}
		if step == Answer {
			if _, ok := machine.(*pendingupload.Older); !ok {
				t.Errorf("v%d %v: %T", c.version, c.timestamps, machine)
			}
			continue
		}
		if want := request(8, c.timestamps...); !bytes.Equal(out, want) {
			t.Errorf("v%d %v:\n got %x\nwant %x", c.version, c.timestamps, out, want)
		}
	}
}
