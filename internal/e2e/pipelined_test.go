// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// testPipelined sends Metadata, -6, ApiVersions and lowered ListOffsets requests in one
// write and expects every answer in the order of the requests, with its own correlation
// id, and about the topic that was asked for.
func testPipelined(t *testing.T, ctx context.Context, s *stand) {
	for name, addr := range map[string]string{"rewriting": s.rewriteA.Address(), "direct": s.directA.Address()} {
		t.Run(name, func(t *testing.T) { checkPipelined(t, ctx, s, dial(t, ctx, addr)) })
	}
}

func checkPipelined(t *testing.T, ctx context.Context, s *stand, conn *kafka.Conn) {
	var reqs []kmsg.Request
	for _, l := range s.logs {
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Version = 12
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(l.Topic)
		metadata.Topics = append(metadata.Topics, topic)
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 3, "endtoend", "1"
		reqs = append(reqs, metadata, listOffsets(11, consumer, readUncommitted, pending(l.Topic)), metadata, versions,
			listOffsets(11, consumer, readUncommitted, want{l.Topic, 0, codec.LatestTimestamp, anyEpoch}))
	}
	ids, err := conn.Send(ctx, reqs...)
	must(t, err)
	for i, req := range reqs {
		frame, err := conn.Receive(ctx)
		must(t, err)
		if got := codec.ResponseCorrelationID(frame); got != ids[i] {
			t.Fatalf("answer %d has correlation id %d, not %d: %x", i, got, ids[i], frame)
		}
		resp, err := kafka.DecodeResponse(req.Key(), req.GetVersion(), frame)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if err := s.answers(t, ctx, req, resp); err != nil {
			t.Errorf("answer %d: %v", i, err)
		}
	}
}

// answers checks that a response answers that request.
func (s *stand) answers(t *testing.T, ctx context.Context, req kmsg.Request, resp kmsg.Response) error {
	t.Helper()
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		want := *req.(*kmsg.MetadataRequest).Topics[0].Topic
		if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 || *resp.Topics[0].Topic != want {
			return fmt.Errorf("metadata of %s: %+v", want, resp)
		}
	case *kmsg.ApiVersionsResponse:
		for _, k := range resp.ApiKeys {
			if k.ApiKey == int16(kmsg.ListOffsets) && k.MaxVersion == 11 {
				return nil
			}
		}
		return fmt.Errorf("ApiVersions without ListOffsets 11: %+v", resp)
	case *kmsg.ListOffsetsResponse:
		list := req.(*kmsg.ListOffsetsRequest)
		for _, l := range s.logs {
			if l.Topic == list.Topics[0].Topic {
				epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
				must(t, err)
				compareWithModel(t, "pipelined, log state "+l.State.Name, resp, l.Topic, replay(t, l, epoch), list)
			}
		}
	}
	return nil
}
