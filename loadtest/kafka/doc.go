// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package kafka runs real Kafka brokers for tests: the project's own jars, fetched
// once per version with Maven, started as plain Java processes, without containers.
//
// What it offers, from the bottom up:
//
//   - Fetch fills <repository>/.cache/kafka/<version> (CacheEnv names another folder);
//     Check says in one sentence what the machine lacks for that.
//   - Launch runs one broker or several (combined KRaft roles), with tiered
//     storage in a local folder or without. A broker keeps its ports and its logs over
//     Stop, Kill and Start, so that restarts add leader epochs.
//   - Log is one partition whose history a test writes down as it makes it; LogStates
//     are the rows of the vectors table in the -6 specification, as functions on a Log.
//   - Jars.Run runs a Java command line tool of any version by class name.
//   - Conn is a raw client: any request at any version, pipelined, bytes in and out.
//
// Everything listens on loopback. Every process belongs to its own process group and,
// on Linux, dies with the process that started it.
package kafka
