//! What a produced batch must satisfy before a log sees it.
//!
//! Pure. Owns the order of the checks, which is Kafka's: the first rule that is broken gives the code. Not the checks of the
//! batch itself (`protocol::batch`) nor of producer ids (`log`). Always: a batch that passes holds exactly the bytes its
//! header announces. Inner records are read only where the topic needs it, or to name those that make the header's times
//! illegal; Kafka reads them always (README, differences).
//! Source: Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`; 4.4 as measured.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use bytes::BytesMut;

use crate::config::{TopicSettings, ValidateRecords};
use crate::protocol::ErrorCode;
use crate::protocol::batch::{self, BatchError, BatchInfo, Codec, RecordFault, RecordRules, RecordsError};
use crate::server::errors;
use crate::types::TimestampMs;

/// First version of Produce that may carry zstd (KIP-110).
const ZSTD_FROM: i16 = 7;

/// No timestamp: always legal.
const NO_TIMESTAMP: TimestampMs = -1;

/// A batch that passed.
#[derive(Debug)]
pub(super) struct Accepted {
    /// Its bytes.
    pub batch: BytesMut,
    /// Its header.
    pub info: BatchInfo,
    /// Bytes copied in user space to re-encode it.
    pub copied: usize,
}

/// Why a batch is answered without asking its log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What the client is told.
    pub code: ErrorCode,
    /// In words.
    pub message: Option<Cow<'static, str>>,
    /// Which records, if it is about single ones.
    pub faults: Vec<RecordFault>,
}

impl Refusal {
    /// By code alone.
    pub(super) fn of(code: ErrorCode) -> Self {
        Self { code, message: None, faults: Vec::new() }
    }

    /// With a reason.
    pub(super) fn because(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: Some(message.into()), faults: Vec::new() }
    }
}

impl From<RecordsError> for Refusal {
    fn from(error: RecordsError) -> Self {
        let (code, message) = (errors::records(&error), error.to_string());
        let faults = match error {
            RecordsError::Refused(faults) => faults,
            RecordsError::Batch(_) => Vec::new(),
        };
        Self { faults, ..Self::because(code, message) }
    }
}

impl From<BatchError> for Refusal {
    fn from(error: BatchError) -> Self {
        RecordsError::from(error).into()
    }
}

/// Checks what one partition of a produce request of `version` brought, against the settings of its topic.
pub(super) fn check(
    bytes: BytesMut,
    settings: &TopicSettings,
    validate: ValidateRecords,
    version: i16,
    now: TimestampMs,
) -> Result<Accepted, Refusal> {
    let (mut batch, mut info) = check_batch(bytes, settings, version)?;
    let timestamps = legal_timestamps(&info, settings, now)?;
    let deep = match validate {
        ValidateRecords::All => true,
        ValidateRecords::Compacted => settings.compact,
        ValidateRecords::None => false,
    };
    let claimed = [info.base_timestamp, info.max_timestamp];
    let legal = claimed.iter().all(|time| *time == NO_TIMESTAMP || timestamps.contains(time));
    let decompressed_max = settings.max_decompressed_message_bytes as usize;
    if deep || !legal {
        let rules = RecordRules { keys_required: settings.compact, timestamps };
        let facts = batch::validate_records(&batch, &rules, decompressed_max)?;
        if facts.max_timestamp != info.max_timestamp && !info.log_append_time {
            batch::set_max_timestamp(&mut batch, facts.max_timestamp);
            info = batch::parse_header(&batch)?;
        }
    }
    if info.log_append_time {
        // On a topic of CreateTime: the times are the client's all the same.
        batch::set_create_time(&mut batch);
        info = batch::parse_header(&batch)?;
    }
    let mut copied = 0;
    if let Some((codec, level)) = settings.compression
        && info.codec != Some(codec)
    {
        copied = batch.len();
        batch = batch::recompress(&batch, codec, level, decompressed_max)?;
        info = batch::parse_header(&batch)?;
        check_size(info.bytes, settings)?;
    }
    Ok(Accepted { batch, info, copied })
}

/// What Kafka judges before the acks, the topic's role and its settings: that there is one batch, of a codec that a produce
/// request of `version` may carry. How long it is.
pub(super) fn check_shape(bytes: &[u8], version: i16) -> Result<u32, Refusal> {
    let (announced, codec) = batch::announced(bytes)?;
    let is_whole = announced as usize <= bytes.len();
    if is_whole && codec == Some(Codec::Zstd) && version < ZSTD_FROM {
        let message = "zstd needs produce requests of version 7 or later";
        return Err(Refusal::because(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message));
    }
    batch::check_alone(bytes)?;
    Ok(announced)
}

