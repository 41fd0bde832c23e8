//! Produces batches that were built once: the broker's own limit, without a client's work in between.
//!
//! Shell; tasks on a client thread. Owns the batches of one producer and its requests in flight. Does not own connections
//! (`client::network`). Always true: the bytes of a batch are never copied again on this side; with idempotence only its
//! producer fields change, and with them the checksum, in a copy of its own per request in flight.
//!
//! Each request carries one batch to one partition; partitions take turns. What is measured is the request, so every record
//! of a batch has the latency of its request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::task::spawn_local;

use super::clock::Clock;
use super::recorder::BatchCounts;
use super::schedule::Micros;
use super::station::{Station, Told};
use super::target::{BenchError, Cluster, client_settings, partition_index};
use super::workload::Generator;
use crate::client::network::Target;
use crate::client::settings::Acks;
use crate::client::{ClientError, ProducerSettings};
use crate::protocol::admin::InitProducerIdRequest;
use crate::protocol::batch::{Builder, BuilderOptions, ProducerStamp, set_producer};
use crate::protocol::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use crate::protocol::{ErrorCode, Records};
use crate::types::{BrokerId, ProducerEpoch, ProducerId, Sequence};

/// Different batches of one producer, so that a compressing device or broker sees more than one.
const BATCHES: usize = 8;
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// One batch, ready to be sent.
struct Batch {
    bytes: Bytes,
    records: u32,
    /// Of keys and values.
    payload: u64,
    /// Of the batch without compression.
    raw: u64,
}

struct Sender {
    station: Arc<Station>,
    cluster: Cluster,
    settings: ProducerSettings,
    batches: Vec<Batch>,
    producer: Option<(ProducerId, ProducerEpoch)>,
    /// Next sequence of each partition.
    sequences: RefCell<Vec<Sequence>>,
    /// Requests so far: chooses partition and batch.
    turn: Cell<usize>,
    failed: Cell<bool>,
}

/// Producer `number`, from preparing to its last answer.
pub(crate) async fn run(station: Arc<Station>, number: u32) {
    if let Err(error) = produce(&station, number).await {
        station.tell(Told::Failed(error));
    }
}

async fn produce(station: &Arc<Station>, number: u32) -> Result<(), BenchError> {
    let plan = &station.brief.plan;
    let settings = plan.producer_settings()?;
    let cluster = Cluster::connect(client_settings(plan)?).await?;
    cluster.network.topic_ready(&station.brief.topic.name, REQUEST_TIMEOUT).await?;
    let mut generator = Generator::new(&plan.workload, number);
    let batches = (0..BATCHES).map(|_| build(&mut generator, &settings)).collect();
    // Only when asked for by name: this mode is about the broker's cost, and sequences cost this side a checksum each.
    let producer = if plan.idempotence == Some(true) { Some(producer_id(&cluster).await?) } else { None };
    let partitions = station.brief.topic.leaders.len();
    let sender = Rc::new(Sender {
        station: Arc::clone(station),
        cluster,
        settings,
        batches,
        producer,
        sequences: RefCell::new(vec![Sequence::ZERO; partitions]),
        turn: Cell::new(number as usize * partitions / plan.producers as usize),
        failed: Cell::new(false),
    });
    station.tell(Told::Ready);
    let Some(clock) = station.started().await else { return Ok(()) };
    let loops: Vec<_> = (0..plan.in_flight)
        .map(|_| {
            let sender = Rc::clone(&sender);
            spawn_local(async move { sender.one_after_the_other(clock).await })
        })
        .collect();
    let mut outcome = Ok(());
    for task in loops {
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => outcome = Err(error),
            Err(_) => outcome = Err(BenchError::Generator),
        }
    }
    outcome
}

fn build(generator: &mut Generator, settings: &ProducerSettings) -> Batch {
    let options = BuilderOptions {
        codec: settings.compression,
        level: settings.compression_level,
        producer: None,
        transactional: false,
        control: false,
    };
    let mut builder = Builder::new(options);
    let mut payload = 0;
    loop {
        let draft = generator.draft();
        // At least one record, as a client would send one that is larger than batch.size alone.
        let bytes = draft.value.len() + draft.key.map_or(0, |key| key.len());
        if builder.count() > 0 && builder.bytes() + bytes + 24 > settings.batch_size {
            break;
        }
        builder.push(0, draft.key.as_ref().map(|key| &key[..]), Some(draft.value), &[]);
        payload += bytes as u64;
    }
    let (records, raw) = (u32::try_from(builder.count()).unwrap_or(u32::MAX), builder.bytes() as u64);
    Batch { bytes: builder.finish().freeze(), records, payload, raw }
}

async fn producer_id(cluster: &Cluster) -> Result<(ProducerId, ProducerEpoch), BenchError> {
    let request = InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: 0, ..Default::default() };
    let reply = cluster.network.call(Target::Any, &request, REQUEST_TIMEOUT).await?;
    let response = reply.read::<InitProducerIdRequest<'_>>()?;
    match (response.error_code, ProducerId::new(response.producer_id), ProducerEpoch::new(response.producer_epoch)) {
        (ErrorCode::NONE, Some(id), Some(epoch)) => Ok((id, epoch)),
        (code, ..) => Err(BenchError::Plan(format!("no producer id: {}", code.sentence()))),
    }
}

