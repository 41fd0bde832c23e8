//! Records as programs see them: those to be produced, those consumed, their headers, and how values become bytes.
//!
//! Pure. Owns plain data and the serializer and interceptor traits. Does not own how records lie on the wire
//! (`protocol::batch`). Always true: key, value and header values keep "null" apart from "empty".
//! Source: Kafka's `ProducerRecord`, `ConsumerRecord` and its serializers, whose bytes ours equal; KIP-42 (interceptors),
//! KIP-82 (headers).

use std::fmt;

use bytes::Bytes;

use super::delivery::ProduceError;
use crate::types::{LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicName};

/// One header: a name and a value that may be null.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The name; names may repeat within a record.
    pub name: Box<str>,
    /// The value; `None` is null.
    pub value: Option<Bytes>,
}

/// The headers of one record, in their order. No headers take no heap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one at the end.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Option<Bytes>) {
        self.0.push(Header { name: name.into(), value });
    }

    /// The last header of that name, as Kafka's `lastHeader`.
    pub fn last(&self, name: &str) -> Option<&Header> {
        self.0.iter().rev().find(|header| &*header.name == name)
    }

    /// Takes every header of that name away.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|header| &*header.name != name);
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(headers: I) -> Self {
        Self(headers.into_iter().collect())
    }
}

/// What a record's timestamp says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampKind {
    /// The producer's time.
    Create,
    /// The broker's clock at the append.
    LogAppend,
}

impl TimestampKind {
    /// Kafka's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateTime",
            Self::LogAppend => "LogAppendTime",
        }
    }
}

/// A record to be produced. Cloning it copies no payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerRecord {
    /// Where to.
    pub topic: TopicName,
    /// `None`: the partitioner chooses.
    pub partition: Option<PartitionIndex>,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null: a tombstone in compacted topics.
    pub value: Option<Bytes>,
    /// In the order given.
    pub headers: Headers,
    /// `None`: the time of the send.
    pub timestamp: Option<TimestampMs>,
}

impl ProducerRecord {
    /// An empty record for that topic: no key, null value, no headers, stamped when it is sent.
    pub fn to(topic: impl Into<TopicName>) -> Self {
        Self { topic: topic.into(), partition: None, key: None, value: None, headers: Headers::new(), timestamp: None }
    }

    /// With that key.
    #[must_use]
    pub fn key(mut self, key: impl Payload) -> Self {
        self.key = key.into_payload();
        self
    }

    /// With that value.
    #[must_use]
    pub fn value(mut self, value: impl Payload) -> Self {
        self.value = value.into_payload();
        self
    }

    /// To that partition, whatever the partitioner thinks.
    #[must_use]
    pub fn partition(mut self, partition: PartitionIndex) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Stamped so, in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(mut self, timestamp: TimestampMs) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Box<str>>, value: impl Payload) -> Self {
        self.headers.push(name, value.into_payload());
        self
    }
}

/// A record to be produced whose parts are borrowed: nothing but the copy into the batch is made of it.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// Where to.
    pub topic: &'a str,
    /// `None`: the partitioner chooses.
    pub partition: Option<PartitionIndex>,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null.
    pub value: Option<&'a [u8]>,
    /// In their order.
    pub headers: &'a [Header],
    /// `None`: the time of the send.
    pub timestamp: Option<TimestampMs>,
}

impl<'a> RecordRef<'a> {
    /// A record of a value only.
    pub fn new(topic: &'a str, value: &'a [u8]) -> Self {
        Self { topic, partition: None, key: None, value: Some(value), headers: &[], timestamp: None }
    }

    /// With that key.
    #[must_use]
    pub fn key(mut self, key: &'a [u8]) -> Self {
        self.key = Some(key);
        self
    }

