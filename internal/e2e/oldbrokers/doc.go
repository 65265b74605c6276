// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package oldbrokers compares the highest tiered offsets that are derived from
// __remote_log_metadata with what real brokers of Kafka 3.6 to 3.8 have in memory. Those
// have no request that tells, so their memory is read over the Java debug interface
// (kafka.Peek).
//
//	go test ./internal/e2e/oldbrokers -v -versions 3.6.2,3.7.2,3.8.1 -live 3.9.1,4.1.1,4.3.0 -rounds 10 -timeout 2h
package oldbrokers
