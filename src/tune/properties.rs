//! The pick in the words of the clients people use: Java, librdkafka, franz-go.
//!
//! Pure. Owns the names. Always true: only what was searched is written; what was held fixed stays out, so that pasting changes
//! nothing else. Sources: Kafka's ProducerConfig and ConsumerConfig; librdkafka's CONFIGURATION.md; franz-go's kgo options.

use super::space::{Knob, Space};

/// librdkafka's `batch.num.messages` unless told otherwise: a batch is full at this many records, whatever its bytes.
const LIBRDKAFKA_BATCH_RECORDS: f64 = 10_000.0;
/// librdkafka's default `message.max.bytes`, which bounds a batch as well.
const LIBRDKAFKA_MESSAGE_MAX: u64 = 1_000_000;

/// Settings of one client, ready to paste.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Paste {
    /// `Java`, `librdkafka`, `franz-go`.
    pub client: &'static str,
    /// Lines.
    pub text: String,
}

fn searched(space: &Space, point: &[usize]) -> Vec<(Knob, u64)> {
    space.factors.iter().zip(point).map(|(factor, level)| (factor.knob, factor.levels[*level])).collect()
}

/// Java's producer and consumer; also what `ringlog` and its library read.
pub fn java(space: &Space, point: &[usize]) -> String {
    let mut text = String::new();
    for (knob, value) in searched(space, point) {
        if knob != Knob::Partitions {
            text.push_str(&format!("{}={}\n", knob.name(), knob.word(value)));
        }
    }
    // A batch larger than a request may be is cut to the request.
    let batch = space.value(point, Knob::BatchSize);
    if batch + 4096 > 1_048_576 {
        text.push_str(&format!("max.request.size={}\n", batch + 4096));
    }
    text
}

fn librdkafka(space: &Space, point: &[usize], records_per_batch: f64) -> String {
    let mut text = String::new();
    for (knob, value) in searched(space, point) {
        let name = match knob {
            Knob::Partitions => continue,
            Knob::InFlight => "max.in.flight.requests.per.connection",
            Knob::Compression => "compression.codec",
            Knob::Linger => "queue.buffering.max.ms",
            Knob::BatchSize | Knob::FetchMinBytes => knob.name(),
        };
        text.push_str(&format!("{name}={}\n", knob.word(value)));
        if knob == Knob::BatchSize && value > LIBRDKAFKA_MESSAGE_MAX {
            text.push_str(&format!("message.max.bytes={}\n", value + 4096));
        }
    }
    if records_per_batch * 1.5 > LIBRDKAFKA_BATCH_RECORDS {
        text.push_str(&format!("batch.num.messages={}\n", (records_per_batch * 2.0).ceil()));
    }
    text
}

fn franz_go(space: &Space, point: &[usize]) -> String {
    let mut text = String::new();
    for (knob, value) in searched(space, point) {
        let line = match knob {
            Knob::BatchSize => format!("kgo.ProducerBatchMaxBytes({value}),"),
            Knob::Linger => format!("kgo.ProducerLinger({value} * time.Millisecond),"),
            Knob::Compression => {
                let codec = match knob.word(value).as_str() {
                    "lz4" => "Lz4",
                    "zstd" => "Zstd",
                    "snappy" => "Snappy",
                    "gzip" => "Gzip",
                    _ => "No",
                };
                format!("kgo.ProducerBatchCompression(kgo.{codec}Compression()),")
            }
            // With idempotence on, kgo chooses five by itself and the option is not heeded.
            Knob::InFlight => {
                format!("kgo.MaxProduceRequestsInflightPerBroker({value}), // heeded only without idempotence")
            }
            Knob::FetchMinBytes => format!("kgo.FetchMinBytes({value}),"),
            Knob::Partitions => continue,
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// All of them. `records_per_batch` as measured at the point: librdkafka counts records, too.
pub fn pastes(space: &Space, point: &[usize], records_per_batch: f64) -> Vec<Paste> {
    vec![
        Paste { client: "Java", text: java(space, point) },
        Paste { client: "librdkafka", text: librdkafka(space, point, records_per_batch) },
        Paste { client: "franz-go", text: franz_go(space, point) },
    ]
}

/// A file for `--write`: the sentences as comments, then Java's names.
pub fn file(space: &Space, point: &[usize], sentences: &[String]) -> String {
    let mut text = String::new();
    for sentence in sentences {
        text.push_str(&format!("# {}\n", sentence.replace(['\n', '\r'], " ")));
    }
    text.push_str(&java(space, point));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Space {
        Space::new(&Knob::ALL, 6).unwrap()
    }

    fn point() -> Vec<usize> {
        all().nearest(&[
            (Knob::BatchSize, 1 << 20),
            (Knob::Linger, 2),
            (Knob::Compression, 2),
            (Knob::FetchMinBytes, 65_536),
        ])
    }

    #[test]
    fn each_client_gets_its_own_words() {
        let pastes = pastes(&all(), &point(), 900.0);
        assert_eq!(
            pastes[0].text,
            "batch.size=1048576\nlinger.ms=2\ncompression.type=zstd\nmax.in.flight.requests.per.connection=5\nfetch.min.bytes=65536\nmax.request.size=1052672\n"
        );
        assert_eq!(
            pastes[1].text,
            "batch.size=1048576\nmessage.max.bytes=1052672\nqueue.buffering.max.ms=2\ncompression.codec=zstd\nmax.in.flight.requests.per.connection=5\nfetch.min.bytes=65536\n"
        );
        assert!(
            pastes[2]
                .text
                .starts_with("kgo.ProducerBatchMaxBytes(1048576),\nkgo.ProducerLinger(2 * time.Millisecond),\n")
        );
    }

    #[test]
    fn librdkafka_counts_records_too() {
        assert!(librdkafka(&all(), &point(), 9_000.0).contains("batch.num.messages=18000"));
    }

    #[test]
    fn what_the_clients_read_back_is_what_was_written() {
        use crate::client::{ConsumerSettings, ProducerSettings, Settings as _};
        let space = Space::new(&[Knob::BatchSize, Knob::Linger, Knob::Compression, Knob::InFlight], 1).unwrap();
        let point = space.nearest(&[(Knob::BatchSize, 1 << 20), (Knob::Linger, 20), (Knob::Compression, 1)]);
        for paste in &pastes(&space, &point, 10.0)[..2] {
            let text = format!("bootstrap.servers=localhost:1\n{}", paste.text);
            let settings = ProducerSettings::builder().properties(text.as_bytes(), "pasted").build();
            let settings = settings.unwrap_or_else(|error| panic!("{}: {error}", paste.client));
            assert_eq!((settings.batch_size, settings.linger.as_millis()), (1 << 20, 20), "{}", paste.client);
        }
        let fetch = Space::new(&[Knob::FetchMinBytes], 1).unwrap();
        let text = format!("bootstrap.servers=localhost:1\n{}", java(&fetch, &[2]));
        assert_eq!(
            ConsumerSettings::builder().properties(text.as_bytes(), "pasted").build().unwrap().fetch_min_bytes,
            16_384
        );
    }

    #[test]
    fn a_sentence_cannot_break_out_of_its_comment() {
        let text = file(&all(), &point(), &["one\nacks=0".to_owned()]);
        assert!(text.starts_with("# one acks=0\n"));
    }
}
