// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/loadtest/tierlog"
)

// answerWith is the response with one partition, t/0.
func answerWith(a tierlog.Answer) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = 11
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{
		Topic:      "t",
		Partitions: []kmsg.ListOffsetsResponseTopicPartition{answerOf(0, a)},
	}}
	return resp
}
