// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is a Kafka cluster in the process that answers as a release with
// tiered storage does. Clients reach it over TCP on 127.0.0.1.
//
// Two things work together. kfake (github.com/twmb/franz-go/pkg/kfake) is the
// cluster: connections, leaders, produce, fetch, groups, transactions, ACLs, and every
// check that comes before a look at the log (unknown topic, not leader, fenced or
// unknown leader epoch, a timestamp that the version does not have). tierlog models
// are the logs: of every answer that depends on what is local and what is uploaded,
// the numbers are a model's.
//
// What is real: records. What a model says was appended is produced into kfake, in
// batches of the same leader epochs, and what clients produce or delete in kfake is
// brought into the model before its next answer. So a consumer can read from any
// offset that the simulation names. Topics with Records: NoRecords have offsets only.
//
// What is simulated: there are no segment files and no object store. "Uploaded" and
// "deleted locally" are numbers in a model, moved by Cluster.Update, and a fetch of
// uploaded records is served by kfake from memory. kfake answers ListOffsets for -3 and for
// real timestamps. A broker's "remote.log.storage.system.enable" is an answer to
// DescribeConfigs and changes nothing else. Replication does not exist: the replicas
// that Metadata names hold nothing.
//
// Answers are a broker's where brokers differ from the obvious: partitions of a
// ListOffsets response come in another order than they were asked in, and a
// partition that is named twice comes back once, with INVALID_REQUEST.
package sim
