// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// The log of every partition: it is tiered, and uploaded up to offset 99, so that -6 is
// answered 100.
const (
	lastUploaded    = 99
	logEnd          = 200
	pendingUpload   = lastUploaded + 1
	pendingUploadTS = -6
	latestTieredTS  = -5
	latestTS        = -1
)

// The client ids of well-behaved clients and of requests that get the large response.
const (
	ordinaryClient = "orders"
	largeClient    = "large"
)

const (
	// ordinaryMetadata is the size of Metadata responses to well-behaved clients: that of
	// a few thousand partitions, which is not small for a proxy's buffers.
	ordinaryMetadata = 200_000
	// largestRequest is what the broker collects; a larger request is read and dropped.
	largestRequest = 24 << 20
	// bigRequest is the size from which requests are decoded one at a time.
	bigRequest = 1 << 20
)

// script says how the brokers of an attack differ from well-behaved ones.
type script struct {
	// asked is the request that gets a large response, of about large bytes.
	asked []byte
	large int
	// brokers is how many brokers the Metadata of largeTopic names.
	brokers int
	// silentAbove is the size from which requests are never answered; 0 for none.
	silentAbove int
	// second makes node 1 a broker that answers nothing but ApiVersions.
	second bool
	// selfDial gives node 1 the address at which tiergate listens for it.
	selfDial bool
}

// broker is one node of a scripted cluster.
type broker struct {
	script script
	// mute brokers answer ApiVersions only.
	mute bool
	// addresses of the nodes, by node id.
	addresses []string
	listener  net.Listener
	running   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// large is the body of the large response, made before the first connection.
	large []byte
	// decoding is held while a big request is decoded: one takes 200 MB.
	decoding sync.Mutex
}

// listen starts a broker at a port of the kernel's choice; its addresses are set before
// the first connection.
func (b *broker) listen() (err error) {
	b.conns = map[net.Conn]struct{}{}
	b.listener, err = net.Listen("tcp4", "127.0.0.1:0")
	return err
}

func (b *broker) address() string { return b.listener.Addr().String() }

func (b *broker) serve() {
	b.running.Go(func() {
		for {
			c, err := b.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			b.mu.Lock()
			b.conns[c] = struct{}{}
			b.mu.Unlock()
			b.running.Go(func() {
				_ = b.converse(c) // the proxy may close at any point
				c.Close()
				b.mu.Lock()
				delete(b.conns, c)
				b.mu.Unlock()
			})
		}
	})
}

// close ends all connections and waits.
func (b *broker) close() {
	b.listener.Close()
	b.mu.Lock()
	for c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// converse answers the requests of a connection in order.
func (b *broker) converse(c net.Conn) error {
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		size, err := readSize(in)
		if err != nil {
			return err
		}
		if size > largestRequest || b.script.silentAbove > 0 && size > b.script.silentAbove {
			if _, err := io.CopyN(io.Discard, in, int64(size)); err != nil {
				return err
			}
			continue
		}
		var frame bytes.Buffer // grows with what has come, not with what is announced
		if _, err := io.CopyN(&frame, in, int64(size)); err != nil {
			return err
		}
		head, body, err := b.response(frame.Bytes())
		if err != nil {
			return err
		}
		if head == nil {
			continue
		}
		if _, err = (&net.Buffers{head, body}).WriteTo(c); err != nil {
			return err
		}
	}
}

func readSize(r io.Reader) (int, error) {
	var b [codec.SizeLen]byte
	_, err := io.ReadFull(r, b[:])
	return int(binary.BigEndian.Uint32(b[:])), err
}

// response returns the response to a request without its size field; nothing when there
// is none.
func (b *broker) response(frame []byte) (head, body []byte, err error) {
	if len(frame) > bigRequest {
		b.decoding.Lock()
		defer b.decoding.Unlock()
	}
	in := kbin.Reader{Src: frame}
	key, version, id := in.Int16(), in.Int16(), in.Int32()
	request := kmsg.RequestForKey(key)
	if request == nil {
		return nil, nil, fmt.Errorf("unknown API key %d", key)
	}
	request.SetVersion(version)
	client := in.NullableString()
	if request.IsFlexible() {
		kmsg.SkipTags(&in)
	}
	if err := errors.Join(in.Complete(), request.ReadFrom(in.Src)); err != nil {
		return nil, nil, err
	}
	switch apiVersions := key == kmsg.ApiVersions.Int16(); {
	case b.mute && !apiVersions:
		return nil, nil, nil
	case client != nil && *client == largeClient && !apiVersions:
		if b.large == nil {
			b.large = b.largeAnswer(request).AppendTo(nil)
		}
		body = b.large
	default:
		body = b.answer(request).AppendTo(nil)
	}
	head = make([]byte, codec.ResponseFixedLen, codec.ResponseFixedLen+1)
	codec.PutResponseCorrelationID(head, id)
	if request.ResponseKind().IsFlexible() && key != kmsg.ApiVersions.Int16() { // KIP-511: its header has no tags
		head = append(head, 0)
	}
	binary.BigEndian.PutUint32(head, uint32(len(head)-codec.SizeLen+len(body)))
	return head, body, nil
}

