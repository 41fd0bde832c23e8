"""aiokafka (asyncio, its own protocol stack): the plan."""

import asyncio
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

import plan


@asynccontextmanager
async def administrator(bootstrap):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(bootstrap, topic, partitions, config=None):
    async with administrator(bootstrap) as admin:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config or {})])
        for name, code, *_ in answer.topic_errors:
            if code:
                raise for_code(code)(name)


async def write(bootstrap, topic, codec):
    await create(bootstrap, topic, plan.PARTITIONS)
    compression = None if codec == "none" else codec
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=compression, linger_ms=50) as producer:
        await asyncio.gather(*[await producer.send(topic, r.value, r.key, r.partition, r.timestamp, r.headers)
                               for r in plan.records()])


async def poll(consumer):
    return [m for messages in (await consumer.getmany(timeout_ms=200)).values() for m in messages]


async def read_all(bootstrap, topic, partitions, count):
    """Every message of `topic`, which must be exactly `count` by the end offsets."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        every = [TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(every)
        messages = []
        while len(messages) < count:
            messages += await poll(consumer)
        plan.equal(sum((await consumer.end_offsets(every)).values()), len(messages), "read up to the end offsets")
        return messages


async def read(bootstrap, *topics):
    for topic in topics:
        messages = await read_all(bootstrap, topic, plan.PARTITIONS, plan.RECORDS)
        for p in range(plan.PARTITIONS):
            plan.verify(topic, p, [(m.offset, plan.Record(p, m.key, m.value, list(m.headers), m.timestamp))
                                   for m in messages if m.partition == p])


class Member(plan.Member):
    def work(self):
        asyncio.run(self.consume())

    async def consume(self):
        async with AIOKafkaConsumer(self.topic, bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False,
                                    auto_offset_reset="earliest", heartbeat_interval_ms=500) as consumer:
            while not self.leaving:
                messages = await poll(consumer)
                if messages:
                    await consumer.commit()
                    self.seen.update(m.value for m in messages)
                self.owned = frozenset(p.partition for p in consumer.assignment())


async def send_range(bootstrap, topic, first, last):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for i in range(first, last):
            await producer.send_and_wait(topic, b"%d" % i, partition=i % 6)


async def committed(bootstrap, topic):
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        return [await consumer.committed(TopicPartition(topic, p)) for p in range(6)]


def group(bootstrap, topic):
    """Each member has a thread with an event loop of its own."""
    asyncio.run(create(bootstrap, topic, 6))
    plan.group_story(lambda seen: Member(bootstrap, topic, topic, seen),
                     lambda first, last: asyncio.run(send_range(bootstrap, topic, first, last)))
    plan.equal(asyncio.run(committed(bootstrap, topic)), [31] * 6, "committed offsets")


async def offsets(bootstrap, topic):
    await create(bootstrap, topic, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for i in range(10):  # one batch each
            await producer.send_and_wait(topic, b"%d" % i, timestamp_ms=plan.BASE_MS + i * 1000)
    tp = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        for later, want in [(-1, 0), (2500, 3), (9000, 9), (9001, None)]:
            found = (await consumer.offsets_for_times({tp: plan.BASE_MS + later}))[tp]
            plan.equal(found and found.offset, want, f"offset for base{later:+}")
        bounds = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
        plan.equal(bounds, (0, 10), "earliest and latest")


async def admin(bootstrap, topic):
    await create(bootstrap, topic, 3, {"retention.ms": "86400000"})
    try:
        await create(bootstrap, topic, 3)
        raise RuntimeError("created twice")
    except TopicAlreadyExistsError:
        pass
    async with administrator(bootstrap) as client:
        [described] = await client.describe_topics([topic])
        plan.equal(sorted(p["partition"] for p in described["partitions"] if p["leader"] >= 0), [0, 1, 2], "led partitions")
        [answer] = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        config = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        plan.equal(config["retention.ms"], "86400000", "retention.ms")
        await client.delete_topics([topic])
        while topic in await client.list_topics():
            await asyncio.sleep(0.05)


async def idempotent(bootstrap, topic, count):
    await create(bootstrap, topic, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=400) as producer:
        await asyncio.gather(*[await producer.send(topic, b"%d" % i) for i in range(int(count))])
    messages = await read_all(bootstrap, topic, 1, int(count))
    plan.tally([(m.partition, m.value) for m in messages], int(count), "once")


def bounded(scenario):
    """A coroutine as a scenario that ends within its time."""
    return lambda *arguments: asyncio.run(asyncio.wait_for(scenario(*arguments), 120))


if __name__ == "__main__":
    plan.main(write=bounded(write), read=bounded(read), group=group, offsets=bounded(offsets), admin=bounded(admin),
              idempotent=bounded(idempotent))
