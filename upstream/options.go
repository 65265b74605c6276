// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/codec"
)

// Options configure a Cluster. Zero values mean the defaults.
type Options struct {
	// BootstrapServers are host:port of brokers to begin with; at least one. They are
	// resolved at every dial, nothing of it is remembered.
	BootstrapServers []string
	// DialTimeout bounds one attempt to reach one resolved address, and one lookup of
	// a name. The context of a dial bounds all attempts together. Default 3 s: what a
	// lost SYN and its first repetition (1 s) take on a slow path, with some to spare.
	DialTimeout time.Duration
	// RequestTimeout bounds the wait for one answer to the service client. Default 5 s.
	RequestTimeout time.Duration
	// MetadataRefresh is the time between two requests for the broker list, give or
	// take a tenth. Default 30 s; less than 1 s is 1 s.
	MetadataRefresh time.Duration
	// StatusTTL is how long the status of a topic's remote storage, enabled or disabled,
	// is used after it was asked for. It bounds how long -6 is answered from what a topic
	// was before it was created anew or its remote.storage.enable was changed, whoever did
	// that. Default 1 s: for topics of which nothing is uploaded, each -6 then costs one
	// DescribeConfigs of theirs a second at the most.
	StatusTTL time.Duration
	// UnknownTTL is how long a topic is not asked for again when its status could not be
	// had. Default 5 s, so that brokers that deny it are not asked for every -6.
	UnknownTTL time.Duration
	// MaxTopics bounds the statuses in memory: so many as looked up, and as many that are
	// the last known. Default 20,000, about 12 MB with the longest topic names.
	MaxTopics int
	// TieredTopics have remote storage on without asking: for clusters that deny
	// DESCRIBE_CONFIGS to the service client. Exact names.
	TieredTopics []string
	// TieredOffsets says whether HighestTiered works. Default off.
	TieredOffsets TieredOffsets
	// MaxTieredPartitions bounds the partitions of which HighestTiered knows something, those
	// of deleted topics too. Default 200,000, about 50 MB. Those past it are unknown.
	MaxTieredPartitions int
	// MaxInFlightSegments bounds the segments whose upload has begun and not ended, of all
	// partitions. Default 100,000, about 20 MB. Past it a partition is unknown until its next
	// upload succeeds.
	MaxInFlightSegments int
	// Security is how brokers are spoken to.
	Security
	// ClientID of the service client. Sessions keep their clients' own. Default
	// "tiergate".
	ClientID string
	// Version of tiergate, told to brokers as the service client's software version
	// (KIP-511). Default "devel".
	Version string
	// LookupHost finds the addresses of a host name, in the order to try them. Only
	// the first 16 are tried. Default: the system's resolver.
	LookupHost func(ctx context.Context, host string) ([]netip.Addr, error)
	// Own says what this process listens on itself. Default: nothing.
	Own Own
	// Logger gets one line when the cluster can be reached or no longer can, when the
	// broker list changes, and a warning at most every ten minutes per reason when
	// statuses can not be had. Default: discard.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: none are registered.
	Registerer prometheus.Registerer
}

// withDefaults returns the options complete and checked; all faults at once.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.DialTimeout, 3*time.Second)
	setDefault(&o.RequestTimeout, 5*time.Second)
	setDefault(&o.MetadataRefresh, 30*time.Second)
	setDefault(&o.StatusTTL, time.Second)
	setDefault(&o.UnknownTTL, 5*time.Second)
	setDefault(&o.MaxTopics, 20_000)
	setDefault(&o.MaxTieredPartitions, 200_000)
	setDefault(&o.MaxInFlightSegments, 100_000)
	setDefault(&o.HandshakeTimeout, 10*time.Second)
	if o.Explain == nil {
		o.Explain = func(err error) error { return err }
	}
	if o.ClientID == "" {
		o.ClientID = "tiergate"
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	if o.LookupHost == nil {
		o.LookupHost = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.Own == nil {
		o.Own = func(netip.AddrPort) (string, bool) { return "", false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.BootstrapServers = slices.Clone(o.BootstrapServers)
	return o, o.check()
}

func setDefault[T int | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

func (o Options) check() error {
	var faults []error
	if len(o.BootstrapServers) == 0 {
		faults = append(faults, errors.New("no bootstrap servers: at least one host:port is needed"))
	}
	for _, server := range o.BootstrapServers {
		if _, _, err := splitAddress(server); err != nil {
			faults = append(faults, fmt.Errorf("bootstrap server %w", err))
		}
	}
	for _, topic := range o.TieredTopics {
		if codec.NeverTiered(topic) {
			faults = append(faults, fmt.Errorf("tiered topic %q: Kafka never tiers this internal topic", topic))
		}
	}
	return errors.Join(faults...)
}

// splitAddress takes host:port apart and checks it.
func splitAddress(address string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q: want host:port, and an IPv6 address in brackets", address)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("%q: want host:port with a port from 1 to 65535", address)
	}
	return host, uint16(n), nil
}
