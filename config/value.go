// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// scalar is a value that a file gives as one piece of text. Implementations are pointers to
// the types of Config.
type scalar interface {
	// parse sets the value. Its error follows `invalid <kind> "<text>": `.
	parse(text string) error
	// kind is the word for such a value in an error, such as duration.
	kind() string
	// wanted is the accepted form, as it follows "want ".
	wanted() string
}

// maxFrameSize is the largest value of the size field of a Kafka frame, an INT32.
const maxFrameSize = math.MaxInt32

const (
	wantHostPort     = `host:port, e.g. "kafka-0:9092"`
	wantPortRange    = `one range host:first-last, one port per node, e.g. "127.0.0.1:9200-9209"`
	wantHost         = `the host that clients connect to, e.g. kafka.example.com`
	wantDuration     = `a positive value with a unit, e.g. 500ms, 10s or 5m`
	wantSize         = `a number of bytes, plain or with KiB, MiB or GiB, e.g. 33554432 or 32MiB`
	wantPositiveSize = `a positive number of bytes, plain or with KiB, MiB or GiB, e.g. 33554432 or 32MiB`
	wantName         = `at most 64 letters, digits, ".", "_" and "-" (quote a number)`
	wantFile         = `a file name, absolute or relative to the folder of this file`
	wantCertFile     = `a PEM file with the certificate, followed by its intermediates`
	wantKeyFile      = `a PEM file with the private key of the certificate, without a passphrase`
	wantText         = `text that is not empty (quote a number)`
	wantEnv          = `the name of an environment variable, e.g. KAFKA_PASSWORD, not the password itself`
	wantSecret       = `the name of a file that contains the password, not the password itself`
	wantTopic        = `at most 249 letters, digits, ".", "_" and "-" (quote a number)`
)

func (*HostPort) kind() string { return "address" }

func (*HostPort) wanted() string { return wantHostPort }

func (a *HostPort) parse(text string) error {
	host, port, err := splitHostPort(text, wantHostPort)
	if err != nil {
		return err
	}
	p, err := parsePort(port)
	if err != nil {
		return fmt.Errorf("%w; want %s", err, wantHostPort)
	}
	*a = HostPort{Host: host, Port: p}
	return nil
}

func (*PortRange) kind() string { return "port range" }

func (*PortRange) wanted() string { return wantPortRange }

func (r *PortRange) parse(text string) error {
	host, ports, err := splitHostPort(text, wantPortRange)
	if err != nil {
		return err
	}
	if strings.Contains(ports, ",") {
		return fmt.Errorf("found a list of ports; want %s", wantPortRange)
	}
	from, to, isRange := strings.Cut(ports, "-")
	if !isRange {
		return fmt.Errorf("found one port; want %s (for one node: %s)", wantPortRange,
			net.JoinHostPort(host, ports+"-"+ports))
	}
	first, err := parsePort(from)
	if err != nil {
		return fmt.Errorf("%w; want %s", err, wantPortRange)
	}
	last, err := parsePort(to)
	if err != nil {
		return fmt.Errorf("%w; want %s", err, wantPortRange)
	}
	if first > last {
		return fmt.Errorf("the range is reversed; want %s", PortRange{Host: host, First: last, Last: first})
	}
	*r = PortRange{Host: host, First: first, Last: last}
	return nil
}

// splitHostPort cuts text at the colon in front of the port and checks the host. The caller
// checks the port.
func splitHostPort(text, want string) (host, port string, err error) {
	if scheme, _, ok := strings.Cut(text, "://"); ok {
		return "", "", fmt.Errorf("found the scheme %q; want %s", scheme+"://", want)
	}
	if i := strings.LastIndex(text, ":"); strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
		if _, err := netip.ParseAddr(text[:i]); err == nil {
			return "", "", fmt.Errorf("IPv6 address without brackets; want %q", "["+text[:i]+"]"+text[i:])
		}
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return "", "", fmt.Errorf("missing port; want %s", want)
	}
	host, port, err = net.SplitHostPort(text)
	var addrErr *net.AddrError
	switch {
	case errors.As(err, &addrErr) && addrErr.Err == "too many colons in address":
		return "", "", fmt.Errorf(`too many colons; want %s, with an IPv6 address in brackets, e.g. "[::1]:9092"`, want)
	case errors.As(err, &addrErr) && addrErr.Err == "missing port in address":
		return "", "", fmt.Errorf("missing port; want %s", want)
	case err != nil:
		return "", "", fmt.Errorf("want %s", want)
	case host == "":
		return "", "", fmt.Errorf(`missing host; want %s (to listen on every interface: "0.0.0.0" or "[::]")`, want)
	}
	if strings.HasPrefix(text, "[") && !strings.Contains(host, ":") {
		return "", "", fmt.Errorf("only an IPv6 address can be in brackets; want %s", want)
	}
	if err := checkHost(host); err != nil {
		return "", "", fmt.Errorf("%w; want %s", err, want)
	}
	return host, port, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("port %q is not a number", text)
	case n == 0:
		return 0, errors.New("port 0 would be a different port at every start")
	case n > math.MaxUint16:
		return 0, fmt.Errorf("port %s is above 65535", text)
	}
	return uint16(n), nil
}

