// What the Node client here does and expects: the records of the plan, the story of a group, the command line. The plan
// is the same in every language (README.md beside this folder says it once).
const assert = require('node:assert/strict')

const PARTITIONS = 3
const RECORDS = 90
const GROUP_PARTITIONS = 6
const BASE_MS = Number(process.env.BASE_MS ?? Date.now()) // close to now, so that no retention takes the records

// Record number `i` of a write: null, empty and plain keys and values, repeated headers, own timestamp.
function record(i) {
  const text = Buffer.concat([Buffer.from(`value-${i};`.repeat(20)), Buffer.from([0, 255])])
  return {
    partition: i % PARTITIONS,
    key: i % 5 === 0 ? null : Buffer.from(i % 5 === 1 ? '' : `key-${i}`),
    value: i % 5 === 2 ? null : i % 7 === 1 ? Buffer.alloc(0) : text,
    headers: i % 4 === 0 ? {} : { a: [Buffer.from(`${i}`), Buffer.from('again')], bin: Buffer.from([0, 255]) },
    timestamp: String(BASE_MS + i * 10),
  }
}

const records = () => Array.from({ length: RECORDS }, (_, i) => record(i))

// `got`: records with `offset`, of one partition, in the order read.
function verify(topic, partition, got) {
  const want = records().filter(r => r.partition === partition).map((r, i) => ({ offset: String(i), ...r }))
  want.forEach((w, i) => assert.deepEqual(got[i], w, `${topic}-${partition} at ${i}`))
  assert.equal(got.length, want.length, `records in ${topic}-${partition}`)
}

// Waits for `condition`; the bound is for a broker that never gets there.
async function until(what, condition, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; !(await condition()); await new Promise(r => setTimeout(r, 50))) {
    assert(Date.now() < end, `not within ${seconds} s: ${what}`)
  }
}

// Two members, a third, then one alone, then a newcomer: every partition is owned by exactly one of them and each record
// is seen once. `start(seen)` gives { owned: Set, leave() }, whose member counts in `seen` (a Map) what it has committed;
// `produce(first, last)` writes the numbers first … last-1, spread over all partitions.
async function groupStory(start, produce) {
  const seen = new Map()
  let total = 0
  const settle = async members => {
    let held = 0
    await until(`${members.length} members own all partitions`, () => {
      const all = members.flatMap(m => [...m.owned]).sort()
      held = members.every(m => m.owned.size > 0) && all.join() === '0,1,2,3,4,5' ? held + 1 : 0
      return held === 5 // held for a fifth of a second, not seen in passing
    })
  }
  const consume = async count => {
    await produce(total, (total += count))
    await until(`${total} records seen`, () => seen.size === total)
  }
  const [a, b] = [await start(seen), await start(seen)]
  await settle([a, b])
  await consume(60)
  const c = await start(seen)
  await settle([a, b, c])
  await consume(60)
  await a.leave()
  await b.leave()
  await settle([c])
  await consume(60)
  await c.leave()
  const d = await start(seen) // goes on from the committed offsets
  await consume(6)
  await d.leave()
  for (let i = 0; i < total; i++) assert.equal(seen.get(String(i)), 1, `times that record ${i} was seen`)
}

// Takes what was read in its order: all of 0..count must be there; with 'once' nothing twice or out of order, with
// 'again' repeats are counted, not refused.
class Tally {
  constructor(count) {
    Object.assign(this, { count, seen: new Set(), last: {}, rows: 0, repeats: 0, disorder: 0 })
  }
  add(partition, value) {
    const i = Number(value)
    if (this.seen.has(i)) this.repeats++
    if (i <= (this.last[partition] ?? -1)) this.disorder++
    this.seen.add(i)
    this.last[partition] = i
    progress(++this.rows, this.count)
  }
  judge(mode) {
    const missing = this.count - this.seen.size
    console.log(`read ${this.seen.size} of ${this.count}: ${missing} missing, ${this.repeats} repeated, ${this.disorder} out of order`)
    assert(missing === 0 && (mode === 'again' || this.repeats + this.disorder === 0))
  }
}

// Prints a hundred lines in a long run: the script that kills the broker reads them.
function progress(done, count) {
  if (done % Math.max(1, Math.floor(count / 100)) === 0) console.log('progress', done)
}

// SCENARIO BOOTSTRAP TOPIC [ARG …]
function main(scenarios) {
  const [scenario, ...args] = process.argv.slice(2)
  scenarios[scenario](...args).then(() => process.exit(0), error => {
    console.error(error)
    process.exit(1)
  })
}

module.exports = { PARTITIONS, RECORDS, GROUP_PARTITIONS, BASE_MS, records, verify, until, groupStory, Tally, progress, main }
