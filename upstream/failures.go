// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
	// manyFailures is the number of remembered addresses from which on those are
	// dropped that nobody has dialed for forgetAfter: brokers of the past.
	manyFailures = 256
	forgetAfter  = time.Minute
)

// failures remembers for a short time which addresses could not be reached.
//
// Why: when a broker goes down, all its clients reconnect at once and again and
// again, each through a session that dials. Without memory each dial to a host that
// answers nothing holds a descriptor and a goroutine for a whole DialTimeout, and the
// service client and the bootstrap race run into the same wall one by one. With it:
//   - an address that has failed is refused from memory for 100 ms, doubled with every
//     failure up to 1 s: at most a second passes before a broker that is back is tried;
//   - after that one dial goes out as a probe, and those that come meanwhile share its
//     failure, or dial too once it has succeeded: one SYN a second, not thousands;
//   - an address without a failure is dialed freely, and success forgets everything.
//
// Dials that the caller called off, or that this machine lacked something for, say nothing
// about the address. What is not dialed at all, since it is this process's own, costs
// nothing either.
type failures struct {
	now func() time.Time

	mu        sync.Mutex
	byAddress map[string]*failure
}

type failure struct {
	pause time.Duration
	until time.Time     // refused from memory before this
	err   error         // why
	probe chan struct{} // not nil while one dial tries again; closed when it has ended
}

func newFailures(now func() time.Time) *failures {
	return &failures{now: now, byAddress: make(map[string]*failure)}
}

// guard dials address, or refuses to.
func (f *failures) guard(ctx context.Context, address string, dial func() (net.Conn, error)) (net.Conn, dialResult, error) {
	var mine chan struct{} // not nil: this dial is the probe
	for {
		other, own, err := f.admit(address)
		if err != nil {
			return nil, dialRemembered, err
		}
		if other == nil {
			mine = own
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, dialGaveUp, fmt.Errorf("%s: %w", address, ctx.Err())
		}
	}
	defer f.endProbe(address, mine)
	conn, err := dial()
	switch {
	case err == nil:
		f.forget(address)
		return conn, dialConnected, nil
	case ctx.Err() != nil:
		return nil, dialGaveUp, err
	case isReported(err):
		return nil, dialOwn, err
	case isShortage(err):
		return nil, dialShortage, err
	default:
		f.remember(address, err)
		return nil, dialFailed, err
	}
}

// admit returns an error when address is refused from memory, other when another
// dial probes it and is to be waited for; else the caller shall dial, and end the
// probe own if that is not nil.
func (f *failures) admit(address string) (other <-chan struct{}, own chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, ok := f.byAddress[address]
	switch {
	case !ok:
		return nil, nil, nil
	case f.now().Before(failed.until):
		return nil, nil, fmt.Errorf("%w (remembered for %v)", failed.err, failed.pause)
	case failed.probe != nil:
		return failed.probe, nil, nil
	default:
		failed.probe = make(chan struct{})
		return nil, failed.probe, nil
	}
}

// forget is called when address was reached.
func (f *failures) forget(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byAddress, address)
}

// endProbe wakes those who wait for the probe own of address. They ask again.
func (f *failures) endProbe(address string, own chan struct{}) {
	if own == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if failed, ok := f.byAddress[address]; ok && failed.probe == own {
		failed.probe = nil
	}
	close(own)
}

// remember is called when address could not be reached.
func (f *failures) remember(address string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	failed, ok := f.byAddress[address]
	switch {
	case !ok:
		f.prune(now)
		failed = &failure{pause: firstPause}
		f.byAddress[address] = failed
	case now.Before(failed.until):
		return // one of many dials that began before the first of them failed
	default:
		failed.pause = min(2*failed.pause, maxPause)
	}
	failed.until, failed.err = now.Add(failed.pause), err
}

// prune keeps the addresses of brokers that are no more from piling up. f.mu is held.
func (f *failures) prune(now time.Time) {
	if len(f.byAddress) < manyFailures {
		return
	}
	for address, failed := range f.byAddress {
		if failed.probe == nil && now.Sub(failed.until) > forgetAfter {
			delete(f.byAddress, address)
		}
	}
}

// recent returns why addresses could not be reached lately, sorted by address, at
// most limit of them.
func (f *failures) recent(limit int) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addresses []string
	for address, failed := range f.byAddress {
		if f.now().Sub(failed.until) < forgetAfter {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	var errs []error
	for _, address := range addresses[:min(limit, len(addresses))] {
		errs = append(errs, f.byAddress[address].err)
	}
	return errs
}
