//! The coordinators of one shard: one for each partition of `__consumer_offsets` it owns.
//!
//! Shell. Owns which coordinators there are and how they are loaded; not what they decide (`coordinator`). Always: a
//! coordinator lives for one leadership of its partition, is loaded from the whole of it before it serves, and is unloaded
//! before its log goes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use bytes::BytesMut;

use crate::config::BrokerSettings;
use crate::coordinator::command::{GroupAnswer, GroupCommand, GroupError, GroupSettings, ListFilter};
use crate::coordinator::{Coordinator, Durable, Journal, JournalError};
use crate::log::AppendError;
use crate::protocol::batch;
use crate::replica::{Isolation, Partition, ProduceError, ReadRequest};
use crate::rt;
use crate::rt::hop::Responder;
use crate::rt::net::Payload;
use crate::shard::calls::{ListedGroups, ShardAnswer};
use crate::shard::{Shard, now_ms};
use crate::types::{Offset, PartitionId, TopicName};

/// Where groups and their offsets live.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Read at a time while loading.
const LOAD_BYTES: usize = 1 << 20;

/// The coordinators.
#[derive(Default)]
pub(super) struct Coordinators {
    by_partition: RefCell<HashMap<PartitionId, Coordinator>>,
}

impl Coordinators {
    /// The partition is led no longer, or from a new epoch on: its coordinator ends.
    pub(super) fn unload(&self, id: PartitionId) {
        let ended = self.by_partition.borrow_mut().remove(&id);
        if let Some(coordinator) = ended {
            coordinator.unload();
        }
    }

    /// The shard stops.
    pub(super) fn unload_all(&self) {
        let ended: Vec<_> = self.by_partition.borrow_mut().drain().map(|(_, coordinator)| coordinator).collect();
        ended.iter().for_each(Coordinator::unload);
    }

    /// Offsets committed for these topics go.
    pub(super) fn topics_deleted(&self, topics: &[TopicName]) {
        for coordinator in self.all() {
            coordinator.submit(GroupCommand::TopicsDeleted(topics.to_vec()), Box::new(|_| {}));
        }
    }

    fn all(&self) -> Vec<Coordinator> {
        self.by_partition.borrow().values().cloned().collect()
    }
}

impl Shard {
    /// This broker leads `partition` from now on: if groups live there, their coordinator is loaded in the background.
    pub(super) fn coordinate(self: &Rc<Self>, partition: &Rc<Partition>) {
        if &*partition.name().topic != OFFSETS_TOPIC {
            return;
        }
        let journal = Box::new(PartitionJournal { partition: partition.clone() });
        let coordinator = Coordinator::new(group_settings(&self.settings), journal);
        self.coordinators.unload(partition.id());
        self.coordinators.by_partition.borrow_mut().insert(partition.id(), coordinator.clone());
        let partition = partition.clone();
        rt::spawn_background(async move {
            match load(&coordinator, &partition).await {
                Ok(()) => {
                    let report = coordinator.finish_loading();
                    if report.records > 0 {
                        let (records, groups) = (report.records, report.groups);
                        tracing::debug!(partition = %partition.name(), records, groups, "groups loaded");
                    }
                    if report.skipped > 0 {
                        let (partition, skipped) = (partition.name(), report.skipped);
                        tracing::info!(%partition, skipped, "records not of groups are kept, and so are the old ones of groups");
                    }
                }
                Err(reason) => {
                    tracing::error!(partition = %partition.name(), reason, "groups did not load; their coordinator is off");
                    coordinator.unload();
                }
            }
        });
    }

    /// Hands a command to the coordinator of `partition`; its answer may take minutes.
    pub(super) fn on_group_command(
        &self,
        partition: PartitionId,
        command: GroupCommand,
        responder: Responder<ShardAnswer>,
    ) {
        let coordinator = self.coordinators.by_partition.borrow().get(&partition).cloned();
        let Some(coordinator) = coordinator else {
            let refused = command.refused(GroupError::NotCoordinator);
            return responder.answer(ShardAnswer::Group(Box::new(refused)));
        };
        let respond = move |answer| responder.answer(ShardAnswer::Group(Box::new(answer)));
        coordinator.submit(command, Box::new(respond));
    }

    /// The groups of every coordinator of this shard, and the first error, if one of them is still loading.
    pub(super) fn on_list_groups(&self, filter: &ListFilter, responder: Responder<ShardAnswer>) {
        let gathered = Rc::new(Gathered { listed: RefCell::default(), responder: RefCell::new(Some(responder)) });
        for coordinator in self.coordinators.all() {
            let gathered = gathered.clone();
            let respond = move |answer| gathered.add(answer);
            coordinator.submit(GroupCommand::List(filter.clone()), Box::new(respond));
        }
    }
}

/// A list of groups under way, answered when the last coordinator has told its own.
struct Gathered {
    listed: RefCell<ListedGroups>,
    responder: RefCell<Option<Responder<ShardAnswer>>>,
}

