//! The sequences of one partition: what was sent, what is resolved, when to begin anew.
//!
//! Pure. Owns the producer's epoch and next sequence for the partition and the order of its unresolved batches. Does not own
//! the batches. Always true: from the oldest batch without a verdict to the newest that was sent there are at most
//! [`UNRESOLVED_MAX`], also when those between were acknowledged: a broker that took over meanwhile still knows the oldest. What cannot be
//! helped: a broker that forgot the producer (a topic made again under its name) takes any sequence, so that batches then in flight
//! may overtake each other. Source: Kafka's `TransactionManager` and `TxnPartitionEntry`; KIP-98, KIP-360.

use smallvec::SmallVec;

use super::outgoing::Batch;
use crate::protocol::ErrorCode;
use crate::protocol::batch::ProducerStamp;
use crate::types::{ProducerEpoch, ProducerId, Sequence};

/// Brokers remember the last five batches of a producer: an older one sent again could not be told from a new one.
pub(super) const UNRESOLVED_MAX: usize = 5;

/// What an error code means for a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Send it again, after a pause.
    Retry,
    /// It is lost.
    Fail,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Sequences {
    under: Option<(ProducerId, ProducerEpoch)>,
    next_sequence: Sequence,
    /// Something was acknowledged under this epoch: the broker knows of it.
    proven: bool,
    restart: bool,
    in_flight: u32,
    /// Batches with a sequence, in order, from the oldest without a verdict on: those behind it that have one still take up
    /// the broker's memory. Parts of a split batch may exceed the maximum; then the last of them wait.
    window: SmallVec<[Entry; UNRESOLVED_MAX]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    ordinal: u64,
    resolved: bool,
}

impl Sequences {
    pub(super) fn has_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    pub(super) fn must_restart(&self) -> bool {
        self.restart
    }

    pub(super) fn is_under(&self, id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.under == Some((id, epoch))
    }

    /// The first use.
    pub(super) fn begin(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        self.under.get_or_insert((id, epoch));
    }

    /// Sequences count from 0 again, under a newer epoch. Panics while anything is in flight.
    pub(super) fn restart(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        assert_eq!(self.in_flight, 0, "sequences of batches in flight are in use");
        *self = Self { under: Some((id, epoch)), ..Self::default() };
    }

    /// Whether this batch, the oldest that waits, may be sent beside those in flight.
    pub(super) fn may_send<W>(&self, batch: &Batch<W>) -> bool {
        match batch.stamp {
            // Sent before: it has its place. Others behind it may be in flight; they will be told to wait for it.
            Some(_) => {
                let place = self.place(batch.ordinal);
                (self.proven || self.in_flight == 0) && place.is_none_or(|place| place < UNRESOLVED_MAX)
            }
            None => self.window.len() < UNRESOLVED_MAX && (self.proven || self.window.is_empty()),
        }
    }

    /// Gives a batch its sequence, if it has none, and counts it as in flight.
    pub(super) fn on_sent<W>(&mut self, batch: &mut Batch<W>, idempotent: bool) {
        self.in_flight += 1;
        if !idempotent || batch.stamp.is_some() {
            return;
        }
        let (id, epoch) = self.under.expect("may_send was asked");
        batch.stamp = Some(ProducerStamp { id, epoch, base_sequence: Some(self.next_sequence) });
        self.next_sequence = self.next_sequence.plus(batch.records());
        self.window.push(Entry { ordinal: batch.ordinal, resolved: false });
    }

    /// It was acknowledged.
    pub(super) fn on_resolved<W>(&mut self, batch: &Batch<W>) {
        self.in_flight -= 1;
        if let Some(place) = self.place(batch.ordinal) {
            self.window[place].resolved = true;
            self.advance();
        }
        self.proven |= batch.stamp.is_some();
    }

    /// It will be sent again.
    pub(super) fn on_waiting(&mut self) {
        self.in_flight -= 1;
    }

    /// It was given up after an answer, or after none.
    pub(super) fn on_failed<W>(&mut self, batch: &Batch<W>) {
        self.in_flight -= 1;
        self.drop_waiting(batch);
    }

    /// It was given up while it waited. What follows it has a gap before it now, unless the batch lies in the log after all:
    /// the broker's next answer tells. Where it surely does not, what follows need not be sent in vain.
    pub(super) fn drop_waiting<W>(&mut self, batch: &Batch<W>) {
        let Some(stamp) = batch.stamp else { return };
        let Some(place) = self.place(batch.ordinal) else { return };
        let (first, last) = (place == 0, place + 1 == self.window.len());
        self.window.remove(place);
        self.advance();
        if batch.maybe_written || self.restart {
            return;
        }
        if last {
            self.next_sequence = stamp.base_sequence.expect("batches in flight have sequences");
        } else if first {
            self.restart = true;
        }
    }

    /// It was cut into parts, which wait.
    pub(super) fn on_split<W>(&mut self, ordinal: u64, parts: &[Batch<W>]) {
        self.in_flight -= 1;
        if let Some(place) = self.place(ordinal) {
            self.window.remove(place);
            let entries = parts.iter().map(|part| Entry { ordinal: part.ordinal, resolved: false });
            self.window.insert_many(place, entries);
        }
    }

    /// The topic is another one under the same name.
    pub(super) fn on_recreated(&mut self) {
        self.restart |= self.under.is_some();
    }

    /// What `code` means for a batch that was in flight; notes on it whether it may be written.
    pub(super) fn judge<W>(&mut self, batch: &mut Batch<W>, code: ErrorCode) -> Verdict {
        let oldest = self.place(batch.ordinal) == Some(0);
        match code {
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            | ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH
                if batch.stamp.is_some() =>
            {
                if oldest {
                    batch.maybe_written = false;
                    self.restart = true;
                }
                Verdict::Retry
            }
            // Those that are decided before the append.
            ErrorCode::NOT_ENOUGH_REPLICAS | ErrorCode::CORRUPT_MESSAGE => Verdict::Retry,
            ErrorCode::UNKNOWN_SERVER_ERROR => {
                batch.maybe_written = true;
                Verdict::Fail
            }
            // Whatever else may pass is also said after an append: by a broker that stops leading while it waits for its replicas
            // (DelayedProduce), in the words of one that never led.
            code if code.retriable() => {
                batch.maybe_written = true;
                Verdict::Retry
            }
            _ => Verdict::Fail,
        }
    }

    fn place(&self, ordinal: u64) -> Option<usize> {
        self.window.iter().position(|entry| entry.ordinal == ordinal)
    }

    /// The window begins at the oldest batch without a verdict.
    fn advance(&mut self) {
        let resolved = self.window.iter().take_while(|entry| entry.resolved).count();
        self.window.drain(..resolved);
    }

    /// What must hold between any two calls; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.window.is_sorted_by_key(|entry| entry.ordinal), "{:?}", self.window);
        assert!(self.window.first().is_none_or(|first| !first.resolved), "{:?}", self.window);
        assert!(self.under.is_some() || self.window.is_empty());
    }
}
