// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package cache is bounded memory: values that expire and are loaded once at a
// time per key (Loading), and the map of node ids to broker addresses as a
// snapshot that readers take without a lock (Nodes).
//
// It knows nothing of Kafka's protocol and does no I/O of its own: a Loading is
// given the function that loads.
package cache
