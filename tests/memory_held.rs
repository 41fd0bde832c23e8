//! Does the tail cache hold what it says it holds? Cached batches are parts of the memory their requests were received into, and
//! a part keeps the whole. Alone in its binary, because it counts what the process allocates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server_support;

use ringlog::protocol::admin::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use server_support::{Broker, Client, batch, now};
use smallvec::smallvec;

const PARTITIONS: i32 = 8;
const SHARDS: usize = 2;
/// What is held may be so many times what is accounted: a part of a request that is smaller than half of an even share of its
/// memory is copied out of it.
const HELD_PER_ACCOUNTED: i64 = 2 * SHARDS as i64;
/// Whatever else a broker keeps of some hundred requests: indexes, buffers of its connections.
const BESIDE: i64 = 1 << 20;

/// Counts what is allocated now.
mod counting {
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicI64, Ordering};

    static LIVE: AtomicI64 = AtomicI64::new(0);

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    // SAFETY: every call is handed to `System` unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
            // SAFETY: the caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
            // SAFETY: the caller keeps the contract of `dealloc`.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    pub(super) fn live() -> i64 {
        LIVE.load(Ordering::Relaxed)
    }
}

fn accounted(broker: &Broker) -> i64 {
    broker.reports().iter().map(|report| report.log.tail_cache_bytes as i64).sum()
}

/// Sends one request; the codes of its partitions.
fn produce(client: &mut Client, partitions: &[(i32, &[u8])]) -> Vec<ErrorCode> {
    let data = partitions
        .iter()
        .map(|(index, records)| ProducePartition { index: *index, records: Some(Records::of_length(records.len())) });
    let topic = ProduceTopic { name: "t".into(), partition_data: data.collect() };
    let request = ProduceRequest { acks: 1, timeout_ms: 10_000, topic_data: smallvec![topic], ..Default::default() };
    let records: Vec<&[u8]> = partitions.iter().map(|(_, records)| *records).collect();
    let sent = client.send_records(11, &request, &records);
    let response = client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse));
    response.responses[0].partition_responses.iter().map(|partition| partition.error_code).collect()
}

/// A request of some hundred kilobytes that leaves nothing behind but a buffer of its size.
fn ask_much(client: &mut Client) {
    let topics = (0..2_000)
        .map(|number| MetadataRequestTopic { name: Some(format!("{number:0100}").into()), ..Default::default() });
    let request =
        MetadataRequest { topics: Some(topics.collect()), allow_auto_topic_creation: false, ..Default::default() };
    client.ask(9, &request, |_, _| ());
}

/// One request, or two, that leave a batch in this partition.
type Round<'a> = dyn Fn(&mut Client, i32) + 'a;

#[test]
fn the_tail_cache_holds_no_more_than_it_accounts_for() {
    let broker = Broker::start(SHARDS, &[("engine.tail.cache.bytes", "67108864")]);
    let mut client = broker.connect();
    let topic =
        CreatableTopic { name: "t".into(), num_partitions: PARTITIONS, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    assert_eq!(client.ask(7, &request, decoded!(CreateTopicsResponse)).topics[0].error_code, ErrorCode::NONE);
    let values = |bytes: usize| batch(now(), &["x".repeat(bytes).as_str()], None);
    let (tiny, small, usual) = (values(100), values(3_000), values(64 << 10));
    let mut damaged = usual.clone();
    *damaged.last_mut().unwrap() ^= 1;

    let usual_request: &Round = &|client, partition| {
        assert_eq!(produce(client, &[(partition, &usual)]), [ErrorCode::NONE]);
    };
    let rounds: [(&str, usize, &Round); 6] = [
        ("tiny requests", 1_000, &|client, partition| {
            assert_eq!(produce(client, &[(partition, &tiny)]), [ErrorCode::NONE]);
        }),
        ("tiny requests behind large ones", 30, &|client, partition| {
            ask_much(client);
            assert_eq!(produce(client, &[(partition, &tiny)]), [ErrorCode::NONE]);
        }),
        ("small requests behind large ones", 30, &|client, partition| {
            ask_much(client);
            assert_eq!(produce(client, &[(partition, &small)]), [ErrorCode::NONE]);
        }),
        ("small parts of large requests", 50, &|client, partition| {
            let mut parts: Vec<(i32, &[u8])> = (0..PARTITIONS).map(|index| (index, &damaged[..])).collect();
            parts[partition as usize].1 = &small;
            let codes = produce(client, &parts);
            assert_eq!(codes.iter().filter(|code| **code == ErrorCode::NONE).count(), 1);
        }),
        ("usual requests behind large ones", 10, usual_request),
        ("usual requests", 100, usual_request),
    ];
    for (what, times, round) in rounds {
        let (before, accounted_before) = (counting::live(), accounted(&broker));
        let copied_before = broker.counter("produce_copied_bytes");
        (0..times).for_each(|number| round(&mut client, number as i32 % PARTITIONS));
        let (held, said) = (counting::live() - before, accounted(&broker) - accounted_before);
        let copied = broker.counter("produce_copied_bytes") - copied_before;
        println!("{what}: {held} bytes more are held, {said} accounted for, {copied} were copied");
        assert!(said > 0, "{what}: they are cached");
        assert!(held <= said * HELD_PER_ACCOUNTED + BESIDE, "{what}: {held} bytes are held for {said}");
        if what == "usual requests" {
            assert_eq!(copied, 0, "what fills its memory stays there");
        }
    }
}
