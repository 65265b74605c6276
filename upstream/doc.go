// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream is the way to the brokers. It opens the broker side of sessions
// (bootstrap servers, a node by its id, a fixed address), keeps the map of node ids
// to addresses, and has the one client of its own that tiergate needs, the service
// client: it asks for broker lists and for topics' remote.storage.enable.
//
// Where it is asked to, a second client of its own reads the topic __remote_log_metadata, so
// that the highest tiered offsets of brokers without -5 are known (HighestTiered).
//
// The bytes of sessions do not pass through here: a dialed connection is handed
// over and forgotten.
package upstream
