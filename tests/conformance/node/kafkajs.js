// kafkajs: the plan. It takes lz4 and zstd only from plug-ins, which are given here as their users give them.
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')
const plan = require('./plan')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
const zstd = new Promise(resolve => ZstdCodec.run(module => resolve(new module.Streaming())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})

const retry = { retries: 100, maxRetryTime: 1000 } // outlives a restart of the broker; kafkajs gives up after 5 otherwise
const kafka = bootstrap => new Kafka({ clientId: 'plan', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })

async function connected(client, use) {
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.disconnect()
  }
}

const create = (bootstrap, topic, numPartitions, configEntries = []) =>
  connected(kafka(bootstrap).admin(), admin => admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }))

async function write(bootstrap, topic, codec) {
  const compression = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[codec]
  await create(bootstrap, topic, plan.PARTITIONS)
  await connected(kafka(bootstrap).producer(), p => p.send({ topic, compression, messages: plan.records() }))
}

// Every message up to the end offsets, given to `each(partition, message)`. kafkajs consumes only in groups.
async function consume(bootstrap, topic, each) {
  const ends = await connected(kafka(bootstrap).admin(), admin => admin.fetchTopicOffsets(topic))
  let left = ends.reduce((sum, p) => sum + Number(p.offset), 0)
  const consumer = kafka(bootstrap).consumer({ groupId: `${topic}-${process.pid}`, maxWaitTimeInMs: 500 })
  await connected(consumer, async () => {
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) each(batch.partition, message)
        left -= batch.messages.length
      },
    })
    await plan.until(`${topic} read`, () => left <= 0, 300)
  })
  assert.equal(left, 0, 'read up to the end offsets')
}

async function read(bootstrap, ...topics) {
  for (const topic of topics) {
    const got = [[], [], []]
    await consume(bootstrap, topic, (partition, { offset, key, value, headers, timestamp }) =>
      got[partition].push({ offset, partition, key, value, headers, timestamp }))
    got.forEach((rows, partition) => plan.verify(topic, partition, rows))
  }
}

async function member(bootstrap, topic, seen) {
  const consumer = kafka(bootstrap).consumer({ groupId: topic, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 500 })
  const owned = new Set()
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned.clear()
    for (const partition of payload.memberAssignment[topic] ?? []) owned.add(partition)
  })
  consumer.on(consumer.events.REBALANCING, () => owned.clear())
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch: { partition, messages } }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(messages.at(-1).offset) + 1) }])
      for (const { value } of messages) seen.set(String(value), (seen.get(String(value)) ?? 0) + 1)
    },
  })
  return { owned, leave: () => consumer.disconnect() }
}

async function group(bootstrap, topic) {
  await create(bootstrap, topic, plan.GROUP_PARTITIONS)
  await connected(kafka(bootstrap).producer(), producer =>
    plan.groupStory(seen => member(bootstrap, topic, seen), async (first, last) => {
      const messages = []
      for (let i = first; i < last; i++) messages.push({ value: String(i), partition: i % plan.GROUP_PARTITIONS })
      await producer.send({ topic, messages })
    }))
  const [committed] = await connected(kafka(bootstrap).admin(), admin => admin.fetchOffsets({ groupId: topic, topics: [topic] }))
  assert.deepEqual(committed.partitions.map(p => p.offset), Array(plan.GROUP_PARTITIONS).fill('31'))
}

async function offsets(bootstrap, topic) {
  await create(bootstrap, topic, 1)
  await connected(kafka(bootstrap).producer(), async producer => {
    for (let i = 0; i < 10; i++) { // one batch each
      const [sent] = await producer.send({ topic, messages: [{ value: String(i), timestamp: String(plan.BASE_MS + i * 1000) }] })
      assert.equal(sent.baseOffset, String(i))
    }
  })
  await connected(kafka(bootstrap).admin(), async admin => {
    for (const [later, want] of [[-1, '0'], [2500, '3'], [9000, '9'], [9001, '10']]) { // kafkajs turns "none" into the end
      const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, plan.BASE_MS + later)
      assert.equal(found.offset, want, `offset for base+${later}`)
    }
    assert.deepEqual(await admin.fetchTopicOffsets(topic), [{ partition: 0, offset: '10', high: '10', low: '0' }])
  })
}

async function admin(bootstrap, topic) {
  await create(bootstrap, topic, 3, [{ name: 'retention.ms', value: '86400000' }])
  await connected(kafka(bootstrap).admin(), async client => {
    assert.equal(await client.createTopics({ topics: [{ topic, numPartitions: 3 }] }), false, 'created twice')
    const [described] = (await client.fetchTopicMetadata({ topics: [topic] })).topics
    assert.deepEqual(described.partitions.map(p => p.partitionId).sort(), [0, 1, 2])
    const { resources: [config] } = await client.describeConfigs({
      includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }],
    })
    assert.equal(config.configEntries[0].configValue, '86400000')
    await client.deleteTopics({ topics: [topic] })
    await plan.until('topic gone', async () => !(await client.listTopics()).includes(topic))
  })
}

async function produce(bootstrap, topic, partitions, count, perRequest) {
  await connected(kafka(bootstrap).producer({ idempotent: true, maxInFlightRequests: 1 }), async producer => {
    for (let i = 0; i < count;) {
      const messages = []
      for (; messages.length < perRequest && i < count; i++) messages.push({ value: String(i), partition: i % partitions })
      await producer.send({ topic, acks: -1, messages })
      console.log('progress', i)
    }
  })
}

async function readBack(bootstrap, topic, count, mode) {
  const tally = new plan.Tally(count)
  await consume(bootstrap, topic, (partition, { value }) => tally.add(partition, value))
  tally.judge(mode)
}

async function idempotent(bootstrap, topic, count) {
  await create(bootstrap, topic, 1)
  await produce(bootstrap, topic, 1, Number(count), 50)
  await readBack(bootstrap, topic, Number(count), 'once')
}

async function millionWrite(bootstrap, topic, count) {
  await create(bootstrap, topic, 4)
  await produce(bootstrap, topic, 4, Number(count), 2000)
}

const millionRead = (bootstrap, topic, count, mode) => readBack(bootstrap, topic, Number(count), mode)

plan.main({ write, read, group, offsets, admin, idempotent, 'million-write': millionWrite, 'million-read': millionRead })
