// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/loadtest/kafka"
)

// heartbeatInterval is well below broker.session.timeout.ms, 9 s.
const heartbeatInterval = 500 * time.Millisecond

// Broker plays the broker of a node that is stopped, as far as the controller goes
// (KIP-631): it registers, and its heartbeats keep it unfenced. A leader takes a replica
// into the ISR only while its broker is registered and not fenced, and only if the broker
// epoch of its fetches is that of the registration (KIP-841, KIP-903). All methods are safe
// for concurrent use.
type Broker struct {
	cluster *kafka.Cluster
	node    *kafka.Node
	epoch   int64

	mu     sync.Mutex // around a request
	want   fencing
	active int // index of the node whose controller answered last

	stop context.CancelFunc
	done chan struct{}
}

// fencing is what a heartbeat asks for.
type fencing string

const (
	fenced   fencing = "fenced"
	unfenced fencing = "unfenced"
)

// Register registers the node, fenced, and keeps its session until Close. The node must be
// down.
func Register(ctx context.Context, cluster *kafka.Cluster, node *kafka.Node) (*Broker, error) {
	if node.Running() {
		return nil, fmt.Errorf("node %d is running: its place cannot be played", node.NodeID())
	}
	req, err := registration(ctx, cluster, node)
	if err != nil {
		return nil, fmt.Errorf("registration of broker %d: %w", node.NodeID(), err)
	}
	b := &Broker{cluster: cluster, node: node, want: fenced, done: make(chan struct{})}
	err = kafka.Poll(ctx, fmt.Sprintf("registration of broker %d", node.NodeID()), func(ctx context.Context) error {
		resp, err := b.controller(ctx, req)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.BrokerRegistrationResponse)
		b.epoch = r.BrokerEpoch
		return kerr.ErrorForCode(r.ErrorCode) // DUPLICATE_BROKER_REGISTRATION while the session of the one before lasts
	})
	if err != nil {
		return nil, err
	}
	beating, stop := context.WithCancel(context.Background())
	b.stop = stop
	go b.beat(beating)
	return b, nil
}

// Identity is who the replica's fetches come from.
func (b *Broker) Identity() Identity { return Identity{NodeID: b.node.NodeID(), BrokerEpoch: b.epoch} }

// Fence has the controller fence the broker, which takes its replicas out of every ISR.
func (b *Broker) Fence(ctx context.Context) error { return b.become(ctx, fenced) }

// Unfence has the controller let its replicas into ISRs again.
func (b *Broker) Unfence(ctx context.Context) error { return b.become(ctx, unfenced) }

// Close fences the broker and ends its session, so that the node itself can start again. It
// must not be called after that.
func (b *Broker) Close(ctx context.Context) error {
	b.stop()
	<-b.done
	return b.Fence(ctx)
}

// become asks for a state until the broker is in it.
func (b *Broker) become(ctx context.Context, want fencing) error {
	b.mu.Lock()
	b.want = want
	b.mu.Unlock()
	return kafka.Poll(ctx, fmt.Sprintf("broker %d %s", b.node.NodeID(), want), func(ctx context.Context) error {
		got, err := b.heartbeat(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

// beat sends heartbeats until ctx ends. One that fails is followed by the next.
func (b *Broker) beat(ctx context.Context) {
	defer close(b.done)
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = b.heartbeat(ctx)
		}
	}
}

// heartbeat sends one.
func (b *Broker) heartbeat(ctx context.Context) (fencing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.WantFence = b.node.NodeID(), b.epoch, b.want == fenced
	req.CurrentMetadataOffset = b.epoch // the offset of the registration: that far a broker must have read
	resp, err := b.controller(ctx, req)
	if err != nil {
		return "", err
	}
	r := resp.(*kmsg.BrokerHeartbeatResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return "", fmt.Errorf("heartbeat of broker %d: %w", b.node.NodeID(), err)
	}
	if r.IsFenced {
		return fenced, nil
	}
	return unfenced, nil
}

// controller sends a request to the active controller: all others answer NOT_CONTROLLER.
func (b *Broker) controller(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var errs []error
	nodes := b.cluster.Nodes()
	for i := range nodes {
		at := (b.active + i) % len(nodes)
		if !nodes[at].Running() {
			continue
		}
		resp, err := once(ctx, nodes[at].ControllerAddress(), req)
		if err == nil && !notController(resp) {
			b.active = at
			return resp, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no active controller: %w", errors.Join(errs...))
}

func notController(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.BrokerHeartbeatResponse:
		return r.ErrorCode == kerr.NotController.Code
	}
	return false
}

// once sends one request on a connection of its own.
func once(ctx context.Context, address string, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := dial(ctx, address, &Traffic{})
	if err != nil {
		return nil, err
	}
	defer s.conn.Close()
	return s.request(ctx, req)
}

// registration says of the node what its broker would say: its directory, its listener, and
// the features of the brokers that run, which are of the same version.
func registration(ctx context.Context, cluster *kafka.Cluster, node *kafka.Node) (*kmsg.BrokerRegistrationRequest, error) {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID = node.NodeID(), cluster.ClusterID()
	if _, err := rand.Read(req.IncarnationID[:]); err != nil {
		return nil, err
	}
	directory, err := directoryID(node)
	if err != nil {
		return nil, err
	}
	req.LogDirs = [][16]byte{directory}
	host, port, err := net.SplitHostPort(node.Address())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	req.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: host, Port: uint16(number)}}
	req.Features, err = features(ctx, cluster)
	return req, err
}

// directoryID reads the id of the node's log directory (KIP-858).
func directoryID(node *kafka.Node) (id [16]byte, err error) {
	path := filepath.Join(node.DataDir(), "meta.properties")
	properties, err := os.ReadFile(path)
	if err != nil {
		return id, err
	}
	for line := range bytes.Lines(properties) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "directory.id="); ok {
			raw, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || len(raw) != len(id) {
				return id, fmt.Errorf("%s: directory.id is %q (%w)", path, text, err)
			}
			return [16]byte(raw), nil
		}
	}
	return id, fmt.Errorf("%s has no directory.id", path)
}

// features asks a running broker what features it supports.
func features(ctx context.Context, cluster *kafka.Cluster) ([]kmsg.BrokerRegistrationRequestFeature, error) {
	for _, n := range cluster.Nodes() {
		if !n.Running() {
			continue
		}
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = clientID, "1"
		resp, err := once(ctx, n.Address(), req)
		if err != nil {
			return nil, err
		}
		var all []kmsg.BrokerRegistrationRequestFeature
		for _, f := range resp.(*kmsg.ApiVersionsResponse).SupportedFeatures {
			all = append(all, kmsg.BrokerRegistrationRequestFeature{Name: f.Name, MinSupportedVersion: f.MinVersion, MaxSupportedVersion: f.MaxVersion})
		}
		return all, nil
	}
	return nil, errors.New("no broker is running")
}
