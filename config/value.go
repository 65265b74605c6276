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

// scalar is a value that stands in the file as one piece of text. Implementations are
// pointers to the types of Config.
type scalar interface {
	// parse sets the value. Its error continues a sentence that begins with the value:
	// "has no port; wanted ...".
	parse(text string) error
	// wanted names the form, for a value that is not even text.
	wanted() string
}

// maxFrameSize is the most that the size field of a Kafka frame, an INT32, can say.
const maxFrameSize = math.MaxInt32

const (
	wantHostPort  = `host:port, such as "kafka-0:9092"`
	wantPortRange = `one range host:first-last, such as "127.0.0.1:9200-9209", one port per node`
	wantHost      = `the host that clients connect to, such as kafka.example.com`
	wantDuration  = `a time above zero with its unit, such as 500ms, 10s or 5m`
	wantSize      = `a number of bytes, such as 33554432 or 32MiB (KiB, MiB and GiB are known)`
	wantName      = `letters, digits, ".", "_" and "-", 64 at the most; a number needs quotes`
	wantFile      = `the name of a file, absolute or from the folder of this one`
	wantCertFile  = `a PEM file with the certificate, its intermediates behind it`
	wantKeyFile   = `a PEM file with the key of the certificate, without a passphrase`
	wantText      = `text; a number needs quotes`
	wantEnv       = `the name of an environment variable, such as KAFKA_PASSWORD, and not the password itself`
	wantSecret    = `the name of a file that has the password, and not the password itself`
	wantTopic     = `a topic name: letters, digits, ".", "_" and "-", 249 at the most; a number needs quotes`
)

func (*HostPort) wanted() string { return wantHostPort }

func (a *HostPort) parse(text string) error {
	host, port, err := splitHostPort(text, wantHostPort)
	if err != nil {
		return err
	}
	p, err := parsePort(port)
	if err != nil {
		return fmt.Errorf("%w; wanted %s", err, wantHostPort)
	}
	*a = HostPort{Host: host, Port: p}
	return nil
}

func (*PortRange) wanted() string { return wantPortRange }

func (r *PortRange) parse(text string) error {
	host, ports, err := splitHostPort(text, wantPortRange)
	if err != nil {
		return err
	}
	if strings.Contains(ports, ",") {
		return fmt.Errorf("lists ports; wanted %s", wantPortRange)
	}
	from, to, isRange := strings.Cut(ports, "-")
	if !isRange {
		return fmt.Errorf("names one port; wanted %s (for one node: %s)", wantPortRange,
			net.JoinHostPort(host, ports+"-"+ports))
	}
	first, err := parsePort(from)
	if err != nil {
		return fmt.Errorf("%w; wanted %s", err, wantPortRange)
	}
	last, err := parsePort(to)
	if err != nil {
		return fmt.Errorf("%w; wanted %s", err, wantPortRange)
	}
	if first > last {
		return fmt.Errorf("is reversed; wanted %s", PortRange{Host: host, First: last, Last: first})
	}
	*r = PortRange{Host: host, First: first, Last: last}
	return nil
}

// splitHostPort cuts text at the colon before the port and checks the host. What the
// port has to look like is the caller's matter.
func splitHostPort(text, want string) (host, port string, err error) {
	if scheme, _, ok := strings.Cut(text, "://"); ok {
		return "", "", fmt.Errorf("begins with the scheme %q; wanted %s", scheme+"://", want)
	}
	if i := strings.LastIndex(text, ":"); strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
		if _, err := netip.ParseAddr(text[:i]); err == nil {
			return "", "", fmt.Errorf("has an IPv6 literal without brackets; wanted %q", "["+text[:i]+"]"+text[i:])
		}
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return "", "", fmt.Errorf("has no port; wanted %s", want)
	}
	host, port, err = net.SplitHostPort(text)
	var addrErr *net.AddrError
	switch {
	case errors.As(err, &addrErr) && addrErr.Err == "too many colons in address":
		return "", "", fmt.Errorf(`has too many colons; wanted %s, an IPv6 literal in brackets: "[::1]:9092"`, want)
	case errors.As(err, &addrErr) && addrErr.Err == "missing port in address":
		return "", "", fmt.Errorf("has no port; wanted %s", want)
	case err != nil:
		return "", "", fmt.Errorf("is no address; wanted %s", want)
	case host == "":
		return "", "", fmt.Errorf(`has no host; wanted %s (to listen on every interface: "0.0.0.0" or "[::]")`, want)
	}
	if strings.HasPrefix(text, "[") && !strings.Contains(host, ":") {
		return "", "", fmt.Errorf("has brackets around what is no IPv6 literal; wanted %s", want)
	}
	if err := checkHost(host); err != nil {
		return "", "", fmt.Errorf("%w; wanted %s", err, want)
	}
	return host, port, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("has the port %q, which is no number", text)
	case n == 0:
		return 0, errors.New("has the port 0, which would be another one at every start")
	case n > math.MaxUint16:
		return 0, fmt.Errorf("has the port %s, above 65535", text)
	}
	return uint16(n), nil
}

