"""kafka-python (its own protocol stack, blocking): the plan."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

import plan


def create(bootstrap, topic, partitions, **config):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    new = NewTopic(topic, partitions, 1, topic_configs={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])
    return admin


def deliver(producer, futures):
    producer.flush(60)
    for f in futures:
        f.get(60)


def write(bootstrap, topic, codec):
    create(bootstrap, topic, plan.PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50)
    deliver(producer, [producer.send(topic, r.value, r.key, r.headers, r.partition, r.timestamp) for r in plan.records()])
    producer.close()


def assigned(bootstrap, topic, partitions):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
    return consumer


def poll(consumer, wait_ms=200):
    return [m for messages in consumer.poll(wait_ms).values() for m in messages]


def read(bootstrap, *topics):
    for topic in topics:
        consumer = assigned(bootstrap, topic, plan.PARTITIONS)
        got = {p: [] for p in range(plan.PARTITIONS)}

        def complete():
            for m in poll(consumer):
                got[m.partition].append((m.offset, plan.Record(m.partition, m.key, m.value, list(m.headers), m.timestamp)))
            return sum(map(len, got.values())) >= plan.RECORDS

        plan.until(f"{topic} read", complete)
        for p in got:
            plan.verify(topic, p, got[p])
        plan.equal(set(consumer.end_offsets(consumer.assignment()).values()), {plan.RECORDS // plan.PARTITIONS}, "ends")
        consumer.close()


class Member(plan.Member):
    def work(self):
        consumer = KafkaConsumer(self.topic, bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False,
                                 auto_offset_reset="earliest", session_timeout_ms=10000, heartbeat_interval_ms=500)
        while not self.leaving:
            # A poll whose time ends just as the answer to SyncGroup comes forgets that answer, and the member is never
            # heard of again (kafka-python 3.0.12, seen in its debug log): so much time that a join always fits.
            messages = poll(consumer, 3000)
            if messages:
                consumer.commit()
                self.seen.update(m.value for m in messages)
            self.owned = frozenset(p.partition for p in consumer.assignment())
        consumer.close()


def group(bootstrap, topic):
    admin = create(bootstrap, topic, 6)
    producer = KafkaProducer(bootstrap_servers=bootstrap)

    def produce(first, last):
        deliver(producer, [producer.send(topic, b"%d" % i, partition=i % 6) for i in range(first, last)])

    plan.group_story(lambda seen: Member(bootstrap, topic, topic, seen), produce)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic)
    plan.equal([consumer.committed(TopicPartition(topic, p)) for p in range(6)], [31] * 6, "committed offsets")


def offsets(bootstrap, topic):
    create(bootstrap, topic, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(10):  # one batch each
        producer.send(topic, b"%d" % i, timestamp_ms=plan.BASE_MS + i * 1000).get(30)
    consumer, tp = KafkaConsumer(bootstrap_servers=bootstrap), TopicPartition(topic, 0)
    for later, want in [(-1, 0), (2500, 3), (9000, 9), (9001, None)]:
        found = consumer.offsets_for_times({tp: plan.BASE_MS + later})[tp]
        plan.equal(found and found.offset, want, f"offset for base{later:+}")
    plan.equal((consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]), (0, 10), "earliest and latest")


def admin(bootstrap, topic):
    client = create(bootstrap, topic, 3, retention_ms="86400000")
    try:
        create(bootstrap, topic, 3)
        raise RuntimeError("created twice")
    except TopicAlreadyExistsError:
        pass
    described = client.describe_topics([topic])[0]
    plan.equal([p["partition_index"] for p in described["partitions"] if p["leader_id"] >= 0], [0, 1, 2], "led partitions")
    config = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
    plan.equal(config["retention.ms"]["value"], "86400000", "retention.ms")
    client.delete_topics([topic])
    plan.until("topic gone", lambda: topic not in client.list_topics())


def idempotent(bootstrap, topic, count):
    create(bootstrap, topic, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=400)
    deliver(producer, [producer.send(topic, b"%d" % i) for i in range(int(count))])
    million_read(bootstrap, topic, count, "once", partitions=1)


def million_read(bootstrap, topic, count, mode, partitions=4):
    consumer, rows = assigned(bootstrap, topic, int(partitions)), []

    def ended():
        rows.extend((m.partition, m.value) for m in poll(consumer))
        return len(rows) >= int(count) and len(rows) == sum(consumer.end_offsets(consumer.assignment()).values())

    plan.until("all read", ended, 600)
    plan.tally(rows, int(count), mode)


if __name__ == "__main__":
    plan.main(write=write, read=read, group=group, offsets=offsets, admin=admin, idempotent=idempotent)
