//! The sequences of one partition: what was sent, what is resolved, when to begin anew.
//!
//! Pure. Owns the producer's epoch and next sequence for the partition and the order of its unresolved batches. Does not own
//! the batches. Always true: unresolved batches have rising, gapless sequences, except behind one that failed; at most
//! [`UNRESOLVED_MAX`] of them. Source: Kafka's `TransactionManager` and `TxnPartitionEntry`; KIP-98, KIP-360.

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
    /// Ordinals of the batches that have a sequence and no verdict, in order; parts of a split batch may exceed the maximum.
    unresolved: SmallVec<[u64; UNRESOLVED_MAX]>,
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

    /// The first use of the lane.
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
            Some(_) => self.proven || self.in_flight == 0,
            None => self.unresolved.len() < UNRESOLVED_MAX && (self.proven || self.unresolved.is_empty()),
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
        self.unresolved.push(batch.ordinal);
        debug_assert!(self.unresolved.is_sorted(), "a new batch is the youngest");
    }

    /// It was acknowledged.
    pub(super) fn on_resolved<W>(&mut self, batch: &Batch<W>) {
        self.in_flight -= 1;
        self.remove(batch.ordinal);
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
        let first = self.unresolved.first() == Some(&batch.ordinal);
        let last = self.unresolved.last() == Some(&batch.ordinal);
        self.remove(batch.ordinal);
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
        if let Some(at) = self.unresolved.iter().position(|one| *one == ordinal) {
            self.unresolved.remove(at);
            self.unresolved.insert_many(at, parts.iter().map(|part| part.ordinal));
        }
    }

    /// The topic is another one under the same name.
    pub(super) fn on_recreated(&mut self) {
        self.restart |= self.under.is_some();
    }

    /// What `code` means for a batch that was in flight; notes on it whether it may be written.
    pub(super) fn judge<W>(&mut self, batch: &mut Batch<W>, code: ErrorCode) -> Verdict {
        let oldest = self.unresolved.first() == Some(&batch.ordinal);
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
            // Those that may have been appended before they failed.
            ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode::KAFKA_STORAGE_ERROR => {
                batch.maybe_written = true;
                Verdict::Retry
            }
            ErrorCode::UNKNOWN_SERVER_ERROR => {
                batch.maybe_written = true;
                Verdict::Fail
            }
            code if code.retriable() => Verdict::Retry,
            _ => Verdict::Fail,
        }
    }

    fn remove(&mut self, ordinal: u64) {
        if let Some(at) = self.unresolved.iter().position(|one| *one == ordinal) {
            self.unresolved.remove(at);
        }
    }

    /// What must hold between any two calls; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.unresolved.is_sorted(), "{:?}", self.unresolved);
        assert!(self.under.is_some() || self.unresolved.is_empty());
    }
}
