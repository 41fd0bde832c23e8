//! What a setting is: its row in the table, and the judgement over one value of it.
//!
//! Pure. Owns the shape of a row, the units people may write and the checks with Kafka's words for what is wrong, which
//! clients see in INVALID_CONFIG answers. Does not own the rows themselves ([`super::broker_rows`], [`super::topic_rows`])
//! nor how rows become typed settings. Always: a value that passed [`Row::check`] parses to the row's type and lies in its
//! range. Source: Kafka 4.4's `ConfigDef`; the messages were taken from a running broker.

use std::collections::HashSet;
use std::fmt;

/// Kafka's `ConfigType`, with its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean = 1,
    /// Any text.
    Text = 2,
    /// 32 bits.
    Int = 3,
    /// 16 bits.
    Short = 4,
    /// 64 bits.
    Long = 5,
    /// Floating point.
    Double = 6,
    /// Texts between commas.
    List = 7,
    /// The name of a Java class.
    Class = 8,
    /// Text that is never shown.
    Password = 9,
}

/// What the plain number of a setting counts. Kafka closes its names with the unit, so the name tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nothing in particular.
    Plain,
    /// Bytes.
    Bytes,
    /// Time, in steps of so many milliseconds.
    Time {
        /// Milliseconds in one.
        ms: u64,
    },
}

/// Which values are allowed beyond the type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Range {
    /// All of the type.
    Any,
    /// This and more.
    AtLeast(i64),
    /// Both ends included.
    Between(i64, i64),
    /// Both ends included, or −1 for the default (gzip's level).
    BetweenOrMinusOne(i64, i64),
    /// One of these words; for a list, each entry.
    OneOf(&'static [&'static str]),
    /// `*`, or `partition:broker` pairs.
    ThrottledReplicas,
}

/// What Ringlog does with a key of Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// It works as in Kafka.
    Honoured,
    /// It becomes something of ours; the sentence says what.
    Mapped(&'static str),
    /// Accepted without effect; the sentence says why that is right.
    Noted(&'static str),
    /// Not accepted; the sentence says why and what to do.
    Refused(&'static str),
}

/// One setting. Rows of the broker table are read at start-up; rows of the topic table are live.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The key.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// As Kafka prints it; `None` is null.
    pub default: Option<&'static str>,
    /// Allowed values.
    pub range: Range,
    /// What we do with it.
    pub handling: Handling,
    /// For a topic's row: the broker key that gives its default.
    pub broker_name: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
}

const fn row(name: &'static str, kind: Kind, default: Option<&'static str>, range: Range, doc: &'static str) -> Row {
    Row { name, kind, default, range, handling: Handling::Honoured, broker_name: None, doc }
}

/// A row of type BOOLEAN.
pub(super) const fn boolean(name: &'static str, default: &'static str, doc: &'static str) -> Row {
    row(name, Kind::Boolean, Some(default), Range::Any, doc)
}

/// A row of type INT.
pub(super) const fn int(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::Int, Some(default), range, doc)
}

/// A row of type SHORT.
pub(super) const fn short(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::Short, Some(default), range, doc)
}

/// A row of type LONG.
pub(super) const fn long(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::Long, Some(default), range, doc)
}

/// A row of type DOUBLE.
pub(super) const fn double(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::Double, Some(default), range, doc)
}

/// A row of type STRING.
pub(super) const fn text(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::Text, Some(default), range, doc)
}

/// A row of type LIST.
pub(super) const fn list(name: &'static str, default: &'static str, range: Range, doc: &'static str) -> Row {
    row(name, Kind::List, Some(default), range, doc)
}

/// A row whose default is null.
pub(super) const fn unset(name: &'static str, kind: Kind, range: Range, doc: &'static str) -> Row {
    row(name, kind, None, range, doc)
}

impl Row {
    pub(super) const fn mapped(mut self, to: &'static str) -> Self {
        self.handling = Handling::Mapped(to);
        self
    }

