//! The words of the field as types: offsets, epochs, ids, names.
//!
//! Pure. Owns no state. Every id, epoch, offset and sequence is a newtype built by a checked `new` at the edge and used
//! plainly inside; only `protocol/` knows that −1 means none. Always: none of these numbers is negative, whatever was added to
//! it: an offset that would pass the largest is a panic, a sequence wraps to 0. Source: Kafka's protocol guide; KIP-101 (leader
//! epochs), KIP-98 (producer ids, epochs, sequences), KIP-516 (topic ids).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

macro_rules! non_negative {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($repr);

        impl $name {
            /// The smallest value.
            pub const ZERO: Self = Self(0);

            /// `None` when `value` is negative: on the wire that means "none" or is an error, and the caller knows which.
            pub const fn new(value: $repr) -> Option<Self> {
                if value >= 0 { Some(Self(value)) } else { None }
            }

            /// The bare number, for the wire, for files and for arithmetic.
            pub const fn value(self) -> $repr {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

non_negative!(
    /// A position in a partition's log; the first record ever has offset 0. Absence is `Option<Offset>`.
    Offset(i64)
);
non_negative!(
    /// Which leadership of a partition a batch was written under; rises at every change of leader and every start.
    LeaderEpoch(i32)
);
non_negative!(
    /// A broker's `node.id`.
    BrokerId(i32)
);
non_negative!(
    /// The id `InitProducerId` gave to a producer; never given twice in a cluster's life.
    ProducerId(i64)
);
non_negative!(
    /// Fences older instances of one producer id.
    ProducerEpoch(i16)
);
non_negative!(
    /// Position of a record in its producer's stream to one partition; wraps to 0 after 2^31 − 1.
    Sequence(i32)
);
non_negative!(
    /// Number of a partition within its topic.
    PartitionIndex(i32)
);

impl Offset {
    /// The largest offset there is.
    pub const MAX: Self = Self(i64::MAX);

    /// How many offsets lie between this one and a `later` one. Panics when `later` is earlier: that is a bug of ours.
    pub fn distance_to(self, later: Self) -> u64 {
        assert!(later.0 >= self.0, "offset {later} is before {self}");
        (later.0 - self.0) as u64
    }

    /// The offset `count` places on. Panics past 2^63 − 1: no log gets there.
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.checked_add(i64::from(count)).expect("an offset passed 2^63 - 1"))
    }

    /// The offset after this one.
    pub fn next(self) -> Self {
        self.plus(1)
    }
}

impl Sequence {
    /// The sequence `count` places on, wrapping to 0 after 2^31 − 1 as Kafka's producers do.
    pub fn plus(self, count: u32) -> Self {
        Self(((self.0 as u32).wrapping_add(count) & 0x7fff_ffff) as i32)
    }
}

/// Identity of a topic for its whole life: a topic deleted and made again under its name has another one (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId([u8; 16]);

impl TopicId {
    /// "No id", as the wire spells it.
    pub const ZERO: Self = Self([0; 16]);

    /// From the 16 bytes of the wire.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes of the wire.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// A random id from `random`, avoiding what Kafka reserves or cannot put on a command line: the ids zero and one, and
    /// those whose text begins with `-` (Kafka's `Uuid.randomUuid`).
    pub fn random(mut random: impl FnMut() -> u128) -> Self {
        loop {
            // RFC 4122 version 4, variant 1, as Java's UUID.randomUUID gives it.
            let bits = random() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
            let id = Self(bits.to_be_bytes());
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    /// Reads the 22 letters that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// A topic's name. Shared, never changed: it crosses cores with the image.
pub type TopicName = Arc<str>;

/// One partition of one topic, by name: what people and tools see.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// The partition within it.
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// One partition of one topic, by id: what the data plane keys its state by, so that a topic made again under an old name
/// is never mistaken for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId {
    /// The topic's id.
    pub topic_id: TopicId,
    /// The partition within it.
    pub partition: PartitionIndex,
}

/// Milliseconds since 1970, the clock of record timestamps. Negative values are data of clients, not errors.
pub type TimestampMs = i64;

/// Which executor; 0-based, below the number of shards.
pub type ShardIndex = usize;

/// What an acknowledgement means. The order is the order of strength.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum AckClass {
    /// In the owner's memory: lost by a process kill.
    Memory,
    /// The direct write completed on the device: lost by power loss within the last flush interval.
    #[default]
    Written,
    /// One group `fdatasync` covered it: nothing on that device is lost.
    Flushed,
}

impl AckClass {
    /// The word in settings, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Flushed => "flushed",
        }
    }

    /// Reads what [`AckClass::name`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Memory, Self::Written, Self::Flushed].into_iter().find(|class| class.name() == text)
    }
}

impl fmt::Display for AckClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero_after_the_largest() {
        let last = Sequence::new(i32::MAX).unwrap();
        assert_eq!(last.plus(1), Sequence::ZERO);
        assert_eq!(last.plus(3).value(), 2);
    }

    #[test]
    fn negative_numbers_are_no_offsets() {
        assert_eq!(Offset::new(-1), None);
        assert_eq!(Offset::new(7).map(Offset::value), Some(7));
    }

    #[test]
    fn topic_ids_read_back_what_they_print_and_never_begin_with_a_dash() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..1000 {
            let id = TopicId::random(|| random.u128(..));
            assert!(!id.to_string().starts_with('-'));
            assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(TopicId::parse("short"), None);
    }
}
