// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"tiergate/codec"
	"tiergate/rewrite"
)

// unhurried is a connection whose peer may sleep for as long as it likes.
type unhurried struct {
	io.Reader
	io.Writer
}

func newUnhurried(c net.Conn) unhurried {
	_ = c.SetDeadline(time.Time{})
	return unhurried{c, c}
}

// readAnswers reads what writeAnswer wrote for as many requests.
func readAnswers(r io.Reader, count int32, n int) error {
	for id := range count {
		head := response(id)
		binary.BigEndian.PutUint32(head, uint32(4+n))
		if err := readHead(r, head); err != nil {
			return err
		}
		if err := readBody(r, n); err != nil {
			return err
		}
	}
	return nil
}

// Large requests and large answers fill one session in both directions while neither
// side reads. It holds what a stalled session may, and when both sides wake up every
// byte is right.
func TestBothSidesAsleep(t *testing.T) {
	const count, size = asleepFrames, asleepSize
	awake := make(chan struct{})
	wake := sync.OnceFunc(func() { close(awake) })
	read := make(chan error, 1)
	b := newBroker(t, func(c *net.TCPConn) {
		_ = c.SetReadBuffer(kernelBuffer)
		slow := newUnhurried(c)
		// The first request comes whole, so that there is something to answer.
		err := readRequest(slow, 0, 0)
		var writer sync.WaitGroup
		writer.Go(func() {
			for id := range int32(count) {
				writeAnswer(slow, id, size)
			}
		})
		<-awake
		for id := int32(1); id < count && err == nil; id++ {
			err = readRequest(slow, id, size)
		}
		read <- err
		writer.Wait()
		silence(c)
	})
	s := newServer(t, b.dial, rewrite.Rules{}, func(o *Options) { o.MaxInflight = 2 * count })
	t.Cleanup(wake)
	conn := connect(t, s)
	_ = conn.SetReadBuffer(kernelBuffer)
	c := newUnhurried(conn)
	mustWrite(t, conn, request(1, 11, 0))
	_ = conn.SetDeadline(time.Time{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for id := int32(1); id < count; id++ {
			head := request(1, 11, id)
			binary.BigEndian.PutUint32(head, uint32(len(head)-codec.SizeLen+size))
			if _, err := c.Write(head); err != nil || writeBody(c, size) != nil {
				t.Errorf("request %d could not be sent (%v)", id, err)
				return
			}
		}
	})
	before := heapInUse()
	awaitOnLoop(t, s, "neither side takes what waits for it", func(l *loop) bool {
		se := only(l)
		return se != nil && se.client.owes() && se.broker.owes() && se.client.readable && se.broker.readable
	})
	<-time.After(asleepTime)
	onLoop(t, s.loops[0], func() {
		if heap, pipes := footprint(only(s.loops[0])); heap > maxFootprint || pipes > 2 {
			t.Errorf("the session holds %d bytes and %d pipes; %d bytes and two pipes are the bound", heap, pipes, maxFootprint)
		}
	})
	if grown := int64(heapInUse()) - int64(before); grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	wake()
	if err := readAnswers(c, count, size); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	sender.Wait()
	conn.Close()
	awaitSessions(t, s, 0)
}
