// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures tiergate beside other proxies: one load generator, one server
// that plays the broker, each proxy a process of its own, everything on loopback. It
// runs on Linux only.
//
// What makes the figures comparable:
//
//   - The peers of a workload run in turn, round after round, with the order rotated, so
//     that a noisy minute hits all of them. Ratios are taken within a round, then the
//     median over rounds.
//   - Load and answers are Kafka frames (Fetch 11, Produce 9), so tiergate reads every head
//     and keeps its exchanges; to the other proxies they are bytes.
//   - Generator and server are one thread each. They send from memory that is prepared
//     and drop what they receive inside the kernel (recv(2), MSG_TRUNC), so that the cores
//     are left to the proxy. Only the workload of stalled readers compares every byte.
//   - CPU time and memory are those of the proxy's processes, from /proc.
package bench
