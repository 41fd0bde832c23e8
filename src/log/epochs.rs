//! Which leader epoch began at which offset.
//!
//! Pure. Owns the list and answers for it; does not own the file (`checkpoint` has its format, the shell writes it).
//! Always: epochs and start offsets both rise strictly, so "where did this epoch end" is the next entry's start.
//! Source: KIP-101 and KIP-279, Kafka's `LeaderEpochFileCache`.

use crate::types::{LeaderEpoch, Offset};

/// Leader epoch -> first offset written under it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Epochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl Epochs {
    /// From a checkpoint's entries. Entries that do not rise end the list: what follows is rebuilt from the batches.
    pub fn from_entries(entries: impl IntoIterator<Item = (LeaderEpoch, Offset)>) -> Self {
        let mut epochs = Self::default();
        for (epoch, start) in entries {
            if epochs.entries.last().is_some_and(|&(last, last_start)| epoch <= last || start <= last_start) {
                break;
            }
            epochs.entries.push((epoch, start));
        }
        epochs
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// `epoch` begins at `start`, unless it is known already. An epoch that began at `start` or later and wrote nothing
    /// gives way. Returns whether the list changed.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if self.latest().is_some_and(|latest| epoch <= latest) {
            return false;
        }
        self.entries.retain(|&(_, begun)| begun < start);
        self.entries.push((epoch, start));
        true
    }

    /// Largest known epoch that is at most `epoch`, and where it ended (excl.); `None` below the first.
    pub fn end_of(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        let after = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(known, _) = self.entries.get(after.checked_sub(1)?)?;
        Some((known, self.entries.get(after).map_or(log_end, |&(_, start)| start)))
    }

    /// The log now ends at `end`: epochs that began there or later are gone.
    pub fn truncate_end(&mut self, end: Offset) {
        self.entries.retain(|&(_, start)| start < end);
    }

    /// The log now begins at `start`: the epoch in force there begins there, older ones are gone. Returns whether the list
    /// changed.
    pub fn truncate_start(&mut self, start: Offset) -> bool {
        let after = self.entries.partition_point(|&(_, begun)| begun <= start);
        let Some(in_force) = after.checked_sub(1) else { return false };
        let changed = in_force > 0 || self.entries.first().is_some_and(|&(_, begun)| begun < start);
        self.entries.drain(..in_force);
        if let Some(first) = self.entries.first_mut() {
            first.1 = start;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        Epochs::from_entries(entries.iter().map(|&(e, o)| (LeaderEpoch::new(e).unwrap(), Offset::new(o).unwrap())))
    }
    fn epoch(value: i32) -> LeaderEpoch {
        LeaderEpoch::new(value).unwrap()
    }
    fn offset(value: i64) -> Offset {
        Offset::new(value).unwrap()
    }

    #[test]
    fn an_epoch_that_wrote_nothing_gives_way() {
        let mut list = epochs(&[(0, 0), (1, 10)]);
        assert!(list.assign(epoch(4), offset(10)));
        assert_eq!(list, epochs(&[(0, 0), (4, 10)]));
        assert!(!list.assign(epoch(4), offset(12)));
        assert!(!list.assign(epoch(3), offset(12)));
        assert_eq!(list, epochs(&[(0, 0), (4, 10)]));
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let list = epochs(&[(1, 5), (3, 10), (6, 20)]);
        assert_eq!(list.end_of(epoch(0), offset(25)), None);
        assert_eq!(list.end_of(epoch(1), offset(25)), Some((epoch(1), offset(10))));
        assert_eq!(list.end_of(epoch(2), offset(25)), Some((epoch(1), offset(10))));
        assert_eq!(list.end_of(epoch(5), offset(25)), Some((epoch(3), offset(20))));
        assert_eq!(list.end_of(epoch(9), offset(25)), Some((epoch(6), offset(25))));
    }

    #[test]
    fn truncation_forgets_what_lies_outside() {
        let mut list = epochs(&[(1, 5), (3, 10), (6, 20)]);
        list.truncate_end(offset(20));
        assert_eq!(list, epochs(&[(1, 5), (3, 10)]));
        assert!(list.truncate_start(offset(7)));
        assert_eq!(list, epochs(&[(1, 7), (3, 10)]));
        assert!(list.truncate_start(offset(10)));
        assert_eq!(list, epochs(&[(3, 10)]));
        assert!(!list.truncate_start(offset(10)));
        assert!(!list.truncate_start(offset(4)));
        assert_eq!(list, epochs(&[(3, 10)]));
    }

    #[test]
    fn a_checkpoint_that_goes_back_is_used_up_to_there() {
        assert_eq!(epochs(&[(1, 5), (3, 10), (2, 20), (7, 30)]), epochs(&[(1, 5), (3, 10)]));
    }
}
