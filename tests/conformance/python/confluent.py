"""confluent-kafka (librdkafka): the plan."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import plan


def create(bootstrap, topic, partitions, **config):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])[topic].result(30)
    return admin


def send(producer, *args, **kwargs):
    while True:
        try:
            return producer.produce(*args, **kwargs)
        except BufferError:
            producer.poll(0.1)


class Acks:
    """Counts delivery reports; an error among them is kept."""

    def __init__(self):
        self.count, self.error = 0, None

    def __call__(self, error, message):
        self.count += 1
        self.error = self.error or error


def deliver(producer, acks, count):
    producer.flush(300)
    assert acks.error is None, acks.error
    plan.equal(acks.count, count, "acknowledged")


def write(bootstrap, topic, codec):
    create(bootstrap, topic, plan.PARTITIONS)
    producer, acks = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}), Acks()
    for r in plan.records():
        producer.produce(topic, r.value, r.key, r.partition, on_delivery=acks, timestamp=r.timestamp, headers=r.headers)
    deliver(producer, acks, plan.RECORDS)


def assigned(bootstrap, topic, partitions):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    return consumer


def poll(consumer):
    """The next messages; errors raise, except those that librdkafka heals by itself."""
    messages = []
    for m in consumer.consume(10000, 0.2):
        if m.error() is None:
            messages.append(m)
        elif m.error().fatal() or not (m.error().retriable() or m.error().code() < 0):
            raise KafkaException(m.error())
    return messages


def read(bootstrap, *topics):
    for topic in topics:
        consumer = assigned(bootstrap, topic, plan.PARTITIONS)
        got = {p: [] for p in range(plan.PARTITIONS)}

        def complete():
            for m in poll(consumer):
                r = plan.Record(m.partition(), m.key(), m.value(), m.headers() or [], m.timestamp()[1])
                got[m.partition()].append((m.offset(), r))
            return sum(map(len, got.values())) >= plan.RECORDS

        plan.until(f"{topic} read", complete)
        for p in got:
            plan.verify(topic, p, got[p])
            plan.equal(consumer.get_watermark_offsets(TopicPartition(topic, p), 10), (0, len(got[p])), "bounds")
        consumer.close()


class Member(plan.Member):
    def work(self):
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False,
                             "auto.offset.reset": "earliest", "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
        consumer.subscribe([self.topic])
        while not self.leaving:
            messages = poll(consumer)
            if messages:
                consumer.commit(asynchronous=False)
                self.seen.update(m.value() for m in messages)
            self.owned = frozenset(p.partition for p in consumer.assignment())
        consumer.close()


def group(bootstrap, topic):
    admin = create(bootstrap, topic, 6)
    producer = Producer({"bootstrap.servers": bootstrap})

    def produce(first, last):
        for i in range(first, last):
            producer.produce(topic, b"%d" % i, partition=i % 6)
        plan.equal(producer.flush(30), 0, "left in the queue")

    plan.group_story(lambda seen: Member(bootstrap, topic, topic, seen), produce)
    committed = Consumer({"bootstrap.servers": bootstrap, "group.id": topic}).committed(
        [TopicPartition(topic, p) for p in range(6)], 30)
    plan.equal([p.offset for p in committed], [31] * 6, "committed offsets")


def offsets(bootstrap, topic):
    create(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):  # one batch each
        producer.produce(topic, b"%d" % i, timestamp=plan.BASE_MS + i * 1000)
        producer.flush(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    for time_ms, want in [(plan.BASE_MS - 1, 0), (plan.BASE_MS + 2500, 3), (plan.BASE_MS + 9000, 9), (plan.BASE_MS + 9001, -1)]:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], 30)
        plan.equal(found[0].offset, want, f"offset for base{time_ms - plan.BASE_MS:+}")
    plan.equal(consumer.get_watermark_offsets(TopicPartition(topic, 0), 30), (0, 10), "earliest and latest")


def admin(bootstrap, topic):
    client = create(bootstrap, topic, 3, retention_ms="86400000")
    try:
        create(bootstrap, topic, 3)
        raise AssertionError("created twice")
    except KafkaException as error:
        plan.equal(error.args[0].code(), KafkaError.TOPIC_ALREADY_EXISTS, "second creation")
    described = client.list_topics(topic, 30).topics[topic]
    plan.equal(sorted(described.partitions), [0, 1, 2], "partitions")
    assert all(p.leader >= 0 and p.error is None for p in described.partitions.values()), "a leader each"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    config = client.describe_configs([resource])[resource].result(30)
    plan.equal(config["retention.ms"].value, "86400000", "retention.ms")
    assert config["max.message.bytes"].is_default, "max.message.bytes is not overridden"
    client.delete_topics([topic])[topic].result(30)
    plan.until("topic gone", lambda: topic not in client.list_topics(timeout=30).topics)


def idempotent(bootstrap, topic, count):
    create(bootstrap, topic, 1)
    producer, acks = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 20}), Acks()
    for i in range(int(count)):
        send(producer, topic, b"%d" % i, on_delivery=acks)
        producer.poll(0)
    deliver(producer, acks, int(count))
    million_read(bootstrap, topic, count, "once", partitions=1)


def million_write(bootstrap, topic, count):
    create(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
                         "queue.buffering.max.messages": max(100, int(count) // 20)})  # so that progress is that of acknowledgements
    acks, step = Acks(), max(1, int(count) // 100)
    for i in range(int(count)):
        send(producer, topic, b"%d" % i, partition=i % 4, on_delivery=acks)
        if i % step == 0:
            producer.poll(0)
            print("progress", acks.count, flush=True)
    deliver(producer, acks, int(count))


def million_read(bootstrap, topic, count, mode, partitions=4):
    consumer, rows, step = assigned(bootstrap, topic, int(partitions)), [], max(1, int(count) // 100)

    def ended():
        before = len(rows) // step
        rows.extend((m.partition(), m.value()) for m in poll(consumer))
        if len(rows) // step != before:
            print("progress", len(rows), flush=True)
        return len(rows) >= int(count) and len(rows) == last()

    def last():
        try:
            return ends()
        except KafkaException:  # the broker has only just come back, and does not know the partition yet
            return None

    def ends():
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 60)[1] for p in range(int(partitions)))

    plan.until("all read", ended, 600)
    plan.tally(rows, int(count), mode)


if __name__ == "__main__":
    plan.main(write=write, read=read, group=group, offsets=offsets, admin=admin, idempotent=idempotent,
              million_write=million_write, million_read=million_read)
