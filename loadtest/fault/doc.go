// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package fault breaks things while load runs: brokers and proxies stop and start, leaders
// move, and connections through a Relay get slow, narrow, silent or cut.
//
//   - Fault is one fault: Begin puts it in force, End takes it back. Play does both and says
//     when, as a mark for the report.
//   - NewRestart stops and starts anything that can be, such as a kafka.Node. NewLeaderMove
//     moves the leaders of a topic.
//   - Relay is a TCP relay in front of one address. NewLatency, NewBandwidth, NewCut,
//     NewHalfOpen and NewBlackhole are faults of one or several relays. Several may be in
//     force at a time, of different kinds.
//
// Faults that choose connections take a seed: the same seed and the same number of
// connections give the same choice.
//
// A relay sees streams of bytes and not packets. It can not lose, double or reorder a packet,
// and what it swallows is acknowledged by its own kernel; for that there is netem(8).
//
// # Why the relay is our own
//
// Shopify's toxiproxy 2.5.0 was tried as a library and left, for what this load test is about:
//
//   - A client that reads nothing (a slow consumer) keeps Toxics.AddToxicJson waiting for
//     ever, and with it, by the lock it holds, every new connection: a toxic is put between
//     two goroutines one of which stands in a send to the other (link.go, AddToxic and
//     InterruptToxic). Taking a toxic away gives up after 5 s and drops the bytes
//     (RemoveToxic, WriteOutput): the stream goes on with a hole.
//   - A connection that is cut while bytes are under way leaves a goroutine for ever: when
//     the write ends (ToxicLink.write) nobody empties the channels behind it.
//   - reset_peer works on connections that are made after it. Those that were there end with
//     FIN, and with the next byte only, for SetLinger(0) is said in ToxicLink.Start.
//   - The end of one direction closes both (ToxicLink.write closes what it wrote to), so an
//     answer that follows a half-close is lost.
//   - Jitter comes from the global source of randomness, without a seed.
package fault
