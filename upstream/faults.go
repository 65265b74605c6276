// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Own says whether this process listens on an address itself. A connection to such an
// address leads back into tiergate, and from there to the same address again, until no
// descriptor is left: it is not dialed. Where clients of the same cluster are passed from
// that address to one broker (a direct listener), route is that broker, host:port, and is
// dialed instead. It is called concurrently, with every address that a name resolves to.
type Own func(at netip.AddrPort) (route string, own bool)

// withoutRoutes is own for an address that a route led to: a second route is a circle.
func (own Own) withoutRoutes(at netip.AddrPort) (string, bool) {
	_, is := own(at)
	return "", is
}

// ownAddressError is a dial that would have led back into this process.
type ownAddressError struct{}

func (ownAddressError) Error() string { return "tiergate itself listens on this address" }

// LocalShortage reports whether this machine, and not the broker, is why every attempt
// failed.
func (e *dialError) LocalShortage() bool {
	return !slices.ContainsFunc(e.tried, func(a attempt) bool { return !localShortage(a.err) })
}

// Reported reports whether the log has said already that tiergate's own address is not
// dialed, and nothing else went wrong.
func (e *dialError) Reported() bool {
	return !slices.ContainsFunc(e.tried, func(a attempt) bool { return !errors.As(a.err, new(ownAddressError)) })
}

// LocalShortage reports whether it is why all of them failed.
func (l *errorList) LocalShortage() bool { return all(l.errs, isShortage) }

// Reported reports whether the log has said all of them already.
func (l *errorList) Reported() bool { return all(l.errs, isReported) }

func all(errs []error, is func(error) bool) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !is(err) })
}

func isShortage(err error) bool {
	var says interface{ LocalShortage() bool }
	return errors.As(err, &says) && says.LocalShortage()
}

func isReported(err error) bool {
	var says interface{ Reported() bool }
	return errors.As(err, &says) && says.Reported()
}

// shortages are what the kernel says when this machine lacks something for one more
// connection: a descriptor of the process or of the machine, a local port towards the
// broker's address (connect(2), EADDRNOTAVAIL), memory.
var shortages = []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}

func localShortage(err error) bool {
	var resolving *net.DNSError // keeps only the text of what went wrong with its sockets
	text := errors.As(err, &resolving)
	return slices.ContainsFunc(shortages, func(s error) bool {
		return errors.Is(err, s) || text && strings.Contains(resolving.Err, s.Error())
	})
}

// maxNoted bounds the addresses in memory that a line was logged for: brokers may
// advertise ever new ones.
const maxNoted = 1000

// noted are addresses that a line was logged for.
type noted struct {
	mu sync.Mutex
	at map[string]struct{}
}

// first reports whether address is new. The first maxNoted are.
func (n *noted) first(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.at[address]; known || len(n.at) >= maxNoted {
		return false
	}
	if n.at == nil {
		n.at = map[string]struct{}{}
	}
	n.at[address] = struct{}{}
	return true
}
