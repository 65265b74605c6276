// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds tests only: they build the tiergate binary, run it as its users
// do, with a configuration file, before real Kafka brokers, and look at it from the
// outside: through Java tools, franz-go clients, raw connections, and recorders on both
// sides of it.
//
// Each of the three tops (TestKafka43, TestKafka41, TestKafka39) starts one broker,
// brings its logs into every state of the -6 specification, and shares both among its
// subtests. TestSeveralBrokers has a cluster of its own.
package e2e