// checkHost accepts IP literals without brackets and DNS names, with "_" as well,
// which container networks use.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if strings.Contains(host, ":") {
		return fmt.Errorf("has the host %q, which is no IPv6 literal", host)
	}
	if strings.Trim(host, "0123456789.") == "" {
		return fmt.Errorf("has the host %q, which is no IPv4 address", host)
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > 253 {
		return errors.New("has a host longer than 253 characters, more than DNS allows")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			strings.ContainsFunc(label, func(r rune) bool { return r != '-' && !isNameRune(r) }) {
			return fmt.Errorf("has the host %q, which is no DNS name", host)
		}
	}
	return nil
}

// isNameRune says whether r may stand in a DNS label apart from "-".
func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

func (*Host) wanted() string { return wantHost }

func (h *Host) parse(text string) error {
	if text == "" {
		return fmt.Errorf("is empty; wanted %s", wantHost)
	}
	if strings.Contains(text, "://") {
		return fmt.Errorf("begins with a scheme; wanted %s", wantHost)
	}
	bare := text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok && strings.Contains(inner, ":") {
			bare = inner
		}
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("has the zone %q, which means nothing on another machine; wanted %s", addr.Zone(), wantHost)
		}
		*h = Host(bare)
		return nil
	}
	if _, _, err := net.SplitHostPort(text); err == nil {
		return fmt.Errorf("has a port; wanted %s: the ports are those of nodes", wantHost)
	}
	if text == "*" {
		*h = Host(text) // left to validate, which refuses every wildcard with one text
		return nil
	}
	if err := checkHost(text); err != nil {
		return fmt.Errorf("%w; wanted %s", err, wantHost)
	}
	*h = Host(text)
	return nil
}

// isWildcard says whether host means every interface, or nothing, rather than a place.
func isWildcard(host string) bool {
	if host == "*" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.WithZone("").Unmap().IsUnspecified()
}

func (*Name) wanted() string { return wantName }

func (n *Name) parse(text string) error {
	if !isPlainName(text, 64) {
		return fmt.Errorf("is no name; wanted %s", wantName)
	}
	*n = Name(text)
	return nil
}

func (*TopicName) wanted() string { return wantTopic }

// parse checks what org.apache.kafka.common.internals.Topic.validate checks.
func (n *TopicName) parse(text string) error {
	if !isPlainName(text, 249) || text == "." || text == ".." {
		return fmt.Errorf("is no topic name; wanted %s", wantTopic)
	}
	*n = TopicName(text)
	return nil
}

func isPlainName(text string, most int) bool {
	return text != "" && len(text) <= most &&
		!strings.ContainsFunc(text, func(r rune) bool { return r != '.' && r != '-' && !isNameRune(r) })
}

func (*Duration) wanted() string { return wantDuration }

func (d *Duration) parse(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("is no time; wanted %s", wantDuration)
	}
	*d = Duration(parsed)
	return nil
}

var sizeUnits = [...]struct {
	suffix string
	bytes  Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

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
		return fmt.Errorf("is more than any machine has; wanted %s", wantSize)
	}
	if err != nil {
		return fmt.Errorf("is no size; wanted %s", wantSize)
	}
	*s = Size(n) * unit
	return nil
}

func (*PendingUpload) wanted() string { return "auto, metadata_topic, always or off" }

func (p *PendingUpload) parse(text string) error {
	return parseOneOf(p, text, PendingUploadAuto, PendingUploadMetadataTopic, PendingUploadAlways, PendingUploadOff)
}

func (*LogLevel) wanted() string { return "debug, info, warn or error" }

func (l *LogLevel) parse(text string) error {
	return parseOneOf(l, text, LogLevelDebug, LogLevelInfo, LogLevelWarn, LogLevelError)
}

func (*EventLoop) wanted() string { return "gnet or epoll" }

func (e *EventLoop) parse(text string) error {
	return parseOneOf(e, text, EventLoopGnet, EventLoopEpoll)
}

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
	return fmt.Errorf("is not known; wanted %s", s.wanted())
}
