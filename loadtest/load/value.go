// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tiergate/internal/strictyaml"
)

const (
	wantDuration = "a time with its unit, such as 500ms, 10s or 2h"
	wantSize     = "bytes, or a number with KiB, MiB or GiB behind it"
)

// Duration is a time as Go writes it.
type Duration time.Duration

func (d *Duration) parse(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("is no time; wanted %s", wantDuration)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// Size is a number of bytes.
type Size int64

func (b *Size) parse(s string) error {
	digits, unit := s, int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if cut, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = strings.TrimSuffix(cut, " "), u.bytes
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 0 || v > 1<<50/unit {
		return fmt.Errorf("is no size; wanted %s", wantSize)
	}
	*b = Size(v * unit)
	return nil
}

// String writes the size with the largest unit that divides it.
func (b Size) String() string {
	for _, u := range []struct {
		suffix string
		bytes  Size
	}{{" GiB", 1 << 30}, {" MiB", 1 << 20}, {" KiB", 1 << 10}} {
		if b >= u.bytes && b%u.bytes == 0 {
			return strconv.FormatInt(int64(b/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// oneOf sets into to s if that is one of known.
func oneOf[T ~string](into *T, s string, known ...T) error {
	if slices.Contains(known, T(s)) {
		*into = T(s)
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	if meant := strictyaml.Nearest(s, names); meant != "" {
		return fmt.Errorf("is not known; did you mean %q?", meant)
	}
	return fmt.Errorf("is not known; wanted one of %s", strings.Join(names, ", "))
}

// ClusterKind says where brokers come from.
type ClusterKind string

// The kinds of clusters.
const (
	ClusterReal     ClusterKind = "real"     // started from the launcher, loadtest/kafka
	ClusterSim      ClusterKind = "sim"      // in this process, internal/testkit/sim
	ClusterExisting ClusterKind = "existing" // at an address of the user's
)

func (k *ClusterKind) parse(s string) error {
	return oneOf(k, s, ClusterReal, ClusterSim, ClusterExisting)
}

// TargetKind is what stands between clients and brokers.
type TargetKind string

// The kinds of targets; report.TargetKind has the same words.
const (
	TargetDirect   TargetKind = "direct"
	TargetTiergate TargetKind = "tiergate"
	TargetHAProxy  TargetKind = "haproxy"
	TargetNginx    TargetKind = "nginx"
	TargetExternal TargetKind = "external"
)

func (k *TargetKind) parse(s string) error {
	return oneOf(k, s, TargetDirect, TargetTiergate, TargetHAProxy, TargetNginx, TargetExternal)
}

// Mode is how tiergate stands before brokers.
type Mode string

// The modes.
const (
	ModeRewrite Mode = "rewrite" // an address of its own, broker addresses are rewritten
	ModeDirect  Mode = "direct"  // at the address that the broker advertises
)

func (m *Mode) parse(s string) error { return oneOf(m, s, ModeRewrite, ModeDirect) }

// WorkloadKind is what clients do.
type WorkloadKind string

// The kinds of workloads.
const (
	WorkloadProduce        WorkloadKind = "produce"
	WorkloadConsume        WorkloadKind = "consume"
	WorkloadProduceConsume WorkloadKind = "produce-consume"
	WorkloadCatchUp        WorkloadKind = "catch-up"
	WorkloadGroupChurn     WorkloadKind = "group-churn"
	WorkloadConnections    WorkloadKind = "connections"
	WorkloadAdmin          WorkloadKind = "admin"
	WorkloadPendingUpload  WorkloadKind = "pending-upload"
	WorkloadTiering        WorkloadKind = "tiering-changes"
)

func (k *WorkloadKind) parse(s string) error {
	return oneOf(k, s, WorkloadProduce, WorkloadConsume, WorkloadProduceConsume, WorkloadCatchUp, WorkloadGroupChurn,
		WorkloadConnections, WorkloadAdmin, WorkloadPendingUpload, WorkloadTiering)
}

// Acks is how many replicas must have a record before it counts as sent.
type Acks string

// The acks, in the words of Kafka's producers.
const (
	AcksAll    Acks = "all"
	AcksLeader Acks = "leader"
	AcksNone   Acks = "none"
)

func (a *Acks) parse(s string) error { return oneOf(a, s, AcksAll, AcksLeader, AcksNone) }

// Compression of batches.
type Compression string

// The codecs.
const (
	CompressionNone   Compression = "none"
	CompressionGzip   Compression = "gzip"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
)

func (c *Compression) parse(s string) error {
	return oneOf(c, s, CompressionNone, CompressionGzip, CompressionSnappy, CompressionLZ4, CompressionZstd)
}

// Side says which connections of a target a fault is for.
type Side string

// The sides.
const (
	SideClients Side = "clients" // between clients and the target
	SideBrokers Side = "brokers" // between the target and the brokers
)

func (x *Side) parse(s string) error { return oneOf(x, s, SideClients, SideBrokers) }
