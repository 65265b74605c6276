// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Node is one broker, which is also a controller. Its ports, its data and its version stay
// the same over restarts, unless MoveListener or SetVersion change them in between.
type Node struct {
	cluster        *Cluster
	options        NodeOptions
	jars           Jars
	dir            string
	controllerPort int
	listeners      []Listener
	running        *Process
	runLogOff      int64 // where the log of the latest run starts in LogPath
}

// NodeID returns node.id.
func (n *Node) NodeID() int32 { return n.options.NodeID }

// Address returns the address of the PLAINTEXT listener.
func (n *Node) Address() string { return Loopback(n.listeners[0].Port) }

// ListenerAddress returns the address at which the broker itself listens under that
// name, whatever it advertises; it panics for a name that the node does not have.
func (n *Node) ListenerAddress(name string) string {
	i := slices.IndexFunc(n.listeners, func(l Listener) bool { return l.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("node %d has no listener %s", n.options.NodeID, name))
	}
	return Loopback(n.listeners[i].Port)
}

// MoveListener gives a listener of a node that is down another port, which the node has
// from its next start on.
func (n *Node) MoveListener(name string) error {
	i := slices.IndexFunc(n.listeners, func(l Listener) bool { return l.Name == name })
	if i < 0 || n.Running() {
		return fmt.Errorf("node %d: no listener %s to move, or the node is running", n.options.NodeID, name)
	}
	ports, err := FreePorts(1)
	if err != nil {
		return err
	}
	n.listeners[i].Port = ports[0]
	return n.writeProperties()
}

// Version returns the version of Kafka that the node runs or was last set to run.
func (n *Node) Version() string { return n.jars.Version }

// SetVersion has a node that is down run another version from its next start on, on the
// data that it has, as in a rolling upgrade. The jars are fetched if need be.
func (n *Node) SetVersion(ctx context.Context, version string) error {
	if n.Running() {
		return fmt.Errorf("node %d is running", n.options.NodeID)
	}
	jars, err := Fetch(ctx, version, n.cluster.log)
	if err != nil {
		return err
	}
	n.jars = jars
	return nil
}

// DataDir is the broker's log.dirs.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "logs") }

// LogPath is the file that the broker's output goes to, over all its runs.
func (n *Node) LogPath() string { return filepath.Join(n.dir, "broker.log") }

func (n *Node) propertiesPath() string { return filepath.Join(n.dir, "server.properties") }

// PID returns the process id of the running broker, 0 when it is down.
func (n *Node) PID() int {
	if !n.Running() {
		return 0
	}
	return n.running.PID()
}

// Running says whether the broker's process lives.
func (n *Node) Running() bool {
	if n.running == nil {
		return false
	}
	select {
	case <-n.running.Done():
		return false
	default:
		return true
	}
}

// Start starts a node that is down and waits until it answers and leads.
func (n *Node) Start(ctx context.Context) error {
	if n.Running() {
		return fmt.Errorf("node %d is running", n.options.NodeID)
	}
	if err := n.launch(); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// Stop sends SIGTERM, a controlled shutdown, and waits for the end. A node that is down
// stays down.
func (n *Node) Stop(ctx context.Context) error {
	if !n.Running() {
		return nil
	}
	if err := n.running.Terminate(ctx); err != nil {
		return fmt.Errorf("node %d: %w\n%s", n.options.NodeID, err, logTail(n.LogPath()))
	}
	return nil
}

// Kill kills the broker without a word, as a power cut does.
func (n *Node) Kill() {
	if n.Running() {
		n.running.Kill()
	}
}

// Restart is Stop and Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// format writes the metadata that a KRaft node wants to find before its first start.
func (n *Node) format(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(n.DataDir(), "meta.properties")); err == nil {
		return nil // Options.Dir held a cluster already
	}
	r, err := n.jars.Run(ctx, Tool{Class: "kafka.tools.StorageTool", Args: []string{"format", "-t", clusterID, "-c", n.propertiesPath()}})
	if err == nil && r.ExitCode != 0 {
		err = errors.New(r.String())
	}
	if err != nil {
		return fmt.Errorf("format node %d: %w", n.options.NodeID, err)
	}
	return nil
}

