// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package load is the load-test harness: it reads a scenario, starts clusters and
// proxies, puts load on them and verifies every record.
//
//   - Scenario is the YAML file, read strictly (Parse). Scenarios lists the built-in ones.
//   - Run plays one: phases in order; in a phase rounds; in a round every target has its
//     turn, in rotated order, so that a noisy minute hits all of them. What comes out is a
//     report.Run.
//   - A turn is a fresh topic for each workload, new clients, a warm-up that is not counted,
//     the measured time with its faults, and then the verdict: producers end, and every
//     record is read back through the target.
//
// What makes the figures mean something:
//
//   - Open loop: a record is due when its rate says so, whether or not the target keeps
//     up, and its latency counts from then. A stall of the target is seen by every record
//     that was due meanwhile, not only by those under way (coordinated omission).
//   - Records are numbered per producer and partition and carry a checksum (see Record). A
//     record that was acknowledged and does not come back is lost; one that comes back
//     twice, out of order or changed is counted as that.
//   - -6 answers are compared with look-ups on the brokers themselves before and after:
//     see bounds.
//
// The harness is a client of the product, as users are: it imports nothing of it but codec
// and starts the binary.
package load
