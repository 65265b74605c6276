// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"tiergate/rewrite"
)

// A client whose broker cannot be reached is reset, whether it has sent something or not:
// an end of its direction would read as a wrong configuration.
func TestUnreachableBrokerResetsTheClient(t *testing.T) {
	for _, sends := range []bool{false, true} {
		fail := make(chan struct{})
		s := newServer(t, func(context.Context) (net.Conn, error) {
			<-fail
			return nil, errors.New("nobody there")
		}, rewrite.Rules{})
		c := connect(t, s)
		if sends {
			mustWrite(t, c, request(18, 3, 1))
		}
		close(fail)
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("sends %t: got %d bytes, %v; want %v", sends, n, err, syscall.ECONNRESET)
		}
	}
}

// knock connects to a server whose broker cannot be reached, and reads until it is cut
// off. The reset may come so soon that connecting fails.
func knock(t *testing.T, s *Server) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr(0).String())
	if err != nil {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	_ = ending(t, c)
}
