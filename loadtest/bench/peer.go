// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tiergate/loadtest/kafka"
)

// Names of the peers, in the order of a first round. direct is no proxy: clients talk to
// the server.
const (
	PeerDirect   = "direct"
	PeerTiergate = "tiergate"
	// PeerEpoll is tiergate with its own event loop instead of gnet's.
	PeerEpoll   = "tiergate-epoll"
	PeerHAProxy = "haproxy"
	PeerNginx   = "nginx"
	PeerCopy    = "io.Copy"
)

// PeerNames returns all peers.
func PeerNames() []string {
	return []string{PeerDirect, PeerTiergate, PeerEpoll, PeerHAProxy, PeerNginx, PeerCopy}
}

// setting is what a peer needs to know to serve a workload.
type setting struct {
	// self is the program that runs: some peers are sub-commands of it.
	self string
	// broker is where the server listens.
	broker string
	// threads is how many threads that move bytes a proxy may have.
	threads int
	// folder is for configurations and logs.
	folder   string
	workload Workload
	cert     certificate
	// profile is a file for tiergate's CPU profile, or empty.
	profile string
	// stderr takes what the peers say.
	stderr io.Writer
}

// running is a peer that serves. process is nil for direct.
type running struct {
	name    string
	address string
	process *kafka.Process
	// metrics asks a tiergate what its loops have counted; nil for other peers.
	metrics *dialogue
}

// pids returns the processes that are the peer.
func (r *running) pids() ([]int, error) {
	if r.process == nil {
		return nil, nil
	}
	return family(r.process.PID())
}

func (r *running) stop(ctx context.Context) error {
	if r.process == nil {
		return nil
	}
	defer r.metrics.close()
	return r.process.Terminate(ctx)
}

// missing says that a peer is not installed.
type missing struct {
	peer, install string
}

func (m *missing) Error() string {
	return fmt.Sprintf("%s is missing: install it with \"apt-get install %s\" (the service need not run)", m.peer, m.install)
}

// find checks that the program of a peer is there.
func find(peer string) error {
	var err error
	switch peer {
	case PeerHAProxy:
		_, err = exec.LookPath("haproxy")
		if err != nil {
			return &missing{peer, "haproxy"}
		}
	case PeerNginx:
		_, err = nginxProgram()
	}
	return err
}

// start starts a peer and waits until it accepts connections.
func start(ctx context.Context, peer string, s setting) (*running, error) {
	if peer == PeerDirect {
		return &running{name: peer, address: s.broker}, nil
	}
	ports, err := kafka.FreePorts(1)
	if err != nil {
		return nil, err
	}
	return startAt(ctx, peer, kafka.Loopback(ports[0]), s)
}

// startAt is start at an address that the caller chose.
func startAt(ctx context.Context, peer, address string, s setting) (*running, error) {
	var cmd *exec.Cmd
	var err error
	switch peer {
	case PeerTiergate:
		cmd = exec.Command(s.self, append(s.serve("serve-tiergate", address), s.profiling()...)...)
	case PeerEpoll:
		cmd = exec.Command(s.self, append(s.serve("serve-tiergate", address), "--event-loop=epoll")...)
	case PeerCopy:
		cmd = exec.Command(s.self, s.serve("serve-copy", address)...)
	case PeerHAProxy:
		cmd, err = haproxy(s, address)
	case PeerNginx:
		cmd, err = nginx(s, address)
	default:
		return nil, fmt.Errorf("there is no peer %q", peer)
	}
	if err != nil {
		return nil, err
	}
	cmd.Stderr = s.stderr
	var metrics *dialogue
	if peer == PeerTiergate || peer == PeerEpoll {
		var given []*os.File
		if metrics, given, err = attach(cmd); err != nil {
			return nil, err
		}
		for _, f := range given {
			defer f.Close()
		}
	}
	process, err := kafka.StartProcess(cmd)
	if err != nil {
		metrics.close()
		return nil, fmt.Errorf("start %s: %w", peer, err)
	}
	r := &running{name: peer, address: address, process: process, metrics: metrics}
	if err = errors.Join(awaitPort(ctx, r), awaitWorkers(ctx, r, s)); err != nil {
		process.Kill()
		metrics.close()
		return nil, fmt.Errorf("start %s: %w", peer, err)
	}
	return r, nil
}

// serve is the command line of a peer that is a sub-command of ours.
func (s setting) serve(command, address string) []string {
	args := []string{command, "--listen", address, "--broker", s.broker, "--threads", fmt.Sprint(s.threads)}
	if s.workload.Kind.tls() {
		args = append(args, "--certificate", s.cert.pem)
	}
	return args
}

func (s setting) profiling() []string {
	if s.profile == "" {
		return nil
	}
	return []string{"--cpuprofile", filepath.Join(s.profile, s.workload.Name+".pprof")}
}

// awaitPort waits until a peer accepts connections.
func awaitPort(ctx context.Context, r *running) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "tcp", r.address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-r.process.Done():
			return fmt.Errorf("it ended at once: %w", errors.Join(r.process.Err(), errors.New("see its messages above")))
		case <-ctx.Done():
			return fmt.Errorf("it accepts no connections: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// awaitWorkers waits for the worker processes of nginx: its sockets listen before.
func awaitWorkers(ctx context.Context, r *running, s setting) error {
	if r.name != PeerNginx {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		pids, err := r.pids()
		if err != nil || len(pids) == 1+s.threads {
			return err
		}
		if err = pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("it has %d worker processes, want %d: %w", len(pids)-1, s.threads, err)
		}
	}
}

// clientTLS is how the generator speaks TLS.
func (c certificate) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: c.pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}
}