    pub(super) const fn noted(mut self, why: &'static str) -> Self {
        self.handling = Handling::Noted(why);
        self
    }

    pub(super) const fn refused(mut self, why: &'static str) -> Self {
        self.handling = Handling::Refused(why);
        self
    }

    pub(super) const fn broker(mut self, name: &'static str) -> Self {
        self.broker_name = Some(name);
        self
    }

    /// Whether the value is never shown.
    pub fn sensitive(&self) -> bool {
        self.kind == Kind::Password
    }

    /// What the number counts.
    pub fn unit(&self) -> Unit {
        if ["batch.size", "max.request.size", "buffer.memory"].contains(&self.name) {
            return Unit::Bytes;
        }
        match self.name.rsplit('.').next() {
            Some("bytes") => Unit::Bytes,
            Some("ms") => Unit::Time { ms: 1 },
            Some("seconds") => Unit::Time { ms: 1000 },
            Some("minutes") => Unit::Time { ms: 60_000 },
            Some("hours") => Unit::Time { ms: 3_600_000 },
            _ => Unit::Plain,
        }
    }

    /// Turns what a person wrote (`16KiB`, `1MB`, `5ms`, `1h`) into the plain number Kafka writes, which is kept as it is. Text of
    /// other settings, and what is no such number, comes back trimmed: [`Row::check`] judges it.
    pub fn plain(&self, text: &str) -> String {
        let text = text.trim();
        let number = match (self.kind, self.unit()) {
            (Kind::Int | Kind::Long, Unit::Bytes) => parse_bytes(text),
            (Kind::Int | Kind::Long, Unit::Time { ms }) => {
                parse_millis(text).filter(|time| time % ms == 0).map(|time| time / ms)
            }
            _ => None,
        };
        number.map_or_else(|| text.to_owned(), |number| number.to_string())
    }

    /// Judges a plain value. The error is the whole sentence Kafka would answer.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let refuse = |value: &dyn fmt::Display, why: &str| {
            Err(format!("Invalid value {value} for configuration {}: {why}", self.name))
        };
        let trimmed = value.trim();
        match self.kind {
            Kind::Boolean => match parse_boolean(trimmed) {
                Some(_) => Ok(()),
                None => refuse(&value, "Expected value to be either true or false"),
            },
            Kind::Int | Kind::Short | Kind::Long => match self.integer(trimmed) {
                Some(number) => self.range.admit_integer(number).or_else(|why| refuse(&number, &why)),
                None => refuse(&value, self.kind.not_a_number()),
            },
            Kind::Double => match trimmed.parse::<f64>() {
                Ok(number) if !number.is_nan() => {
                    self.range.admit_double(number).or_else(|why| refuse(&format_double(number), &why))
                }
                _ => refuse(&value, self.kind.not_a_number()),
            },
            Kind::List => {
                let entries = split_list(trimmed);
                if let (Range::ThrottledReplicas, false) = (self.range, throttled_replicas_are_well_formed(&entries)) {
                    let why = format!(
                        "{} must be the literal '*' or a list of replicas in the following format: \
                         [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                        self.name
                    );
                    return refuse(&format!("[{}]", entries.join(", ")), &why);
                }
                entries.iter().try_for_each(|entry| self.range.admit_word(entry).or_else(|why| refuse(entry, &why)))
            }
            Kind::Text => self.range.admit_word(trimmed).or_else(|why| refuse(&value, &why)),
            Kind::Class | Kind::Password => Ok(()),
        }
    }

    /// A value that [`Row::check`] let pass, as Kafka prints what it has parsed it to.
    pub fn canonical(&self, value: &str) -> String {
        let text = value.trim();
        let printed = match self.kind {
            Kind::Boolean => parse_boolean(text).map(|flag| flag.to_string()),
            Kind::Int | Kind::Short | Kind::Long => self.integer(text).map(|number| number.to_string()),
            Kind::Double => text.parse().ok().map(format_double),
            Kind::List => Some(self.entries(text).join(",")),
            Kind::Text | Kind::Class | Kind::Password => None,
        };
        printed.unwrap_or_else(|| text.to_owned())
    }

    /// Of a list. Where only certain words are allowed Kafka keeps each once.
    fn entries<'v>(&self, value: &'v str) -> Vec<&'v str> {
        let mut entries = split_list(value);
        if let Range::OneOf(_) = self.range {
            let mut seen = HashSet::new();
            entries.retain(|entry| seen.insert(*entry));
        }
        entries
    }

    fn integer(&self, text: &str) -> Option<i64> {
        match self.kind {
            Kind::Int => text.parse::<i32>().ok().map(i64::from),
            Kind::Short => text.parse::<i16>().ok().map(i64::from),
            _ => text.parse().ok(),
        }
    }
}

