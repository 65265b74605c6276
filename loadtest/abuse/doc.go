// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package abuse attacks a tiergate process, and HAProxy in TCP mode beside it, while
// well-behaved clients use it, and reports peak memory, CPU time, and how many of these
// clients were served in time. docs/abuse.md has the table.
//
// An attack is a function and an element of Attacks. Each has a broker, a proxy process
// and a folder of its own, ends after Options.Duration, and connects to loopback only:
// well-behaved clients from 127.0.0.1, the attack from 127.0.0.2. A few control clients
// connect to the broker directly: when they are not served in time either, the machine
// was too busy for the row to say anything.
//
// The broker is scripted (scene.broker). It runs in this process and answers the requests
// of this package only; it stores nothing.
package abuse
