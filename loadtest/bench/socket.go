// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is a level-triggered epoll.
type poller struct {
	fd     int
	events []unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &poller{fd: fd, events: make([]unix.EpollEvent, 256)}, nil
}

// watch sets the events of fd, which is new or known.
func (p *poller) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait returns what is ready within timeout milliseconds; nothing at EINTR.
func (p *poller) wait(timeout int) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events, timeout)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("epoll wait: %w", err)
	}
	return p.events[:n], nil
}

// loopback turns "127.0.0.1:9092" into what the kernel takes.
func loopback(address string) (*unix.SockaddrInet4, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Is4() {
		return nil, fmt.Errorf("%q is no IPv4 address with a port", address)
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
}

// dial connects to address and returns a non-blocking socket without delay. Closing it
// resets the connection, so that thousands of them leave nothing in TIME_WAIT.
func dial(address string) (int, error) {
	to, err := loopback(address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Connect(fd, to),
		unix.SetNonblock(fd, true),
	)
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", address, err)
	}
	return fd, nil
}

// listen opens a non-blocking listening socket on a free port of 127.0.0.1.
func listen() (fd int, address string, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, "", fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 4096))
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, "", fmt.Errorf("listen: %w", err)
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port), nil
}

// errBlocked says that a socket gives or takes nothing now; errEnded that the peer has
// ended the connection.
var (
	errBlocked = errors.New("would block")
	errEnded   = errors.New("the peer ended the connection")
)

// moved sorts the outcome of a read or write.
func moved(n uintptr, errno unix.Errno) (int, error) {
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, errBlocked
	case errno != 0:
		return 0, errno
	default:
		return int(n), nil
	}
}

// receive reads into p.
func receive(fd int, p []byte) (int, error) { return received(recv(fd, p, 0)) }

// discard drops up to len(p) bytes that have arrived. The kernel copies nothing and
// leaves p alone (tcp(7), MSG_TRUNC).
func discard(fd int, p []byte) (int, error) { return received(recv(fd, p, unix.MSG_TRUNC)) }

func received(n int, err error) (int, error) {
	if n == 0 && err == nil {
		return 0, errEnded
	}
	return n, err
}

func recv(fd int, p []byte, flags uintptr) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
	return moved(n, errno)
}

// send writes two pieces, of which the second may be empty, in one system call.
func send(fd int, first, second []byte) (int, error) {
	var pieces [2]unix.Iovec
	n := 0
	for _, p := range [][]byte{first, second} {
		if len(p) > 0 {
			pieces[n].Base = unsafe.SliceData(p)
			pieces[n].SetLen(len(p))
			n++
		}
	}
	sent, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&pieces)), uintptr(n))
	return moved(sent, errno)
}
