// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// answerFrame makes the response frame of a kmsg response: header version 1 where the
// response is flexible, except for ApiVersions.
func answerFrame(id int32, resp kmsg.Response) []byte {
	b := response(id)
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	codec.PutSize(b)
	return b
}

// metadataAnswer is a Metadata v1 answer that names one broker.
func metadataAnswer(id, nodeID int32, host string, port int32) []byte {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 1
	resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: nodeID, Host: host, Port: port})
	return answerFrame(id, resp)
}

// scripted is a broker that gives the answer of each key, with the request's
// correlation id, and echoes the others.
func scripted(answers map[int16][]byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			id := codec.RequestCorrelationID(frame)
			answer := response(id, frame[codec.RequestFixedLen:]...)
			if fixed, ok := answers[codec.RequestKey(frame)]; ok {
				answer = append([]byte(nil), fixed...)
				codec.PutResponseCorrelationID(answer, id)
			}
			if _, err = c.Write(answer); err != nil {
				return
			}
		}
	}
}
