//! Where a connection would be served without hops.
//!
//! Pure. Owns a count of one connection; not the move (`connection`) nor whether it may be made (`dealer`). Always: a connection
//! wants to another shard only after a run of requests that concern that shard alone; each move doubles the run the next one
//! needs, so that a client whose load changes does not wander for ever. A hop costs a tiny request as much as all the rest of it
//! when both cores sleep in between; most clients that write or read one partition can be spared it.

use crate::types::ShardIndex;

/// Requests in a row before the first move.
const RUN: u32 = 64;
/// After so many moves a connection stays where it is.
const MOVES_MAX: u32 = 8;

/// What a connection's requests have concerned lately.
pub(super) struct Leaning {
    here: ShardIndex,
    /// How often the connection has moved.
    moves: u32,
    /// The shard that the last requests concern, and how many of them.
    run: (ShardIndex, u32),
}

impl Leaning {
    /// Of a connection served by shard `here` that has moved `moves` times.
    pub(super) fn new(here: ShardIndex, moves: u32) -> Self {
        Self { here, moves, run: (here, 0) }
    }

    /// How often the connection has moved.
    pub(super) fn moves(&self) -> u32 {
        self.moves
    }

    /// A request came whose partitions `owner` owns, or several shards (`None`).
    pub(super) fn on_request(&mut self, owner: Option<ShardIndex>) {
        self.run = match owner {
            Some(owner) if owner == self.run.0 => (owner, self.run.1.saturating_add(1)),
            Some(owner) => (owner, 1),
            None => (self.here, 0),
        };
    }

    /// Where to, if anywhere. A wish that is not granted is forgotten, until another run is over.
    pub(super) fn take_wish(&mut self) -> Option<ShardIndex> {
        let (owner, requests) = self.run;
        if owner == self.here || self.moves >= MOVES_MAX || requests < RUN << self.moves {
            return None;
        }
        self.run.1 = 0;
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_after(leaning: &mut Leaning, owners: impl IntoIterator<Item = Option<ShardIndex>>) -> Option<ShardIndex> {
        owners.into_iter().for_each(|owner| leaning.on_request(owner));
        leaning.take_wish()
    }

    fn run(owner: ShardIndex, requests: u32) -> impl Iterator<Item = Option<ShardIndex>> {
        (0..requests).map(move |_| Some(owner))
    }

    #[test]
    fn a_run_that_concerns_another_shard_alone_is_a_wish_and_it_is_told_once() {
        let mut leaning = Leaning::new(1, 0);
        assert_eq!(wish_after(&mut leaning, run(0, RUN - 1)), None);
        assert_eq!(wish_after(&mut leaning, run(0, 1)), Some(0));
        assert_eq!(leaning.take_wish(), None);
        assert_eq!(wish_after(&mut leaning, run(0, RUN)), Some(0), "again after another run");
    }

    #[test]
    fn who_is_at_home_or_at_several_shards_stays() {
        let mut leaning = Leaning::new(1, 0);
        assert_eq!(wish_after(&mut leaning, run(1, 10 * RUN)), None);
        let mixed = (0..10 * RUN).map(|number| Some(number as ShardIndex % 3));
        assert_eq!(wish_after(&mut leaning, mixed), None);
        assert_eq!(wish_after(&mut leaning, run(0, RUN - 1).chain([None]).chain(run(0, RUN - 1))), None);
    }

    #[test]
    fn each_move_doubles_the_run_and_there_is_a_last_one() {
        for moves in 0..MOVES_MAX {
            let mut leaning = Leaning::new(1, moves);
            assert_eq!(wish_after(&mut leaning, run(0, (RUN << moves) - 1)), None);
            assert_eq!(wish_after(&mut leaning, run(0, 1)), Some(0));
        }
        assert_eq!(wish_after(&mut Leaning::new(1, MOVES_MAX), run(0, RUN << MOVES_MAX)), None);
    }
}