    /// To that partition.
    #[must_use]
    pub fn partition(mut self, partition: PartitionIndex) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Stamped so, in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(mut self, timestamp: TimestampMs) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// The same with parts of its own.
    pub fn to_record(&self) -> ProducerRecord {
        ProducerRecord {
            topic: self.topic.into(),
            partition: self.partition,
            key: self.key.map(Bytes::copy_from_slice),
            value: self.value.map(Bytes::copy_from_slice),
            headers: self.headers.iter().cloned().collect(),
            timestamp: self.timestamp,
        }
    }
}

impl<'a> From<&'a ProducerRecord> for RecordRef<'a> {
    fn from(record: &'a ProducerRecord) -> Self {
        Self {
            topic: &record.topic,
            partition: record.partition,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &record.headers.0,
            timestamp: record.timestamp,
        }
    }
}

/// Where a produced record lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordMetadata {
    /// Its topic.
    pub topic: TopicName,
    /// Its partition.
    pub partition: PartitionIndex,
    /// `None` when the broker did not say: acks=0, or a duplicate too old for it to remember where.
    pub offset: Option<Offset>,
    /// The record's time: the broker's where the topic stamps records itself, else the producer's.
    pub timestamp: TimestampMs,
}

impl fmt::Display for RecordMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{}-{}@{offset}", self.topic, self.partition),
            None => write!(f, "{}-{}", self.topic, self.partition),
        }
    }
}

/// A consumed record. Its payload is shared with the batch it came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where it was read.
    pub topic: TopicName,
    /// Where it was read.
    pub partition: PartitionIndex,
    /// Its place in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970; negative values are the producer's own.
    pub timestamp: TimestampMs,
    /// Whose time that is.
    pub timestamp_kind: TimestampKind,
    /// `None` is null.
    pub key: Option<Bytes>,
    /// `None` is null.
    pub value: Option<Bytes>,
    /// In their order.
    pub headers: Headers,
    /// Of the batch, where the broker told it.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What can be a key, a value or a header's value. The bytes are those of Kafka's own serializers: text as UTF-8, numbers
/// big-endian; `None` is null.
pub trait Payload {
    /// Its bytes; `None` is null.
    fn into_payload(self) -> Option<Bytes>;
}

impl Payload for Bytes {
    fn into_payload(self) -> Option<Bytes> {
        Some(self)
    }
}

impl Payload for Vec<u8> {
    fn into_payload(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl Payload for String {
    fn into_payload(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl Payload for &str {
    fn into_payload(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.as_bytes()))
    }
}

impl Payload for &[u8] {
    fn into_payload(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self))
    }
}

impl<const N: usize> Payload for &[u8; N] {
    fn into_payload(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self))
    }
}

impl<T: Payload> Payload for Option<T> {
    fn into_payload(self) -> Option<Bytes> {
        self.and_then(T::into_payload)
    }
}

macro_rules! number_payloads {
    ($($number:ty),*) => {$(
        impl Payload for $number {
            fn into_payload(self) -> Option<Bytes> {
                Some(Bytes::copy_from_slice(&self.to_be_bytes()))
            }
        }

        impl Deserializer<$number> for Plain {
            fn deserialize(&self, _: &str, _: &Headers, payload: Option<&[u8]>) -> Result<$number, SerdeError> {
                let payload = payload.ok_or_else(|| SerdeError::new("null is no number"))?;
                let bytes = payload.try_into().map_err(|_| {
                    SerdeError::new(format!("{} bytes are no {}", payload.len(), stringify!($number)))
                })?;
                Ok(<$number>::from_be_bytes(bytes))
            }
        }
    )*};
}

number_payloads!(i16, i32, i64, u16, u32, u64, f32, f64);

/// A value could not be turned into bytes, or bytes not into a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct SerdeError {
    reason: Box<str>,
}