impl Kind {
    fn not_a_number(self) -> &'static str {
        match self {
            Self::Int => "Not a number of type INT",
            Self::Short => "Not a number of type SHORT",
            Self::Double => "Not a number of type DOUBLE",
            _ => "Not a number of type LONG",
        }
    }
}

impl Range {
    fn admit_integer(self, number: i64) -> Result<(), String> {
        match self {
            Self::AtLeast(low) | Self::Between(low, _) if number < low => Err(format!("Value must be at least {low}")),
            Self::Between(_, high) if number > high => Err(format!("Value must be no more than {high}")),
            Self::BetweenOrMinusOne(low, high) if number != -1 && !(low..=high).contains(&number) => {
                Err(format!("Value must be between {low} and {high} or equal to -1"))
            }
            _ => Ok(()),
        }
    }

    fn admit_double(self, number: f64) -> Result<(), String> {
        match self {
            Self::AtLeast(low) | Self::Between(low, _) if number < low as f64 => {
                Err(format!("Value must be at least {low}"))
            }
            Self::Between(_, high) if number > high as f64 => Err(format!("Value must be no more than {high}")),
            _ => Ok(()),
        }
    }

    fn admit_word(self, word: &str) -> Result<(), String> {
        match self {
            Self::OneOf(words) if !words.contains(&word) => Err(format!("String must be one of: {}", words.join(", "))),
            _ => Ok(()),
        }
    }
}

/// Reads Kafka's booleans: any case.
pub(super) fn parse_boolean(text: &str) -> Option<bool> {
    [("true", true), ("false", false)]
        .into_iter()
        .find(|(word, _)| text.eq_ignore_ascii_case(word))
        .map(|(_, value)| value)
}

/// The entries of a list, trimmed; the empty text is the empty list.
pub(super) fn split_list(text: &str) -> Vec<&str> {
    let text = text.trim();
    if text.is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() }
}

fn throttled_replicas_are_well_formed(entries: &[&str]) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    entries == ["*"]
        || entries
            .iter()
            .all(|entry| entry.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker)))
}

/// As Java prints a double: always with a fraction, and very small and large ones with a power of ten.
fn format_double(number: f64) -> String {
    let magnitude = number.abs();
    let text =
        if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) { number.to_string() } else { format!("{number:E}") };
    let (digits, power) = text.find('E').map_or((&*text, ""), |at| text.split_at(at));
    if digits.contains('.') { text } else { format!("{digits}.0{power}") }
}

