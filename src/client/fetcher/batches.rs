//! From the bytes of an answer to batches and records: what is skipped, what is damaged, what a record costs.
//!
//! Pure. Owns the walk over fetched bytes ([`walk`]) and the batches a program gets ([`RecordBatch`]). Always true: control
//! batches and, under read_committed, aborted ones are never given out, but positions move past them; offsets rise; what a
//! batch decompresses to is bounded by [`DECOMPRESSED_BYTES_MAX`]; no payload is copied unless it was compressed.
//! Source: KIP-98 (markers, aborted transactions), Kafka's FETCH answers, which end in the middle of a batch.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;

use super::Position;
use crate::client::record::{Header, Headers, Record, TimestampKind};
use crate::client::settings::IsolationLevel;
use crate::protocol::batch::{self, BatchError, BatchInfo, Codec, HEADER_BYTES, RecordIter, Records, RecordsMark};
use crate::protocol::fetch::AbortedTransaction;
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs, TopicPartition};

/// What one batch may decompress to. Producers send a few megabytes at most; a thousandfold ratio, which zeros reach, still
/// fits. Memory grows with what is there, not with what is announced.
pub const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// A marker holds a key of four bytes and a value of six.
const MARKER_BYTES_MAX: usize = 1024;

/// A batch that waits to be read, or the skipped ones between two such.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Where reading goes on behind it.
    pub(super) next: Position,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Nothing for the user.
    Skipped,
    /// As it came.
    Packed(BatchInfo, Bytes),
    /// Some of its records were taken already.
    Open(RecordBatch),
}

impl Stored {
    /// Of the frame it came in, or of what it was unpacked to.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Skipped => 0,
            Content::Packed(_, bytes) => bytes.len(),
            Content::Open(batch) => batch.body.len(),
        }
    }

    /// At most so many records are in it.
    pub(super) fn records(&self) -> usize {
        match &self.content {
            Content::Skipped => 0,
            Content::Packed(info, _) => info.records as usize,
            Content::Open(batch) => batch.mark.left() as usize,
        }
    }
}

/// What a walk found.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) stored: Vec<Stored>,
    /// Where to fetch next.
    pub(super) next: Position,
    /// What ended it early.
    pub(super) ended: Option<Ended>,
}

#[derive(Debug)]
pub(super) enum Ended {
    /// The first batch has so many bytes, and the answer held fewer.
    TooSmall(u64),
    Damaged(BatchError),
}

/// Goes through the batches of an answer to a fetch from `from` on.
pub(super) fn walk(
    records: &Bytes,
    from: Position,
    isolation: IsolationLevel,
    aborted: &[AbortedTransaction],
    check_crcs: bool,
) -> Walked {
    let mut filter = AbortFilter::new(isolation, aborted);
    let mut walked = Walked { stored: Vec::new(), next: from, ended: None };
    let mut at = 0;
    while at < records.len() {
        let rest = records.slice(at..);
        let checked = if check_crcs { batch::check_stored(&rest) } else { whole_header(&rest) };
        let info = match checked.and_then(|info| rising(&info, walked.next.offset).map(|last| (info, last))) {
            Ok((info, last)) => {
                at += info.bytes as usize;
                let Some(last) = last else { continue };
                walked.next = Position { offset: last.next(), leader_epoch: LeaderEpoch::new(info.leader_epoch) };
                info
            }
            // The answer's limit cuts the last batch; it comes whole with the next answer.
            Err(BatchError::Truncated { need, .. }) => {
                if walked.next.offset == from.offset && at == 0 {
                    walked.ended = Some(Ended::TooSmall(need));
                }
                break;
            }
            Err(error) => {
                walked.ended = Some(Ended::Damaged(error));
                break;
            }
        };
        let bytes = rest.slice(..info.bytes as usize);
        if info.records > 0 && filter.admits(&info, &bytes) {
            walked.stored.push(Stored { next: walked.next, content: Content::Packed(info, bytes) });
        } else {
            match walked.stored.last_mut() {
                Some(before) => before.next = walked.next,
                None => walked.stored.push(Stored { next: walked.next, content: Content::Skipped }),
            }
        }
    }
    walked
}

/// Without its checksum, but all of it there.
fn whole_header(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    let info = batch::parse_header(bytes)?;
    match bytes.len() as u64 {
        have if have < u64::from(info.bytes) => Err(BatchError::Truncated { need: info.bytes.into(), have }),
        _ => Ok(info),
    }
}

/// The batch's last offset; `None` if it lies wholly before `next`, as a broker that begins early may send it.
fn rising(info: &BatchInfo, next: Offset) -> Result<Option<Offset>, BatchError> {
    let last = info.base_offset.checked_add(i64::from(info.last_offset_delta)).filter(|last| *last < i64::MAX);
    match (Offset::new(info.base_offset), last.and_then(Offset::new)) {
        (Some(_), Some(last)) => Ok(Some(last).filter(|last| *last >= next)),
        _ => Err(BatchError::Invalid("impossible offsets")),
    }
}

/// Follows the transactions of one answer.
struct AbortFilter {
    isolation: IsolationLevel,
    /// Still to begin, the next one last.
    coming: Vec<(i64, i64)>,
    /// Begun and not ended.
    open: BTreeSet<ProducerId>,
}

impl AbortFilter {
    fn new(isolation: IsolationLevel, aborted: &[AbortedTransaction]) -> Self {
        let mut coming: Vec<(i64, i64)> = aborted.iter().map(|one| (one.first_offset, one.producer_id)).collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Self { isolation, coming, open: BTreeSet::new() }
    }