impl Sender {
    /// One request in flight at a time; the plan has several such loops.
    async fn one_after_the_other(&self, clock: Clock) -> Result<(), BenchError> {
        let topic = &self.station.brief.topic;
        let acks = self.settings.acks;
        while !self.station.is_stopping() && !self.failed.get() {
            let turn = self.turn.get();
            self.turn.set(turn + 1);
            let partition = turn % topic.leaders.len();
            let batch = &self.batches[turn % self.batches.len()];
            if !self.station.may_send(u64::from(batch.records)) {
                return Ok(());
            }
            let leader = self.leader(partition);
            let bytes = self.stamped(batch, partition);
            let sent = clock.now();
            let request = ProduceRequest {
                transactional_id: None,
                acks: acks.wire(),
                timeout_ms: i32::try_from(REQUEST_TIMEOUT.as_millis()).unwrap_or(i32::MAX),
                topic_data: [ProduceTopic {
                    name: topic.name.as_str().into(),
                    partition_data: [ProducePartition {
                        index: partition_index(partition).value(),
                        records: Some(Records::of_length(bytes.len())),
                    }]
                    .into_iter()
                    .collect(),
                }]
                .into_iter()
                .collect(),
            };
            let wire_bytes = bytes.len() as u64;
            let pending = match acks {
                Acks::None => self.cluster.network.send_unanswered(leader, &request, vec![bytes], REQUEST_TIMEOUT),
                _ => self.cluster.network.send(leader, &request, vec![bytes], REQUEST_TIMEOUT),
            };
            self.station.sheet().recorder.on_sent(sent, sent, sent, u64::from(batch.records));
            let code = match pending.await {
                Ok(_) if acks == Acks::None => Ok(ErrorCode::NONE),
                Ok(reply) => reply.read::<ProduceRequest<'_>>().map(|response| {
                    let mut answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
                    answers.next().map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |answer| answer.error_code)
                }),
                Err(error) => Err(error.into()),
            };
            let Some(failure) = self.write_down(batch, sent, clock.now(), wire_bytes, code) else { continue };
            self.cluster.network.invalidate(&topic.name);
            if self.producer.is_some() {
                // The sequence is broken: everything after it would be refused, too.
                self.failed.set(true);
                return Err(BenchError::Topic { topic: topic.name.clone(), why: failure });
            }
            tokio::time::sleep(self.cluster.network.retry_backoff(1)).await;
        }
        Ok(())
    }

    /// What came of a request goes on the sheet; the name of what went wrong comes back.
    fn write_down(
        &self,
        batch: &Batch,
        sent: Micros,
        now: Micros,
        wire_bytes: u64,
        code: Result<ErrorCode, ClientError>,
    ) -> Option<String> {
        let mut sheet = self.station.sheet();
        sheet.last_us = sheet.last_us.max(now);
        let records = u64::from(batch.records);
        let failure = match code {
            Ok(ErrorCode::NONE) => {
                sheet.recorder.on_acked(now, sent, sent, records, batch.payload);
                let raw_bytes = batch.raw;
                let counts = BatchCounts {
                    requests: 1,
                    batches: 1,
                    records,
                    wire_bytes,
                    raw_bytes,
                    full: 1,
                    ..BatchCounts::default()
                };
                sheet.recorder.on_batches(now, &counts);
                return None;
            }
            Ok(code) => code.to_string(),
            Err(error) => error.to_string(),
        };
        sheet.recorder.on_failed(now, sent, sent, records);
        sheet.on_error(&failure, records);
        Some(failure)
    }

    fn leader(&self, partition: usize) -> BrokerId {
        let topic = &self.station.brief.topic;
        let known = self.cluster.network.cluster().leader(&topic.name, partition_index(partition));
        known.map_or(topic.leaders[partition], |(leader, _)| leader)
    }

    /// The batch's bytes, with the next sequence where there are sequences.
    fn stamped(&self, batch: &Batch, partition: usize) -> Bytes {
        let Some((id, epoch)) = self.producer else { return batch.bytes.clone() };
        let mut sequences = self.sequences.borrow_mut();
        let sequence = sequences[partition];
        sequences[partition] = sequence.plus(batch.records);
        let mut bytes = BytesMut::from(&batch.bytes[..]);
        set_producer(&mut bytes, Some(ProducerStamp { id, epoch, base_sequence: Some(sequence) }));
        bytes.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Plan;
    use crate::protocol::batch::{Codec, parse_header};

    #[test]
    fn a_batch_is_filled_to_batch_size_and_no_further() {
        let plan = Plan { batch_size: 16_384, ..Plan::default() };
        let settings = plan.producer_settings().unwrap();
        let mut generator = Generator::new(&plan.workload, 0);
        let batch = build(&mut generator, &settings);
        assert!(batch.bytes.len() <= 16_384 && batch.bytes.len() > 15_000, "{}", batch.bytes.len());
        assert_eq!((batch.records, batch.payload), (15, 15 * 1024));
        let info = parse_header(&batch.bytes).unwrap();
        assert_eq!((info.records, info.codec), (batch.records, Some(Codec::None)));
    }

    #[test]
    fn a_record_larger_than_batch_size_goes_alone() {
        let mut plan = Plan { batch_size: 1000, ..Plan::default() };
        plan.workload.sizes = "4KiB".parse().unwrap();
        let batch = build(&mut Generator::new(&plan.workload, 0), &plan.producer_settings().unwrap());
        assert_eq!(batch.records, 1);
    }
}