/// Splits `16KiB` into its number and the letters behind it. `None` when there are no letters: plain numbers are not ours.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// `16KiB`, `1MB`, `2g`: powers of 1024 with an `i` or as a single letter, of 1000 with a bare `B`.
fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// `5ms`, `10s`, `3m`, `1h`, `7d`.
fn parse_millis(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Row = int("x.bytes", "1", Range::AtLeast(0), "");
    const HOURS: Row = int("x.hours", "1", Range::AtLeast(0), "");
    const TIME: Row = long("x.ms", "1", Range::AtLeast(-1), "");
    const COUNT: Row = int("x", "1", Range::AtLeast(0), "");

    #[test]
    fn sizes_and_durations_become_plain_numbers() {
        for (row, written, plain) in [
            (&SIZE, "16KiB", "16384"),
            (&SIZE, " 1MB ", "1000000"),
            (&SIZE, "2 g", "2147483648"),
            (&SIZE, "1048576", "1048576"),
            (&TIME, "5ms", "5"),
            (&TIME, "1h", "3600000"),
            (&TIME, "7d", "604800000"),
            (&TIME, "-1", "-1"),
            (&HOURS, "7d", "168"),
            (&HOURS, "90m", "90m"), // one and a half: no number of hours, so the check refuses it
            (&COUNT, "1k", "1k"),
            (&SIZE, "99999999999999999999KiB", "99999999999999999999KiB"),
            (&SIZE, "KiB", "KiB"),
        ] {
            assert_eq!(row.plain(written), plain, "{written} for {}", row.name);
        }
    }

    #[test]
    fn values_are_shown_as_kafka_parses_them() {
        let ratio = double("r", "0.5", Range::Between(0, 1), "");
        let policy = list("p", "delete", Range::OneOf(&["compact", "delete"]), "");
        let throttled = list("t", "", Range::ThrottledReplicas, "");
        let flag = boolean("b", "false", "");
        let codec = text("c", "producer", Range::OneOf(&["producer", "zstd"]), "");
        for (row, written, shown) in [
            (&TIME, " +5 ", "5"),
            (&COUNT, "007", "7"),
            (&ratio, "5e-1", "0.5"),
            (&ratio, "1", "1.0"),
            (&ratio, "0.00001", "1.0E-5"),
            (&policy, "delete , compact,delete", "delete,compact"),
            (&policy, " ", ""),
            (&throttled, "0:1, 0:1", "0:1,0:1"),
            (&flag, "TRUE", "true"),
            (&codec, " zstd", "zstd"),
        ] {
            assert_eq!(row.canonical(written), shown, "{written} for {}", row.name);
        }
    }

    #[test]
    fn refusals_speak_kafkas_words() {
        let gzip = int("g", "-1", Range::BetweenOrMinusOne(1, 9), "");
        let ratio = double("r", "0.5", Range::Between(0, 1), "");
        let policy = list("p", "delete", Range::OneOf(&["compact", "delete"]), "");
        let throttled = list("t", "", Range::ThrottledReplicas, "");
        let flag = boolean("b", "false", "");
        for (row, value, why) in [
            (&SIZE, "abc", "Invalid value abc for configuration x.bytes: Not a number of type INT"),
            (&SIZE, "99999999999", "Invalid value 99999999999 for configuration x.bytes: Not a number of type INT"),
            (&SIZE, "-1", "Invalid value -1 for configuration x.bytes: Value must be at least 0"),
            (&TIME, "5ms", "Invalid value 5ms for configuration x.ms: Not a number of type LONG"),
            (&gzip, "10", "Invalid value 10 for configuration g: Value must be between 1 and 9 or equal to -1"),
            (&ratio, "2", "Invalid value 2.0 for configuration r: Value must be no more than 1"),
            (&ratio, "x", "Invalid value x for configuration r: Not a number of type DOUBLE"),
            (&policy, "foo", "Invalid value foo for configuration p: String must be one of: compact, delete"),
            (&flag, "maybe", "Invalid value maybe for configuration b: Expected value to be either true or false"),
            (
                &throttled,
                "foo",
                "Invalid value [foo] for configuration t: t must be the literal '*' or a list of replicas in the following \
                 format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            ),
        ] {
            assert_eq!(row.check(value), Err(why.to_owned()));
        }
        for (row, value) in [
            (&SIZE, "1048576 "),
            (&TIME, "+5"),
            (&gzip, "-1"),
            (&ratio, "1e-1"),
            (&policy, ""),
            (&policy, "compact, delete"),
            (&throttled, "0:1,1:2"),
            (&throttled, "*"),
            (&flag, "TRUE"),
        ] {
            assert_eq!(row.check(value), Ok(()), "{value} for {}", row.name);
        }
    }
}
