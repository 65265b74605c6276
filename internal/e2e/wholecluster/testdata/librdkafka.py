# SPDX-FileCopyrightText: the tiergate authors
# SPDX-License-Identifier: Apache-2.0

"""librdkafka's part of these tests: librdkafka.py MODE BOOTSTRAP TOPIC.

It ends with exit code 0 and says what it saw on standard output, or with an exception.
"""

import collections
import logging
import select
import sys
import threading
import time

import confluent_kafka as ck
from confluent_kafka import admin as ka


def check(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")
    if got:
        print(f"{what}: {got!r}")


def numbers(text, count):
    return sorted(f"{text}{i}" for i in range(count))


def send(producer, topic, text, count):
    failed = []
    for i in range(count):
        producer.produce(topic, f"{text}{i}", partition=i % 3, on_delivery=lambda e, _: e and failed.append(e))
    check("left after flush", producer.flush(60), 0)
    check("deliveries that failed", failed, [])


def consumer(bootstrap, group, **more):
    return ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                        "enable.auto.commit": False, **{k.replace("_", "."): v for k, v in more.items()}})


def value(message):
    if message.error():
        raise ck.KafkaException(message.error())
    return message.value().decode()


def consume(c, topic, count):
    c.subscribe([topic])
    values, deadline = [], time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        values += [value(m) for m in c.consume(500, 0.2)]
    return sorted(values)


def results(futures):
    """The results of what an admin call returns: futures by what they are for."""
    return {k: f.result() for k, f in futures.items()}


def calls(bootstrap, topic):
    admin = ka.AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.describe_cluster().result()
    check("nodes", sorted(n.id for n in cluster.nodes), [1, 2, 3])
    check("controller is a node", cluster.controller.id in [1, 2, 3], True)
    results(admin.create_topics([ka.NewTopic(t, 3, 3) for t in (topic, topic + "-share")], operation_timeout=30))
    await_leaders(admin, topic)
    await_leaders(admin, topic + "-share")
    produce_and_consume(bootstrap, topic)
    share(admin, bootstrap, topic + "-share")
    administer(admin, topic)