fn check_batch(mut bytes: BytesMut, settings: &TopicSettings, version: i16) -> Result<(BytesMut, BatchInfo), Refusal> {
    // The size before the checksum, as in Kafka: a client splits a batch that is too large, but gives up on a corrupt one.
    check_size(check_shape(&bytes, version)?, settings)?;
    let info = batch::check_produced(&bytes)?;
    bytes.truncate(info.bytes as usize);
    if info.codec.is_none() {
        return Err(BatchError::Unreadable("unknown compression codec").into());
    }
    if info.transactional {
        // No transaction was begun with this broker: none can be.
        return Err(Refusal::because(ErrorCode::INVALID_TXN_STATE, "transactions are not served"));
    }
    Ok((bytes, info))
}

fn check_size(bytes: u32, settings: &TopicSettings) -> Result<(), Refusal> {
    if bytes <= settings.max_message_bytes {
        return Ok(());
    }
    Err(Refusal::because(
        ErrorCode::MESSAGE_TOO_LARGE,
        format!("the batch has {bytes} bytes; max.message.bytes is {}", settings.max_message_bytes),
    ))
}

/// The timestamps the topic takes now. A LogAppendTime topic overwrites them, but does not let a client pretend it did.
fn legal_timestamps(
    info: &BatchInfo,
    settings: &TopicSettings,
    now: TimestampMs,
) -> Result<RangeInclusive<TimestampMs>, Refusal> {
    if !settings.log_append_time {
        return Ok(
            now.saturating_sub(settings.timestamp_before_max_ms)..=now.saturating_add(settings.timestamp_after_max_ms)
        );
    }
    if info.log_append_time {
        return Err(Refusal::because(ErrorCode::INVALID_TIMESTAMP, "only the broker sets LogAppendTime"));
    }
    Ok(TimestampMs::MIN..=TimestampMs::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log::LogSettings;
    use crate::protocol::batch::{Builder, BuilderOptions, Records};
    use crate::types::AckClass;

    const NOW: TimestampMs = 1_700_000_000_000;
    const LATEST: i16 = 11;

    fn settings() -> TopicSettings {
        TopicSettings {
            log: LogSettings {
                ack_class: AckClass::Written,
                segment_bytes: 1 << 30,
                segment_ms: Duration::from_secs(604_800),
                segment_jitter_ms: Duration::ZERO,
                index_bytes_max: 10 << 20,
                index_interval_bytes: 4096,
                retention_ms: None,
                retention_bytes: None,
                delete_policy: true,
                file_delete_delay: Duration::ZERO,
                producer_expiry: Duration::from_secs(86_400),
                flush_interval: Duration::from_secs(1),
                preallocate_bytes: 0,
                prewrite_bytes_max: 0,
            },
            max_message_bytes: 1 << 20,
            max_decompressed_message_bytes: 1 << 26,
            compression: None,
            log_append_time: false,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compact: false,
        }
    }

    fn batch_of(codec: Codec, records: &[(TimestampMs, Option<&[u8]>)]) -> BytesMut {
        let options = BuilderOptions { codec, level: None, producer: None, transactional: false, control: false };
        let mut builder = Builder::new(options);
        for (timestamp, key) in records {
            builder.push(*timestamp, *key, Some(b"value"), &[]);
        }
        builder.finish()
    }

    fn code_of(bytes: BytesMut, settings: &TopicSettings, version: i16) -> ErrorCode {
        match check(bytes, settings, ValidateRecords::Compacted, version, NOW) {
            Ok(_) => ErrorCode::NONE,
            Err(refusal) => refusal.code,
        }
    }

    #[test]
    fn a_good_batch_passes_untouched_and_what_follows_it_is_dropped() {
        let batch = batch_of(Codec::None, &[(NOW, None)]);
        let mut with_garbage = batch.clone();
        with_garbage.extend_from_slice(b"garbage");
        let accepted = check(with_garbage, &settings(), ValidateRecords::None, LATEST, NOW).unwrap();
        assert_eq!(accepted.batch, batch);
        assert_eq!((accepted.info.bytes as usize, accepted.copied), (batch.len(), 0));
    }

    #[test]
    fn damage_answers_the_code_kafka_answers() {
        let good = batch_of(Codec::None, &[(NOW, None)]);
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let mut old_format = good.clone();
        old_format[16] = 1;
        let mut negative_count = good.clone();
        negative_count[57] = 0xff;
        let mut future_format = good.clone();
        future_format[16] = 3;
        let mut placed = good.clone();
        placed[7] = 5;
        let mut twice = good.clone();
        twice.extend_from_slice(&good);
        let cut = BytesMut::from(&good[..good.len() - 1]);
        let cases = [
            (flipped, ErrorCode::CORRUPT_MESSAGE),
            (old_format, ErrorCode::INVALID_RECORD),
            (future_format, ErrorCode::CORRUPT_MESSAGE),
            (negative_count, ErrorCode::CORRUPT_MESSAGE),
            (placed, ErrorCode::INVALID_RECORD),
            (twice, ErrorCode::INVALID_RECORD),
            (cut, ErrorCode::INVALID_RECORD),
            (BytesMut::new(), ErrorCode::INVALID_RECORD),
        ];
        for (bytes, code) in cases {
            assert_eq!(code_of(bytes, &settings(), LATEST), code);
        }
    }

    #[test]
    fn size_is_judged_before_the_checksum() {
        let mut batch = batch_of(Codec::None, &[(NOW, None)]);
        *batch.last_mut().unwrap() ^= 1;
        let small = TopicSettings { max_message_bytes: 10, ..settings() };
        assert_eq!(code_of(batch.clone(), &small, LATEST), ErrorCode::MESSAGE_TOO_LARGE);
        batch.extend_from_within(..);
        assert_eq!(code_of(batch, &small, LATEST), ErrorCode::INVALID_RECORD, "but behind the number of batches");
    }

    #[test]
    fn zstd_needs_version_seven() {
        let mut batch = batch_of(Codec::Zstd, &[(NOW, None)]);
        assert_eq!(code_of(batch.clone(), &settings(), 6), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
        assert_eq!(code_of(batch.clone(), &settings(), 7), ErrorCode::NONE);
        *batch.last_mut().unwrap() ^= 1;
        let small = TopicSettings { max_message_bytes: 10, ..settings() };
        assert_eq!(
            code_of(batch, &small, 6),
            ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            "whatever else is wrong with it"
        );
    }

    #[test]
    fn timestamps_are_bounded_unless_there_is_none() {
        let hour = 3_600_000;
        let bounded = TopicSettings { timestamp_before_max_ms: hour, ..settings() };
        for (time, code) in [
            (NOW, ErrorCode::NONE),
            (NO_TIMESTAMP, ErrorCode::NONE),
            (NOW - hour, ErrorCode::NONE),
            (NOW - hour - 1, ErrorCode::INVALID_TIMESTAMP),
            (NOW + hour, ErrorCode::NONE),
            (NOW + hour + 1, ErrorCode::INVALID_TIMESTAMP),
        ] {
            assert_eq!(code_of(batch_of(Codec::None, &[(time, None)]), &bounded, LATEST), code, "{time}");
        }
        assert_eq!(code_of(batch_of(Codec::None, &[(0, None)]), &settings(), LATEST), ErrorCode::NONE);
    }

    #[test]
    fn compacted_topics_name_the_records_without_keys() {
        let compacted = TopicSettings { compact: true, ..settings() };
        let batch = batch_of(Codec::Gzip, &[(NOW, Some(b"k")), (NOW, None)]);
        let refusal = check(batch, &compacted, ValidateRecords::Compacted, LATEST, NOW).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::INVALID_RECORD);
        assert_eq!(refusal.faults.iter().map(|fault| fault.index).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn another_codec_is_applied_and_the_records_stay() {
        let zstd = TopicSettings { compression: Some((Codec::Zstd, None)), ..settings() };
        let batch = batch_of(Codec::Lz4, &[(NOW, Some(b"k")), (NOW + 1, None)]);
        let accepted = check(batch, &zstd, ValidateRecords::None, LATEST, NOW).unwrap();
        assert_eq!(accepted.info.codec, Some(Codec::Zstd));
        assert!(accepted.copied > 0);
        let records = Records::open(&accepted.batch, 1 << 20).unwrap();
        let keys: Vec<_> = records.iter().map(|record| record.unwrap().key.map(<[u8]>::to_vec)).collect();
        assert_eq!(keys, [Some(b"k".to_vec()), None]);
    }

    #[test]
    fn only_the_broker_sets_log_append_time() {
        let stamped = TopicSettings { log_append_time: true, ..settings() };
        let mut batch = batch_of(Codec::None, &[(0, None)]);
        assert_eq!(code_of(batch.clone(), &stamped, LATEST), ErrorCode::NONE);
        batch::set_log_append_time(&mut batch, NOW);
        assert_eq!(code_of(batch.clone(), &stamped, LATEST), ErrorCode::INVALID_TIMESTAMP);
        let accepted = check(batch, &settings(), ValidateRecords::None, LATEST, NOW).unwrap();
        assert!(!accepted.info.log_append_time, "on other topics the mark is taken off");
        assert_eq!(batch::check(&accepted.batch), Ok(accepted.info));
    }

    #[test]
    fn records_out_of_time_are_named_without_being_asked_for() {
        let batch = batch_of(Codec::Lz4, &[(NOW, None), (i64::MAX, None), (NOW, None)]);
        let refusal = check(batch, &settings(), ValidateRecords::None, LATEST, NOW).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::INVALID_TIMESTAMP);
        let late = RecordFault { index: 1, kind: batch::RecordFaultKind::Timestamp(i64::MAX) };
        assert_eq!(refusal.faults, [late]);
    }
}
