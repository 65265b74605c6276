// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// between is how long a well-behaved client waits after an exchange.
const between = 500 * time.Millisecond

// frame returns a request as it goes over the wire.
func frame(client string, request kmsg.Request, version int16) []byte {
	request.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(client)).AppendRequest(nil, request, 7)
}

func apiVersions() []byte {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "abuse", "1"
	return frame(ordinaryClient, r, 3)
}

func metadata(client string) []byte {
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr("orders")
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = append(r.Topics, t)
	return frame(client, r, 12)
}

// listOffsets asks for -6 of n partitions.
func listOffsets(n int) []byte {
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = "orders"
	t.Partitions = make([]kmsg.ListOffsetsRequestTopicPartition, n)
	for i := range t.Partitions {
		t.Partitions[i] = kmsg.ListOffsetsRequestTopicPartition{Partition: int32(i), CurrentLeaderEpoch: -1, Timestamp: pendingUploadTS}
	}
	r := kmsg.NewPtrListOffsetsRequest()
	r.ReplicaID, r.Topics = -1, append(r.Topics, t)
	return frame(ordinaryClient, r, 11)
}

// produce is the shape of a Produce request; the broker stores nothing.
func produce() []byte {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = make([]byte, 200)
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = "orders", append(t.Partitions, p)
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis, r.Topics = -1, 1000, append(r.Topics, t)
	return frame(ordinaryClient, r, 9)
}

// way is how well-behaved clients reach the brokers.
type way struct {
	address string
	tls     *tls.Config
	// first is sent before everything else.
	first string
}

// exchange does what a client does that has just started: it connects, and each of its
// requests must get its response.
func (w way) exchange(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", w.address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(deadline)
	if _, err = io.WriteString(c, w.first); err != nil {
		return fmt.Errorf("PROXY header: %w", err)
	}
	if w.tls != nil {
		secured := tls.Client(c, w.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		c = secured
	}
	for i, request := range [][]byte{apiVersions(), metadata(ordinaryClient), listOffsets(1), produce()} {
		api := [...]string{"ApiVersions", "Metadata", "ListOffsets", "Produce"}[i]
		response, err := ask(c, request)
		if err == nil && api == "ListOffsets" {
			err = checkOffset(response)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", api, err)
		}
	}
	return nil
}

// ask sends a request and returns the response without its size field.
func ask(c io.ReadWriter, request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	size, err := readSize(c)
	if err != nil {
		return nil, err
	}
	if size > 1<<20 {
		return nil, fmt.Errorf("a response of %d bytes", size)
	}
	response := make([]byte, size)
	if _, err := io.ReadFull(c, response); err != nil {
		return nil, err
	}
	if got, want := int32(binary.BigEndian.Uint32(response)), codec.RequestCorrelationID(request); got != want {
		return nil, fmt.Errorf("correlation id %d, want %d", got, want)
	}
	return response, nil
}

// checkOffset checks the response to -6 of one partition.
func checkOffset(response []byte) error {
	r := kmsg.NewPtrListOffsetsResponse()
	r.SetVersion(11)
	const head = 4 + 1 // correlation id, no tags
	if err := r.ReadFrom(response[head:]); err != nil {
		return err
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Offset != pendingUpload {
		return fmt.Errorf("%+v, want offset %d", r.Topics, pendingUpload)
	}
	return nil
}

// tally is what happened to clients.
type tally struct {
	mu                                 sync.Mutex
	clients, served, exchanges, missed int
	slowest                            time.Duration
	first                              string // what the first miss was
	missedAt                           map[int]struct{}
}

// note takes the result of an exchange of client i.
func (t *tally) note(i int, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exchanges++
	if err == nil {
		t.slowest = max(t.slowest, took)
		return
	}
	t.missed++
	if t.first == "" {
		t.first = err.Error()
	}
	t.missedAt[i] = struct{}{}
}

// use runs n clients until ctx ends, each exchange to its end, and returns what happened.
func (w way) use(ctx context.Context, n int, within time.Duration) *tally {
	t := &tally{clients: n, missedAt: map[int]struct{}{}}
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			// Spread over the pause, so that they do not come all at once.
			for ok := wait(ctx, between*time.Duration(i)/time.Duration(n)); ok; ok = wait(ctx, between) {
				began := time.Now()
				err := w.exchange(context.WithoutCancel(ctx), within)
				t.note(i, time.Since(began), err)
			}
		})
	}
	running.Wait()
	t.served = n - len(t.missedAt)
	return t
}

// wait is false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
