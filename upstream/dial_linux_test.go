// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDialedSocketOptions(t *testing.T) {
	live := listen(t, "127.0.0.1:0")
	c := newTestCluster(t, Options{BootstrapServers: []string{live.Addr().String()}}, time.Now)
	conn, err := c.DialBootstrap(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*brokerConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []struct {
		name                string
		level, number, want int
	}{
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE, s", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
		{"TCP_KEEPINTVL, s", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
	} {
		var got int
		var sockErr error
		if err := raw.Control(func(fd uintptr) { got, sockErr = unix.GetsockoptInt(int(fd), option.level, option.number) }); err != nil || sockErr != nil {
			t.Fatalf("%s: %v, %v", option.name, err, sockErr)
		}
		if got != option.want {
			t.Errorf("%s is %d, want %d", option.name, got, option.want)
		}
	}
}
