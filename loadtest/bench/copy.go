// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// ServeCopy is the simplest proxy in Go: two goroutines with io.Copy for each client,
// which splice where both ends are plain TCP. config is nil without TLS. It ends when
// the listener does.
func ServeCopy(listener net.Listener, broker string, config *tls.Config) error {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		if config != nil {
			client = tls.Server(client, config)
		}
		go copyBoth(client, broker)
	}
}

// copyBoth joins a client with the broker until one of them ends.
func copyBoth(client net.Conn, broker string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", broker)
	if err != nil {
		return
	}
	defer upstream.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
		go func() {
			// How a connection ends is of no interest here.
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
