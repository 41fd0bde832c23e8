//! One batch on its way: it is filled, sealed into its wire form, sent, sealed anew under another sequence, or split.
//!
//! Pure. Owns the records of the batch and who waits for each of them (`W`). Does not own its place in a queue
//! (`accumulator`) nor what is sent when (`sender`). Always true: while somebody waits, there is one waiter per record, in
//! the order of the records; sealed bytes carry the stamp they were last sealed with.
//! Source: Kafka's `ProducerBatch`.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::record::{Header, RecordRef};
use crate::protocol::batch::{self, Builder, BuilderOptions, Codec, HEADER_BYTES, ProducerStamp, Records};
use crate::types::{BrokerId, TimestampMs};

/// What the estimate of a compressed size is multiplied with: estimates below the truth make batches that are refused.
const ESTIMATE_MARGIN: f32 = 1.05;

/// A partition, by its places in the accumulator's tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Place {
    /// Which topic.
    pub(crate) topic: u32,
    /// The partition's number.
    pub(crate) partition: u32,
}

/// The borrowed headers of a record, as the batch wants them.
pub(crate) fn borrowed(headers: &[Header]) -> impl ExactSizeIterator<Item = (&str, Option<&[u8]>)> + Clone {
    headers.iter().map(|header| (&*header.name, header.value.as_deref()))
}

/// What is the same for all batches of a producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchForm {
    /// `batch.size`.
    pub(crate) batch_bytes: usize,
    /// `compression.type`.
    pub(crate) codec: Codec,
    /// Its level; `None` is Kafka's default.
    pub(crate) level: Option<i32>,
}

impl BatchForm {
    fn options(&self) -> BuilderOptions {
        BuilderOptions { codec: self.codec, level: self.level, producer: None, transactional: false, control: false }
    }
}

/// One batch.
pub(crate) struct Batch<W> {
    /// Where it goes.
    pub(crate) place: Place,
    /// How many records of the partition came before its first: its place in the order of the partition.
    pub(crate) ordinal: u64,
    /// Which flush waits for it: see the accumulator.
    pub(crate) generation: u64,
    /// When it was begun.
    pub(crate) created: Instant,
    /// One for each record; none when they have been answered already.
    pub(crate) waiters: Vec<W>,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// Not to be sent again earlier, to the broker it was sent to last.
    pub(crate) not_before: Option<Instant>,
    /// The broker it was sent to last.
    pub(crate) sent_to: Option<BrokerId>,
    /// Of an idempotent producer, once it was given a sequence.
    pub(crate) stamp: Option<ProducerStamp>,
    /// Some attempt had no clear answer: it may lie in the log.
    pub(crate) maybe_written: bool,
    /// Its time was up while it was in flight; its waiters have been told.
    pub(crate) expired: bool,
    /// The last thing that went wrong.
    pub(crate) trouble: Option<Box<str>>,
    body: Body,
    records: u32,
    raw_bytes: usize,
    split: bool,
    /// Takes no further record, though it has some room.
    closed: bool,
}

enum Body {
    Open(Builder),
    Sealed {
        bytes: Bytes,
        stamp: Option<ProducerStamp>,
    },
    /// Only while a value of the others is being made.
    Moving,
}

impl<W> Batch<W> {
    /// An empty one in the memory of `buffer` and `waiters`.
    pub(crate) fn new(
        form: &BatchForm,
        place: Place,
        ordinal: u64,
        generation: u64,
        created: Instant,
        buffer: BytesMut,
        waiters: Vec<W>,
    ) -> Self {
        debug_assert!(waiters.is_empty(), "waiters of another batch");
        Self {
            place,
            ordinal,
            generation,
            created,
            waiters,
            attempts: 0,
            not_before: None,
            sent_to: None,
            stamp: None,
            maybe_written: false,
            expired: false,
            trouble: None,
            body: Body::Open(Builder::with_buffer(form.options(), buffer)),
            records: 0,
            raw_bytes: HEADER_BYTES,
            split: false,
            closed: false,
        }
    }

    /// Adds a record if the batch is open and has room for it; the first one always has. Gives the bytes it took.
    #[inline]
    pub(crate) fn try_push(
        &mut self,
        form: &BatchForm,
        ratio: f32,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        waiter: impl FnOnce() -> W,
    ) -> Option<usize> {
        let room = match self.records {
            0 => usize::MAX,
            _ => form.batch_bytes.saturating_sub(self.estimate(form, ratio)),
        };
        let Body::Open(builder) = &mut self.body else { return None };
        if self.closed || !builder.push_within(room, timestamp, record.key, record.value, borrowed(record.headers)) {
            return None;
        }
        let grown = builder.bytes() - self.raw_bytes;
        self.raw_bytes += grown;
        self.records += 1;
        self.waiters.push(waiter());
        Some(grown)
    }

