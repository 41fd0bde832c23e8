//! How `kafka-console-consumer` writes a record.
//!
//! Pure. Owns the formatter's settings, the order of the fields, and the deserializers. Source: Kafka 4.4's DefaultMessageFormatter,
//! asked: timestamp, partition, offset, delivery, epoch, headers, key, value.

use crate::cli::offsets_decoder::decoded;
use crate::client::TimestampKind;
use crate::client::consumer::RecordView;
use crate::types::TopicPartition;

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Short,
    Integer,
    Long,
    Float,
    Double,
}

impl Kind {
    /// By the name of a class, with or without its package.
    fn parse(class: &str) -> Result<Self, String> {
        let name = class.strip_prefix("org.apache.kafka.common.serialization.").unwrap_or(class);
        Ok(match name {
            "StringDeserializer" | "ByteArrayDeserializer" | "ByteBufferDeserializer" | "BytesDeserializer" => {
                Self::Text
            }
            "ShortDeserializer" => Self::Short,
            "IntegerDeserializer" => Self::Integer,
            "LongDeserializer" => Self::Long,
            "FloatDeserializer" => Self::Float,
            "DoubleDeserializer" => Self::Double,
            _ => return Err(class.to_owned()),
        })
    }

    fn put(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        fn sized<const N: usize>(bytes: &[u8], name: &str) -> Result<[u8; N], String> {
            bytes.try_into().map_err(|_| {
                format!("org.apache.kafka.common.errors.SerializationException: Size of data received by {name}Deserializer is not {N}")
            })
        }
        let text = match self {
            Self::Text => {
                out.extend_from_slice(bytes);
                return Ok(());
            }
            Self::Short => i16::from_be_bytes(sized(bytes, "Short")?).to_string(),
            Self::Integer => i32::from_be_bytes(sized(bytes, "Integer")?).to_string(),
            Self::Long => i64::from_be_bytes(sized(bytes, "Long")?).to_string(),
            Self::Float => decimal(f32::from_be_bytes(sized(bytes, "Float")?)),
            Self::Double => decimal(f64::from_be_bytes(sized(bytes, "Double")?)),
        };
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// As Java prints numbers: always with a fraction, and with a power of ten from 10^7 on and below 10^-3.
fn decimal<N: std::fmt::Display + std::fmt::LowerExp>(number: N) -> String {
    let fraction = |digits: &str| if digits.contains('.') { digits.to_owned() } else { format!("{digits}.0") };
    let spelled = format!("{number:e}");
    match spelled.split_once('e').map(|(digits, power)| (digits, power.parse::<i32>())) {
        Some((_, Ok(-3..7))) => fraction(&number.to_string()),
        Some((digits, Ok(power))) => format!("{}E{power}", fraction(digits)),
        _ => spelled.replace("inf", "Infinity"),
    }
}

/// Writes records.
#[derive(Clone, Debug)]
pub(super) enum Formatter {
    /// Kafka's default.
    Default(Box<Look>),
    /// Nothing is written.
    Nothing,
    /// Keys and values of `__consumer_offsets` that are offsets, as JSON.
    Offsets,
}

/// The settings of the default formatter.
#[derive(Clone, Debug)]
pub(super) struct Look {
    timestamp: bool,
    key: bool,
    value: bool,
    partition: bool,
    offset: bool,
    epoch: bool,
    delivery: bool,
    headers: bool,
    key_separator: Vec<u8>,
    line_separator: Vec<u8>,
    headers_separator: Vec<u8>,
    null_literal: Vec<u8>,
    key_kind: Kind,
    value_kind: Kind,
    header_kind: Kind,
}

impl Formatter {
    /// By the name of a class, with its settings. The error is the name that is not known.
    pub(super) fn new(class: Option<&str>, properties: &[(String, String)]) -> Result<Self, String> {
        let package = "org.apache.kafka.tools.consumer.";
        match class.map(|class| class.strip_prefix(package).unwrap_or(if class.contains('.') { "" } else { class })) {
            None | Some("DefaultMessageFormatter" | "LoggingMessageFormatter") => {}
            Some("NoOpMessageFormatter") => return Ok(Self::Nothing),
            Some("OffsetsMessageFormatter") => return Ok(Self::Offsets),
            Some(_) => return Err(class.unwrap_or_default().to_owned()),
        }
        let last = |key: &str| properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let flag = |key: &str| last(key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        let bytes = |key: &str, default: &str| last(key).unwrap_or(default).as_bytes().to_vec();
        let kind = |key: &str| last(key).map_or(Ok(Kind::Text), Kind::parse);
        Ok(Self::Default(Box::new(Look {
            timestamp: flag("print.timestamp"),
            key: flag("print.key"),
            value: last("print.value").is_none() || flag("print.value"),
            partition: flag("print.partition"),
            offset: flag("print.offset"),
            epoch: flag("print.epoch"),
            delivery: flag("print.delivery"),
            headers: flag("print.headers"),
            key_separator: bytes("key.separator", "\t"),
            line_separator: bytes("line.separator", "\n"),
            headers_separator: bytes("headers.separator", ","),
            null_literal: bytes("null.literal", "null"),
            key_kind: kind("key.deserializer")?,
            value_kind: kind("value.deserializer")?,
            header_kind: kind("headers.deserializer")?,
        })))
    }

    /// Writes one record. The error is what a deserializer says.
    pub(super) fn write(
        &self,
        place: &TopicPartition,
        kind: TimestampKind,
        record: &RecordView<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Default(look) => look.write(place, kind, record, out),
            Self::Offsets => {
                if let Some(line) =
                    record.key.and_then(|key| decoded(key, record.value).ok()).and_then(|both| both.as_offset())
                {
                    out.extend_from_slice(line.as_bytes());
                    out.push(b'\n');
                }
                Ok(())
            }
        }
    }
}

impl Look {
    fn write(
        &self,
        place: &TopicPartition,
        kind: TimestampKind,
        record: &RecordView<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let mut first = true;
        let mut begin = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut first) {
                out.extend_from_slice(&self.key_separator);
            }
        };
        if self.timestamp {
            begin(out);
            // Kafka's NO_TIMESTAMP is for batches older than version 2: here −1 is a time like any other.
            out.extend_from_slice(format!("{}:{}", kind.name(), record.timestamp).as_bytes());
        }
        if self.partition {
            begin(out);
            out.extend_from_slice(format!("Partition:{}", place.partition).as_bytes());
        }
        if self.offset {
            begin(out);
            out.extend_from_slice(format!("Offset:{}", record.offset).as_bytes());
        }
        // The tool itself never knows these two.
        if self.delivery {
            begin(out);
            out.extend_from_slice(b"Delivery:NOT_PRESENT");
        }
        if self.epoch {
            begin(out);
            out.extend_from_slice(b"Epoch:NOT_PRESENT");
        }
        if self.headers {
            begin(out);
            if record.headers.is_empty() {
                out.extend_from_slice(b"NO_HEADERS");
            }
            for (index, (name, value)) in record.headers.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(&self.headers_separator);
                }
                out.extend_from_slice(name.as_bytes());
                out.push(b':');
                self.put(*value, self.header_kind, out)?;
            }
        }
        if self.key {
            begin(out);
            self.put(record.key, self.key_kind, out)?;
        }
        if self.value {
            begin(out);
            self.put(record.value, self.value_kind, out)?;
        }
        if !first {
            out.extend_from_slice(&self.line_separator);
        }
        Ok(())
    }

    fn put(&self, bytes: Option<&[u8]>, kind: Kind, out: &mut Vec<u8>) -> Result<(), String> {
        match bytes {
            Some(bytes) => kind.put(bytes, out),
            None => {
                out.extend_from_slice(&self.null_literal);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Offset, PartitionIndex};

    fn written(properties: &[(&str, &str)], key: Option<&[u8]>, value: Option<&[u8]>) -> Result<String, String> {
        let owned: Vec<_> = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let formatter = Formatter::new(None, &owned)?;
        let record = RecordView {
            offset: Offset::new(3).unwrap(),
            timestamp: 1_796_006_556_052,
            key,
            value,
            headers: vec![("h1", Some(b"v1")), ("h2", None)],
        };
        let place = TopicPartition { topic: "s1".into(), partition: PartitionIndex::ZERO };
        let mut out = Vec::new();
        formatter.write(&place, TimestampKind::Create, &record, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_field_in_kafkas_order() {
        let all: Vec<(&str, &str)> = [
            "print.timestamp",
            "print.key",
            "print.offset",
            "print.partition",
            "print.headers",
            "print.epoch",
            "print.delivery",
        ]
        .into_iter()
        .map(|key| (key, "true"))
        .collect();
        assert_eq!(
            written(&all, Some(b"k1"), Some(b"v1")).unwrap(),
            "CreateTime:1796006556052\tPartition:0\tOffset:3\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th1:v1,h2:null\tk1\tv1\n"
        );
    }

    #[test]
    fn separators_and_nulls_can_be_chosen() {
        let properties = [
            ("null.literal", "NUL"),
            ("print.key", "true"),
            ("key.separator", ":"),
            ("line.separator", ";"),
            ("headers.separator", "|"),
            ("print.headers", "true"),
        ];
        assert_eq!(written(&properties, None, Some(b"a")).unwrap(), "h1:v1|h2:NUL:NUL:a;");
        assert_eq!(written(&[("print.value", "false")], None, Some(b"a")).unwrap(), "");
    }

    #[test]
    fn numbers_are_read_as_java_writes_them() {
        let long = [("value.deserializer", "org.apache.kafka.common.serialization.LongDeserializer")];
        assert_eq!(written(&long, None, Some(&7_i64.to_be_bytes())).unwrap(), "7\n");
        assert!(
            written(&long, None, Some(b"a"))
                .unwrap_err()
                .ends_with("Size of data received by LongDeserializer is not 8")
        );
        let float = [("value.deserializer", "org.apache.kafka.common.serialization.FloatDeserializer")];
        assert_eq!(written(&float, None, Some(&0.1_f32.to_be_bytes())).unwrap(), "0.1\n");
        let double = [("value.deserializer", "org.apache.kafka.common.serialization.DoubleDeserializer")];
        for (number, wanted) in
            [(3.0, "3.0\n"), (1e7, "1.0E7\n"), (-2.5e-4, "-2.5E-4\n"), (f64::INFINITY, "Infinity\n")]
        {
            assert_eq!(written(&double, None, Some(&f64::to_be_bytes(number))).unwrap(), wanted);
        }
        assert_eq!(written(&[("value.deserializer", "foo.Bar")], None, None).unwrap_err(), "foo.Bar");
    }

    #[test]
    fn classes_are_known_by_their_whole_name() {
        assert!(matches!(
            Formatter::new(Some("org.apache.kafka.tools.consumer.NoOpMessageFormatter"), &[]),
            Ok(Formatter::Nothing)
        ));
        assert_eq!(
            Formatter::new(Some("kafka.tools.NoOpMessageFormatter"), &[]).unwrap_err(),
            "kafka.tools.NoOpMessageFormatter"
        );
    }
}
