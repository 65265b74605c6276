// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"tiergate/codec"
)

// brokersAtOnce bounds how many brokers are asked at a time for their capabilities.
const brokersAtOnce = 8

// Capability is what one broker can do, as far as -6 is concerned.
type Capability struct {
	// NodeID is -1 when only the address is known.
	NodeID int32
	Host   string
	Port   int32
	Rack   string
	// Err says why the broker gave no answer; what follows is then not known.
	Err error
	// Versions are what it offers of what -6 depends on; nothing when not known.
	Versions codec.BrokerVersions
	// RemoteStorage is the broker's remote.log.storage.system.enable, and
	// RemoteStorageErr why it is unknown (DESCRIBE_CONFIGS on the cluster is needed).
	RemoteStorage    codec.RemoteStorage
	RemoteStorageErr error
	// Release is a guess from the versions offered, such as "v4.1" or "at least v4.4";
	// empty when they are those of no release.
	Release string
}

// Address is host:port of the broker.
func (c Capability) Address() string { return Node{Host: c.Host, Port: c.Port}.Address() }

// Capabilities asks every broker of the cluster what it can do, sorted by node id.
// When no broker gives a list of them, the bootstrap servers are asked, in their
// order; so there is always at least one row. It blocks until all have answered or
// their time is up: DialTimeout plus twice RequestTimeout each, 8 at a time, and ctx.
func (c *Cluster) Capabilities(ctx context.Context) []Capability {
	_ = c.refresh(ctx) // who can not be reached says so in its own row
	nodes := c.nodes.Snapshot()
	if len(nodes) == 0 {
		return each(c.opts.BootstrapServers, func(server string) Capability { return c.CapabilityOf(ctx, server) })
	}
	return each(nodes, func(node Node) Capability { return c.capability(ctx, node) })
}

// each asks brokersAtOnce brokers at a time; the rows are in the order of from.
func each[T any](from []T, ask func(T) Capability) []Capability {
	rows := make([]Capability, len(from))
	var asking errgroup.Group
	asking.SetLimit(brokersAtOnce)
	for i, one := range from {
		asking.Go(func() error {
			rows[i] = ask(one)
			return nil
		})
	}
	_ = asking.Wait() // no member returns an error
	return rows
}

// CapabilityOf asks the broker at address, host:port, what it can do. It blocks as
// Capabilities does.
func (c *Cluster) CapabilityOf(ctx context.Context, address string) Capability {
	if node, known := c.nodes.ByAddress(address); known {
		return c.capability(ctx, node)
	}
	host, port, err := splitAddress(address)
	if err != nil {
		return Capability{NodeID: -1, Host: address, Versions: codec.NoVersions(), Err: fmt.Errorf("address %w", err)}
	}
	return c.capability(ctx, Node{NodeID: -1, Host: host, Port: int32(port)})
}

// capability asks node over a client of its own: the service client may not know the
// node (any more), and goes to others when it can not be reached.
func (c *Cluster) capability(ctx context.Context, node Node) Capability {
	row := Capability{
		NodeID: node.NodeID, Host: node.Host, Port: node.Port, Rack: node.Rack,
		Versions: codec.NoVersions(),
	}
	client, err := c.newServiceClient(node.Address())
	if err != nil {
		row.Err = err
		return row
	}
	defer client.Close()
	c.ask(ctx, client.SeedBrokers()[0], &row)
	return row
}

// ask fills row with what broker answers.
func (c *Cluster) ask(ctx context.Context, broker requester, row *Capability) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout+2*c.opts.RequestTimeout)
	defer cancel()
	versions, err := c.askVersions(ctx, broker)
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		row.Err = fmt.Errorf("the broker reset the connection at the first request%s: %w", c.lacking(), syscall.ECONNRESET)
		return
	case err != nil:
		row.Err = c.plain(err)
		return
	}
	row.Release = release(versions)
	for _, key := range versions.ApiKeys {
		row.Versions.Add(key.ApiKey, key.MinVersion, key.MaxVersion)
	}
	if row.NodeID < 0 {
		row.RemoteStorageErr = fmt.Errorf("the node id of %s is not known", row.Address())
		return
	}
	row.RemoteStorage, _, row.RemoteStorageErr = brokerRemoteStorage(ctx, broker, row.NodeID)
	if row.RemoteStorageErr != nil {
		row.RemoteStorageErr = c.plain(row.RemoteStorageErr)
	}
}

// release keeps VersionGuess from saying things such as "between v1.0 and v1.1" of a
// broker that is not Apache Kafka.
func release(versions *kmsg.ApiVersionsResponse) string {
	guess := kversion.FromApiVersionsResponse(versions).VersionGuess()
	if kversion.FromString(strings.TrimPrefix(guess, "at least ")) == nil {
		return ""
	}
	return guess
}

func (c *Cluster) askVersions(ctx context.Context, broker requester) (*kmsg.ApiVersionsResponse, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "tiergate", c.opts.Version
	resp, err := broker.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	versions := resp.(*kmsg.ApiVersionsResponse)
	return versions, kerr.ErrorForCode(versions.ErrorCode)
}

// plain takes the wrapping off a failed dial of the service client: what is in it
// names the addresses and the reasons already. Other errors get plain words where there
// are any.
func (c *Cluster) plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	if explained := c.explainAuth(err); explained != nil {
		return explained
	}
	return err
}
