// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package wholecluster holds tests only: a real cluster of three brokers behind the
// tiergate binary. The brokers advertise names that nothing but tiergate resolves (its
// upstream.hosts), and every client is watched: franz-go by its dialer, Java and
// librdkafka by a preloaded library (testdata/connects.c) that writes down each name
// resolved and each address connected to. Anything but tiergate's own addresses fails
// the test.
//
// One cluster goes the whole way: it is 4.1.1, is upgraded node by node while clients
// work, and is 4.3.0 in the end, where the native answer to -6 is there to compare with.
package wholecluster