impl Gathered {
    fn add(&self, answer: GroupAnswer) {
        let mut all = self.listed.borrow_mut();
        match answer {
            GroupAnswer::List(Ok(listed)) => all.groups.extend(listed),
            // As in Kafka: the groups that failed to load are not here, which says nothing about the others.
            GroupAnswer::List(Err(GroupError::NotCoordinator)) => {}
            GroupAnswer::List(Err(error)) => all.error = all.error.or(Some(error)),
            other => unreachable!("a list was answered with {other:?}"),
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.get_mut().take() {
            responder.answer(ShardAnswer::Groups(std::mem::take(self.listed.get_mut())));
        }
    }
}

fn group_settings(settings: &BrokerSettings) -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay: settings.group_initial_rebalance_delay,
        min_session_timeout: settings.group_min_session_timeout,
        max_session_timeout: settings.group_max_session_timeout,
        max_size: settings.group_max_size as usize,
        offset_metadata_max: settings.offset_metadata_max_bytes as usize,
        offsets_retention: settings.offsets_retention,
        retention_check_interval: settings.offsets_retention_check_interval,
    }
}

/// Feeds everything the partition holds to its coordinator. Nothing is appended meanwhile: it writes only once it is loaded.
async fn load(coordinator: &Coordinator, partition: &Partition) -> Result<(), String> {
    let end = partition.limits().high_watermark;
    let mut from = partition.limits().log_start;
    while from < end {
        let wanted =
            ReadRequest { from, bytes_max: LOAD_BYTES, at_least_one: true, isolation: Isolation::ReadUncommitted };
        let (_, plan) = partition.plan_read(wanted).map_err(|error| error.to_string())?;
        let Some(plan) = plan else { break };
        let data = plan.run().await.map_err(|error| error.to_string())?;
        let bytes = contiguous(&data.parts);
        let mut rest = &bytes[..];
        let mut next = from;
        while !rest.is_empty() {
            let info = batch::parse_header(rest).map_err(|error| format!("after offset {next}: {error}"))?;
            let (one, others) = rest.split_at_checked(info.bytes as usize).ok_or("a batch was read in part")?;
            coordinator.load_batch(one).map_err(|error| error.to_string())?;
            rest = others;
            next = Offset::new(info.base_offset).ok_or("a negative offset")?.plus(info.last_offset_delta).next();
            rt::yield_if_needed().await;
        }
        if next <= from {
            return Err(format!("nothing was read at offset {from}, below the high watermark {end}"));
        }
        from = next;
    }
    Ok(())
}

fn contiguous(parts: &[Payload]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(Payload::len).sum());
    for part in parts {
        match part {
            Payload::Mem(memory) => bytes.extend_from_slice(memory),
            Payload::Disk(slice) => bytes.extend_from_slice(slice.as_slice()),
        }
    }
    bytes
}

/// One partition of `__consumer_offsets` as a coordinator's log.
struct PartitionJournal {
    partition: Rc<Partition>,
}

impl Journal for PartitionJournal {
    fn append(&self, batch: BytesMut) -> Result<Durable, JournalError> {
        let bytes_max = self.partition.settings().max_message_bytes as usize;
        if batch.len() > bytes_max {
            return Err(JournalError::TooLarge(format!("{} bytes; max.message.bytes is {bytes_max}", batch.len())));
        }
        let info = batch::parse_header(&batch).expect("the coordinator builds whole batches");
        let appended = self.partition.append_as_leader(batch, info, now_ms()).map_err(journal_error)?;
        let acked = self.partition.acked(appended.last_offset.next());
        // No time-out: an error here means "not in the log", and a batch that came through after one would make memory and
        // log differ until the next start. It resolves when the class is reached or the log ends.
        Ok(Box::pin(async move { acked.await.map_err(journal_error) }))
    }

    fn log_end(&self) -> Option<Offset> {
        Some(self.partition.limits().log_end)
    }

    fn discard_before(&self, offset: Offset) {
        let partition = Rc::clone(&self.partition);
        rt::spawn_background(async move {
            let log = partition.log();
            let outcome = match log.flush().await {
                Ok(_) => log.delete_records(offset).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                tracing::warn!(partition = %partition.name(), %offset, %error, "rewritten group records were not trimmed");
            }
        });
    }
}

fn journal_error(error: ProduceError) -> JournalError {
    let reason = error.to_string();
    match error {
        ProduceError::Leadership(_) | ProduceError::Append(AppendError::Offline(_) | AppendError::NoSpace) => {
            JournalError::NotHere(reason)
        }
        ProduceError::Append(AppendError::TooLarge { .. }) => JournalError::TooLarge(reason),
        ProduceError::TimedOut
        | ProduceError::Append(
            AppendError::ProducerFenced { .. }
            | AppendError::OutOfOrderSequence { .. }
            | AppendError::InvalidTxnState(_),
        ) => JournalError::Unavailable(reason),
    }
}
