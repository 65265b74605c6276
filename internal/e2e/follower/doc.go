// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package follower holds tests only: the followers of package follower, all cases, before real
// Kafka brokers and the tiergate binary.
package follower
