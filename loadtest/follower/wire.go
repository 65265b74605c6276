// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// clientID of the follower's connections, in brokers' request logs and metrics.
const clientID = "tiergate-follower"

// What a broker fetches at most, in bytes: replica.fetch.response.max.bytes and
// replica.fetch.max.bytes, with their defaults.
const (
	fetchMaxBytes          = 10 << 20
	fetchPartitionMaxBytes = 1 << 20
)

// fetchMaxWaitMillis is how long a Fetch without records waits. A broker's
// replica.fetch.wait.max.ms is 500; nothing that is measured waits for it.
const fetchMaxWaitMillis = 100

// session is a connection whose requests have the highest version that both sides know.
type session struct {
	conn     *kafka.Conn
	versions map[int16]int16
	traffic  *Traffic
}

// Traffic counts what the connections of a follower did.
type Traffic struct {
	Requests      int   `json:"requests"`
	ResponseBytes int64 `json:"response_bytes"`
}

// dial connects and asks for the versions of the other side.
func dial(ctx context.Context, address string, traffic *Traffic) (*session, error) {
	conn, err := kafka.Dial(ctx, address, clientID)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, versions: make(map[int16]int16), traffic: traffic}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, clientID, "1"
	resp, err := conn.Request(ctx, req)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	for _, key := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		s.versions[key.ApiKey] = key.MaxVersion
	}
	return s, nil
}