// checkHost accepts IP literals without brackets, and DNS names. Container networks use "_"
// in them.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if strings.Contains(host, ":") {
		return fmt.Errorf("host %q is not an IPv6 address", host)
	}
	if strings.Trim(host, "0123456789.") == "" {
		return fmt.Errorf("host %q is not an IPv4 address", host)
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > 253 {
		return errors.New("the host is longer than 253 characters, the maximum of DNS")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			strings.ContainsFunc(label, func(r rune) bool { return r != '-' && !isNameRune(r) }) {
			return fmt.Errorf("host %q is not a DNS name", host)
		}
	}
	return nil
}

// isNameRune reports whether r is allowed in a DNS label, apart from "-".
func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

func (*Host) kind() string { return "host" }

func (*Host) wanted() string { return wantHost }

func (h *Host) parse(text string) error {
	if text == "" {
		return fmt.Errorf("want %s", wantHost)
	}
	if strings.Contains(text, "://") {
		return fmt.Errorf("found a scheme; want %s", wantHost)
	}
	bare := text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok && strings.Contains(inner, ":") {
			bare = inner
		}
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("zone %q has no meaning on other machines; want %s", addr.Zone(), wantHost)
		}
		*h = Host(bare)
		return nil
	}
	if _, _, err := net.SplitHostPort(text); err == nil {
		return fmt.Errorf("found a port; want %s (the ports are those of nodes)", wantHost)
	}
	if text == "*" {
		*h = Host(text) // validate rejects every wildcard with one text
		return nil
	}
	if err := checkHost(text); err != nil {
		return fmt.Errorf("%w; want %s", err, wantHost)
	}
	*h = Host(text)
	return nil
}

// isWildcard reports whether host means every interface, or nothing, so that nobody can connect
// to it.
func isWildcard(host string) bool {
	if host == "*" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.WithZone("").Unmap().IsUnspecified()
}

func (*Name) kind() string { return "name" }

func (*Name) wanted() string { return wantName }

func (n *Name) parse(text string) error {
	if !isPlainName(text, 64) {
		return fmt.Errorf("want %s", wantName)
	}
	*n = Name(text)
	return nil
}

func (*TopicName) kind() string { return "topic name" }

func (*TopicName) wanted() string { return wantTopic }

// parse makes the checks of org.apache.kafka.common.internals.Topic.validate.
func (n *TopicName) parse(text string) error {
	if !isPlainName(text, 249) || text == "." || text == ".." {
		return fmt.Errorf("want %s", wantTopic)
	}
	*n = TopicName(text)
	return nil
}

func isPlainName(text string, most int) bool {
	return text != "" && len(text) <= most &&
		!strings.ContainsFunc(text, func(r rune) bool { return r != '.' && r != '-' && !isNameRune(r) })
}

func (*Duration) kind() string { return "duration" }

func (*Duration) wanted() string { return wantDuration }

func (d *Duration) parse(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("want %s", wantDuration)
	}
	*d = Duration(parsed)
	return nil
}

var sizeUnits = [...]struct {
	suffix string
	bytes  Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func (*Size) kind() string { return "size" }

func (*Size) wanted() string { return wantSize }

func (s *Size) parse(text string) error {
	digits, unit := text, Size(1)
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = strings.TrimSuffix(before, " "), u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && (n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit)) {
		return fmt.Errorf("too large; want %s", wantSize)
	}
	if err != nil {
		return fmt.Errorf("want %s", wantSize)
	}
	*s = Size(n) * unit
	return nil
}

func (*PendingUpload) kind() string { return "value" }

func (*PendingUpload) wanted() string { return "auto, metadata_topic, always or off" }

func (p *PendingUpload) parse(text string) error {
	return parseOneOf(p, text, PendingUploadAuto, PendingUploadMetadataTopic, PendingUploadAlways, PendingUploadOff)
}

func (*LogLevel) kind() string { return "value" }

func (*LogLevel) wanted() string { return "debug, info, warn or error" }

func (l *LogLevel) parse(text string) error {
	return parseOneOf(l, text, LogLevelDebug, LogLevelInfo, LogLevelWarn, LogLevelError)
}

func (*EventLoop) kind() string { return "value" }

func (*EventLoop) wanted() string { return "gnet or epoll" }

func (e *EventLoop) parse(text string) error {
	return parseOneOf(e, text, EventLoopGnet, EventLoopEpoll)
}

func (*LogFormat) kind() string { return "value" }

func (*LogFormat) wanted() string { return "text or json" }

func (f *LogFormat) parse(text string) error {
	return parseOneOf(f, text, LogFormatText, LogFormatJSON)
}

func parseOneOf[T ~string](into *T, text string, known ...T) error {
	for _, k := range known {
		if text == string(k) {
			*into = k
			return nil
		}
	}
	s, _ := any(into).(scalar)
	return fmt.Errorf("want %s", s.wanted())
}
