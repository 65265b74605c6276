// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
)

// How long a -6 request of many partitions holds its loop: what a task that is posted
// meanwhile waits at the most, beside the same without such a request.
func BenchmarkLoopHeldByLookup(b *testing.B) {
	for _, n := range []int{1, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("%d partitions", n), func(b *testing.B) {
			longest := time.Duration(0)
			for range b.N {
				longest = max(longest, loopHeld(b, n))
			}
			b.ReportMetric(float64(longest)/float64(time.Millisecond), "ms-held-at-most")
		})
	}
}

// loopHeld sends one such request and returns the longest time that a posted task waited.
func loopHeld(b *testing.B, n int) (longest time.Duration) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			_, _ = c.Write(respondToLookup(frame))
		}
	}()
	s, err := New(Options{Loops: 1, EventLoop: eventLoop(), Endpoints: []Endpoint{{
		Address: "127.0.0.1:0", RemoteStorage: noRemoteStorage{}, Rules: rewrite.Rules{},
		Dial: (&broker{listener: ln}).dial,
	}}, MaxUnauthenticatedBytes: 32 << 20})
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("tcp", s.Addr(0).String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		_, _ = c.Write(request(apiVersionsKey, 3, 1, 0, 1, 1, 0))
		_, _ = readFrame(c)
		_, _ = c.Write(pendingRequest(2, n))
		size := make([]byte, codec.SizeLen)
		if _, err := io.ReadFull(c, size); err == nil {
			_, _ = io.CopyN(io.Discard, c, int64(codec.Size(size)))
		}
	}()
	pause := time.NewTicker(100 * time.Microsecond)
	defer pause.Stop()
	for !over.Load() {
		ran := make(chan struct{})
		began := time.Now()
		s.loops[0].post(func() { close(ran) })
		<-ran
		longest = max(longest, time.Since(began))
		<-pause.C
	}
	return longest
}
