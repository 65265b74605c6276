// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/hex"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// wire is a client that sends exactly what it is told to.
type wire struct {
	t  *testing.T
	nc net.Conn
}

func dial(t *testing.T, address string) *wire {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{t, nc}
}

// send writes a request at the version that it has set.
func (w *wire) send(request kmsg.Request, correlationID int32) {
	w.t.Helper()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("sim-test")).AppendRequest(nil, request, correlationID)
	if _, err := w.nc.Write(frame); err != nil {
		w.t.Fatal(err)
	}
}

// receive reads the next frame; it must be the answer to request.
func (w *wire) receive(request kmsg.Request, correlationID int32) kmsg.Response {
	w.t.Helper()
	frame, err := w.frame()
	if err != nil {
		w.t.Fatalf("read the answer to %s: %v", kmsg.NameForKey(request.Key()), err)
	}
	if got := codec.ResponseCorrelationID(frame); got != correlationID {
		w.t.Fatalf("correlation id %d, want %d\n%s", got, correlationID, hex.Dump(frame))
	}
	off := codec.ResponseFixedLen
	if request.IsFlexible() && request.Key() != kmsg.ApiVersions.Int16() {
		off++ // an empty tag section
	}
	response := request.ResponseKind()
	if err := response.ReadFrom(frame[off:]); err != nil {
		w.t.Fatalf("%s: %v\n%s", kmsg.NameForKey(request.Key()), err, hex.Dump(frame))
	}
	return response
}

func (w *wire) frame() ([]byte, error) {
	frame := make([]byte, codec.SizeLen)
	if _, err := io.ReadFull(w.nc, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, codec.Size(frame))...)
	_, err := io.ReadFull(w.nc, frame[codec.SizeLen:])
	return frame, err
}

func (w *wire) ask(request kmsg.Request) kmsg.Response {
	w.t.Helper()
	w.send(request, 7)
	return w.receive(request, 7)
}

// refused sends a request and wants the connection closed without an answer.
func (w *wire) refused(request kmsg.Request) {
	w.t.Helper()
	w.send(request, 9)
	frame, err := w.frame()
	var reset net.Error
	if err == nil || errors.As(err, &reset) && reset.Timeout() {
		w.t.Fatalf("want the connection closed, got %v\n%s", err, hex.Dump(frame))
	}
}

// position names a partition.
type position struct {
	topic     string
	partition int32
}

func listOffsets(version int16, timestamp int64, at ...position) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.Version = version
	request.ReplicaID = -1
	for _, a := range at {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = a.partition, timestamp
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = a.topic, append(t.Partitions, p)
		request.Topics = append(request.Topics, t)
	}
	return request
}