// request sends a request at the highest common version and returns the answer, whose
// record bytes are those of the frame that was read.
func (s *session) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	most, ok := s.versions[req.Key()]
	if !ok {
		return nil, fmt.Errorf("%s is not offered", kmsg.NameForKey(req.Key()))
	}
	req.SetVersion(min(most, req.MaxVersion()))
	ids, err := s.conn.Send(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	frame, err := s.conn.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	s.traffic.Requests++
	s.traffic.ResponseBytes += int64(len(frame))
	if got := codec.ResponseCorrelationID(frame); got != ids[0] {
		return nil, fmt.Errorf("%s: correlation id %d came back as %d", kmsg.NameForKey(req.Key()), ids[0], got)
	}
	resp := req.ResponseKind()
	header := codec.Classic
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) { // KIP-511: its header never has tags
		header = codec.Flexible
	}
	body, err := codec.ResponseBody(frame, header)
	if err == nil {
		err = resp.ReadFrom(frame[body:])
	}
	if err != nil {
		return nil, fmt.Errorf("%s response v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// Identity is who fetches: a replica, by its node id and broker epoch (KIP-903).
type Identity struct {
	NodeID      int32
	BrokerEpoch int64
}

// Peers are the brokers of a cluster, at the addresses that its metadata says: their own,
// or those of a proxy. It is a Finder. One goroutine may use it.
type Peers struct {
	// Bootstrap is asked for metadata.
	Bootstrap string
	// Topic whose partition 0 is followed.
	Topic string
	// As is the replica.
	As Identity
	// MaxBytes is replica.fetch.max.bytes. Default: Kafka's, 1 MiB.
	MaxBytes int32

	traffic  Traffic
	sessions map[string]*session
	topicID  [16]byte
}

// Traffic returns the count of all connections so far.
func (p *Peers) Traffic() Traffic { return p.traffic }

// Close closes all connections.
func (p *Peers) Close() {
	for _, s := range p.sessions {
		s.conn.Close()
	}
	p.sessions = nil
}

// session returns the connection to an address.
func (p *Peers) session(ctx context.Context, address string) (*session, error) {
	if s := p.sessions[address]; s != nil {
		return s, nil
	}
	s, err := dial(ctx, address, &p.traffic)
	if err != nil {
		return nil, err
	}
	if p.sessions == nil {
		p.sessions = make(map[string]*session)
	}
	p.sessions[address] = s
	return s, nil
}

// metadata returns the brokers' addresses and partition 0 of the topic.
func (p *Peers) metadata(ctx context.Context) (map[int32]string, kmsg.MetadataResponseTopicPartition, error) {
	none := kmsg.MetadataResponseTopicPartition{}
	s, err := p.session(ctx, p.Bootstrap)
	if err != nil {
		return nil, none, err
	}
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(p.Topic)
	req.Topics = append(req.Topics, topic)
	resp, err := s.request(ctx, req)
	if err != nil {
		return nil, none, err
	}
	m := resp.(*kmsg.MetadataResponse)
	addresses := make(map[int32]string)
	for _, b := range m.Brokers {
		addresses[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, t := range m.Topics {
		for _, partition := range t.Partitions {
			if partition.Partition == 0 {
				p.topicID = t.TopicID
				return addresses, partition, nil
			}
		}
	}
	return nil, none, fmt.Errorf("no partition 0 of %s in the metadata", p.Topic)
}

// Leader waits until the topic has a leader and returns it.
func (p *Peers) Leader(ctx context.Context) (Leader, int32, error) {
	var found Leader
	var epoch int32
	err := kafka.Poll(ctx, "a leader of "+p.Topic, func(ctx context.Context) error {
		addresses, partition, err := p.metadata(ctx)
		if err != nil {
			return err
		}
		address, ok := addresses[partition.Leader]
		if !ok {
			return fmt.Errorf("leader is %d (error code %d)", partition.Leader, partition.ErrorCode)
		}
		s, err := p.session(ctx, address)
		if err != nil {
			return err
		}
		found, epoch = p.leader(s), partition.LeaderEpoch
		return nil
	})
	return found, epoch, err
}

func (p *Peers) leader(s *session) *remoteLeader {
	l := &remoteLeader{session: s, topic: p.Topic, topicID: p.topicID, as: p.As, maxBytes: p.MaxBytes}
	if l.maxBytes == 0 {
		l.maxBytes = fetchPartitionMaxBytes
	}
	return l
}

// InSync waits until the replica is in the ISR, or is not, as want says.
func (p *Peers) InSync(ctx context.Context, want Membership) error {
	return kafka.Poll(ctx, fmt.Sprintf("replica %d of %s %s", p.As.NodeID, p.Topic, want), func(ctx context.Context) error {
		_, partition, err := p.metadata(ctx)
		if err == nil && slices.Contains(partition.ISR, p.As.NodeID) != (want == InISR) {
			err = fmt.Errorf("the ISR is %v", partition.ISR)
		}
		return err
	})
}

// Membership says whether a replica is in sync as far as the leader and the controller
// know.
type Membership string

const (
	// InISR is a replica that is in the ISR.
	InISR Membership = "in the ISR"
	// OutOfISR is one that is not.
	OutOfISR Membership = "out of the ISR"
)

// remoteLeader is the Leader at the other end of a connection.
type remoteLeader struct {
	session  *session
	topic    string
	topicID  [16]byte
	as       Identity
	maxBytes int32
}

// Fetch is RemoteLeaderEndPoint.buildFetch, without a fetch session.
func (l *remoteLeader) Fetch(ctx context.Context, ask FetchAsk) (Fetched, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = l.as.NodeID // up to v14
	req.ReplicaState.ID, req.ReplicaState.Epoch = l.as.NodeID, l.as.BrokerEpoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchMaxWaitMillis, 1, fetchMaxBytes
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = ask.CurrentEpoch, ask.Offset, ask.LastFetchedEpoch
	p.LogStartOffset, p.PartitionMaxBytes = ask.LogStart, l.maxBytes
	req.Topics = []kmsg.FetchRequestTopic{{Topic: l.topic, TopicID: l.topicID, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	resp, err := l.session.request(ctx, req)
	if err != nil {
		return Fetched{}, err
	}
	r := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return Fetched{}, err
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return Fetched{}, fmt.Errorf("Fetch of one partition brought %d topics", len(r.Topics))
	}
	got := r.Topics[0].Partitions[0]
	fetched := Fetched{Batches: got.RecordBatches, HighWatermark: got.HighWatermark, LogStart: got.LogStartOffset}
	if d := got.DivergingEpoch; d.Epoch >= 0 {
		fetched.Diverging = &EpochEnd{Epoch: d.Epoch, Offset: d.EndOffset}
	}
	return fetched, kerr.ErrorForCode(got.ErrorCode)
}

// ListOffset asks with the replica's id, as RemoteLeaderEndPoint.fetchOffset does.
func (l *remoteLeader) ListOffset(ctx context.Context, currentEpoch int32, timestamp int64) (kafka.Position, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = l.as.NodeID, 30_000
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Timestamp = currentEpoch, timestamp
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: l.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := l.session.request(ctx, req)
	if err != nil {
		return kafka.Position{}, err
	}
	r := resp.(*kmsg.ListOffsetsResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return kafka.Position{}, fmt.Errorf("ListOffsets of one partition brought %d topics", len(r.Topics))
	}
	got := r.Topics[0].Partitions[0]
	return kafka.Position{Offset: got.Offset, Epoch: got.LeaderEpoch}, kerr.ErrorForCode(got.ErrorCode)
}

// EpochEnds names the partition once for each epoch, which brokers answer in order.
func (l *remoteLeader) EpochEnds(ctx context.Context, currentEpoch int32, epochs []int32) ([]EpochEnd, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = l.as.NodeID
	topic := kmsg.OffsetForLeaderEpochRequestTopic{Topic: l.topic}
	for _, epoch := range epochs {
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.CurrentLeaderEpoch, p.LeaderEpoch = currentEpoch, epoch
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{topic}
	resp, err := l.session.request(ctx, req)
	if err != nil {
		return nil, err
	}
	var ends []EpochEnd
	for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			ends = append(ends, EpochEnd{Epoch: p.LeaderEpoch, Offset: p.EndOffset})
		}
	}
	if len(ends) != len(epochs) {
		return nil, fmt.Errorf("OffsetForLeaderEpoch answered %d of %d epochs", len(ends), len(epochs))
	}
	return ends, nil
}
