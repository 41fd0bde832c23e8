//! How far the in-sync replicas of one partition got: the high watermark, and how many bytes lie below it.
//!
//! Pure. Owns the high watermark; not the log, not who waits for it. Always: the high watermark never falls, and the
//! bytes counted as visible belong to batches wholly below it. Source: KIP-101; Kafka's `Partition.maybeIncrementLeaderHW`.

use std::collections::VecDeque;

use crate::types::Offset;

/// Progress of one partition this broker leads.
#[derive(Debug)]
pub struct Progress {
    high_watermark: Offset,
    visible_bytes: u64,
    /// Batches appended here and not yet below the high watermark: (end offset, bytes). As long as what is in flight.
    pending: VecDeque<(Offset, u32)>,
}

impl Progress {
    /// A partition whose replicas all hold everything below `high_watermark`.
    pub fn new(high_watermark: Offset) -> Self {
        Self { high_watermark, visible_bytes: 0, pending: VecDeque::new() }
    }

    /// Excl.: every in-sync replica has everything below.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Bytes appended in this leadership that came below the high watermark: the clock of waiting fetches.
    pub fn visible_bytes(&self) -> u64 {
        self.visible_bytes
    }

    /// A batch was appended that ends at `end_offset` (excl.).
    pub fn on_append(&mut self, end_offset: Offset, bytes: u32) {
        debug_assert!(self.pending.back().is_none_or(|(last, _)| *last < end_offset));
        self.pending.push_back((end_offset, bytes));
    }

    /// The in-sync replicas reached these offsets (each in its topic's ack class; one replica on this floor). Answers the
    /// bytes that became visible; `None` when the high watermark stayed.
    pub fn on_acked(&mut self, in_sync: impl IntoIterator<Item = Offset>) -> Option<u64> {
        let reached = in_sync.into_iter().min()?;
        if reached <= self.high_watermark {
            return None;
        }
        self.high_watermark = reached;
        let mut bytes = 0;
        while let Some((_, batch)) = self.pending.pop_front_if(|(end, _)| *end <= reached) {
            bytes += u64::from(batch);
        }
        self.visible_bytes += bytes;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    #[test]
    fn the_slowest_in_sync_replica_decides() {
        let mut progress = Progress::new(at(5));
        progress.on_append(at(7), 100);
        progress.on_append(at(9), 50);
        assert_eq!(progress.on_acked([at(9), at(7)]), Some(100));
        assert_eq!(progress.high_watermark(), at(7));
        assert_eq!(progress.on_acked([at(9), at(9)]), Some(50));
        assert_eq!(progress.visible_bytes(), 150);
    }

    #[test]
    fn the_high_watermark_never_falls() {
        let mut progress = Progress::new(at(5));
        assert_eq!(progress.on_acked([at(4)]), None);
        assert_eq!(progress.on_acked([]), None);
        assert_eq!(progress.high_watermark(), at(5));
    }

    #[test]
    fn half_a_batch_is_not_visible() {
        let mut progress = Progress::new(at(0));
        progress.on_append(at(10), 100);
        assert_eq!(progress.on_acked([at(6)]), Some(0));
        assert_eq!(progress.on_acked([at(10)]), Some(100));
    }
}