impl SerdeError {
    /// For that reason.
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Turns values of a program into payloads, for a topic; it may add headers.
pub trait Serializer<T: ?Sized>: Send + Sync {
    /// The bytes of `value`; `None` is null. Errors: the value has no form in this format.
    fn serialize(&self, topic: &str, headers: &mut Headers, value: &T) -> Result<Option<Bytes>, SerdeError>;
}

/// The other way round.
pub trait Deserializer<T>: Send + Sync {
    /// The value. Errors: the bytes are none of this format.
    fn deserialize(&self, topic: &str, headers: &Headers, payload: Option<&[u8]>) -> Result<T, SerdeError>;
}

/// Kafka's own serializers: bytes as they are, text as UTF-8, numbers big-endian.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl<T: Clone + Payload> Serializer<T> for Plain {
    fn serialize(&self, _: &str, _: &mut Headers, value: &T) -> Result<Option<Bytes>, SerdeError> {
        Ok(value.clone().into_payload())
    }
}

impl Serializer<str> for Plain {
    fn serialize(&self, _: &str, _: &mut Headers, value: &str) -> Result<Option<Bytes>, SerdeError> {
        Ok(value.into_payload())
    }
}

impl Serializer<[u8]> for Plain {
    fn serialize(&self, _: &str, _: &mut Headers, value: &[u8]) -> Result<Option<Bytes>, SerdeError> {
        Ok(value.into_payload())
    }
}

impl Deserializer<Option<Bytes>> for Plain {
    fn deserialize(&self, _: &str, _: &Headers, payload: Option<&[u8]>) -> Result<Option<Bytes>, SerdeError> {
        Ok(payload.map(Bytes::copy_from_slice))
    }
}

impl Deserializer<String> for Plain {
    fn deserialize(&self, _: &str, _: &Headers, payload: Option<&[u8]>) -> Result<String, SerdeError> {
        let payload = payload.ok_or_else(|| SerdeError::new("null is no text"))?;
        String::from_utf8(payload.to_vec()).map_err(|_| SerdeError::new("not UTF-8"))
    }
}

/// Looks at records on their way out and at what became of them (KIP-42). Called on whatever thread sends or answers, so
/// it must be quick.
pub trait ProducerInterceptor: Send + Sync {
    /// Before the partitioner sees the record; what is given back is sent.
    fn on_send(&self, record: ProducerRecord) -> ProducerRecord {
        record
    }

    /// The record was acknowledged, or failed.
    fn on_acknowledgement(&self, outcome: Result<&RecordMetadata, &ProduceError>) {
        let _ = outcome;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text_have_the_bytes_of_kafkas_serializers() {
        let record = ProducerRecord::to("t").key(1_i32).value(-2_i64).header("h", "é").header("n", None::<&str>);
        assert_eq!(record.key.as_deref(), Some(&[0, 0, 0, 1][..]));
        assert_eq!(record.value.as_deref(), Some(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe][..]));
        assert_eq!(record.headers.last("h").and_then(|header| header.value.as_deref()), Some("é".as_bytes()));
        assert_eq!(record.headers.last("n"), Some(&Header { name: "n".into(), value: None }));
        assert_eq!(Plain.deserialize("t", &Headers::new(), Some(&[0, 7])), Ok(7_i16));
    }

    #[test]
    fn what_is_no_number_or_text_is_refused() {
        let none = Headers::new();
        assert_eq!(
            <Plain as Deserializer<i32>>::deserialize(&Plain, "t", &none, Some(&[1])),
            Err(SerdeError::new("1 bytes are no i32"))
        );
        assert!(<Plain as Deserializer<i64>>::deserialize(&Plain, "t", &none, None).is_err());
        assert!(<Plain as Deserializer<String>>::deserialize(&Plain, "t", &none, Some(&[0xff])).is_err());
    }

    #[test]
    fn a_borrowed_record_and_its_copy_are_the_same() {
        let record = ProducerRecord::to("t").key("k").header("a", "1").header("a", "2").timestamp(5);
        assert_eq!(RecordRef::from(&record).to_record(), record);
        assert_eq!(record.headers.last("a").and_then(|header| header.value.as_deref()), Some(&b"2"[..]));
        let mut headers = record.headers;
        headers.remove("a");
        assert!(headers.is_empty());
    }
}