// answer returns an ordinary response.
func (b *broker) answer(request kmsg.Request) kmsg.Response {
	response := request.ResponseKind()
	switch r := response.(type) {
	case *kmsg.ApiVersionsResponse:
		for _, row := range [][3]int16{ // key, first and last version: those of Kafka 4.1, where clients of this package ask
			{0, 0, 11}, {1, 4, 17}, {2, 1, 10}, {3, 0, 12}, {10, 0, 6}, {18, 0, 4}, {23, 2, 4}, {32, 1, 4}, {60, 0, 2},
		} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = row[0], row[1], row[2]
			r.ApiKeys = append(r.ApiKeys, k)
		}
	case *kmsg.MetadataResponse:
		b.nodes(r, len(b.addresses))
		if len(request.(*kmsg.MetadataRequest).Topics) > 0 {
			r.Topics = append(r.Topics, topic(ordinaryMetadata))
		}
	case *kmsg.ListOffsetsResponse:
		answerListOffsets(request.(*kmsg.ListOffsetsRequest), r)
	}
	return response
}

// nodes names n brokers; those beyond the real ones have ports where nothing listens.
func (b *broker) nodes(r *kmsg.MetadataResponse, n int) {
	r.ControllerID = 0
	for id := range n {
		node := kmsg.NewMetadataResponseBroker()
		node.NodeID, node.Host, node.Port = int32(id), "127.0.0.1", int32(1+id%1000)
		if id < len(b.addresses) {
			host, port, _ := net.SplitHostPort(b.addresses[id])
			node.Host = host
			_, _ = fmt.Sscan(port, &node.Port)
		}
		r.Brokers = append(r.Brokers, node)
	}
}

func answerListOffsets(request *kmsg.ListOffsetsRequest, r *kmsg.ListOffsetsResponse) {
	for _, asked := range request.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = asked.Topic
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(asked.Partitions))
		for i, p := range asked.Partitions {
			offset := int64(0)
			switch p.Timestamp {
			case pendingUploadTS:
				offset = pendingUpload
			case latestTieredTS:
				offset = lastUploaded
			case latestTS:
				offset = logEnd
			}
			t.Partitions[i] = kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition, Timestamp: -1, Offset: offset}
		}
		r.Topics = append(r.Topics, t)
	}
}

// topic returns a topic that takes about size bytes of a Metadata response.
func topic(size int) kmsg.MetadataResponseTopic {
	const each = 43 // bytes of a partition
	t := kmsg.NewMetadataResponseTopic()
	t.Topic = kmsg.StringPtr("orders")
	t.Partitions = make([]kmsg.MetadataResponseTopicPartition, size/each)
	for i := range t.Partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Replicas, p.ISR = int32(i), []int32{0, 1, 2}, []int32{0, 1, 2}
		t.Partitions[i] = p
	}
	return t
}

// largeAnswer returns a response of about script.large bytes.
func (b *broker) largeAnswer(request kmsg.Request) kmsg.Response {
	response := request.ResponseKind()
	switch r := response.(type) {
	case *kmsg.MetadataResponse:
		b.nodes(r, max(len(b.addresses), b.script.brokers))
		r.Topics = append(r.Topics, topic(b.script.large))
	case *kmsg.DescribeConfigsResponse:
		value := strings.Repeat("v", 30_000)
		resource := kmsg.NewDescribeConfigsResponseResource()
		for range b.script.large / len(value) {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			c.Name, c.Value = "config", &value
			resource.Configs = append(resource.Configs, c)
		}
		r.Resources = append(r.Resources, resource)
	case *kmsg.FetchResponse:
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = make([]byte, b.script.large)
		t := kmsg.NewFetchResponseTopic()
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
	}
	return response
}
