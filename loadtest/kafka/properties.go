// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// clusterID is any 22 characters of base64 (a Kafka Uuid); one for all clusters, since
// none of them meets another.
const clusterID = "dGllcmdhdGUtdGVzdHMtMQ"

// baseProperties make a small, quick broker and controller.
func (n *Node) baseProperties() map[string]string {
	var voters, listeners, advertised []string
	protocols := []string{"CONTROLLER:PLAINTEXT"}
	for _, m := range n.cluster.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", m.options.NodeID, Loopback(m.controllerPort)))
	}
	for _, l := range n.listeners {
		listeners = append(listeners, l.Name+"://"+Loopback(l.Port))
		protocols = append(protocols, l.Name+":"+l.Protocol)
		advertised = append(advertised, l.Name+"://"+l.advertised())
	}
	replicas := strconv.Itoa(min(len(n.cluster.nodes), 3))
	return map[string]string{
		"process.roles":                    "broker,controller",
		"node.id":                          strconv.Itoa(int(n.options.NodeID)),
		"controller.quorum.voters":         strings.Join(voters, ","),
		"controller.listener.names":        "CONTROLLER",
		"inter.broker.listener.name":       "PLAINTEXT",
		"listeners":                        strings.Join(append(listeners, "CONTROLLER://"+Loopback(n.controllerPort)), ","),
		"advertised.listeners":             strings.Join(advertised, ","),
		"listener.security.protocol.map":   strings.Join(protocols, ","),
		"log.dirs":                         n.DataDir(),
		"auto.create.topics.enable":        "false",
		"broker.heartbeat.interval.ms":     "500", // a started broker takes its partitions at its next heartbeat
		"group.initial.rebalance.delay.ms": "0",

		// Two cores and a small heap. The log cleaner alone would take 128 MiB of it.
		"num.network.threads":                          "2",
		"num.io.threads":                               "4",
		"background.threads":                           "2",
		"log.cleaner.dedupe.buffer.size":               "4194304",
		"offsets.topic.num.partitions":                 "3",
		"transaction.state.log.num.partitions":         "3",
		"share.coordinator.state.topic.num.partitions": "1",

		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",

		// Retention, and the copying of tiered topics, within a second or so.
		"log.retention.check.interval.ms": "500",
		"log.initial.task.delay.ms":       "500",
		"log.segment.delete.delay.ms":     "500",
	}
}

// tieredProperties switch tiered storage on: KIP-405, with the storage that Kafka's own
// tests use, a folder.
func (c *Cluster) tieredProperties() map[string]string {
	return map[string]string{
		"remote.log.storage.system.enable":                         "true",
		"remote.log.storage.manager.class.name":                    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
		"remote.log.storage.manager.impl.prefix":                   "rsm.config.",
		"rsm.config.dir":                                           c.RemoteDir(),
		"remote.log.metadata.manager.listener.name":                "PLAINTEXT",
		"rlmm.config.remote.log.metadata.topic.replication.factor": "1",
		"rlmm.config.remote.log.metadata.topic.num.partitions":     "3",
		"remote.log.manager.task.interval.ms":                      "500",
		"remote.log.manager.thread.pool.size":                      "2",
		"remote.log.manager.copier.thread.pool.size":               "2",
		"remote.log.manager.expiration.thread.pool.size":           "2",
		"remote.log.reader.threads":                                "2",
	}
}

// writeProperties writes the node's server.properties.
func (n *Node) writeProperties() error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return fmt.Errorf("folder of node %d: %w", n.options.NodeID, err)
	}
	p := n.cluster.properties(n)
	var keys []string
	for key := range p {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "%s=%s\n", key, strings.ReplaceAll(p[key], `\`, `\\`))
	}
	if err := os.WriteFile(n.propertiesPath(), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("properties of node %d: %w", n.options.NodeID, err)
	}
	return nil
}

// RemoteDir is the folder of the remote storage that all nodes share.
func (c *Cluster) RemoteDir() string { return filepath.Join(c.dir, "remote") }
