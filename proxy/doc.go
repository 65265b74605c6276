// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package proxy is the data plane: event loops, connections, sessions, listeners.
//
// # How bytes move
//
// A session is one client connection and one broker connection on one loop. A loop is
// one goroutine around a poller (epoll; kqueue through gnet); it owns all state of its sessions, so a
// session has no lock. Other goroutines (accept, dial, remote storage lookups, the ticker)
// reach a session only by posting a function to its loop.
//
// Each session has two flows, requests (client to broker) and responses (broker to
// client). A flow is pumped: read a piece into the loop's one buffer, walk the frames
// in it, write it on. What the other side does not take at once is owed; a side that
// owes bytes is not read for, and that is all the flow control there is: the kernel's
// window closes and the sender waits. So a session's memory is bounded by what one
// read brings, twice, plus what is held of one frame.
//
//	          socket readable                      socket writable
//	client ──► pump(requests): read ► walk ► write ──► broker
//	client ◄── pump(responses): write ◄ walk ◄ read ◄── broker
//
// The walk reads every frame's head. A request is entered in the session's exchanges,
// a FIFO of responses that are owed (Produce with acks 0 owes none); a response must
// answer the oldest. Most frames are opaque and stream through. A frame that may
// change is treated whole, or as far as the change may reach: in place when the buffer
// holds it, else collected up to a limit.
//
// # The -6 answer
//
// A ListOffsets request with -6 is taken out of the flow of requests: the session
// stops reading the client, sends the look-ups of a pendingupload.Machine as asks on
// the broker connection, feeds it the answers, and writes what it composed. Since the
// asks stand in the same FIFO as the exchanges before them, order needs no care.
//
// # Which goroutine
//
// Everything exported is safe for concurrent use unless its comment says otherwise.
// Unexported methods of loop, session, conn and flow are for the loop's goroutine
// only, except loop.post.
package proxy
