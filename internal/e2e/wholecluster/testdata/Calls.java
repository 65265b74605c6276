// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.DisconnectException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client's part of these tests: Calls MODE BOOTSTRAP TOPIC ...
 * It ends with exit code 0 and says what it saw on standard output, or with an exception.
 */
public class Calls {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[1], topic = args[2];
        switch (args[0]) {
            case "calls" -> calls(bootstrap, topic);
            case "numbered" -> numbered(bootstrap, topic);
            case "pending" -> pending(bootstrap, topic, Integer.parseInt(args[3]));
            case "touch" -> touch(bootstrap, topic);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0); // whatever threads are left
    }

    static Map<String, Object> config(String bootstrap, Object... more) {
        Map<String, Object> c = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int i = 0; i < more.length; i += 2)
            c.put((String) more[i], more[i + 1]);
        return c;
    }

    static Producer<String, String> producer(String bootstrap, Object... more) {
        return new KafkaProducer<>(config(bootstrap, more), new StringSerializer(), new StringSerializer());
    }

    static Consumer<String, String> consumer(String bootstrap, String group, String protocol) {
        return new KafkaConsumer<>(config(bootstrap, "group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "enable.auto.commit", false), new StringDeserializer(), new StringDeserializer());
    }

    static final long began = System.nanoTime();

    static void check(String what, Object got, Object want) {
        if (!got.equals(want))
            throw new AssertionError(what + ": got " + got + ", want " + want);
        System.out.printf("%.1f s %s: %s%n", (System.nanoTime() - began) / 1e9, what, got);
    }

    /** Sends count records whose values are text and a number, and waits for all. */
    static void send(Producer<String, String> producer, String topic, String text, int count) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++)
            sent.add(producer.send(new ProducerRecord<>(topic, i % 3, null, text + i)));
        for (Future<RecordMetadata> f : sent)
            f.get();
    }

    static List<String> numbers(String text, int count) {
        return IntStream.range(0, count).mapToObj(i -> text + i).sorted().toList();
    }

    /** Consumes until it has count records, and returns their values, sorted. */
    static List<String> consume(Consumer<String, String> consumer, String topic, int count) {
        consumer.subscribe(List.of(topic));
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (values.size() < count && System.nanoTime() < deadline)
            consumer.poll(Duration.ofMillis(200)).forEach(r -> values.add(r.value()));
        Collections.sort(values);
        return values;
    }

    static void calls(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(config(bootstrap))) {
            describe(admin);
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 3), new NewTopic(topic + "-share", 3, (short) 3))).all().get();
            awaitLeaders(admin, topic, topic + "-share");
            produceAndConsume(bootstrap, topic);
            share(admin, bootstrap, topic + "-share");
            alter(admin, topic);
            remove(admin, topic);
        }
    }

    static void describe(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        check("nodes", cluster.nodes().get().stream().map(Node::id).sorted().toList(), List.of(1, 2, 3));
        check("controller is a node", cluster.nodes().get().contains(cluster.controller().get()), true);
        check("voters", admin.describeMetadataQuorum().quorumInfo().get().voters().size(), 3);
        check("features", admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"), true);
        check("log folders", admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get().size(), 3);
    }

    static void awaitLeaders(Admin admin, String... topics) throws Exception {
        for (String topic : topics)
            for (int p = 0; p < 3; p++)
                admin.listOffsets(Map.of(new TopicPartition(topic, p), OffsetSpec.latest())).all().get(); // retries itself
    }

    static void produceAndConsume(String bootstrap, String topic) throws Exception {
        try (var p = producer(bootstrap, "enable.idempotence", true)) {
            send(p, topic, "plain ", 300);
        }
        List<String> committed = new ArrayList<>(numbers("plain ", 300));
        committed.addAll(numbers("committed ", 100));
        Collections.sort(committed);
        try (var p = producer(bootstrap, "transactional.id", topic + "-transactions");
             var c = consumer(bootstrap, topic + "-classic", "classic")) {
            p.initTransactions();
            p.beginTransaction();
            send(p, topic, "committed ", 100);
            p.commitTransaction();
            p.beginTransaction();
            send(p, topic, "aborted ", 100);
            p.abortTransaction();
            check("classic group", consume(c, topic, 400).equals(committed), true);
            p.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition tp : c.assignment())
                offsets.put(tp, new OffsetAndMetadata(c.position(tp)));
            p.sendOffsetsToTransaction(offsets, c.groupMetadata());
            p.commitTransaction();
            check("offsets in a transaction", c.committed(c.assignment()).size(), 3);
        }
        try (var c = consumer(bootstrap, topic + "-consumer", "consumer")) {
            check("consumer group", consume(c, topic, 400).equals(committed), true);
            c.commitSync();
        }
    }

    /** Has a share group begin at the start of its topics, and get records again after 15 s that were not acknowledged. */
    static void configureShare(Admin admin, String group) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(
            new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("share.record.lock.duration.ms", "15000"), AlterConfigOp.OpType.SET)))).all().get();
    }

    static void share(Admin admin, String bootstrap, String topic) throws Exception {
        String group = topic + "-group";
        configureShare(admin, group);
        try (var p = producer(bootstrap)) {
            send(p, topic, "shared ", 200);
        }
        List<String> values = shared(bootstrap, topic, group, 200);
        check("shared records", values.size(), 200);
        check("share group", values.equals(numbers("shared ", 200)), true);
        check("described share groups", admin.describeShareGroups(List.of(group)).all().get().size(), 1);
    }

    /**
     * Consumes in a share group until so many records are acknowledged, and returns their values, sorted. Where a broker
     * refuses an acknowledgement, as it may in the middle of an upgrade, it gives the record again. A connection that
     * ends before the response is no refusal: nothing ends one here.
     */
    static List<String> shared(String bootstrap, String topic, String group, int count) throws Exception {
        SortedSet<String> acknowledged = new TreeSet<>();
        try (var c = new KafkaShareConsumer<>(config(bootstrap, "group.id", group, "share.acknowledgement.mode", "explicit"),
                new StringDeserializer(), new StringDeserializer())) {
            c.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (acknowledged.size() < count && System.nanoTime() < deadline) {
                Map<Integer, List<String>> got = new HashMap<>();
                for (var r : c.poll(Duration.ofMillis(200))) {
                    got.computeIfAbsent(r.partition(), p -> new ArrayList<>()).add(r.value());
                    c.acknowledge(r, AcknowledgeType.ACCEPT);
                }
                for (var outcome : c.commitSync().entrySet()) {
                    KafkaException refusal = outcome.getValue().orElse(null);
                    if (refusal instanceof DisconnectException || refusal instanceof TimeoutException)
                        throw refusal;
                    if (refusal != null)
                        System.out.println("refused acknowledgements of " + outcome.getKey() + ": " + refusal);
                    else
                        acknowledged.addAll(got.getOrDefault(outcome.getKey().topicPartition().partition(), List.of()));
                }
            }
        }
        return new ArrayList<>(acknowledged);
    }

    static void alter(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "123456789"), AlterConfigOp.OpType.SET)))).all().get();
        String retention = "";
        // Any broker answers, by the metadata that it has by then.
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30); !retention.equals("123456789") && System.nanoTime() < end; Thread.sleep(20))
            retention = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
        check("retention.ms", retention, "123456789");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "3");
        check("node.id of node 3", admin.describeConfigs(List.of(broker)).all().get().get(broker).get("node.id").value(), "3");
        TopicPartition tp = new TopicPartition(topic, 0);
        check("earliest", admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).partitionResult(tp).get().offset(), 0L);
        admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(10))).all().get();
        check("earliest after deletion", admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).partitionResult(tp).get().offset(), 10L);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        elect(admin, topic);
        check("producers", admin.describeProducers(List.of(tp)).all().get().size(), 1);
        check("transactions", admin.listTransactions().all().get().stream().anyMatch(l -> l.transactionalId().equals(topic + "-transactions")), true);
    }

    /** Has another replica lead partition 0: reassigns and elects. */
    static void elect(Admin admin, String topic) throws Exception {
        TopicPartition tp = new TopicPartition(topic, 0);
        List<Integer> replicas = new ArrayList<>(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
            .partitions().get(0).replicas().stream().map(Node::id).toList());
        Collections.rotate(replicas, 1);
        admin.alterPartitionReassignments(Map.of(tp, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        while (!admin.listPartitionReassignments(Set.of(tp)).reassignments().get().isEmpty())
            Thread.sleep(20);
        admin.electLeaders(ElectionType.PREFERRED, Set.of(tp)).all().get();
        int leader = -1;
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30); leader != replicas.get(0) && System.nanoTime() < end; Thread.sleep(20))
            leader = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).leader().id();
        check("elected leader is the one wanted", leader == replicas.get(0), true);
    }

    static void remove(Admin admin, String topic) throws Exception {
        List<String> groups = List.of(topic + "-classic", topic + "-consumer");
        check("groups", admin.listGroups().all().get().stream().map(GroupListing::groupId).filter(g -> g.startsWith(topic)).sorted().toList(),
            List.of(topic + "-classic", topic + "-consumer", topic + "-share-group"));
        check("described groups", admin.describeConsumerGroups(groups).all().get().size(), 2);
        check("offsets of a group", admin.listConsumerGroupOffsets(groups.get(1)).partitionsToOffsetAndMetadata().get().size(), 3);
        admin.deleteConsumerGroups(groups).all().get();
        admin.deleteShareGroups(List.of(topic + "-share-group")).all().get();
        admin.deleteTopics(List.of(topic, topic + "-share")).all().get();
    }

    /**
     * Produces and consumes numbers until a line comes in; each must be at one offset and come back, and to a
     * share group at least once. That a record came twice, from the same offset, is said on its own: it does
     * where a member could not commit before it had to join anew.
     */
    static void numbered(String bootstrap, String topic) throws Exception {
        AtomicInteger errors = new AtomicInteger();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        ConcurrentHashMap<String, Integer> places = new ConcurrentHashMap<>();
        AtomicBoolean done = new AtomicBoolean();
        Thread consuming = new Thread(() -> {
            try (var c = new KafkaConsumer<>(config(bootstrap, "group.id", topic + "-java", "auto.offset.reset", "earliest"),
                    new StringDeserializer(), new StringDeserializer())) {
                c.subscribe(List.of(topic));
                while (!done.get())
                    c.poll(Duration.ofMillis(100)).forEach(r -> {
                        places.merge(r.partition() + " " + r.offset() + " " + r.value(), 1, Integer::sum);
                        seen.add(r.value());
                    });
            } catch (Exception e) {
                e.printStackTrace();
                errors.incrementAndGet();
            }
        });
        consuming.start();
        Set<String> shared = ConcurrentHashMap.newKeySet();
        Thread sharing = new Thread(() -> {
            try (var admin = Admin.create(config(bootstrap))) {
                configureShare(admin, topic + "-java-share");
            } catch (Exception e) {
                e.printStackTrace();
                errors.incrementAndGet();
            }
            try (var c = new KafkaShareConsumer<>(config(bootstrap, "group.id", topic + "-java-share"), new StringDeserializer(), new StringDeserializer())) {
                c.subscribe(List.of(topic));
                while (!done.get())
                    c.poll(Duration.ofMillis(100)).forEach(r -> shared.add(r.value()));
            } catch (Exception e) {
                e.printStackTrace();
                errors.incrementAndGet();
            }
        });
        sharing.start();
        int sent = 0;
        try (var p = producer(bootstrap, "enable.idempotence", true, "acks", "all")) {
            for (; System.in.available() == 0; sent++) { // the test writes a line to end it
                p.send(new ProducerRecord<>(topic, sent % 3, null, Integer.toString(sent)), (m, e) -> {
                    if (e != null) {
                        e.printStackTrace();
                        errors.incrementAndGet();
                    }
                });
                Thread.sleep(20);
            }
        }
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60); Math.min(seen.size(), shared.size()) < sent && System.nanoTime() < end; )
            Thread.sleep(50);
        done.set(true);
        consuming.join();
        sharing.join();
        if (shared.size() != sent) {
            System.err.printf("the share group got %d of %d%n", shared.size(), sent);
            errors.incrementAndGet();
        }
        long again = places.values().stream().filter(n -> n > 1).count();
        System.out.printf("sent %d distinct %d consumed %d errors %d again %d%n", sent, seen.size(), places.size(), errors.get(), again);
    }

    /** Asks for -6 of every partition until standard input ends, and prints each answer with its time. */
    static void pending(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(config(bootstrap))) {
            for (int p = 0; System.in.available() == 0; p = (p + 1) % partitions) {
                TopicPartition tp = new TopicPartition(topic, p);
                long began = System.currentTimeMillis();
                var answer = admin.listOffsets(Map.of(tp, OffsetSpec.earliestPendingUpload())).partitionResult(tp).get();
                System.out.printf("%d %d %d %d %d%n", began, System.currentTimeMillis(), p, answer.offset(), answer.leaderEpoch().orElse(-1));
                Thread.sleep(20);
            }
        }
    }

    /** Sends a record to each partition, whatever becomes of it. */
    static void touch(String bootstrap, String topic) throws Exception {
        try (var p = producer(bootstrap, "max.block.ms", 4000, "request.timeout.ms", 1000, "delivery.timeout.ms", 2000)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 3; i++)
                sent.add(p.send(new ProducerRecord<>(topic, i, null, "touch")));
            for (Future<RecordMetadata> f : sent) {
                try {
                    f.get();
                } catch (ExecutionException e) {
                    System.out.println(e.getMessage());
                }
            }
        }
    }
}