def await_leaders(admin, topic):
    """librdkafka's admin calls are tried once each; a new topic's leaders may not know it yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return offsets(admin, topic, ka.OffsetSpec.latest())
        except ck.KafkaException as e:
            if time.monotonic() > deadline or not e.args[0].retriable() and e.args[0].code() not in (
                    ck.KafkaError._NOENT, ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
                    ck.KafkaError.NOT_LEADER_FOR_PARTITION, ck.KafkaError.LEADER_NOT_AVAILABLE):
                raise
            time.sleep(0.05)


def offsets(admin, topic, spec):
    found = results(admin.list_offsets({ck.TopicPartition(topic, p): spec for p in range(3)}))
    return [found[ck.TopicPartition(topic, p)].offset for p in range(3)]


def produce_and_consume(bootstrap, topic):
    send(ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}), topic, "plain ", 300)
    committed = sorted(numbers("plain ", 300) + numbers("committed ", 100))
    p = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic + "-transactions"})
    p.init_transactions()
    p.begin_transaction()
    send(p, topic, "committed ", 100)
    p.commit_transaction()
    p.begin_transaction()
    send(p, topic, "aborted ", 100)
    p.abort_transaction()
    c = consumer(bootstrap, topic + "-classic")
    check("classic group", consume(c, topic, 400) == committed, True)
    p.begin_transaction()
    p.send_offsets_to_transaction(c.position(c.assignment()), c.consumer_group_metadata())
    p.commit_transaction()
    check("offsets in a transaction", len(c.committed(c.assignment(), 30)), 3)
    c.close()
    c = consumer(bootstrap, topic + "-consumer", group_protocol="consumer")
    check("consumer group", consume(c, topic, 400) == committed, True)
    c.commit(asynchronous=False)
    c.close()


class BadMemberID(logging.Handler):
    """Notes that this share consumer will get nothing, ever, from any broker.

    librdkafka 2.16 writes its random member ids in base64 with "+" and "/", of which half
    have one; brokers read them with "-" and "_" (Uuid.fromString in
    KafkaApis.handleShareFetchRequest) and answer UNKNOWN_SERVER_ERROR.
    """

    seen = False

    def emit(self, record):
        print(record.getMessage(), file=sys.stderr)
        self.seen = self.seen or "ShareFetch reply error" in record.getMessage()


def consume_shared(bootstrap, topic, group, count, deadline):
    """One share consumer; returns what it got when it has count records, a bad member id, or nothing more for 10 s.

    The last is for share consumers being a preview in librdkafka 2.16: in a cluster in the middle of an upgrade
    one now and then gets the records of some partitions only, with and without tiergate. Another one gets the others.
    """
    bad, logger, values = BadMemberID(), logging.getLogger(str(time.monotonic())), []
    logger.addHandler(bad)
    with ck.ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit", "logger": logger}) as c:
        c.subscribe([topic])
        patience = time.monotonic() + 10
        while len(values) < count and not bad.seen and time.monotonic() < min(deadline, patience):
            for message in c.poll(0.2):
                values.append(value(message))
                c.acknowledge(message)
                patience = time.monotonic() + 10
            check("acknowledgements that failed", [e for e in c.commit_sync(30.0).values() if e], [])
    print(f"a share consumer got {len(values)} of {count} records, bad member id: {bad.seen}", file=sys.stderr)
    return values


def share(admin, bootstrap, topic):
    group = topic + "-group"
    results(admin.incremental_alter_configs([ka.ConfigResource(ka.ConfigResource.Type.GROUP, group, incremental_configs=[
        ka.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=ka.AlterConfigOpType.SET)])]))
    send(ck.Producer({"bootstrap.servers": bootstrap}), topic, "shared ", 200)
    values, deadline = [], time.monotonic() + 120
    while len(values) < 200 and time.monotonic() < deadline:
        values += consume_shared(bootstrap, topic, group, 200 - len(values), deadline)
    check("shared records", len(values), 200)
    check("share group", sorted(values) == numbers("shared ", 200), True)


def administer(admin, topic):
    resource = ka.ConfigResource(ka.ConfigResource.Type.TOPIC, topic, incremental_configs=[
        ka.ConfigEntry("retention.ms", "123456789", incremental_operation=ka.AlterConfigOpType.SET)])
    results(admin.incremental_alter_configs([resource]))
    deadline = time.monotonic() + 30  # any broker answers, by the metadata that it has by then
    while results(admin.describe_configs([resource]))[resource]["retention.ms"].value != "123456789" and time.monotonic() < deadline:
        time.sleep(0.05)
    check("retention.ms", results(admin.describe_configs([resource]))[resource]["retention.ms"].value, "123456789")
    broker = ka.ConfigResource(ka.ConfigResource.Type.BROKER, "3")
    check("node.id of node 3", results(admin.describe_configs([broker]))[broker]["node.id"].value, "3")
    results(admin.delete_records([ck.TopicPartition(topic, 0, 10)]))
    check("earliest after deletion", offsets(admin, topic, ka.OffsetSpec.earliest())[0], 10)
    results(admin.create_partitions([ka.NewPartitions(topic, 4)], operation_timeout=30))
    # Nothing to elect is an answer too: the preferred replicas lead.
    elected = admin.elect_leaders(ck.ElectionType.PREFERRED, [ck.TopicPartition(topic, 0)]).result()
    check("elections", [e and e.code() for e in elected.values()] in ([None], [ck.KafkaError.ELECTION_NOT_NEEDED]), True)
    groups = [topic + "-classic", topic + "-consumer"]
    listed = {g.group_id for g in admin.list_consumer_groups().result().valid}
    check("groups", sorted(listed & set(groups)), groups)
    check("described groups", sorted(results(admin.describe_consumer_groups(groups))), groups)
    wanted = [ck.ConsumerGroupTopicPartitions(groups[1])]
    check("offsets of a group", len(results(admin.list_consumer_group_offsets(wanted))[groups[1]].topic_partitions), 3)
    described = results(admin.describe_topics(ck.TopicCollection([topic])))[topic]
    check("leaders", all(p.leader.id in (1, 2, 3) for p in described.partitions), True)
    results(admin.delete_consumer_groups(groups))
    results(admin.delete_topics([topic, topic + "-share"], operation_timeout=30))


def numbered(bootstrap, topic):
    """Produces and consumes numbers until a line comes in; each must be at one offset and come back.

    That a record came twice, from the same offset, is said on its own.
    """
    errors, seen, places, done = [], set(), collections.Counter(), threading.Event()

    def fatal(e):  # that a connection was lost is told as well, and is no error of the client's
        if e.fatal():
            errors.append(str(e))

    def consuming():
        c = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": topic + "-librdkafka", "auto.offset.reset": "earliest", "error_cb": fatal})
        c.subscribe([topic])
        while not done.is_set():
            for m in c.consume(500, 0.1):
                if m.error():
                    errors.append(str(m.error()))
                else:
                    seen.add(m.value())
                    places[m.value(), m.partition(), m.offset()] += 1
        c.close()

    thread = threading.Thread(target=consuming)
    thread.start()
    p, sent = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "error_cb": fatal}), 0
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        p.produce(topic, str(sent), partition=sent % 3, on_delivery=lambda e, _: e and errors.append(str(e)))
        p.poll(0)
        sent += 1
    p.flush(60)
    deadline = time.monotonic() + 60
    while len(seen) < sent and time.monotonic() < deadline:
        time.sleep(0.05)
    done.set()
    thread.join()
    again = {place: n for place, n in places.items() if n > 1}
    print(*errors, "came again:", again, sep="\n", file=sys.stderr)
    print(f"sent {sent} distinct {len(seen)} consumed {len(places)} errors {len(errors)} again {len(again)}")


def touch(bootstrap, topic):
    """Sends a record to each partition, whatever becomes of it."""
    p = ck.Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3000})
    for i in range(3):
        p.produce(topic, "touch", partition=i)
    p.flush(5)


{"calls": calls, "numbered": numbered, "touch": touch}[sys.argv[1]](sys.argv[2], sys.argv[3])
