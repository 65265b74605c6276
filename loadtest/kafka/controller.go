// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

// ControllerAddress returns where the node's controller listens, which brokers register
// with (KIP-631); no client needs it.
func (n *Node) ControllerAddress() string { return Loopback(n.controllerPort) }

// ClusterID is the cluster id of every cluster of this package.
func (c *Cluster) ClusterID() string { return clusterID }