    /// Whether a user may see the batch.
    fn admits(&mut self, info: &BatchInfo, bytes: &[u8]) -> bool {
        if self.isolation == IsolationLevel::ReadUncommitted {
            return !info.control;
        }
        let Some(producer) = info.producer else { return !info.control };
        let last = info.base_offset + i64::from(info.last_offset_delta);
        while let Some((_, id)) = self.coming.pop_if(|(first, _)| *first <= last) {
            self.open.extend(ProducerId::new(id));
        }
        if info.control {
            if is_abort_marker(bytes) {
                self.open.remove(&producer.id);
            }
            return false;
        }
        !(info.transactional && self.open.contains(&producer.id))
    }
}

/// The key of a marker: version, then type; type 0 aborts.
fn is_abort_marker(bytes: &[u8]) -> bool {
    let Ok(records) = Records::open(bytes, MARKER_BYTES_MAX) else { return false };
    let Some(Ok(marker)) = records.iter().next() else { return false };
    marker.key.and_then(|key| key.get(2..4)) == Some(&[0, 0])
}

/// A batch for programs that read many records: its records are borrowed from it one by one, without an allocation each.
/// Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    partition: TopicPartition,
    info: BatchInfo,
    body: Bytes,
    /// Records before this were not asked for, or were taken already.
    from: Offset,
    mark: RecordsMark,
}

/// One record of a [`RecordBatch`].
#[derive(Clone, Debug, PartialEq)]
pub struct RecordView<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970.
    pub timestamp: TimestampMs,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null.
    pub value: Option<&'a [u8]>,
    /// In their order; none take no heap.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

impl RecordBatch {
    /// Unpacks a batch that was found whole; records before `from` are passed over.
    pub(super) fn open(
        partition: TopicPartition,
        info: BatchInfo,
        bytes: &Bytes,
        from: Offset,
    ) -> Result<Self, BatchError> {
        let body = match info.codec {
            Some(Codec::None) => bytes.slice(HEADER_BYTES..info.bytes as usize),
            _ => match Records::open(bytes, DECOMPRESSED_BYTES_MAX)?.into_body() {
                Cow::Owned(body) => Bytes::from(body),
                Cow::Borrowed(body) => bytes.slice_ref(body),
            },
        };
        Ok(Self { partition, info, body, from, mark: RecordsMark::start(&info) })
    }

    /// Where it was read.
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Its header.
    pub fn info(&self) -> &BatchInfo {
        &self.info
    }

    /// Whose time its records carry.
    pub fn timestamp_kind(&self) -> TimestampKind {
        if self.info.log_append_time { TimestampKind::LogAppend } else { TimestampKind::Create }
    }

    /// The epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        LeaderEpoch::new(self.info.leader_epoch)
    }

    /// One by one, those that were asked for. Errors: the batch is damaged inside, which its checksum did not show; nothing
    /// comes after that.
    pub fn iter(&self) -> RecordViews<'_> {
        RecordViews { batch: self, records: RecordIter::resume(&self.info, &self.body, self.mark) }
    }

    /// A record with its own share of the batch's bytes.
    pub fn to_record(&self, view: &RecordView<'_>) -> Record {
        let share = |bytes: &[u8]| self.body.slice_ref(bytes);
        let header = |(name, value): &(&str, Option<&[u8]>)| Header { name: (*name).into(), value: value.map(share) };
        Record {
            topic: self.partition.topic.clone(),
            partition: self.partition.partition,
            offset: view.offset,
            timestamp: view.timestamp,
            timestamp_kind: self.timestamp_kind(),
            key: view.key.map(share),
            value: view.value.map(share),
            headers: if view.headers.is_empty() { Headers::new() } else { view.headers.iter().map(header).collect() },
            leader_epoch: self.leader_epoch(),
        }
    }

    /// Moves up to `count` records to the end of `out`. Errors: as [`RecordBatch::iter`]; what came before is in `out`.
    pub(super) fn take_into(&mut self, count: usize, out: &mut Vec<Record>) -> Result<Taken, BatchError> {
        let mut views = self.iter();
        let (mut taken, mut last) = (0, None);
        let mut ended = Taken::All;
        let mut failed = None;
        while taken < count {
            match views.next() {
                Some(Ok(view)) => {
                    last = Some(view.offset);
                    out.push(self.to_record(&view));
                    taken += 1;
                }
                Some(Err(error)) => {
                    failed = Some(error);
                    break;
                }
                None => break,
            }
        }
        let mark = views.records.mark(&self.body);
        if failed.is_none() && mark.left() > 0 {
            ended = Taken::Some;
        }
        self.mark = mark;
        if let Some(last) = last {
            self.from = last.next();
        }
        failed.map_or(Ok(ended), Err)
    }

    /// The first offset that was not taken.
    pub(super) fn from(&self) -> Offset {
        self.from
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing is left.
    All,
    /// There is more.
    Some,
}

/// See [`RecordBatch::iter`].
pub struct RecordViews<'a> {
    batch: &'a RecordBatch,
    records: RecordIter<'a>,
}

impl<'a> Iterator for RecordViews<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            let offset = Offset::new(self.batch.info.base_offset)?.plus(record.offset_delta);
            if offset >= self.batch.from {
                let batch::Record { timestamp, key, value, headers, .. } = record;
                return Some(Ok(RecordView { offset, timestamp, key, value, headers }));
            }
        }
    }
}
