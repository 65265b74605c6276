// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package abuse

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tiergate/codec"
	"tiergate/internal/testkit/authority"
	"tiergate/loadtest/bench"
	"tiergate/loadtest/gate"
	"tiergate/loadtest/kafka"
)

// proxyHeader is what a balancer sends in front of a well-behaved client.
const proxyHeader = "PROXY TCP4 127.0.0.1 127.0.0.1 40000 9092\r\n"

// scene is a cluster with a proxy in front of it.
type scene struct {
	attack  attack
	folder  string
	cluster []*broker
	process *kafka.Process
	gate    *gate.Gate // of process; nil for HAProxy
	// address is where clients connect to node 0, second the same for node 1.
	address, second, admin string
	clients                way
	// logs is a full pipe that nobody reads, or nil.
	logs *os.File
	// connections that the attack has opened, large responses that it has read, and those
	// instead of which the connection was closed.
	connections, responses, refused atomic.Int64
}

// set starts the brokers of an attack and the proxy in front of them.
func set(ctx context.Context, o Options, a attack, target string) (*scene, error) {
	s := &scene{attack: a, folder: filepath.Join(o.Folder, slug(a.name)+"-"+target)}
	if err := os.MkdirAll(s.folder, 0o750); err != nil {
		return nil, err
	}
	ports, err := kafka.FreePorts(5)
	if err == nil {
		s.address, s.second, s.admin = kafka.Loopback(ports[1]), kafka.Loopback(ports[2]), kafka.Loopback(ports[4])
		s.clients.address = s.address
		err = s.startBrokers()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	if target == TargetHAProxy {
		err = s.startHAProxy(ctx)
	} else {
		err = s.startTiergate(ctx, o.Binary, ports)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("%s: start %s: %w", a.name, target, err)
	}
	return s, nil
}

// slug is a name for a folder.
func slug(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" ,", r) }), "-")
}

// close ends what runs.
func (s *scene) close() {
	if s.process != nil {
		s.process.Kill()
	}
	for _, b := range s.cluster {
		b.close()
	}
	if s.logs != nil {
		s.logs.Close()
	}
}

func (s *scene) startBrokers() error {
	var addresses []string
	for id := range 2 {
		b := &broker{script: s.attack.broker, mute: id == 1}
		if err := b.listen(); err != nil {
			return err
		}
		s.cluster = append(s.cluster, b)
		addresses = append(addresses, b.address())
	}
	switch {
	case s.attack.broker.selfDial:
		addresses[1] = s.second
	case !s.attack.broker.second:
		addresses = addresses[:1]
	}
	for _, b := range s.cluster {
		b.addresses = addresses
		if asked := s.attack.broker.asked; asked != nil {
			if _, _, err := b.response(asked[codec.SizeLen:]); err != nil { // kept from here on
				return err
			}
		}
		b.serve()
	}
	return nil
}

func (s *scene) startHAProxy(ctx context.Context) (err error) {
	s.process, err = bench.Relay{
		Peer: bench.PeerHAProxy, Listen: s.address, Broker: s.cluster[0].address(), Threads: runtime.NumCPU(), Folder: s.folder, Stderr: io.Discard,
	}.Start(ctx)
	return err
}

func (s *scene) startTiergate(ctx context.Context, binary string, ports []int) error {
	listener, err := s.prepareClients()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`upstream:
  bootstrap_servers: [%q]
listeners:
  - name: clients
    bootstrap: %q
    nodes: "127.0.0.1:%d-%d"
    advertised_host: "127.0.0.1"
    %s
limits:
  drain_timeout: %v
  max_buffered_bytes: %d
  %s
`, s.cluster[0].address(), kafka.Loopback(ports[0]), ports[1], ports[3], listener, drainTimeout, s.attack.buffered(), s.attack.limits)
	o := gate.Options{Binary: binary, Folder: s.folder, Config: config, Admin: s.admin, MaxFiles: s.attack.files}
	if s.attack.stalled {
		if o.Stderr, err = s.openPipe(); err != nil {
			return err
		}
		defer o.Stderr.Close()
	}
	if s.gate, err = gate.Start(ctx, o); err != nil {
		return err
	}
	s.process = s.gate.Process()
	if s.logs == nil {
		return nil
	}
	_ = s.logs.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := s.logs.Write(make([]byte, 16*mib)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the pipe of the log is not full: %w", err)
	}
	return nil
}

// openPipe makes the pipe of the log, and returns its end for tiergate. That end has a file
// description of its own, so that ours alone is non-blocking.
func (s *scene) openPipe() (*os.File, error) {
	name := filepath.Join(s.folder, "stderr")
	if err := unix.Mkfifo(name, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	var err error
	if s.logs, err = os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY, 0)
}

// prepareClients makes clients use the listener as the attack wants it, and returns its keys.
func (s *scene) prepareClients() (string, error) {
	if s.attack.listener != "" {
		s.clients.first = proxyHeader
	}
	if !s.attack.tls {
		return s.attack.listener, nil
	}
	pair, err := authority.SelfSigned(authority.Leaf{Name: "tiergate", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Certificate)
	s.clients.tls = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
	file := filepath.Join(s.folder, "tiergate.pem")
	return fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", file, file), os.WriteFile(file, pair.Keystore(), 0o600)
}

// attackers keeps n connections to address open until ctx ends. Each is given to f with
// its number, is closed when f returns, and is followed by the next one after pause. The
// first ones are spread over one pause.
func (s *scene) attackers(ctx context.Context, address string, n int, pause time.Duration, f func(ctx context.Context, i int, c *net.TCPConn)) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 5 * time.Second}
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for ok := wait(ctx, pause*time.Duration(i)/time.Duration(n)); ok; ok = wait(ctx, pause) {
				c, err := d.DialContext(ctx, "tcp4", address)
				if err != nil {
					continue
				}
				s.connections.Add(1)
				stop := context.AfterFunc(ctx, func() { c.Close() })
				f(ctx, i, c.(*net.TCPConn))
				stop()
				c.Close()
			}
		})
	}
	running.Wait()
}

// untilClosed waits until the proxy closes the connection, and reads what comes before.
func untilClosed(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