// launch starts the process and returns at once.
func (n *Node) launch() error {
	log, err := os.OpenFile(n.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of node %d: %w", n.options.NodeID, err)
	}
	defer log.Close() // the child has its own descriptor
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("log of node %d: %w", n.options.NodeID, err)
	}
	n.runLogOff = end
	heap := n.cluster.options.HeapMiB
	if heap == 0 {
		heap = 384
	}
	args := append([]string{
		"-Xmx" + strconv.Itoa(heap) + "m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.logFile=System.out",
		"-cp", n.jars.ClassPath(),
	}, slices.Concat(n.cluster.options.JVM, n.options.JVM)...)
	cmd := exec.Command("java", append(args, "kafka.Kafka", n.propertiesPath())...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	p, err := StartProcess(cmd)
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.options.NodeID, err)
	}
	n.running = p
	return nil
}

// waitReady waits until the broker answers ApiVersions, knows itself in Metadata, every
// partition that it is in sync for has a leader, and tiered storage has initialised.
func (n *Node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	running := n.running
	go func() {
		select {
		case <-running.Done():
			cancel() // nothing to wait for any more
		case <-ctx.Done():
		}
	}()
	err := Poll(ctx, "a broker that answers", n.ready)
	if err == nil {
		return nil
	}
	if !n.Running() {
		err = fmt.Errorf("the broker ended before it answered: %w", errors.Join(n.running.Err(), err))
	}
	return fmt.Errorf("node %d of Kafka %s: %w\n%s", n.options.NodeID, n.jars.Version, err, logTail(n.LogPath()))
}

// ready is nil when the broker is as waitReady wants it.
func (n *Node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := Dial(ctx, n.Address(), "launcher")
	if err != nil {
		return err
	}
	defer c.Close()
	versions := kmsg.NewPtrApiVersionsRequest()
	if _, err := c.Request(ctx, versions); err != nil {
		return err
	}
	metadata := kmsg.NewPtrMetadataRequest() // all topics
	metadata.Version = 9
	resp, err := c.Request(ctx, metadata)
	if err != nil {
		return err
	}
	if err := n.leads(resp.(*kmsg.MetadataResponse)); err != nil {
		return err
	}
	return n.started()
}

// Lines of the broker's log, the same in 3.9 to 4.3.
const (
	// All listeners are bound. One of them answers while another may yet fail to bind,
	// which ends the broker.
	startedLine = "Kafka Server started"
	// Tiered storage has its metadata topic. A broker told to stop before that hangs for
	// ever: TopicBasedRemoteLogMetadataManager.close joins the thread that waits for the
	// topic, and the broker answers no more.
	remoteMetadataLine = "Initialized topic-based RLMM resources successfully"
)

// started is nil when the log of this run says that all is up: nothing that the broker
// answers does.
func (n *Node) started() error {
	log, err := os.ReadFile(n.LogPath())
	if err != nil {
		return err
	}
	log = log[min(n.runLogOff, int64(len(log))):]
	lines := []string{startedLine}
	if n.cluster.options.TieredStorage == TieredStorageOn {
		lines = append(lines, remoteMetadataLine)
	}
	for _, line := range lines {
		if !bytes.Contains(log, []byte(line)) {
			return fmt.Errorf("the log does not say %q yet", line)
		}
	}
	return nil
}

func (n *Node) leads(m *kmsg.MetadataResponse) error {
	known := slices.ContainsFunc(m.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == n.options.NodeID })
	if !known {
		return fmt.Errorf("node %d is not among the %d brokers of its own metadata", n.options.NodeID, len(m.Brokers))
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if slices.Contains(p.ISR, n.options.NodeID) && (p.Leader < 0 || p.ErrorCode != 0) {
				return fmt.Errorf("%s-%d has no leader (error code %d)", *t.Topic, p.Partition, p.ErrorCode)
			}
		}
	}
	return nil
}