    /// Closes an open batch that has no room for the record; gives the bytes that stay empty, if it did so now.
    pub(crate) fn close_for(
        &mut self,
        form: &BatchForm,
        ratio: f32,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
    ) -> Option<usize> {
        let Body::Open(builder) = &self.body else { return None };
        let room = form.batch_bytes.saturating_sub(self.estimate(form, ratio));
        if self.closed
            || self.records == 0
            || builder.next_bytes(timestamp, record.key, record.value, borrowed(record.headers)) <= room
        {
            return None;
        }
        self.closed = true;
        Some(room)
    }

    /// Bytes it will take on the wire, as far as that can be known before it is compressed.
    fn estimate(&self, form: &BatchForm, ratio: f32) -> usize {
        match form.codec {
            Codec::None => self.raw_bytes,
            _ => HEADER_BYTES + ((self.raw_bytes - HEADER_BYTES) as f32 * ratio * ESTIMATE_MARGIN) as usize,
        }
    }

    /// Whether no record can be added any more.
    pub(crate) fn is_full(&self, form: &BatchForm, ratio: f32) -> bool {
        match self.body {
            Body::Open(_) => self.closed || self.records > 0 && self.estimate(form, ratio) >= form.batch_bytes,
            _ => true,
        }
    }

    /// Whether it never left the queue and can still grow.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.body, Body::Open(_))
    }

    /// Bytes on the wire: known, or estimated.
    pub(crate) fn wire_bytes(&self, form: &BatchForm, ratio: f32) -> usize {
        match &self.body {
            Body::Sealed { bytes, .. } => bytes.len(),
            _ => self.estimate(form, ratio),
        }
    }

    /// How many records.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Bytes before compression: what it takes of `buffer.memory`.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// When its time is up.
    pub(crate) fn deadline(&self, delivery_timeout: Duration) -> Instant {
        self.created + delivery_timeout
    }

    /// The wire form under the stamp it has now. Compresses and sums up the first time; later only what a new stamp changes.
    /// Gives back the buffer the records were gathered in, when compression took them out of it.
    pub(crate) fn seal(&mut self) -> (Bytes, Option<BytesMut>) {
        let (bytes, kept) = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Open(mut builder) => {
                builder.set_producer(self.stamp);
                let (bytes, kept) = builder.finish_keeping();
                (bytes.freeze(), kept)
            }
            Body::Sealed { bytes, stamp } if stamp == self.stamp => (bytes, None),
            Body::Sealed { bytes, .. } => {
                // The network may still hold the bytes of an attempt that was given up: those stay as they are.
                let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
                batch::set_producer(&mut bytes, self.stamp);
                (bytes.freeze(), None)
            }
            Body::Moving => unreachable!("a batch is whole between two calls"),
        };
        self.body = Body::Sealed { bytes: bytes.clone(), stamp: self.stamp };
        (bytes, kept)
    }

    /// What compression made of it: wire bytes by raw bytes; `None` before it is sealed.
    pub(crate) fn ratio(&self) -> Option<f32> {
        match &self.body {
            Body::Sealed { bytes, .. } if self.raw_bytes > HEADER_BYTES => {
                Some((bytes.len() - HEADER_BYTES) as f32 / (self.raw_bytes - HEADER_BYTES) as f32)
            }
            _ => None,
        }
    }

    /// Ends it. Gives its buffer back if nobody else holds it.
    pub(crate) fn into_buffer(self) -> Option<BytesMut> {
        match self.body {
            Body::Sealed { bytes, .. } => bytes.try_into_mut().ok(),
            _ => None,
        }
    }

    /// Takes the waiters out, to be told.
    pub(crate) fn take_waiters(&mut self) -> Vec<W> {
        std::mem::take(&mut self.waiters)
    }

    /// In two or more parts, in order, with the sequences their records had: a broker found it too large. Each part has at
    /// least one record; a batch of one record comes back as it was.
    pub(crate) fn split(mut self, form: &BatchForm) -> Vec<Self> {
        let Body::Sealed { bytes, .. } = &self.body else { return vec![self] };
        let Ok(opened) = Records::open(bytes, self.raw_bytes) else { return vec![self] };
        // To batch.size first, which the topic may well allow; then by halves.
        let half = (self.raw_bytes - HEADER_BYTES) / 2 + HEADER_BYTES;
        let part_bytes = if self.split { half } else { half.min(form.batch_bytes) };
        let mut parts: Vec<Self> = Vec::new();
        let mut waiters = std::mem::take(&mut self.waiters).into_iter();
        let mut before = 0;
        for record in opened.iter() {
            let Ok(record) = record else { break };
            let headers = record.headers.iter().copied();
            let pushed = parts.last_mut().is_some_and(|part| {
                let room = part_bytes.saturating_sub(part.raw_bytes);
                let Body::Open(builder) = &mut part.body else { return false };
                builder.push_within(room, record.timestamp, record.key, record.value, headers.clone())
            });
            if !pushed {
                let buffer = BytesMut::with_capacity(part_bytes);
                let mut part = Self::new(
                    form,
                    self.place,
                    self.ordinal + before,
                    self.generation,
                    self.created,
                    buffer,
                    Vec::new(),
                );
                part.split = true;
                part.trouble.clone_from(&self.trouble);
                part.stamp = self.stamp.map(|stamp| ProducerStamp {
                    base_sequence: stamp.base_sequence.map(|sequence| sequence.plus(before as u32)),
                    ..stamp
                });
                if let Body::Open(builder) = &mut part.body {
                    builder.push_within(usize::MAX, record.timestamp, record.key, record.value, headers);
                }
                parts.push(part);
            }
            let part = parts.last_mut().expect("one was made above");
            if let Body::Open(builder) = &part.body {
                part.raw_bytes = builder.bytes();
            }
            part.records += 1;
            part.waiters.extend(waiters.next());
            before += 1;
        }
        debug_assert_eq!(before, u64::from(self.records), "our own records read back");
        // Sealed at once: a part takes no further records, or its sequences would overlap with those behind it.
        for part in &mut parts {
            part.seal();
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ProducerEpoch, ProducerId, Sequence};

    const FORM: BatchForm = BatchForm { batch_bytes: 400, codec: Codec::None, level: None };

    fn batch(form: &BatchForm, records: usize) -> Batch<usize> {
        let place = Place { topic: 0, partition: 3 };
        let mut batch = Batch::new(form, place, 100, 1, Instant::now(), BytesMut::new(), Vec::new());
        for number in 0..records {
            let value = [number as u8; 40];
            let record = RecordRef::new("t", &value);
            let pushed = batch.try_push(&BatchForm { batch_bytes: 1 << 20, ..*form }, 1.0, &record, 7, || number);
            assert!(pushed.is_some());
        }
        batch
    }

    fn stamp(sequence: i32) -> Option<ProducerStamp> {
        let (id, epoch) = (ProducerId::new(5).unwrap(), ProducerEpoch::new(2).unwrap());
        Some(ProducerStamp { id, epoch, base_sequence: Sequence::new(sequence) })
    }

    #[test]
    fn a_full_batch_takes_no_record_and_the_first_record_always_fits() {
        let mut batch = batch(&FORM, 0);
        let value = [0; 1000];
        let record = RecordRef::new("t", &value);
        assert!(!batch.is_full(&FORM, 1.0));
        assert!(batch.try_push(&FORM, 1.0, &record, 0, || 0).is_some_and(|bytes| bytes > 1000));
        assert!(batch.is_full(&FORM, 1.0));
        assert_eq!(batch.try_push(&FORM, 1.0, &RecordRef::new("t", b""), 0, || 1), None);
        assert_eq!(batch.waiters, [0]);
    }

    #[test]
    fn sealing_again_changes_the_stamp_and_nothing_else() {
        for codec in [Codec::None, Codec::Lz4] {
            let mut batch = batch(&BatchForm { codec, ..FORM }, 5);
            batch.stamp = stamp(9);
            let (first, kept) = batch.seal();
            assert_eq!(kept.is_some(), codec != Codec::None);
            assert_eq!(batch::check_produced(&first).unwrap().producer, stamp(9));
            assert_eq!(batch.seal().0.as_ptr(), first.as_ptr());
            batch.stamp = stamp(0);
            let (second, _) = batch.seal();
            assert_eq!(batch::check_produced(&second).unwrap().producer, stamp(0));
            assert_eq!(second[57..], first[57..]);
            assert_eq!(batch::check_produced(&first).unwrap().producer, stamp(9), "bytes in flight are not touched");
        }
    }

    #[test]
    fn a_split_keeps_records_waiters_and_sequences_in_order() {
        for codec in [Codec::None, Codec::Zstd] {
            let mut whole = batch(&BatchForm { codec, ..FORM }, 20);
            whole.stamp = stamp(i32::MAX - 3);
            whole.seal();
            let mut next = 0;
            for mut part in whole.split(&FORM) {
                assert_eq!(part.ordinal, 100 + next as u64);
                let sequence = Sequence::new(i32::MAX - 3).unwrap().plus(next as u32);
                assert_eq!(part.stamp.unwrap().base_sequence, Some(sequence));
                assert!(part.raw_bytes() <= 400 && !part.is_open());
                let (bytes, _) = part.seal();
                let opened = Records::open(&bytes, 1 << 20).unwrap();
                for (record, waiter) in opened.iter().zip(&part.waiters) {
                    assert_eq!((record.unwrap().value, *waiter), (Some(&[next as u8; 40][..]), next));
                    next += 1;
                }
                assert_eq!(opened.info().records, part.records());
            }
            assert_eq!(next, 20);
        }
        let mut one = batch(&FORM, 1);
        one.seal();
        assert_eq!(one.split(&FORM).len(), 1);
    }

    #[test]
    fn parts_that_are_too_large_still_are_halved_down_to_single_records() {
        let mut parts = vec![batch(&FORM, 16)];
        for _ in 0..8 {
            parts = parts
                .into_iter()
                .flat_map(|mut part| {
                    part.seal();
                    part.split(&FORM)
                })
                .collect();
        }
        assert_eq!(parts.iter().map(Batch::records).collect::<Vec<_>>(), [1; 16]);
        assert_eq!(parts.iter().flat_map(|part| part.waiters.clone()).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
    }
}
